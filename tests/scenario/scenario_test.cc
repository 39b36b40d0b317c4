#include "scenario/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "sim/simgrid/platform.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view smallest = R"(model: zoo:simple_cnn
workload: {batch: 12}
devices: {A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}}
)";

Scenario parse(std::string_view text, const std::string& file = "s.yaml") {
  auto scenario = parse_scenario(text, file);
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return std::move(scenario).value();
}

TEST(Scenario, DefaultsServe) {
  const Scenario s = parse(smallest);
  EXPECT_EQ(s.model, "zoo:simple_cnn");
  EXPECT_EQ(s.weights_seed, 1u);
  EXPECT_EQ(s.endpoints.source, s.cluster.devices[0].host);  // the one host of all devices
  EXPECT_EQ(s.endpoints.sink, s.cluster.devices[0].host);
  EXPECT_THAT(s.micro_batches, ElementsAre(1, 2, 4));  // of 1, 2, 4, 8, 16 those that divide 12
  EXPECT_EQ(s.cluster.devices[0].kind, DeviceKind::cpu);
  EXPECT_EQ(s.cluster.devices[0].level, Isa::v3);
  EXPECT_EQ(s.cluster.eager_limit, bytes(0));
  EXPECT_EQ(s.cluster.handshake, seconds(0));
  EXPECT_EQ(s.cluster.nic_window, 0);
  EXPECT_TRUE(s.search.layers);
  EXPECT_TRUE(s.search.replicate);
  EXPECT_EQ(s.search.max_candidates, SearchOptions().max_candidates);
  EXPECT_THAT(s.schedules, ElementsAre("streaming"));
  EXPECT_EQ(s.objective, Objective::throughput);
  EXPECT_EQ(s.keep, 20);
  EXPECT_TRUE(s.plans.empty());
}

TEST(Scenario, WhoAsksIsWhoIsAnswered) {
  const Scenario s = parse(R"(model: zoo:llama
workload: {mode: generation}
devices:
  A: &one {host: a, memory: 8GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}
  B: {<<: *one, host: b}
links: [{between: [a, b], bandwidth: 1Gbps, latency: 100us}]
source: b
)");
  EXPECT_EQ(s.endpoints.source, s.cluster.devices[1].host);
  EXPECT_EQ(s.endpoints.sink, s.cluster.devices[1].host);
}

TEST(Scenario, OptimizersHaveSettings) {
  const auto training = [](const std::string& optimizer) {
    std::string scenario(smallest);
    scenario.replace(scenario.find("{batch: 12}"), 11, "{mode: training, batch: 12, optimizer: " + optimizer + "}");
    return *parse(scenario).training;
  };
  const TrainingOptions all = training(
      "{adamw: {rate: {peak: 3e-4, warmup: 100, cosine: {steps: 1000, floor: 3e-5}}, beta1: 0.8, beta2: 0.95, "
      "epsilon: 1e-6, decay: 0.1, no_decay: norms_and_biases}}");
  EXPECT_EQ(all.optimizer, Optimizer::adamw);
  OptimizerSettings wanted;
  wanted.rate = RateSchedule{3e-4, 100, 1000, 3e-5, {}};
  wanted.beta1 = 0.8, wanted.beta2 = 0.95, wanted.epsilon = 1e-6, wanted.decay = 0.1;
  wanted.decay_matrices_only = true;
  EXPECT_EQ(all.settings, wanted);
  const TrainingOptions nesterov =
      training("{momentum: {rate: {peak: 0.1, steps: {30: 0.01, 60: 0.001}}, momentum: 0.8, nesterov: true}}");
  EXPECT_EQ(nesterov.optimizer, Optimizer::momentum);
  OptimizerSettings falling;
  falling.rate = RateSchedule{0.1, 0, 0, 0, {{30, 0.01}, {60, 0.001}}};
  falling.momentum = 0.8, falling.nesterov = true;
  EXPECT_EQ(nesterov.settings, falling);
  EXPECT_EQ(training("{adam: }").settings, OptimizerSettings());
  EXPECT_EQ(training("{sgd: {rate: {warmup: 10}}}").settings.rate, (RateSchedule{0.01, 10, 0, 0, {}}));
}

TEST(Scenario, TrainingHasItsOwnKeysAndSchedules) {
  EXPECT_FALSE(parse(smallest).training.has_value());
  const auto workload = [](const std::string& text) {
    std::string scenario(smallest);
    return parse(scenario.replace(scenario.find("{batch: 12}"), 11, text));
  };
  const Scenario plain = workload("{mode: training, batch: 12}");
  ASSERT_TRUE(plain.training.has_value());
  EXPECT_EQ(plain.training->optimizer, Optimizer::sgd);
  EXPECT_EQ(plain.training->recompute, Recompute::none);
  EXPECT_THAT(plain.schedules, ElementsAre("gpipe", "1f1b"));  // streaming is for inference
  const Scenario full = workload("{mode: training, batch: 12, optimizer: adam, recompute: full}");
  EXPECT_EQ(full.training->optimizer, Optimizer::adam);
  EXPECT_EQ(full.training->recompute, Recompute::full);
  EXPECT_EQ(workload("{mode: training, batch: 12, recompute: none}").training->recompute, Recompute::none);
  EXPECT_EQ(plain.training->settings, OptimizerSettings());
  EXPECT_EQ(workload("{mode: training, batch: 12, learning_rate: 0.5}").training->settings.rate, RateSchedule{0.5});
  EXPECT_EQ(plain.training->loss, Loss::softmax_cross_entropy);
  const Scenario squares = workload("{mode: training, batch: 12, loss: mean_squared_error}");
  EXPECT_EQ(squares.training->loss, Loss::mean_squared_error);
}

TEST(Scenario, EveryKeyArrives) {
  const Scenario s = parse(R"(
model: {path: nets/x.onnx, inputs: {x: [1, 3, 48, 192], y: []}, dims: {width: 192}}
workload: {mode: inference, batch: 24, micro_batches: 8}
devices:
  A: &m {host: a, kind: cpu, memory: 1.5GiB, isa: v4, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}
  B: {<<: *m, host: b, isa: x86-64-v3}
switches: [sw]
links:
  - {between: [a, sw], bandwidth: 1Gbps, latency: 50us, duplex: half}
  - {between: [sw, b], bandwidth: 125MBps, latency: 1ms, duplex: full, name: uplink}
  - {between: [a, sw], bandwidth: 1Gbps, latency: 60us}
  - {between: [in, sw], bandwidth: 10Gbps, latency: 0s}
network: {eager_limit: 64KiB, handshake: 100us, nic_window: 2, messages: f16}
source: in
sink: b
search: {splits: [replicate], schedules: [streaming], objective: latency, keep: 3, max_candidates: 50, max_stages: 2, seed: 9}
plans:
  mine: [..conv2@A, rest@B]
  other: {stages: [rest@A+B], micro_batches: [4, 8], schedule: streaming}
)",
                           "dir/sub/s.yaml");
  EXPECT_EQ(s.model, "dir/sub/nets/x.onnx");
  EXPECT_THAT(s.input_shapes.at("x"), ElementsAre(1, 3, 48, 192));
  EXPECT_TRUE(s.input_shapes.at("y").empty());
  EXPECT_EQ(s.dims.at("width"), 192);
  EXPECT_EQ(s.batch, 24);
  EXPECT_THAT(s.micro_batches, ElementsAre(8));

  const Cluster& c = s.cluster;
  ASSERT_EQ(c.devices.size(), 2u);
  EXPECT_EQ(c.devices[0].name, "A");
  EXPECT_EQ(c.devices[0].memory, bytes(3 * 512 * 1024 * 1024));
  EXPECT_EQ(c.devices[0].level, Isa::v4);
  EXPECT_EQ(c.devices[1].memory, c.devices[0].memory);  // merged
  EXPECT_EQ(c.devices[1].level, Isa::v3);               // its own
  EXPECT_EQ(c.devices[1].host, c.find_host("b"));
  EXPECT_TRUE(c.hosts[c.find_host("sw").index()].is_switch);
  EXPECT_FALSE(c.hosts[c.find_host("in").index()].is_switch);
  EXPECT_TRUE(s.costs[1]->same_as(*roofline(flops_per_second(60e9), bytes_per_second(10e9))));

  ASSERT_EQ(c.links.size(), 4u);
  EXPECT_EQ(c.links[0].name, "a-sw");
  EXPECT_FALSE(c.links[0].full_duplex);
  EXPECT_EQ(c.links[1].name, "uplink");
  EXPECT_TRUE(c.links[1].full_duplex);
  EXPECT_EQ(c.links[1].bandwidth, c.links[0].bandwidth);  // 125 MB/s is 1 Gbit/s
  EXPECT_EQ(c.links[1].latency, seconds(1e-3));
  EXPECT_EQ(c.links[2].name, "a-sw.2");
  EXPECT_EQ(c.links[3].latency, seconds(0));
  EXPECT_EQ(c.eager_limit, bytes(65536));
  EXPECT_EQ(c.messages, DType::f16);
  EXPECT_EQ(c.handshake, seconds(100e-6));
  EXPECT_EQ(c.nic_window, 2);
  EXPECT_EQ(s.endpoints.source, c.find_host("in"));
  EXPECT_EQ(s.endpoints.sink, c.find_host("b"));

  EXPECT_FALSE(s.search.layers);
  EXPECT_TRUE(s.search.replicate);
  EXPECT_EQ(s.objective, Objective::latency);
  EXPECT_EQ(s.keep, 3);
  EXPECT_EQ(s.search.max_candidates, 50u);
  EXPECT_EQ(s.search.max_stages, 2u);
  EXPECT_EQ(s.search.seed, 9u);

  ASSERT_EQ(s.plans.size(), 2u);
  EXPECT_THAT(s.plans[0].stages, ElementsAre("..conv2@A", "rest@B"));
  EXPECT_TRUE(s.plans[0].micro_batches.empty());
  EXPECT_THAT(s.plans[1].micro_batches, ElementsAre(4, 8));
  EXPECT_EQ(s.plans[1].schedule, "streaming");
  EXPECT_EQ(at_plan(s.plans[0], invalid_input("no layer 'conv2'")).to_string(),
            "dir/sub/s.yaml:18:9: no layer 'conv2'\n  |   mine: [..conv2@A, rest@B]");
}

TEST(Scenario, PathsAreBesideTheFile) {
  const auto model = [](const std::string& path, const std::string& file) {
    std::string text(smallest);
    text.replace(text.find("zoo:simple_cnn"), 14, path);
    return parse(text, file).model;
  };
  EXPECT_EQ(model("x.onnx", "s.yaml"), "x.onnx");
  EXPECT_EQ(model("../x.onnx", "a/b/s.yaml"), "a/x.onnx");
  EXPECT_EQ(model("/abs/x.onnx", "a/b/s.yaml"), "/abs/x.onnx");
  EXPECT_EQ(model("{zoo: vgg16, seed: 5}", "a/s.yaml"), "zoo:vgg16");
}

TEST(Scenario, ProfilesAreReadFromBesideTheFile) {
  const auto dir = std::filesystem::temp_directory_path() / ("nlsplit_scenario_" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  const std::string file = (dir / "s.yaml").string();
  std::string text(smallest);
  const std::string roofline = "{roofline: {compute: 60GFLOPS, memory: 10GBps}}";
  text.replace(text.find(roofline), roofline.size(), "p.json");

  // Not there: an error with the command, unless one is about to make it.
  EXPECT_EQ(parse_scenario(text, file).error().message,
            "cannot read '" + (dir / "p.json").string() +
                "': No such file or directory; measure on that machine with: " + "nlbench profile " + file + " -o " +
                (dir / "p.json").string());
  EXPECT_TRUE(parse_scenario(text, file, {.need_profiles = false}).value().costs[0]->same_as(*no_costs()));

  Profile profile;
  profile.models = {"simple_cnn"};
  profile.kernels["k"] = {seconds(1), seconds(0), 3};
  ASSERT_TRUE(write_profile((dir / "p.json").string(), profile).ok());
  EXPECT_EQ(parse(text, file).costs[0]->profile()->kernels.at("k").median, seconds(1));

  // Several, and predictions allowed: the first one that holds a kernel counts.
  const auto replaced = [&](const std::string& costs) {
    std::string other = text;
    return other.replace(other.find("p.json"), 6, costs);
  };
  profile.kernels["k"] = {seconds(2), seconds(0), 3};
  profile.kernels["l"] = {seconds(3), seconds(0), 3};
  ASSERT_TRUE(write_profile((dir / "q.json").string(), profile).ok());
  const Profile both = *parse(replaced("[p.json, q.json]"), file).costs[0]->profile();
  EXPECT_EQ(both.kernels.at("k").median, seconds(1));
  EXPECT_EQ(both.kernels.at("l").median, seconds(3));
  EXPECT_FALSE(both.predict);
  EXPECT_TRUE(parse(replaced("{profile: [q.json, p.json], predict: true}"), file).costs[0]->profile()->predict);
  EXPECT_FALSE(parse(replaced("{profile: p.json, predict: false}"), file).costs[0]->profile()->predict);
  profile.machine = "another";
  ASSERT_TRUE(write_profile((dir / "q.json").string(), profile).ok());
  EXPECT_THAT(parse_scenario(replaced("[p.json, q.json]"), file).error().message,
              ::testing::HasSubstr("come from one machine"));
  const auto refusal = [&](const std::string& costs) { return parse_scenario(replaced(costs), file).error().message; };
  EXPECT_EQ(refusal("[]"), "costs: an empty list of profiles");
  EXPECT_EQ(refusal("{predict: true}"), "costs lacks 'profile'");
  EXPECT_THAT(refusal("{profile: p.json, predict: perhaps}"), ::testing::HasSubstr("predict"));
  EXPECT_EQ(refusal("{profile: p.json, roofline: {compute: 60GFLOPS, memory: 10GBps}}"),
            "costs are a profile or a roofline, not both");

  // There but broken: an error at the scenario's place and with the file's own, unless it is about to be replaced.
  ASSERT_TRUE(write_file((dir / "p.json").string(), "[]").ok());
  EXPECT_TRUE(parse_scenario(text, file, {.need_profiles = false}).value().costs[0]->same_as(*no_costs()));
  const auto broken = parse_scenario(text, file);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().where, (Location{file, 3, 45}));
  EXPECT_EQ(broken.error().message, (dir / "p.json").string() + ": a profile is a JSON object");
  std::filesystem::remove_all(dir);
}

TEST(Scenario, BundledOnesParse) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NLS_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const auto scenario = read_scenario(entry.path().string(), {.platforms = simgrid_platforms()});
    ASSERT_TRUE(scenario.ok()) << scenario.error().to_string();
    EXPECT_GE(scenario->cluster.devices.size(), 2u) << entry.path();
    EXPECT_EQ(scenario->costs.size(), scenario->cluster.devices.size());
  }
  EXPECT_GE(count, 14);
}

TEST(Scenario, SplitsNameTheAxes) {
  const auto search = [](const std::string& splits) {
    return parse(std::string(smallest) + "search: {splits: " + splits + "}\n").search;
  };
  EXPECT_TRUE(parse(smallest).search.axes.empty());
  const SearchOptions all = search("[layer, batch, height, width, channels, tensor, sequence]");
  EXPECT_TRUE(all.layers);
  EXPECT_FALSE(all.replicate);
  EXPECT_THAT(all.axes, ElementsAre(SplitAxis::batch, SplitAxis::height, SplitAxis::width, SplitAxis::channels,
                                    SplitAxis::tensor, SplitAxis::sequence));
  const SearchOptions one = search("[tensor]");
  EXPECT_FALSE(one.layers);
  EXPECT_THAT(one.axes, ElementsAre(SplitAxis::tensor));
  const auto twice = parse_scenario(std::string(smallest) + "search: {splits: [height, width, height]}\n", "s.yaml");
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().message, "'height' is given twice");
  EXPECT_EQ(twice.error().where.column, 34);
  std::string training(smallest);
  training.replace(training.find("{batch"), 1, "{mode: training, ");
  EXPECT_THAT(parse(training + "search: {splits: [tensor]}\n").search.axes, ElementsAre(SplitAxis::tensor));
}

TEST(Scenario, SearchHasMethodObjectiveAndLimits) {
  const Scenario plain = parse(smallest);
  EXPECT_EQ(plain.search.method, "auto");
  EXPECT_EQ(plain.search.max_devices, 0u);
  const Scenario s = parse(std::string(smallest) +
                           "search: {method: dp, objective: {throughput: 0.7, latency: 0.3}, "
                           "limits: {devices: 3, memory: 512MiB}}\n");
  EXPECT_EQ(s.search.method, "dp");
  EXPECT_EQ(s.objective, Objective::weighted);
  EXPECT_EQ(s.weights.throughput, 0.7);
  EXPECT_EQ(s.weights.latency, 0.3);
  EXPECT_EQ(s.search.max_devices, 3u);
  EXPECT_EQ(s.cluster.devices[0].memory, bytes(512 << 20));
  // A limit gives no device more than it has.
  const Scenario large = parse(std::string(smallest) + "search: {limits: {memory: 2GiB}}\n");
  EXPECT_EQ(large.cluster.devices[0].memory, bytes(1 << 30));
}

TEST(Scenario, FourMachinesAreWhatItSays) {
  const Scenario s = value_of(read_scenario(NLS_SOURCE_DIR "/scenarios/four_machines.yaml"));
  EXPECT_EQ(s.model, "zoo:resnet50");
  EXPECT_EQ(s.batch, 64);
  ASSERT_EQ(s.cluster.devices.size(), 4u);
  for (const Device& device : s.cluster.devices) EXPECT_EQ(device.memory, s.cluster.devices[0].memory);
  const Route route = find_route(s.cluster, s.cluster.find_host("a"), s.cluster.find_host("d")).value();
  EXPECT_EQ(route.hops.size(), 2u);
  EXPECT_DOUBLE_EQ(route.eager.latency.value(), 100e-6);
  EXPECT_DOUBLE_EQ(route.narrowest.value(), 125e6);
}

// What was measured with its costs is the bus of a GPU that the scenario gives none.
TEST(Scenario, GpusHaveTheBusThatWasMeasured) {
  const auto dir = std::filesystem::temp_directory_path() / ("nlsplit_bus_" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  Profile profile;
  profile.kernels["k"] = {seconds(1), seconds(0), 3};
  ASSERT_TRUE(write_profile((dir / "plain.json").string(), profile).ok());
  profile.copies = HostCopies{"a GPU", {}, {}};
  for (Copies* copies : {&profile.copies->pinned, &profile.copies->pageable}) {
    copies->in.cost = copies->out.cost = {seconds(10e-6), bytes_per_second(25e9)};
    copies->both = bytes_per_second(20e9);
  }
  profile.copies->pageable.in.cost.bandwidth = bytes_per_second(5e9);  // not what messages pass through
  ASSERT_TRUE(write_profile((dir / "copies.json").string(), profile).ok());
  const auto scenario = [&](const std::string& device) {
    return parse_scenario("model: zoo:simple_cnn\nworkload: {batch: 4}\ndevices: {G: {host: a, memory: 1GiB, " +
                              device + "}}\nsource: a\nsink: a\n",
                          (dir / "s.yaml").string());
  };
  const auto host_of = [&](const std::string& device) {
    const auto made = scenario(device);
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    return made.ok() ? made->cluster.hosts[made->cluster.devices[0].host.index()].name : "";
  };
  const Cluster c = scenario("kind: cuda, costs: copies.json").value().cluster;
  const Route bus = find_path(c, c.find_host("a.G"), c.find_host("a")).value();
  EXPECT_EQ(bus.eager.bandwidth, bytes_per_second(25e9));
  EXPECT_DOUBLE_EQ(bus.eager.latency.value(), 10e-6);
  EXPECT_TRUE(c.links[0].full_duplex);
  EXPECT_EQ(host_of("kind: cuda, costs: plain.json"), "a");
  EXPECT_EQ(host_of("kind: cuda, bus: none, costs: copies.json"), "a");
  EXPECT_EQ(host_of("costs: copies.json"), "a") << "a CPU is its host";
  EXPECT_EQ(host_of("bus: none, costs: plain.json"), "a");
  const Cluster own = scenario("kind: cuda, bus: {bandwidth: 1GBps, latency: 1us}, costs: copies.json").value().cluster;
  EXPECT_EQ(own.links[0].bandwidth, bytes_per_second(1e9));
  // What is measured is as good as what is given for those who need a bus.
  const Cluster pair =
      scenario("kind: cuda, count: 2, costs: copies.json, peers: {kind: mesh, bandwidth: 100GBps, latency: 2us}")
          .value()
          .cluster;
  EXPECT_EQ(find_path(pair, pair.devices[0].host, pair.devices[1].host)->narrowest, bytes_per_second(100e9));
  EXPECT_THAT(scenario("kind: cuda, bus: fast, costs: copies.json").error().message, ::testing::HasSubstr("bus"));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace nlsplit
