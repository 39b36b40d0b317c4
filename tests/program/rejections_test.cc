// What verify accepts and, above all, what it rejects, each with a message that names device, slot and instruction.
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "program/complaint.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

// A sends x + x to B, which keeps twice of it. Two micro-batches, two instances.
const std::string good = R"(nlsplit program 1
program good batch 4 micro_batches 2
device A cpu host a isa v2 memory 4096
  buffer x f32[2,4] input instances 2
  buffer a f32[2,4] comm instances 2
  segment F stage 0 phase F
    a = reduce(x, x)
    send a to B tag 3
  order
    F.0
    F.1 x:1 a:1
device B cpu host b isa v2 memory 4096
  buffer a f32[2,4] comm instances 2
  buffer s f32[2,4] scratch
  buffer y f32[2,4] output instances 2
  segment G stage 1 phase F
    recv a from A tag 3
    s = reduce(a, a)
    y = copy(s)
  order
    G.0
    G.1 a:1 y:1
)";

using testing::complaint;
using testing::replaced;

TEST(Verify, AcceptsTheGoodOne) { EXPECT_EQ(complaint(good), ""); }

TEST(Verify, AcceptsTheContractPrograms) {
  for (const char* name : {"train_1f1b", "interleaved", "ring_all_reduce", "replicas", "instances"}) {
    const auto text = read_file(std::string(NLS_SOURCE_DIR "/tests/programs/") + name + ".nls");
    ASSERT_TRUE(text.ok()) << name;
    EXPECT_EQ(complaint(*text), "") << name;
    const auto program = parse_program(*text, name);
    ASSERT_TRUE(program.ok());
    const std::string printed = to_string(*program);
    const auto again = parse_program(printed, name);
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(*again, *program) << name;
    EXPECT_EQ(to_string(*again), printed) << name;
  }
}

// The example of the specification is a Program.
TEST(Verify, AcceptsTheExampleOfTheDocumentation) {
  const std::string docs = value_of(read_file(NLS_SOURCE_DIR "/docs/program.md"));
  const size_t begin = docs.find("nlsplit program 1\nprogram two_steps");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(complaint(docs.substr(begin, docs.find("```", begin) - begin)), "");
}

TEST(Verify, MissingReceive) {
  const std::string text = replaced(good, "    G.1 a:1 y:1\n", "");
  EXPECT_EQ(complaint(text),
            "device A slot 1 (F.1) `send a to B tag 3`: no recv on B takes this message: a receive is missing");
}

TEST(Verify, MissingSend) {
  const std::string text = replaced(good, "    F.1 x:1 a:1\n", "");
  EXPECT_EQ(complaint(text),
            "device B slot 1 (G.1) `recv a from A tag 3`: no send on A gives this message: a send is missing");
}

TEST(Verify, CrossedTags) {
  std::string text = replaced(good, "    send a to B tag 3", "    send a to B tag 3\n    send x to B tag 4");
  text = replaced(text, "    recv a from A tag 3", "    recv s from A tag 4\n    recv a from A tag 3");
  text = replaced(text, "    s = reduce(a, a)\n    y = copy(s)", "    y = reduce(a, s)");
  EXPECT_EQ(complaint(text),
            "device A slot 0 (F.0) `send a to B tag 3`: message 0 of this pair has tag 3, but the receiver expects tag "
            "4 at device B slot 0 "
            "(G.0) `recv s from A tag 4`: tags are crossed");
}

TEST(Verify, SizesThatDiffer) {
  const std::string text = replaced(good, "send a to B", "send a[0:4] to B");
  EXPECT_EQ(complaint(text),
            "device A slot 0 (F.0) `send a[0:4] to B tag 3`: sends 16 B, but device B slot 0 (G.0) `recv a from A tag "
            "3` takes 32 B: sizes "
            "differ");
}

TEST(Verify, DeadlockUnderRendezvous) {
  // Each sends what it has only after it has received the other's.
  const std::string text = R"(nlsplit program 1
program stuck batch 1 micro_batches 1
device A cpu host a isa v2 memory 4096
  buffer in f32[4] comm
  buffer out f32[4] comm
  segment F stage 0 phase F
    recv in from B tag 0
    out = copy(in)
    send out to B tag 1
  order
    F.0
device B cpu host b isa v2 memory 4096
  buffer in f32[4] comm
  buffer out f32[4] comm
  segment F stage 1 phase F
    recv in from A tag 1
    out = copy(in)
    send out to A tag 0
  order
    F.0
)";
  const std::string message = complaint(text);
  EXPECT_NE(message.find("deadlock"), std::string::npos) << message;
  for (const char* part :
       {"device A slot 0 (F.0) `recv in from B tag 0`", "device B slot 0 (F.0) `send out to A tag 0`",
        "device B slot 0 (F.0) `out = copy(in)`", "device A slot 0 (F.0) `send out to B tag 1`", "waits for"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in\n" << message;
  }
}

// A kernel that goes element by element may write its result where its operand lies; not beside it, not while somebody
// still needs the operand, and no other kernel.
TEST(Verify, ResultsInTheirOperandsPlace) {
  const auto with = [](const std::string& buffers, const std::string& work) {
    return "nlsplit program 1\nprogram place batch 1 micro_batches 1\ndevice A cpu host a isa v2 memory 4096\n"
           "  buffer x f32[2,16] input bytes 128 at 0\n  buffer y f32[2,16] output bytes 128 at 128\n" +
           buffers + "  segment F stage 0 phase F\n    a = copy(x)\n" + work + "  order\n    F.0\n";
  };
  const std::string shared =
      "  buffer a f32[2,16] scratch bytes 128 at 512\n  buffer b f32[2,16] scratch bytes 128 at 512\n";
  const std::string beside =
      replaced(shared, "buffer b f32[2,16] scratch bytes 128 at 512", "buffer b f32[2,16] scratch bytes 128 at 576");
  const std::string relu = "    b = Relu(a) kernel unary_v2\n    y = copy(b)\n";
  EXPECT_EQ(complaint(with(shared, relu)), "");
  EXPECT_EQ(complaint(with(shared, "    b = Add(a, x) kernel binary_v2\n    y = copy(b)\n")), "");
  EXPECT_EQ(complaint(with(shared, "    b = Add(x, a) kernel binary_v2\n    y = copy(b)\n")), "");
  const std::string overwritten = "uses buffer b, whose bytes buffer a may still need";
  for (const std::string& text :
       {with(beside, relu),                                                       // not the same bytes
        with(shared, "    b = Relu(a) kernel unary_v2\n    y = reduce(a, b)\n"),  // a is read once more
        with(shared, "    b = Relu(x) + Add(a) kernel unary_v2\n    y = copy(b)\n"),
        with(shared, "    b = Relu(a) + Mul(a) kernel unary_v2\n    y = copy(b)\n"),
        with(shared, "    b = Sum(x, a) kernel sum_v2\n    y = copy(b)\n"),
        with(shared, "    b = Softmax(a) {axis=1} kernel softmax_v2\n    y = copy(b)\n")}) {
    const std::string message = complaint(text);
    EXPECT_NE(message.find(overwritten), std::string::npos) << message << "\nin\n" << text;
  }
}

// How it would pack a weight, say: the answer reads extents and attributes that need not be there.
TEST(Verify, AKernelIsAskedNothingAboutWhatItCannotRun) {
  for (const char* kernel : {"conv_direct_v2", "conv_winograd_v2", "conv_blocked_v2"}) {
    for (const char* work : {"Relu(x)", "Conv(x, x)", "Conv(x, x) {strides=[0]}"}) {
      const std::string text =
          replaced(good, "a = reduce(x, x)", "a = " + std::string(work) + " kernel " + std::string(kernel));
      EXPECT_NE(complaint(text).find("cannot run"), std::string::npos) << complaint(text);
    }
  }
}

TEST(Verify, ScratchThatOverlapsALiveBuffer) {
  // s and t share bytes, and s is still read after t was written.
  std::string text =
      replaced(good, "  buffer s f32[2,4] scratch\n",
               "  buffer s f32[2,4] scratch bytes 32 at 512\n  buffer t f32[2,4] scratch bytes 32 at 512\n");
  text = replaced(text, "    y = copy(s)", "    t = copy(a)\n    y = reduce(s, t)");
  EXPECT_EQ(complaint(text),
            "device B slot 0 (G.0) `t = copy(a)`: uses buffer t, whose bytes buffer s may still need: device B slot 0 "
            "(G.0) `y = "
            "reduce(s, t)` is not over before it");
}

TEST(Verify, ScratchThatTakesTurnsIsFine) {
  std::string text =
      replaced(good, "  buffer s f32[2,4] scratch\n",
               "  buffer s f32[2,4] scratch bytes 32 at 512\n  buffer t f32[2,4] scratch bytes 32 at 512\n");
  text = replaced(text, "    y = copy(s)", "    y = copy(s)\n    t = copy(y)\n    y = copy(t)");
  EXPECT_EQ(complaint(text), "");
}

TEST(Verify, ReceiveIntoBytesThatAreStillNeeded) {
  // The next message may land in a:1 while s, in the same bytes, is being used: nothing orders the two.
  const std::string text =
      replaced(good, "  buffer a f32[2,4] comm instances 2\n  buffer s f32[2,4] scratch\n",
               "  buffer a f32[2,4] comm bytes 32 instances 2 at 0\n  buffer s f32[2,4] scratch bytes 32 at 64\n");
  const std::string message = complaint(text);
  EXPECT_NE(message.find("device B slot"), std::string::npos) << message;
  EXPECT_NE(message.find("may still need"), std::string::npos) << message;
}

// A's first message to B is over when the second one begins, and B answers that one: only B's part says so.
TEST(Verify, AnAnswerSaysWhatIsOver) {
  const std::string text = R"(nlsplit program 1
program answer batch 4 micro_batches 1
device A cpu host a isa v2 memory 4096
  buffer x f32[2,4] input
  buffer q f32[2,4] comm bytes 32 at 512
  buffer r f32[2,4] comm
  buffer s f32[2,4] scratch bytes 32 at 512
  buffer y f32[2,4] output
  segment F stage 0 phase F
    q = copy(x)
    send q to B tag 3
    send x to B tag 5
    recv r from B tag 4
    s = copy(r)
    y = copy(s)
  order
    F.0
device B cpu host b isa v2 memory 4096
  buffer q f32[2,4] comm
  buffer x f32[2,4] comm
  buffer r f32[2,4] comm
  segment G stage 1 phase F
    recv q from A tag 3
    recv x from A tag 5
    r = copy(x)
    send r to A tag 4
  order
    G.0
)";
  EXPECT_EQ(complaint(text), "");
  const std::string to_the_first = replaced(text, "    r = copy(x)\n", "    r = copy(q)\n");
  EXPECT_NE(complaint(to_the_first).find("whose bytes buffer q may still need"), std::string::npos)
      << complaint(to_the_first);
}

TEST(Verify, WeightsOverlapNothing) {
  const std::string text =
      replaced(good, "  buffer s f32[2,4] scratch\n",
               "  buffer w f32[2,4] weight bytes 32 at 512 content 1f\n  buffer s f32[2,4] scratch bytes 32 at 512\n");
  EXPECT_EQ(complaint(text), "device B: buffer w (weight) overlaps buffer s in the arena, but is needed all the time");
}

TEST(Verify, MicroBatchRunTwice) {
  std::string text = replaced(good, "    F.1 x:1 a:1\n", "    F.0 x:1 a:1\n");
  EXPECT_EQ(complaint(text),
            "device A slot 1 (F.0): micro-batch 0 runs twice through stage 0 F; the first time on device A slot 0");
}

TEST(Verify, MicroBatchNeverRun) {
  std::string text = replaced(good, "micro_batches 2", "micro_batches 3");
  EXPECT_EQ(complaint(text), "micro-batch 2 never runs through stage 0 F (device A runs others)");
}

TEST(Verify, TooMuchMemory) {
  const std::string text = replaced(good, "isa v2 memory 4096", "isa v2 memory 100");
  EXPECT_EQ(complaint(text), "device A has 100 B of memory, and this needs 256 B");
}

TEST(Verify, KernelsMustExistAndFit) {
  const std::string compute = "    a = Relu(x) kernel unary_v2";
  const std::string base = replaced(good, "    a = reduce(x, x)", compute);
  EXPECT_EQ(complaint(base), "");
  EXPECT_NE(complaint(replaced(base, "unary_v2", "nonsense_v2")).find("nonsense_v2"), std::string::npos);
  EXPECT_NE(complaint(replaced(base, "unary_v2", "unary_v3")).find("device's level v2"), std::string::npos);
  EXPECT_NE(complaint(replaced(base, "unary_v2", "max_pool_v2")).find("it does not compute Relu"), std::string::npos);
  EXPECT_NE(complaint(replaced(base, "buffer x f32[2,4]", "buffer x f32[2,3]")).find("device A segment F"),
            std::string::npos);
}

TEST(Verify, InputsAndWeightsAreNotWritten) {
  const std::string text = replaced(good, "    a = reduce(x, x)", "    a = reduce(x, x)\n    x = copy(a)");
  EXPECT_EQ(complaint(text), "device A segment F `x = copy(a)`: writes a buffer of kind input");
}

TEST(Parse, NamesThePlace) {
  EXPECT_EQ(complaint(replaced(good, "send a to B", "send a to C")),
            "test.nls:8:15: unknown device C\n  |     send a to C tag 3");
  EXPECT_EQ(complaint(replaced(good, "reduce(x, x)", "reduce(x, xx)")),
            "test.nls:7:19: unknown buffer xx; did you mean x?\n  |     a = reduce(x, xx)");
}

TEST(Parse, SlicesAndInstancesStayInside) {
  EXPECT_NE(complaint(replaced(good, "send a to B", "send a[4:9] to B")).find("leaves buffer a"), std::string::npos);
  EXPECT_NE(complaint(replaced(good, "F.1 x:1 a:1", "F.1 x:1 a:2")).find("a has instances 0 … 1"), std::string::npos);
  EXPECT_NE(complaint(replaced(good, "F.1 x:1", "F.2 x:1")).find("micro-batch must be 0 … 1"), std::string::npos);
}

// A few bytes of text, and memory or time without end.
TEST(Parse, InstancesAreCounted) {
  std::string many;
  for (int i = 0; i < 5; ++i) many += "  buffer b" + std::to_string(i) + " f32[1] scratch instances 1048576\n";
  EXPECT_NE(complaint(replaced(good, "  buffer x", many + "  buffer x")).find("device A: too many instances"),
            std::string::npos);
  // Two that overlap: 2^40 pairs of instances, of which nobody uses any.
  const std::string pair =
      "  buffer p f32[1] scratch instances 1048576 at 0\n  buffer q f32[1] scratch instances 1048576 at 0\n";
  EXPECT_NE(complaint(replaced(good, "  buffer x", pair + "  buffer x")).find("of memory"), std::string::npos);
}

TEST(Parse, FingerprintAndVersion) {
  const auto program = parse_program(good, "test.nls");
  ASSERT_TRUE(program.ok());
  const std::string printed = to_string(*program);
  EXPECT_EQ(complaint(printed), "");
  EXPECT_NE(complaint(replaced(printed, "tag 3", "tag 5")).find("the fingerprint does not fit"), std::string::npos);
  EXPECT_NE(complaint(replaced(good, "nlsplit program 1", "nlsplit program 2")).find("this build reads version 1"),
            std::string::npos);
  EXPECT_NE(complaint("hello").find("not a program"), std::string::npos);
  EXPECT_NE(complaint("").find("not a program"), std::string::npos);
}

// Texts made before `instances` was the word. Their fingerprints are those of other letters.
TEST(Parse, ReadsBanks) {
  const auto program = parse_program(good, "test.nls");
  ASSERT_TRUE(program.ok());
  std::string before = to_string(*program);
  for (size_t at = 0; (at = before.find(" instances ", at)) != std::string::npos;) before.replace(at, 11, " banks ");
  ASSERT_NE(before.find(" banks "), std::string::npos);
  const auto read = parse_program(before, "test.nls");
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(to_string(*read), to_string(*program));
}

// Whatever is done to a text, the answer is a value or an error, never a crash; the sanitizers watch.
TEST(Parse, SurvivesDamage) {
  for (const char* name : {"train_1f1b", "interleaved", "ring_all_reduce", "replicas", "instances"}) {
    const std::string text = value_of(read_file(std::string(NLS_SOURCE_DIR "/tests/programs/") + name + ".nls"));
    for (size_t cut = 0; cut < text.size(); cut += 7) (void)complaint(text.substr(0, cut));
    uint32_t state = 1;
    const auto random = [&] { return state = state * 1664525u + 1013904223u; };
    constexpr std::string_view bytes = "0123456789-:.,[]{}()=+ \n#\"abFx";
    for (int round = 0; round < 600; ++round) {
      std::string damaged = text;
      for (int i = 0; i < 1 + round % 4; ++i)
        damaged[random() % damaged.size()] = bytes[(random() >> 16) % bytes.size()];
      (void)complaint(damaged);
    }
  }
}

TEST(DryRun, OrderIsTopological) {
  const auto program = parse_program(good, "test.nls");
  ASSERT_TRUE(program.ok());
  const auto deps = dependencies(*program);
  ASSERT_TRUE(deps.ok());
  const auto order = dry_run(*program, *deps);
  ASSERT_TRUE(order.ok());
  std::vector<size_t> place(order->size());
  for (size_t i = 0; i < order->size(); ++i) place[(*order)[i]] = i;
  for (uint32_t i = 0; i < place.size(); ++i) {
    for (const Edge& edge : deps->into(i)) EXPECT_LT(place[edge.from], place[i]);
  }
}

}  // namespace
}  // namespace nlsplit
