// DualPipe and DualPipeV: a forward always beside a backward, so that the messages of one hide behind the computing of
// the other. DeepSeek-AI, "DeepSeek-V3 technical report", 2024 (arXiv 2412.19437), section 3.2.1, figure 5, table 2;
// DualPipeV cuts it in half: Qi et al., "Cut-in-half", 2025, github.com/deepseek-ai/DualPipe.
//   DualPipe   p devices (even), p stages, each on two devices (weights twice): half the micro-batches go from device 0
//              to p - 1, the others back. At least 2p micro-batches, an even number.
//   DualPipeV  p devices, 2p stages in a V; the way back is the second half of the stages. At least 2p micro-batches.
// With P stages (P = p or 2p) and T_F = T_I: bubble (P/2 - 1)(T_F&B + T_B - 3 T_W), T_B = T_I + T_W and T_F&B a forward
// and a backward beside each other; a device keeps P + 1 micro-batches of one stage. A table has no "beside each
// other": F comes just before the backward it goes with, T_F&B = T_F + T_B where the device computes one thing at a
// time.
#include <fmt/format.h>

#include <deque>

#include "schedule/placement.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {
namespace {

// One device and its two directions: 0 is the one it meets first, of which it is nearer to the beginning.
class Half {
 public:
  struct Direction {
    int stage = 0;
    int first_micro_batch = 0;
    int forward = 0, input_gradient = 0;  // how many so far
  };
  Half(Direction near, Direction far) : directions_{near, far} {}

  void forward(int which) {
    Direction& d = directions_[which];
    add_forward(order_, d.stage, d.first_micro_batch + d.forward++);
  }
  void backward(int which) {
    Direction& d = directions_[which];
    add_backward(order_, d.stage, d.first_micro_batch + d.input_gradient++);
  }
  void input_gradient(int which) {
    Direction& d = directions_[which];
    const int m = d.first_micro_batch + d.input_gradient++;
    add_input_gradient(order_, d.stage, m);
    late_.push_back({d.stage, Phase::weight_gradient, m});
  }
  void weight_gradient() {
    order_.push_back(late_.front());
    late_.pop_front();
  }
  std::vector<ScheduledSlot> take() { return std::move(order_); }

 private:
  Direction directions_[2];
  std::deque<ScheduledSlot> late_;
  std::vector<ScheduledSlot> order_;
};

// `rank` of `ranks` from the outer end to the middle; each direction has this many micro-batches.
std::vector<ScheduledSlot> order_of(int rank, int ranks, int micro_batches, Half half) {
  const int inward = ranks - rank - 1;
  for (int i = 0; i < 2 * inward; ++i) half.forward(0);
  for (int i = 0; i <= rank; ++i) {
    half.forward(0);
    half.forward(1);
  }
  for (int i = 0; i < inward; ++i) {
    half.input_gradient(1);
    half.weight_gradient();
    half.forward(1);
  }
  for (int i = 0; i < micro_batches - 2 * ranks + rank + 1; ++i) {
    half.forward(0);
    half.backward(1);
    half.forward(1);
    half.backward(0);
  }
  for (int i = 0; i < inward; ++i) {
    half.backward(1);
    half.forward(1);
    half.backward(0);
  }
  // The last rank + 1 backwards of this part put off W to fill what follows.
  const auto last = [&](int which, int done) {
    if (done > rank)
      half.input_gradient(which);
    else
      half.backward(which);
  };
  for (int i = 0; i <= rank; ++i) {
    last(1, 2 * i);
    last(0, 2 * i + 1);
  }
  for (int i = 0; i < inward; ++i) {
    half.weight_gradient();
    half.input_gradient(0);
  }
  for (int i = 0; i <= rank; ++i) half.weight_gradient();
  return half.take();
}

}  // namespace

Result<SlotTable> schedule_dualpipe(const ScheduleInput& input) {
  return schedule_lines("dualpipe", StagePlacement::mirrored, input, [](const Line& line) -> Result<Orders> {
    const int p = line.devices, half = line.micro_batches / 2;
    if (line.micro_batches % 2 != 0 || line.micro_batches < 2 * p) {
      return unsupported(fmt::format(
          "schedule dualpipe needs an even number of micro-batches, at least {}, twice the devices; there are {}",
          2 * p, line.micro_batches));
    }
    Orders orders(static_cast<size_t>(p));
    for (int d = 0; d < p; ++d) {
      // Direction 0 of the second half of the devices is the way back, with the second half of the micro-batches.
      const bool back = d >= p / 2;
      const int rank = back ? p - 1 - d : d;
      orders[static_cast<size_t>(d)] =
          order_of(rank, p / 2, half, Half({rank, back ? half : 0}, {p - 1 - rank, back ? 0 : half}));
    }
    return orders;
  });
}

Result<SlotTable> schedule_dualpipe_v(const ScheduleInput& input) {
  return schedule_lines("dualpipe_v", StagePlacement::v, input, [](const Line& line) -> Result<Orders> {
    const int p = line.devices;
    if (line.micro_batches < 2 * p) {
      return unsupported(
          fmt::format("schedule dualpipe_v needs at least {} micro-batches, one for each stage; there are {}", 2 * p,
                      line.micro_batches));
    }
    Orders orders(static_cast<size_t>(p));
    for (int d = 0; d < p; ++d)
      orders[static_cast<size_t>(d)] = order_of(d, p, line.micro_batches, Half({d, 0}, {line.stages - 1 - d, 0}));
    return orders;
  });
}

}  // namespace nlsplit::inline schedules
