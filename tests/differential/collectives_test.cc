// Every collective under every algorithm, in groups of any size and with shares of any sizes: its Program is verified,
// survives its text, is run by threads and held against plain loops, bit by bit where values are added, and is
// simulated by both tiers.
//
//   NLSPLIT_COLLECTIVE_CASES=1000 build/release/bin/test_differential --gtest_filter='Collectives.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>

#include "base/npy.h"
#include "base/random.h"
#include "compile/collective_program.h"
#include "compile/sum_tree.h"
#include "exec/run_threads.h"
#include "program/saved.h"
#include "program/text.h"
#include "program/verify.h"
#include "sim/fast.h"
#include "sim/simgrid/simgrid_tier.h"
#include "testing/read_npy.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t usual_draws = 10;  // ten times slower
#else
constexpr uint64_t usual_draws = 24;
#endif

uint64_t draw_count() {
  const char* text = std::getenv("NLSPLIT_COLLECTIVE_CASES");
  return text == nullptr ? usual_draws : std::strtoull(text, nullptr, 10);
}

struct Group {
  Cluster cluster;
  std::vector<DeviceId> devices;
  std::vector<HostId> hosts;
};

// Hosts around a switch; up to three members on each, not in any order.
Group random_group(int members, std::mt19937_64& random) {
  Group group;
  const int most_hosts = std::uniform_int_distribution<int>(1, members)(random);
  for (int h = 0; h < most_hosts; ++h) group.cluster.hosts.push_back({fmt::format("h{}", h), false});
  for (int m = 0; m < members; ++m) {
    const auto host = static_cast<size_t>(std::uniform_int_distribution<int>(0, most_hosts - 1)(random));
    group.cluster.devices.push_back(
        {fmt::format("D{}", m), HostId(host), DeviceKind::cpu, bytes(int64_t{1} << 30), Isa::v3});
    group.devices.push_back(DeviceId(static_cast<size_t>(m)));
    group.hosts.push_back(HostId(host));
  }
  const HostId hub(group.cluster.hosts.size());
  group.cluster.hosts.push_back({"sw", true});
  for (int h = 0; h < most_hosts; ++h) {
    const double bandwidth = std::uniform_real_distribution<double>(1e6, 1e9)(random);
    group.cluster.links.push_back(
        {"", HostId(static_cast<size_t>(h)), hub, bytes_per_second(bandwidth), seconds(1e-4), true});
  }
  for (int h = 0; h < most_hosts; ++h) {  // between members of one host
    const HostId host(static_cast<size_t>(h));
    group.cluster.links.push_back({"", host, host, bytes_per_second(1e10), seconds(1e-6), true});
  }
  group.cluster.eager_limit = bytes(std::uniform_int_distribution<int64_t>(0, 400)(random));
  return group;
}

// Uneven ones, empty ones, and values smaller than the group.
std::vector<int64_t> random_sizes(CollectiveKind kind, int members, std::mt19937_64& random) {
  const int64_t most = std::uniform_int_distribution<int>(0, 3)(random) == 0 ? 3 : 200;
  std::vector<int64_t> sizes(is_whole(kind) ? 1 : static_cast<size_t>(members));
  for (int64_t& size : sizes) size = std::uniform_int_distribution<int64_t>(0, most)(random);
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == 0) sizes.back() = 1;
  return sizes;
}

using Values = std::vector<std::vector<float>>;  // [member]

float sum_by(const SumTree& tree, const Values& values, size_t element) {
  if (tree.member >= 0) return values[static_cast<size_t>(tree.member)][element];
  float sum = sum_by(tree.terms[0], values, element);
  for (size_t t = 1; t < tree.terms.size(); ++t) sum += sum_by(tree.terms[t], values, element);
  return sum;
}

// The member's result by plain loops. Of a value the elements that it has no share of are left as NaN: anything may be
// there.
std::vector<float> wanted(const Collective& collective, const Group& group, const Values& values, size_t member) {
  const auto elements = static_cast<size_t>(value_elements(collective));
  std::vector<size_t> begins{0};
  for (const int64_t size : collective.elements) begins.push_back(begins.back() + static_cast<size_t>(size));
  std::vector<float> result;
  switch (collective.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce_scatter: {
      const bool all = collective.kind == CollectiveKind::all_reduce;
      result.assign(elements, NAN);
      for (size_t e = all ? 0 : begins[member]; e < (all ? elements : begins[member + 1]); ++e) {
        result[e] = sum_by(sum_tree(collective, group.hosts, static_cast<int64_t>(e)), values, e);
        double plain = 0, magnitude = 0;
        for (const std::vector<float>& one : values) plain += one[e], magnitude += std::abs(one[e]);
        EXPECT_NEAR(result[e], plain, 1e-6 * magnitude) << "not a sum of all members";
      }
      return result;
    }
    case CollectiveKind::all_gather:
      for (size_t m = 0; m < values.size(); ++m) {
        for (size_t e = begins[m]; e < begins[m + 1]; ++e) result.push_back(values[m][e]);
      }
      return result;
    case CollectiveKind::all_to_all:
      for (const std::vector<float>& one : values) {
        for (size_t e = begins[member]; e < begins[member + 1]; ++e) result.push_back(one[e]);
      }
      return result;
    case CollectiveKind::broadcast:
      return values[0];
  }
  return result;
}

void run_and_compare(Program program, const Collective& collective, const Group& group, const std::string& what) {
  const auto elements = static_cast<size_t>(value_elements(collective));
  Values values;
  for (size_t m = 0; m < group.devices.size(); ++m) {
    std::vector<float>& mine = values.emplace_back(elements);
    fill_normal(m + 1, mine.data(), static_cast<int64_t>(elements));
    Buffer& buffer = program.devices[m].buffers[0];
    buffer.has_content = true;
    buffer.content = {m + 1};
  }
  Job job;
  job.contents = [&](ContentId id) -> Result<std::string_view> {
    const std::vector<float>& of = values[id.value - 1];
    return std::string_view(reinterpret_cast<const char*>(of.data()), of.size() * sizeof(float));
  };
  RunOptions options;
  options.warmup = 0;
  options.repeats = 1;
  options.states = true;
  const auto ran = run_threads(program, job, options);
  ASSERT_TRUE(ran.ok()) << what << ": " << ran.error().message;
  for (size_t m = 0; m < group.devices.size(); ++m) {
    const bool moved = collective.kind == CollectiveKind::all_to_all;
    const std::string name = (moved ? "result_" : "value_") + program.devices[m].name;
    const auto found = std::ranges::find_if(ran->outputs, [&](const auto& out) { return out.tensor.name == name; });
    ASSERT_NE(found, ran->outputs.end()) << what;
    const std::vector<float> want = wanted(collective, group, values, m);
    ASSERT_EQ(found->tensor.values.size(), want.size()) << what;
    for (size_t e = 0; e < want.size(); ++e) {
      if (std::isnan(want[e])) continue;
      ASSERT_EQ(found->tensor.values[e], want[e]) << what << ": element " << e << " of member " << m;
    }
  }
}

void simulate_both(const Program& program, const Dependencies& dependencies, const Cluster& cluster,
                   const std::string& what) {
  const CostTable costs(
      std::vector<CostSourcePtr>(cluster.devices.size(), roofline(flops_per_second(1e9), bytes_per_second(1e9))),
      "test.yaml");
  const auto graph = build_timed_graph(program, dependencies, cluster, costs);
  ASSERT_TRUE(graph.ok()) << what << ": " << graph.error().message;
  const auto fast = simulate_all(fast_tier(), cluster, {&*graph});
  const auto shared = simulate_all(simgrid_tier(), cluster, {&*graph});
  ASSERT_TRUE(fast.ok()) << what;
  ASSERT_TRUE(shared.ok()) << what << ": " << shared.error().message;
  EXPECT_GT((*fast)[0].makespan, 0) << what;
  const double precision = 1e-12 * static_cast<double>(graph->activities.size());  // surf/precision, an activity
  EXPECT_GE((*shared)[0].makespan, (*fast)[0].makespan - precision)
      << what << ": by " << (*fast)[0].makespan - (*shared)[0].makespan;
}

TEST(Collectives, DoWhatTheySay) {
  for (uint64_t seed = 1; seed <= draw_count(); ++seed) {
    std::mt19937_64 random(seed);
    const int members = std::uniform_int_distribution<int>(2, 17)(random);
    const Group group = random_group(members, random);
    for (const CollectiveKind kind : all_kinds()) {
      Collective collective;
      collective.kind = kind;
      collective.elements = random_sizes(kind, members, random);
      for (const CollectiveAlgorithm algorithm : algorithms_of(kind)) {
        collective.algorithm = algorithm;
        const std::string what = fmt::format("seed {}: {} {} of {}", seed, name_of(kind), name_of(algorithm), members);
        const Program program = collective_program(collective, group.devices, group.cluster);
        const auto sound = verified(program);
        ASSERT_TRUE(sound.ok()) << what << ": " << sound.error().message << "\n" << to_string(program);
        const std::string text = to_string(program);
        const auto again = parse_program(text, "again.nls");
        ASSERT_TRUE(again.ok()) << what << ": " << again.error().to_string();
        ASSERT_TRUE(*again == program) << what;
        simulate_both(program, *sound, group.cluster, what);
        // Threads are many and slow to start.
        if (seed % 3 == 0 || members <= 5) run_and_compare(program, collective, group, what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Values of each member, as contents of a Program's weights.
Values give_values(Program& program, WeightStore& store, size_t elements) {
  Values values;
  for (size_t m = 0; m < program.devices.size(); ++m) {
    std::vector<float>& mine = values.emplace_back(elements);
    fill_normal(m + 1, mine.data(), static_cast<int64_t>(elements));
    Buffer& buffer = program.devices[m].buffers[0];
    buffer.has_content = true;
    buffer.content =
        store.add_bytes(buffer.type, {reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(float)});
  }
  return values;
}

// All kinds by MPI's own collectives, in groups of all ranks: moved bit by bit, added in whatever order.
TEST(Collectives, AreWhatMpiDoesByItsOwn) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / fmt::format("nlsplit-native-{}", ::getpid());
  for (const int members : {2, 3, 5}) {
    std::mt19937_64 random(static_cast<uint64_t>(members));
    const Group group = random_group(members, random);
    std::string folders;
    std::vector<std::pair<Collective, Values>> cases;
    for (const CollectiveKind kind : all_kinds()) {
      Collective collective{kind, algorithms_of(kind)[0], {}, std::vector<int64_t>(static_cast<size_t>(members))};
      // Of all sizes, the last of an all-reduce that MPI has another algorithm for (compile/collective_costs.h).
      for (int64_t m = 0; m < members; ++m) collective.elements[static_cast<size_t>(m)] = 5 * m + 1;
      if (is_whole(kind)) collective.elements = {kind == CollectiveKind::all_reduce ? 20'000 : 7};
      Program program = collective_program(collective, group.devices, group.cluster, true);
      ASSERT_TRUE(verify(program).ok()) << name_of(kind) << ": " << verify(program).error().message;
      WeightStore store;
      cases.emplace_back(collective, give_values(program, store, static_cast<size_t>(value_elements(collective))));
      const std::string folder = root / std::string(name_of(kind));
      ASSERT_TRUE(save_program(folder, {program, program, false, {}}, store).ok());
      folders += " " + folder;
    }
    const Outcome ran =
        run_command(fmt::format("ASAN_OPTIONS=detect_leaks=0 mpirun {} --oversubscribe -np {} {}/differential_mpi 1{}",
                                ::geteuid() == 0 ? "--allow-run-as-root" : "", members, NLS_BIN_DIR, folders));
    ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
    for (const auto& [collective, values] : cases) {
      const NpyArray all = value_of(read_npy(root / std::string(name_of(collective.kind)) / "mpi.npy"));
      size_t at = 0;  // states stand member by member, the result behind the value
      for (size_t m = 0; m < values.size(); ++m) {
        if (collective.kind == CollectiveKind::all_to_all) at += values[m].size();
        for (const float want : wanted(collective, group, values, m)) {
          ASSERT_LT(at, all.values.size());
          const float near = adds_up(collective.kind) ? 1e-5f : 0;
          if (!std::isnan(want)) {
            ASSERT_NEAR(all.values[at], want, near) << name_of(collective.kind) << " member " << m;
          }
          ++at;
        }
      }
      EXPECT_EQ(at, all.values.size()) << name_of(collective.kind);
    }
  }
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace nlsplit
