// Sequences that join and leave: each token is seen once at its position, prompts come in chunks, and nobody waits.
#include "serving/batch.h"

#include <gtest/gtest.h>

#include <random>

#include "serving/admission.h"

namespace nlsplit {
namespace {

TEST(Batch, TakesPromptsInChunksBesideTheTokensOfOthers) {
  Batch batch({.slots = 2, .chunk = 4, .context = 32});
  batch.join(0, 6, 3);
  BatchStep step = batch.step();
  EXPECT_EQ(step.execution, Execution::prefill);
  EXPECT_EQ(step.slots[0].tokens, 4);
  EXPECT_FALSE(step.slots[0].gives_token);
  EXPECT_EQ(step.slots[1].tokens, 0);
  step = batch.step();
  EXPECT_EQ(step.slots[0].begin, 4);
  EXPECT_TRUE(step.slots[0].gives_token);
  EXPECT_FALSE(batch.made(0));
  batch.join(1, 9, 1);
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
  batch.join(0, 6, 1);
  EXPECT_EQ(batch.step().slots[0].begin, 0);
  const BatchStep step = batch.step();
  EXPECT_EQ(step.slots[0].begin, 2);
  EXPECT_EQ(step.slots[0].tokens, 4);
  EXPECT_TRUE(step.slots[0].gives_token);
}

TEST(Batch, SaysWhichExecutionsMayBeChosenAtOnce) {
  Batch batch({.slots = 2, .chunk = 4, .context = 64});
  EXPECT_EQ(batch.row(16).execution, Execution::none);
  batch.join(0, 15, 5);
  batch.join(1, 9, 30);
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
        ASSERT_LE(taken->reused, kept[taken->slot]);
        batch.join(taken->slot, prompt,
                   1 + static_cast<int64_t>(random() % static_cast<unsigned>(batch.form().context - prompt + 1)),
                   taken->reused);
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
  batch.join(0, 6, 3);
  batch.step();
  while (batch.step().slots[0].gives_token && !batch.made(0)) {
  }
  batch.leave(0);
  EXPECT_EQ(batch.slot_for(20, [](size_t) { return 30; }).value().reused, 8);
  EXPECT_EQ(batch.slot_for(6, [](size_t) { return 6; }).value().reused, 5);  // the last token is seen anew
  EXPECT_EQ(batch.slot_for(6, {}).value().reused, 0);
  batch.join(0, 20, 1, 8);
  const BatchStep step = batch.step();
  EXPECT_EQ(step.slots[0].begin, 8);
  EXPECT_EQ(step.slots[0].tokens, 4);
  batch.leave_nothing(0);
  EXPECT_EQ(batch.slot_for(20, [](size_t) { return 30; }).value().reused, 0);
}

// Where a slot is free, an execution for the others writes a whole chunk: near the end of the context over what it has.
TEST(Batch, KeepsWhatNoExecutionOverwrites) {
  Batch batch({.slots = 2, .chunk = 4, .context = 16});
  batch.join(0, 16, 1);
  for (int i = 0; i < 4; ++i) batch.step();
  batch.leave(0);
  const auto all = [](size_t slot) { return slot == 0 ? 16 : 0; };
  EXPECT_EQ(batch.slot_for(16, all).value().reused, 15);
  batch.join(1, 1, 2);
  EXPECT_EQ(batch.step().slots[0].begin, 15);  // decode
  EXPECT_EQ(batch.slot_for(16, all).value().reused, 15);
  batch.leave(1);
  batch.join(1, 5, 1);
  EXPECT_EQ(batch.step().slots[0].begin, 12);  // prefill
  EXPECT_EQ(batch.slot_for(16, all).value().reused, 12);
}

TEST(Batch, TakesTheSlotOfTheLongestPrefixThatIsWorthIt) {
  Batch batch({.slots = 4, .chunk = 8, .context = 256});
  const auto run = [&](size_t slot, int64_t prompt) {
    batch.join(slot, prompt, 1);
    while (!batch.step().slots[slot].gives_token) {
    }
    batch.leave(slot);
  };
  const auto chosen = [&](int64_t prompt, std::vector<int64_t> common) {
    const SlotChoice choice = batch.slot_for(prompt, [&](size_t slot) { return common[slot]; }).value();
    return std::pair(choice.slot, choice.reused);
  };
  using Chosen = std::pair<size_t, int64_t>;
  run(1, 100);
  run(0, 60);
  run(2, 100);
  EXPECT_EQ(chosen(80, {0, 0, 0, 0}), Chosen(3, 0));  // it had no sequence
  EXPECT_EQ(chosen(80, {50, 70, 60, 0}), Chosen(1, 70));
  EXPECT_EQ(chosen(80, {60, 60, 60, 0}), Chosen(1, 60));   // left before the others
  EXPECT_EQ(chosen(80, {10, 10, 10, 0}), Chosen(3, 0));    // a template's first tokens cost nobody the rest
  EXPECT_EQ(chosen(20, {10, 10, 10, 0}), Chosen(1, 10));   // half of the prompt
  EXPECT_EQ(chosen(200, {55, 10, 10, 0}), Chosen(0, 55));  // nearly all that the slot keeps
  run(3, 100);
  EXPECT_EQ(chosen(80, {0, 0, 0, 0}), Chosen(1, 0));
  EXPECT_EQ(chosen(80, {10, 9, 10, 10}), Chosen(1, 9));  // what it shares is reused all the same
  batch.join(1, 10, 1);
  EXPECT_EQ(chosen(80, {0, 0, 0, 0}), Chosen(0, 0));
  for (const size_t slot : {0, 2, 3}) batch.join(slot, 10, 1);
  EXPECT_FALSE(batch.slot_for(80, {}));
}

TEST(Admission, IsFirstComeFirstServedUpToALimit) {
  Admission admission({.slots = 2, .chunk = 4, .context = 16}, 2);
  for (uint64_t id = 1; id <= 4; ++id) EXPECT_TRUE(admission.offer({id, 3, 2}));
  EXPECT_FALSE(admission.offer({5, 3, 2}));
  auto joined = admission.admit({});
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[0].id, 1u);
  EXPECT_EQ(joined[1].slot, 1u);
  EXPECT_FALSE(admission.offer({5, 3, 2}));  // two run and two wait
  EXPECT_TRUE(admission.withdraw(3));
  EXPECT_FALSE(admission.withdraw(3));
  EXPECT_FALSE(admission.withdraw(1));
  EXPECT_TRUE(admission.offer({6, 3, 2}));
  EXPECT_TRUE(admission.admit({}).empty());
  admission.batch().leave(1);
  joined = admission.admit({});
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].id, 4u);
  EXPECT_EQ(joined[0].slot, 1u);
}

}  // namespace
}  // namespace nlsplit
