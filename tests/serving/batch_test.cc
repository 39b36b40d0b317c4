// Sequences that join and leave: each token is seen once at its position, prompts come in chunks, and nobody waits.
#include "serving/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "serving/admission.h"

namespace nlsplit {
namespace {

TEST(Batch, TakesPromptsInChunksBesideTheTokensOfOthers) {
  Batch batch({.slots = 2, .chunk = 4, .context = 32});
  batch.join({0}, 6, 3);
  BatchStep step = batch.step();
  EXPECT_EQ(step.execution, Execution::prefill);
  EXPECT_EQ(step.slots[0].tokens, 4);
  EXPECT_FALSE(step.slots[0].gives_token);
  EXPECT_EQ(step.slots[1].tokens, 0);
  step = batch.step();
  EXPECT_EQ(step.slots[0].begin, 4);
  EXPECT_TRUE(step.slots[0].gives_token);
  EXPECT_FALSE(batch.made(0));
  batch.join({1}, 9, 1);
  step = batch.step();  // the prompt of one, the token of the other
  EXPECT_EQ(step.execution, Execution::prefill);
  EXPECT_EQ(step.slots[0].begin, 6);
  EXPECT_EQ(step.slots[0].tokens, 1);
  EXPECT_TRUE(step.slots[0].gives_token);
  EXPECT_EQ(step.slots[1].tokens, 4);
  EXPECT_FALSE(batch.made(0));
  EXPECT_EQ(batch.step().slots[1].begin, 4);
  EXPECT_TRUE(batch.made(0));
  batch.leave(0);
  step = batch.step();  // one token is left of the prompt
  EXPECT_EQ(step.execution, Execution::decode);
  EXPECT_EQ(step.slots[1].begin, 8);
  EXPECT_TRUE(batch.made(1));
  batch.leave(1);
  EXPECT_EQ(batch.step().execution, Execution::none);
}

// Near the end of the context a chunk begins earlier, where the model has seen tokens before.
TEST(Batch, NeverPassesTheContext) {
  Batch batch({.slots = 1, .chunk = 4, .context = 6});
  batch.join({0}, 6, 1);
  EXPECT_EQ(batch.step().slots[0].begin, 0);
  const BatchStep step = batch.step();
  EXPECT_EQ(step.slots[0].begin, 2);
  EXPECT_EQ(step.slots[0].tokens, 4);
  EXPECT_TRUE(step.slots[0].gives_token);
}

TEST(Batch, SaysWhichExecutionsMayBeChosenAtOnce) {
  Batch batch({.slots = 2, .chunk = 4, .context = 64});
  EXPECT_EQ(batch.row(16).execution, Execution::none);
  batch.join({0}, 15, 5);
  batch.join({1}, 9, 30);
  BatchRow row = batch.row(16);  // the shorter prompt ends with the third chunk
  EXPECT_EQ(row.execution, Execution::prefill);
  EXPECT_EQ(row.times, 3);
  EXPECT_FALSE(row.gives_tokens);
  for (int i = 0; i < 3; ++i) batch.step(row.execution, 0, 2);
  batch.made(1);
  row = batch.row(16);  // now one gives a token while the other reads on
  EXPECT_EQ(row.execution, Execution::prefill);
  EXPECT_EQ(row.times, 1);
  EXPECT_TRUE(batch.step(row.execution, 1, 2)[0].gives_token);
  EXPECT_TRUE(batch.step(row.execution, 0, 1)[0].gives_token);
  batch.made(0);
  batch.made(1);
  row = batch.row(16);
  EXPECT_EQ(row.execution, Execution::decode);
  EXPECT_EQ(row.times, 16);
  EXPECT_TRUE(row.gives_tokens);
  batch.leave(1);
  EXPECT_EQ(batch.row(16).times, 4);  // it has one of five
  EXPECT_EQ(batch.row(1).times, 1);
}

TEST(Batch, EveryExecutionMakesATokenOfEachRunningSequence) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto upto = [&](int most) { return static_cast<int64_t>(1 + random() % static_cast<unsigned>(most)); };
    const int64_t chunk = upto(6);
    Batch batch({.slots = upto(4), .chunk = chunk, .context = chunk + upto(30)});
    const auto slots = static_cast<size_t>(batch.form().slots);
    std::vector<int64_t> known(slots), seen(slots), kept(slots);  // kept: what no execution has overwritten
    for (int steps = 0; steps < 100; ++steps) {
      const int64_t prompt = upto(static_cast<int>(batch.form().context)), shared = upto(40) - 10;
      const auto taken = batch.slot_for(prompt, [&](size_t) { return std::max<int64_t>(shared, 0); });
      if (taken && random() % 2 == 0) {
        ASSERT_LT(taken->reused, prompt);
        ASSERT_LE(taken->reused, kept[taken->lender.value_or(taken->slot)]);
        batch.join(*taken, prompt,
                   1 + static_cast<int64_t>(random() % static_cast<unsigned>(batch.form().context - prompt + 1)));
        kept[taken->slot] = taken->reused;
        known[taken->slot] = prompt;
        seen[taken->slot] = taken->reused;
      }
      const BatchStep step = batch.step();
      if (step.execution == Execution::none) continue;
      const int64_t room = step.execution == Execution::prefill ? chunk : 1;
      for (size_t s = 0; s < slots; ++s) {
        const SlotStep& does = step.slots[s];
        ASSERT_EQ(does.tokens > 0, !batch.is_free(s));
        ASSERT_LE(does.begin + room, batch.form().context);
        kept[s] = std::min(kept[s], does.begin) + does.tokens;
        if (does.tokens == 0) continue;
        ASSERT_LE(does.begin, seen[s]);  // nothing is left out
        ASSERT_GT(does.begin + does.tokens, seen[s]);
        ASSERT_LE(does.tokens, room);
        const bool decodes = known[s] - seen[s] == 1;
        seen[s] = does.begin + does.tokens;
        ASSERT_EQ(does.gives_token, seen[s] == known[s]);
        ASSERT_TRUE(does.gives_token || !decodes);
        if (!does.gives_token) continue;
        ++known[s];
        if (batch.made(s) || random() % 8 == 0) batch.leave(s);
      }
    }
  }
}

// What a slot keeps: all but the last token, which the model never sees.
TEST(Batch, GoesOnBehindAPrefix) {
  Batch batch({.slots = 1, .chunk = 4, .context = 32});
  batch.join({0}, 6, 3);
  batch.step();
  while (batch.step().slots[0].gives_token && !batch.made(0)) {
  }
  batch.leave(0);
  EXPECT_EQ(batch.slot_for(20, [](size_t) { return 30; }).value().reused, 8);
  EXPECT_EQ(batch.slot_for(6, [](size_t) { return 6; }).value().reused, 5);  // the last token is seen anew
  EXPECT_EQ(batch.slot_for(6, {}).value().reused, 0);
  batch.join({0, 8}, 20, 1);
  const BatchStep step = batch.step();
  EXPECT_EQ(step.slots[0].begin, 8);
  EXPECT_EQ(step.slots[0].tokens, 4);
  batch.leave_nothing(0);
  EXPECT_EQ(batch.slot_for(20, [](size_t) { return 30; }).value().reused, 0);
}

// Where a slot is free, an execution for the others writes a whole chunk: near the end of the context over what it has.
TEST(Batch, KeepsWhatNoExecutionOverwrites) {
  Batch batch({.slots = 2, .chunk = 4, .context = 16});
  batch.join({0}, 16, 1);
  for (int i = 0; i < 4; ++i) batch.step();
  batch.leave(0);
  const auto all = [](size_t slot) { return slot == 0 ? 16 : 0; };
  EXPECT_EQ(batch.slot_for(16, all).value().reused, 15);
  batch.join({1}, 1, 2);
  EXPECT_EQ(batch.step().slots[0].begin, 15);  // decode
  EXPECT_EQ(batch.slot_for(16, all).value().reused, 15);
  batch.leave(1);
  batch.join({1}, 5, 1);
  EXPECT_EQ(batch.step().slots[0].begin, 12);  // prefill
  EXPECT_EQ(batch.slot_for(16, all).value().reused, 12);
}

TEST(Batch, TakesTheSlotOfTheLongestPrefixThatIsWorthIt) {
  Batch batch({.slots = 4, .chunk = 8, .context = 256});
  const auto run = [&](size_t slot, int64_t prompt) {
    batch.join({slot}, prompt, 1);
    while (!batch.step().slots[slot].gives_token) {
    }
    batch.leave(slot);
  };
  const auto chosen = [&](int64_t prompt, std::vector<int64_t> common) {
    const SlotChoice choice = batch.slot_for(prompt, [&](size_t slot) { return common[slot]; }).value();
    return std::tuple(choice.slot, choice.reused, choice.lender);
  };
  using Chosen = std::tuple<size_t, int64_t, std::optional<size_t>>;
  constexpr std::nullopt_t itself = std::nullopt;
  run(1, 100);
  run(0, 60);
  run(2, 100);
  EXPECT_EQ(chosen(80, {0, 0, 0, 0}), Chosen(3, 0, itself));  // it had no sequence
  EXPECT_EQ(chosen(80, {50, 70, 60, 0}), Chosen(1, 70, itself));
  EXPECT_EQ(chosen(80, {60, 60, 60, 0}), Chosen(1, 60, itself));   // left before the others
  EXPECT_EQ(chosen(80, {10, 10, 10, 0}), Chosen(3, 10, 0));        // a template's first tokens cost nobody the rest
  EXPECT_EQ(chosen(80, {40, 45, 10, 0}), Chosen(0, 45, 1));        // both share most, and this one loses less
  EXPECT_EQ(chosen(200, {55, 10, 10, 0}), Chosen(0, 55, itself));  // nearly all that the slot keeps
  run(3, 100);
  EXPECT_EQ(chosen(80, {0, 0, 0, 0}), Chosen(1, 0, itself));
  EXPECT_EQ(chosen(80, {9, 10, 10, 10}), Chosen(1, 10, itself));
  EXPECT_EQ(chosen(80, {10, 9, 10, 11}), Chosen(1, 11, 3));
  batch.join({1, 20}, 40, 1);
  EXPECT_EQ(chosen(80, {0, 40, 30, 0}), Chosen(0, 30, 2));
  batch.step();
  EXPECT_EQ(chosen(80, {20, 40, 25, 0}), Chosen(0, 28, 1));  // what the busy one has seen so far
  for (const size_t slot : {0, 2, 3}) batch.join({slot}, 10, 1);
  EXPECT_FALSE(batch.slot_for(80, {}));
}

TEST(Batch, LendsWithinAGroup) {
  Batch batch({.slots = 4, .chunk = 8, .context = 64, .groups = {0, 1, 0, 1}});
  batch.join({1}, 8, 1);
  batch.step();
  const auto all = [](size_t) { return 8; };
  SlotChoice taken = batch.slot_for(16, all).value();
  EXPECT_EQ(taken.slot, 0u);  // the oldest, and of the other group
  EXPECT_EQ(taken.reused, 0);
  batch.join(taken, 16, 1);
  batch.join({2}, 16, 1);
  taken = batch.slot_for(16, all).value();
  EXPECT_EQ(taken.slot, 3u);
  EXPECT_EQ(taken.reused, 8);
  EXPECT_EQ(taken.lender, 1u);
}

// What slots keep as a server writes it: each position has the text of its sequence up to there.
class WrittenSlots {
 public:
  explicit WrittenSlots(const BatchForm& form)
      : form_(form), texts_(static_cast<size_t>(form.slots)), rows_(texts_.size(), Rows(row(form.context))) {}

  std::string& text(size_t slot) { return texts_[slot]; }
  int64_t common(size_t slot, const std::string& prompt) const {
    return std::ranges::mismatch(texts_[slot], prompt).in2 - prompt.begin();
  }
  void begin(const SlotChoice& taken, const std::string& prompt) {
    texts_[taken.slot] = prompt;
    if (taken.lender) copies_.push_back(taken);
  }
  // As an execution does it: first what is lent, then each slot its chunk, whatever that means.
  void run(const BatchStep& step) {
    for (const SlotChoice& copy : std::exchange(copies_, {}))
      std::copy_n(rows_[*copy.lender].begin(), copy.reused, rows_[copy.slot].begin());
    for (size_t s = 0; s < texts_.size(); ++s) {
      const SlotStep& does = step.slots[s];
      const int64_t room = step.execution == Execution::prefill ? form_.chunk : 1;
      for (int64_t p = does.begin; p < does.begin + room; ++p)
        rows_[s][row(p)] = p < does.begin + does.tokens ? texts_[s].substr(0, row(p) + 1) : "nothing";
      const int64_t seen = does.tokens > 0 ? does.begin + does.tokens : 0;  // by attention
      for (int64_t p = 0; p < seen; ++p) ASSERT_EQ(rows_[s][row(p)], texts_[s].substr(0, row(p) + 1)) << s << " " << p;
    }
  }

 private:
  using Rows = std::vector<std::string>;
  static size_t row(int64_t position) { return static_cast<size_t>(position); }

  BatchForm form_;
  std::vector<std::string> texts_;
  std::vector<Rows> rows_;
  std::vector<SlotChoice> copies_;
};

// Few letters, so that texts often begin alike; several that join before an execution, some that leave early.
TEST(Batch, NoSequenceSeesWhatIsNotItsOwn) {
  std::mt19937 random(5);
  const auto below = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<unsigned>(most)); };
  int64_t lent = 0, lent_by_busy = 0, lent_by_new = 0;
  for (int round = 0; round < 300; ++round) {
    const int64_t chunk = 1 + below(6);
    BatchForm form{.slots = 1 + below(4), .chunk = chunk, .context = chunk + 1 + below(30)};
    if (round % 3 == 0)
      for (int64_t s = 0; s < form.slots; ++s) form.groups.push_back(static_cast<int>(below(2)));
    Batch batch(form);
    WrittenSlots written(form);
    const auto slots = static_cast<size_t>(form.slots);
    for (int steps = 0; steps < 100; ++steps) {
      std::vector<bool> is_new(slots, false);
      while (below(2) == 0) {
        std::string prompt = written.text(static_cast<size_t>(below(form.slots)));
        prompt.resize(static_cast<size_t>(below(std::ssize(prompt) + 1)));
        while (prompt.empty() || below(4) > 0) prompt += below(2) == 0 ? 'a' : 'b';
        prompt.resize(static_cast<size_t>(std::min(std::ssize(prompt), form.context)));
        const auto taken =
            batch.slot_for(std::ssize(prompt), [&](size_t slot) { return written.common(slot, prompt); });
        if (!taken) break;
        if (taken->lender) {
          ++lent;
          lent_by_busy += batch.is_free(*taken->lender) || is_new[*taken->lender] ? 0 : 1;
          lent_by_new += is_new[*taken->lender] ? 1 : 0;
          ASSERT_TRUE(form.groups.empty() || form.groups[taken->slot] == form.groups[*taken->lender]);
        }
        is_new[taken->slot] = true;
        batch.join(*taken, std::ssize(prompt), 1 + below(form.context - std::ssize(prompt) + 1));
        written.begin(*taken, prompt);
      }
      const BatchStep step = batch.step();
      if (step.execution == Execution::none) continue;
      ASSERT_NO_FATAL_FAILURE(written.run(step));
      for (size_t s = 0; s < slots; ++s) {
        if (step.slots[s].gives_token) {
          written.text(s) += below(2) == 0 ? 'a' : 'b';
          if (batch.made(s)) batch.leave(s);
        }
        if (batch.is_free(s) || below(12) > 0) continue;
        below(4) == 0 ? batch.leave_nothing(s) : batch.leave(s);
      }
    }
  }
  EXPECT_GT(lent, 3000);
  EXPECT_GT(lent_by_busy, 1000);
  EXPECT_GT(lent_by_new, 100);
}

TEST(Admission, IsFirstComeFirstServedUpToALimit) {
  Admission admission({.slots = 2, .chunk = 4, .context = 16}, 2);
  for (uint64_t id = 1; id <= 4; ++id) EXPECT_TRUE(admission.offer({id, 3, 2}));
  EXPECT_FALSE(admission.offer({5, 3, 2}));
  EXPECT_EQ(admission.admit({}).value().id, 1u);
  EXPECT_EQ(admission.admit({}).value().taken.slot, 1u);
  EXPECT_FALSE(admission.admit({}));
  EXPECT_FALSE(admission.offer({5, 3, 2}));  // two run and two wait
  EXPECT_TRUE(admission.withdraw(3));
  EXPECT_FALSE(admission.withdraw(3));
  EXPECT_FALSE(admission.withdraw(1));
  EXPECT_TRUE(admission.offer({6, 3, 2}));
  EXPECT_FALSE(admission.admit({}));
  admission.batch().leave(1);
  const JoinedRequest joined = admission.admit({}).value();
  EXPECT_EQ(joined.id, 4u);
  EXPECT_EQ(joined.taken.slot, 1u);
}

}  // namespace
}  // namespace nlsplit
