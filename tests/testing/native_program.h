// Two devices that add up what each has computed, by the transport's own all-reduce. Its instructions say what it does,
// here by a binomial tree: to A and back.
#pragma once

namespace nlsplit::testing {

inline constexpr const char* native_all_reduce = R"(nlsplit program 1
program native_all_reduce batch 4 micro_batches 2

device A cpu host a isa v2 memory 1048576
  buffer x_A f32[2,6] input instances 2
  buffer y f32[12] comm instances 2
  buffer h f32[2,6] view of y
  buffer r f32[12] comm instances 2
  buffer y_A f32[12] output instances 2
  segment F stage 0 shard 0 phase F
    h = Relu(x_A) kernel unary_v2 as "relu"
    collective all-reduce tree of A, B elements 12 native y[0:12] {
      recv r from B tag 1
      y = reduce(y, r)
      send y to B tag 2
    }
    y_A = copy(y)
  order
    F.0 x_A:0 y:0 r:0 y_A:0
    F.1 x_A:1 y:1 r:1 y_A:1

device B cpu host b isa v2 memory 1048576
  buffer x_B f32[2,6] input instances 2
  buffer y f32[12] comm instances 2
  buffer h f32[2,6] view of y
  buffer y_B f32[12] output instances 2
  segment F stage 0 shard 1 phase F
    h = Tanh(x_B) kernel unary_v2 as "tanh"
    collective all-reduce tree of A, B elements 12 native y[0:12] {
      send y to A tag 1
      recv y from A tag 2
    }
    y_B = copy(y)
  order
    F.0 x_B:0 y:0 y_B:0
    F.1 x_B:1 y:1 y_B:1
)";

}  // namespace nlsplit::testing
