// The tables of policies that run what comes first, held against the plain way to make them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/random.h"
#include "schedule/assign.h"

namespace nlsplit {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// Looks at every slot that is left before each choice. It counts slots that need nothing as those of one entry each.
SlotTable plain_table(const ScheduleInput& input, int in_flight) {
  const std::vector<std::vector<int>> needs = stage_needs(input), replica = assign_replicas(input);
  const auto count = static_cast<size_t>(input.micro_batches);
  const size_t stages = needs.size();
  std::vector<std::vector<double>> finished(stages, std::vector<double>(count, never));
  std::vector<double> device_free(static_cast<size_t>(input.devices), 0), left;
  SlotTable table;
  table.devices.resize(device_free.size());
  for (size_t slot = 0; slot < stages * count; ++slot) {
    double best_start = never;
    size_t best_stage = 0, best_replica = 0, best_m = 0;
    for (size_t s = 0; s < stages; ++s) {
      for (size_t r = 0; r < input.stage_devices[s].size(); ++r) {
        size_t m = 0;  // the first that this replica still has to run
        while (m < count && (replica[s][m] != static_cast<int>(r) || finished[s][m] < never)) ++m;
        if (m == count) continue;
        double start = device_free[static_cast<size_t>(input.stage_devices[s][r])];
        for (const int before : needs[s]) start = std::max(start, finished[static_cast<size_t>(before)][m]);
        if (needs[s].empty()) {
          if (std::ranges::count_if(finished[s], [](double f) { return f < never; }) != static_cast<int64_t>(m))
            continue;
          if (m >= static_cast<size_t>(in_flight)) {
            const size_t gone = m - static_cast<size_t>(in_flight);
            start = gone < left.size() ? std::max(start, left[gone]) : never;
          }
        }
        if (start == never || start > best_start || (start == best_start && s <= best_stage)) continue;
        best_start = start;
        best_stage = s;
        best_replica = r;
        best_m = m;
      }
    }
    const int device = input.stage_devices[best_stage][best_replica];
    table.devices[static_cast<size_t>(device)].push_back(
        {static_cast<int>(best_stage), Phase::forward, static_cast<int>(best_m)});
    const double end = best_start + input.stage_seconds[best_stage][best_replica];
    finished[best_stage][best_m] = device_free[static_cast<size_t>(device)] = end;
    double last = 0;
    for (const std::vector<double>& stage : finished) last = std::max(last, stage[best_m]);
    if (last < never) left.insert(std::ranges::upper_bound(left, last), last);
  }
  return table;
}

// Stages that share devices, need any of those before them or none, and take equally long often.
TEST(ForwardTable, IsWhatThePlainWayMakes) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    ScheduleInput input;
    input.micro_batches = 1 + static_cast<int>(random.below(6));
    input.devices = 1 + static_cast<int>(random.below(4));
    const size_t stages = 2 + random.below(9);
    for (size_t s = 0; s < stages; ++s) {
      std::vector<int>& devices = input.stage_devices.emplace_back();
      const auto first = static_cast<int>(random.below(static_cast<uint64_t>(input.devices)));
      devices.push_back(first);
      if (input.devices > 1 && random.below(3) == 0) devices.push_back((first + 1) % input.devices);
      std::vector<double>& seconds = input.stage_seconds.emplace_back();
      for (size_t r = 0; r < devices.size(); ++r) seconds.push_back(static_cast<double>(1 + random.below(3)));
      std::vector<int>& needs = input.needs.emplace_back();
      for (size_t before = 0; before < s; ++before) {
        if (random.below(2) == 0) needs.push_back(static_cast<int>(before));
      }
    }
    if (!shares_devices(input)) continue;
    for (const int in_flight : {1, 2, input.micro_batches}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", in flight " << in_flight);
      const SlotTable table = forward_table(input, in_flight).value(), plain = plain_table(input, in_flight);
      ASSERT_EQ(table.devices.size(), plain.devices.size());
      for (size_t d = 0; d < table.devices.size(); ++d) {
        ASSERT_EQ(table.devices[d].size(), plain.devices[d].size());
        for (size_t i = 0; i < table.devices[d].size(); ++i) {
          ASSERT_EQ(table.devices[d][i].stage, plain.devices[d][i].stage);
          ASSERT_EQ(table.devices[d][i].micro_batch, plain.devices[d][i].micro_batch);
        }
      }
    }
  }
}

}  // namespace
}  // namespace nlsplit
