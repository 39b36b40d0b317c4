// What a Program's text cannot say: each refusal names the place in the text, or the instruction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/complaint.h"

namespace nlsplit {
namespace {

using testing::complaint;
using ::testing::HasSubstr;
using testing::replaced;

const std::string plain = R"(nlsplit program 1
program plain batch 4 micro_batches 2
device A cpu host a isa v2 memory 65536
  buffer x f32[2,4] input instances 2
  buffer a f32[2,4] comm instances 2
  buffer b f32[2,4] scratch
  buffer w f32[2,4] weight content 1f
  buffer g f32[2,4] scratch
  segment F stage 0 phase F
    b = Relu(x) kernel unary_v2
    a = copy(b)
    send a to B tag 3
  order
    F.0
    F.1 x:1 a:1
device B cpu host b isa v2 memory 65536
  buffer a f32[2,4] comm instances 2
  buffer y f32[2,4] output instances 2
  segment "G 1" stage 1 phase F
    recv a from A tag 3
    y = copy(a)
  order
    "G 1".0
    "G 1".1 "a":1 y:1
)";

struct Row {
  const char *from, *to, *expected;
};

TEST(ProgramText, TheGoodOneIsGood) { EXPECT_EQ(complaint(plain), ""); }

TEST(ProgramText, RefusesWhatCannotBe) {
  const Row rows[] = {
      {"f32[2,4] scratch\n  buffer w", "f32[2,4] view of nothing\n  buffer w", "test.nls:6:29: unknown buffer nothing"},
      {"  segment F stage 0 phase F", "  segment F stage 0 phase F\n  segment F stage 0 phase F",
       "test.nls:10:27: two segments are called F"},
      {"    a = copy(b)", "    collective all-reduce ring of A, B elements 8 {\n    a = copy(b)",
       "test.nls:14:3: the collective's } is missing"},
      {"    a = copy(b)", "    collective gather ring of A, B elements 8 {",
       "test.nls:11:16: unknown collective 'gather'; there are all-reduce, reduce-scatter, all-gather, all-to-all, "
       "broadcast"},
      {"    a = copy(b)", "    collective all-reduce star of A, B elements 8 {",
       "test.nls:11:27: all-reduce has no algorithm 'star'"},
      {"    a = copy(b)", "    collective all-gather tree of A, B elements 4, 4 {",
       "test.nls:11:27: all-gather has no algorithm 'tree'; there are ring, doubling, direct, two_level"},
      {"    a = copy(b)", "    collective all-reduce ring of A, Z elements 8 {", "test.nls:11:38: unknown device Z"},
      {"    a = copy(b)", "    collective all-reduce ring of A, B {", "test.nls:11:40: expected ',', found '{'"},
      {"    a = copy(b)", "    collective all-reduce ring of A, B elements 4 native q {", "unknown buffer q"},
      {"    a = copy(b)", "    collective all-reduce ring of A, B elements x {", "elements"},
      {"\"G 1\".0", "\"G 1\" 0", "test.nls:23:11: a slot is segment.micro-batch, or segment.- without one"},
      {"F.0\n", "F\n", "test.nls:14:5: a slot is segment.micro-batch, or segment.- without one"},
      {"F.0\n", "F.7\n", "test.nls:14:5: micro-batch must be 0 … 1"},
      {"F.0\n", "F.x\n", "test.nls:14:5: micro-batch must be 0 … 1"},
      {"F.0\n", "F.\n", "test.nls:14:5: micro-batch must be 0 … 1"},
      {"F.0\n", "E.0\n", "test.nls:14:5: unknown segment E"},
      {"x:1 a:1", "x:9 a:1", "test.nls:15:9: x has instances 0 … 1"},
      {"x:1 a:1", "x:-1 a:1", "test.nls:15:9: x has instances 0 … 1"},
      {"x:1 a:1", "x a:1", "test.nls:15:9: x has instances 0 … 1"},
      {"x:1 a:1", "q:1 a:1", "test.nls:15:9: unknown buffer q"},
      {"\"a\":1", "\"a\" 1", "test.nls:24:17: a has instances 0 … 1"},
      {"copy(b)", "copy(b[0-4])", "test.nls:11:16: a slice is [begin:end], elements, begin < end"},
      {"copy(b)", "copy(b[4:4])", "test.nls:11:16: a slice is [begin:end], elements, begin < end"},
      {"copy(b)", "copy(b[x:4])", "test.nls:11:16: a slice is [begin:end], elements, begin < end"},
      {"copy(b)", "copy(b[0:x])", "test.nls:11:16: a slice is [begin:end], elements, begin < end"},
      {"copy(b)", "copy(b[:4])", "test.nls:11:16: a slice is [begin:end], elements, begin < end"},
      {"copy(b)", "copy(b[0:4", "test.nls:11:19: expected ']', found the end of the line"},
      {"copy(b)", "copy(b b)", "test.nls:11:16: expected ',', found 'b'"},
      {"Relu(x) kernel", "Relu(x) + Conv kernel",
       "test.nls:10:19: Conv is not element-wise and cannot follow another operator"},
      {"Relu(x) kernel", "Relu(x) + Nothing kernel", "test.nls:10:19: unknown operator Nothing"},
      {"Relu(x) kernel", "Nothing(x) kernel", "test.nls:10:9: unknown operator Nothing"},
      {"Relu(x) kernel", "Relu(-) kernel", "test.nls:10:14: unknown buffer -"},
      {"Relu(x) kernel", "Relu(_) kernel", "test.nls:10:32: a computation's operands cannot be left out"},
      {"b = Relu(x) kernel unary_v2", "- = Relu(x) kernel unary_v2", "test.nls:10:5: unknown buffer -"},
      {"b = Relu(x) kernel unary_v2", "_ = Relu(x) kernel unary_v2", "test.nls:10:32: a result cannot be left out"},
      {"send a to B tag 3", "send a to C tag 3", "test.nls:12:15: unknown device C"},
      {"send a to B tag 3", "send a to B tag -1", "test.nls:12:21: a tag must be 0 … 1073741823"},
      {"send a to B tag 3", "send a to B", "test.nls:12:16: expected 'tag', found the end of the line"},
      {"a = copy(b)", "a = pack(b) axis 2 begin 0 end 1",
       "device A segment F `a = pack(b) axis 2 begin 0 end 1`: no such axis"},
      {"a = copy(b)", "a = pack(b) axis 0 begin 1 end 1",
       "device A segment F `a = pack(b) axis 0 begin 1 end 1`: begin and end leave the axis"},
      {"a = copy(b)", "a = pack(b) axis 0 begin 0 end 3",
       "device A segment F `a = pack(b) axis 0 begin 0 end 3`: begin and end leave the axis"},
      {"a = copy(b)", "a = pack(b) axis 0 begin 0 end 1",
       "device A segment F `a = pack(b) axis 0 begin 0 end 1`: the part is f32[1,4], another size than its buffer"},
      {"a = copy(b)", "a = pack(b) axis 0 begin -1 end 1", "test.nls:11:30: begin must be 0 … 9223372036854775807"},
      {"a = copy(b)", "a = copy(b) as copied", "test.nls:11:20: expected a label in quotes, found 'copied'"},
      {"buffer g f32[2,4] scratch", "buffer g i32[2,4] scratch", ""},
      {"a = copy(b)", "a = reduce(b, w)", ""},
      {"buffer b f32[2,4] scratch", "buffer x f32[2,4] scratch", "test.nls:6:28: two buffers are called x"},
      {"memory 65536", "memory -1", "test.nls:3:35: memory must be 0 … 9223372036854775807"},
      {"batch 4", "batch x", "test.nls:2:21: expected batch (an integer), found 'x'"},
      {"stage 0 phase F", "stage 0 phase Q", "test.nls:9:27: unknown phase 'Q'; there are init, F, I, W, R and step"},
      {"Relu(x) kernel", "Relu(x) {a=[1,} kernel", "test.nls:10:23: expected an integer (an integer), found '}'"},
      {"Relu(x) kernel", "Relu(x) {a=1, a=2} kernel", "test.nls:10:23: attribute a stands twice"},
      {"Relu(x) kernel", "Relu(x) {} kernel", ""},
  };
  for (const auto& [from, to, expected] : rows) {
    const std::string error = complaint(replaced(plain, from, to));
    if (*expected == 0)
      EXPECT_EQ(error, "") << to;
    else
      EXPECT_THAT(error, HasSubstr(expected)) << to;
  }
}

}  // namespace
}  // namespace nlsplit
