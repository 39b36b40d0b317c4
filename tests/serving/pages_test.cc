// Caches in pages: sequences that share a pool of them, grow, are preempted, and never see what is not their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "serving/admission.h"
#include "serving/simulate.h"

namespace nlsplit {
namespace {

TEST(Pages, PromptsTakeTurnsWithTheTokensOfOthers) {
  Batch batch({.slots = 3, .chunk = 4, .context = 16, .page = 4, .pages = 12});
  batch.join({0}, 6, 9);
  EXPECT_FALSE(batch.slot_for(4, {}));  // a prompt is being computed
  BatchStep step = batch.step();
  EXPECT_EQ(step.execution, Execution::prefill);
  EXPECT_EQ(step.slots[0].tokens, 4);
  EXPECT_EQ(step.slots[0].pages.size(), 2u);
  step = batch.step();
  EXPECT_TRUE(step.slots[0].gives_token);
  batch.made(0);
  batch.join(batch.slot_for(9, {}).value(), 9, 1);
  for (const Execution expected : {Execution::decode, Execution::prefill, Execution::decode, Execution::prefill}) {
    step = batch.step();
    EXPECT_EQ(step.execution, expected);
    const size_t takes = expected == Execution::decode ? 0 : 1;
    EXPECT_GT(step.slots[takes].tokens, 0);
    EXPECT_EQ(step.slots[1 - takes].tokens, 0);
    EXPECT_TRUE(step.slots[1 - takes].pages.empty());
    if (expected == Execution::decode) batch.made(0);
  }
  step = batch.step();  // the prompt's last token is one like the other's
  EXPECT_EQ(step.execution, Execution::decode);
  EXPECT_TRUE(step.slots[0].gives_token);
  EXPECT_TRUE(step.slots[1].gives_token);
}

TEST(Pages, WholePagesOfAPrefixAreShared) {
  Batch batch({.slots = 3, .chunk = 4, .context = 16, .page = 4, .pages = 9});
  const auto run = [&](const SlotChoice& taken, int64_t prompt) {
    batch.join(taken, prompt, 3);
    BatchStep step = batch.step();
    while (!step.slots[taken.slot].gives_token) step = batch.step();
    return step.slots[taken.slot].pages;
  };
  const std::vector<int> first = run({0}, 11);
  batch.made(0);
  const auto common = [](size_t slot) { return slot == 0 ? 10 : 0; };
  const SlotChoice taken = batch.slot_for(14, common).value();
  EXPECT_EQ(taken.reused, 8);
  EXPECT_EQ(taken.lender, 0u);
  const std::vector<int> second = run(taken, 14);
  EXPECT_EQ(std::vector(second.begin(), second.begin() + 2), std::vector(first.begin(), first.begin() + 2));
  EXPECT_NE(second[2], first[2]);
  // Two are shared, three are others': four are left, of which each that runs may need one.
  EXPECT_TRUE(batch.slot_for(8, {}));
  EXPECT_FALSE(batch.slot_for(9, {}));
  EXPECT_TRUE(batch.slot_for(16, common));  // two more
  batch.leave(0);
  EXPECT_TRUE(batch.slot_for(16, {}));  // what a free slot keeps can be had
}

// Two sequences of four pages each in a pool of six: the second one waits and goes on after the first.
TEST(Pages, WhoJoinedLastIsPreempted) {
  Admission admission({.slots = 2, .chunk = 4, .context = 16, .page = 4, .pages = 6}, 2);
  Batch& batch = admission.batch();
  admission.offer({7, 8, 9});
  admission.offer({8, 5, 9});
  admission.admit({});
  std::vector<int64_t> made(2, 0);
  std::vector<uint64_t> order;
  int preempted = 0;
  int64_t left = 0;
  std::map<size_t, uint64_t> in_slot = {{0, 7}};
  for (int steps = 0; steps < 100 && order.size() < 2; ++steps) {
    while (const auto joined = admission.admit({})) {
      in_slot[joined->taken.slot] = joined->id;
      EXPECT_EQ(joined->id, 8u);
    }
    const BatchStep step = admission.step();
    for (const Preempted& sequence : step.preempted) {
      EXPECT_EQ(in_slot[sequence.slot], 8u);
      EXPECT_EQ(sequence.left, 9 - made[1]);
      EXPECT_EQ(sequence.known, 5 + made[1]);
      left = sequence.left;
      ++preempted;
    }
    for (size_t s = 0; s < 2; ++s) {
      if (!step.slots[s].gives_token) continue;
      ++made[in_slot[s] - 7];
      if (!batch.made(s)) continue;
      batch.leave(s);
      order.push_back(in_slot[s]);
    }
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(made, (std::vector<int64_t>{9, 9}));
  EXPECT_GE(preempted, 1);
  EXPECT_GT(left, 0);
}

// What pages hold as a server writes it: each position has the text of its sequence up to there, and a chunk writes as
// far as its sequence has pages.
class WrittenPages {
 public:
  explicit WrittenPages(const BatchForm& form)
      : form_(form), rows_(static_cast<size_t>(form.pages * form.page), "nothing") {}

  void run(const BatchStep& step, const std::vector<std::string>& texts) {
    const int64_t room = step.execution == Execution::prefill ? form_.chunk : 1;
    int64_t takes = 0;
    for (size_t s = 0; s < texts.size(); ++s) {
      const SlotStep& does = step.slots[s];
      if (does.tokens == 0) continue;
      ++takes;
      ASSERT_LE(does.begin + room, form_.context);
      ASSERT_LE(does.begin + does.tokens, std::ssize(does.pages) * form_.page);
      const int64_t end = std::min(does.begin + room, std::ssize(does.pages) * form_.page);
      for (int64_t p = does.begin; p < end; ++p)
        row(does, p) = p < does.begin + does.tokens ? texts[s].substr(0, static_cast<size_t>(p) + 1) : "nothing";
    }
    ASSERT_TRUE(step.execution == Execution::decode || takes == 1);
    for (size_t s = 0; s < texts.size(); ++s) {
      const SlotStep& does = step.slots[s];
      for (int64_t p = 0; p < does.begin + does.tokens && does.tokens > 0; ++p)
        ASSERT_EQ(row(does, p), texts[s].substr(0, static_cast<size_t>(p) + 1)) << s << " " << p;
    }
  }

 private:
  std::string& row(const SlotStep& does, int64_t position) {
    const int64_t page = does.pages[static_cast<size_t>(position / form_.page)];
    return rows_[static_cast<size_t>(page * form_.page + position % form_.page)];
  }

  BatchForm form_;
  std::vector<std::string> rows_;
};

// A request of the test below.
struct Asked {
  std::string text;  // the prompt, and what came
  int64_t tokens = 0, made = 0;
};

// Few letters, so that texts often begin alike; tight pools; some leave early. All requests end.
TEST(Pages, NoSequenceSeesWhatIsNotItsOwnAndAllEnd) {
  std::mt19937 random(7);
  const auto below = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<unsigned>(most)); };
  int64_t preempted = 0, shared = 0, reused = 0, ended = 0;
  for (int round = 0; round < 300; ++round) {
    BatchForm form{.slots = 1 + below(5), .chunk = 2 + below(6), .context = 0, .page = 1 + below(5)};
    form.context = (2 + below(6)) * form.page;
    form.chunk = std::min(form.chunk, form.context);
    if (form.chunk < 2) continue;
    form.pages = form.context / form.page + below(5);
    Admission admission(form, 100);
    Batch& batch = admission.batch();
    const auto slots = static_cast<size_t>(form.slots);
    WrittenPages written(form);
    std::map<uint64_t, Asked> asked;
    std::vector<std::string> texts(slots);
    std::vector<uint64_t> in_slot(slots, 0);
    uint64_t next = 1;
    for (int steps = 0; steps < 400; ++steps) {
      if (steps < 60 && below(3) == 0) {
        std::string prompt = texts[static_cast<size_t>(below(form.slots))];
        prompt.resize(static_cast<size_t>(below(std::ssize(prompt) + 1)));
        while (prompt.empty() || below(4) > 0) prompt += below(2) == 0 ? 'a' : 'b';
        prompt.resize(static_cast<size_t>(std::min(std::ssize(prompt), form.context)));
        const int64_t tokens = 1 + below(form.context - std::ssize(prompt) + 1);
        ASSERT_TRUE(admission.offer({next, std::ssize(prompt), tokens}));
        asked[next++] = {prompt, tokens};
      }
      const auto common = [&](uint64_t id, size_t slot) {
        const std::string& prompt = asked[id].text;
        return static_cast<int64_t>(std::ranges::mismatch(texts[slot], prompt).in2 - prompt.begin());
      };
      while (const auto joined = admission.admit(common)) {
        const SlotChoice& taken = joined->taken;
        ASSERT_EQ(taken.reused % form.page, 0);
        reused += taken.reused > 0 ? 1 : 0;
        shared += taken.lender && !batch.is_free(*taken.lender) ? 1 : 0;
        texts[taken.slot] = asked[joined->id].text;
        in_slot[taken.slot] = joined->id;
      }
      const BatchStep step = admission.step();
      for (const Preempted& sequence : step.preempted) {
        const Asked& of = asked[in_slot[sequence.slot]];
        ASSERT_EQ(sequence.known, std::ssize(of.text));
        ASSERT_EQ(sequence.left, of.tokens - of.made);
        ++preempted;
      }
      if (step.execution == Execution::none) {
        ASSERT_EQ(batch.running(), 0);
        ASSERT_EQ(admission.waiting(), 0);
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(written.run(step, texts));
      for (size_t s = 0; s < slots; ++s) {
        if (step.slots[s].gives_token) {
          Asked& of = asked[in_slot[s]];
          texts[s] = of.text += below(2) == 0 ? 'a' : 'b';
          ++of.made;
          if (batch.made(s)) {
            ASSERT_EQ(of.made, of.tokens);
            batch.leave(s);
            ++ended;
          }
        }
        if (batch.is_free(s) || below(40) > 0) continue;
        below(2) == 0 ? batch.leave_nothing(s) : batch.leave(s);  // its client goes away
      }
    }
    ASSERT_EQ(batch.running() + admission.waiting(), 0);
  }
  EXPECT_GT(preempted, 100);
  EXPECT_GT(reused, 1000);
  EXPECT_GT(shared, 100);
  EXPECT_GT(ended, 2000);
}

// A prefill of one request takes 1 s, a decode 0.4 s of four and 0.1 s of one; chunks of 4.
TEST(SimulatedServer, TakesOnlyTheSequencesThatNeedIt) {
  const BatchForm form{.slots = 4, .chunk = 4, .context = 32, .page = 4, .pages = 32};
  const ServerTimes times{.prefill = {1, 0}, .decode = {0.4, 0}, .fewer = {{1, {0.1, 0}}, {2, {0.2, 0}}}};
  const auto served = [&](std::vector<ArrivingRequest> requests) {
    return simulate_serving({0, std::move(requests)}, form, 4, times, PrefixReuse::on);
  };
  const auto alone = served({{0, 8, 3}});
  EXPECT_DOUBLE_EQ(alone[0].first_s, 2);
  EXPECT_DOUBLE_EQ(alone[0].last_s, 2.2);
  // One prompt after the other, between which the first one has a token.
  const auto two = served({{0, 8, 3}, {0, 8, 3}});
  EXPECT_DOUBLE_EQ(two[0].first_s, 2);
  EXPECT_DOUBLE_EQ(two[0].last_s, 3.2);
  EXPECT_DOUBLE_EQ(two[1].first_s, 4.2);
  // The second one has what the first one has just computed.
  const auto alike = served({{.at_s = 0, .prompt = 16, .tokens = 1, .prefix = 12, .text = 1},
                             {.at_s = 0, .prompt = 16, .tokens = 1, .prefix = 12, .text = 1}});
  EXPECT_DOUBLE_EQ(alike[0].first_s, 4);
  EXPECT_DOUBLE_EQ(alike[1].first_s, 5);
  EXPECT_EQ(alike[1].cached, 12);
}

// A pool of 9 pages for three requests that come to 6 pages each.
TEST(SimulatedServer, CountsWhoIsPreempted) {
  const BatchForm form{.slots = 3, .chunk = 4, .context = 24, .page = 4, .pages = 9};
  const ServerTimes times{.prefill = {1, 0}, .decode = {0.1, 0}};
  const RequestTrace trace{0, {{0, 4, 20}, {0, 4, 20}, {0, 4, 20}}};
  const ServingSummary summary = summary_of(simulate_serving(trace, form, 3, times, PrefixReuse::on));
  EXPECT_EQ(summary.answered, 3);
  EXPECT_GE(summary.preempted, 1);
  BatchForm roomy = form;
  roomy.pages = 18;
  EXPECT_EQ(summary_of(simulate_serving(trace, roomy, 3, times, PrefixReuse::on)).preempted, 0);
}

}  // namespace
}  // namespace nlsplit
