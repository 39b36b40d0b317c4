#include "survey/scenario_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scenario/scenario.h"
#include "survey/networks.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::nlsplit::testing::measured;
using ::nlsplit::testing::TrueWire;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Machine machine(const std::string& name, double gflops = 100) {
  Machine machine;
  machine.name = name;
  machine.about = "a CPU, 4 cores, 8 GiB";
  machine.cores = machine.measured_cores = 4;
  machine.memory = bytes(int64_t{8} << 30);
  machine.free_memory = bytes(int64_t{6} << 30);
  machine.caches = {{1, bytes(32 << 10), 4}, {3, bytes(16 << 20), 1}};
  machine.levels = {Isa::v2, Isa::v3};
  machine.compute = flops_per_second(gflops * 1e9);
  machine.memory_rate = bytes_per_second(20e9);
  return machine;
}

Survey cluster(const std::vector<TrueWire>& wires, const std::vector<TrueWire>& racks = {}) {
  Survey survey{"mpi", {}, measured(wires, racks)};
  for (size_t i = 0; i < wires.size(); ++i) survey.machines.push_back(machine("n" + std::to_string(i)));
  return survey;
}

const Draft draft = {"zoo:mobilenet_v2", false, "nlsim init --hosts n0,n1", "2026-11-26"};

Scenario read(const std::string& text) { return value_of(parse_scenario(text, "s.yaml")); }

TEST(ScenarioText, IsAScenario) {
  const std::string text = scenario_text(cluster({{500e-6, 1}, {1e-3, 1}, {1e-3, 0.5}, {2e-3, 0.2}}), draft);
  const Scenario scenario = read(text);
  ASSERT_EQ(scenario.cluster.devices.size(), 4u) << text;
  const Device& device = scenario.cluster.devices[2];
  EXPECT_EQ(device.name, "n2");
  EXPECT_EQ(device.cores, 4);
  EXPECT_EQ(device.memory, bytes(int64_t{6} << 30));
  EXPECT_EQ(device.level, Level(Isa::v3));
  ASSERT_EQ(scenario.cluster.links.size(), 4u);
  EXPECT_NEAR(scenario.cluster.links[3].bandwidth.value(), 0.2e9 / 8, 1e4);
  EXPECT_NEAR(scenario.cluster.links[3].latency.value(), 2e-3, 1e-6);
  EXPECT_THAT(text, HasSubstr("model: zoo:mobilenet_v2      # TODO which network?"));
  EXPECT_THAT(text, HasSubstr("source: n0      # TODO"));
  EXPECT_THAT(text, HasSubstr("One switch: 6 of 6 paths measured"));
  EXPECT_THAT(text, HasSubstr("a CPU, 4 cores, 8 GiB; L1 4 x 32 KiB; L3 16 MiB; kernels up to v3"));
}

TEST(ScenarioText, OfOneMachineHasNoLinks) {
  Survey survey;
  survey.machines = {machine("desk")};
  Draft of_desk = draft;
  of_desk.model = "zoo:mlp";
  of_desk.model_is_given = true;
  const std::string text = scenario_text(survey, of_desk);
  EXPECT_EQ(read(text).cluster.devices.size(), 1u) << text;
  EXPECT_THAT(text, Not(HasSubstr("links:")));
  EXPECT_THAT(text, Not(HasSubstr("which network")));
}

TEST(ScenarioText, RacksAndPathsAreScenariosToo) {
  std::vector<TrueWire> hosts;
  for (size_t i = 0; i < 12; ++i) hosts.push_back({20e-6, 10, i / 4});
  const std::string racks = scenario_text(cluster(hosts, {{100e-6, 4}, {100e-6, 4}, {100e-6, 4}}), draft);
  EXPECT_EQ(read(racks).cluster.links.size(), 12u + 3) << racks;
  EXPECT_THAT(racks, HasSubstr("TODO what do these carry when many hosts of a rack send at once?"));
  Survey odd = cluster(std::vector<TrueWire>(4, {1e-3, 1}));
  for (size_t i = 0; i < odd.paths.size(); ++i)
    odd.paths[i].latency = seconds(1e-3 * static_cast<double>(1 + (i * i) % 7));
  const std::string paths = scenario_text(odd, draft);
  EXPECT_EQ(read(paths).cluster.links.size(), 6u) << paths;
  EXPECT_THAT(paths, HasSubstr("TODO what do the paths share?"));
  EXPECT_EQ(read(scenario_text(cluster({{1e-3, 1}, {1e-3, 1}}), draft)).cluster.links.size(), 1u);
}

TEST(ScenarioText, MachinesThatAreAlikeShareTheirFigures) {
  Survey survey = cluster(std::vector<TrueWire>(4, {1e-3, 1}));
  survey.machines[1].compute = flops_per_second(106e9);
  survey.machines[3] = machine("n3", 30);
  survey.machines[2].free_memory = bytes(int64_t{1} << 30);
  const std::string text = scenario_text(survey, draft);
  const Scenario scenario = read(text);
  EXPECT_TRUE(scenario.costs[0]->same_as(*scenario.costs[1])) << text;
  EXPECT_TRUE(scenario.costs[0]->same_as(*scenario.costs[2]));
  EXPECT_FALSE(scenario.costs[0]->same_as(*scenario.costs[3]));
  EXPECT_EQ(scenario.cluster.devices[2].memory, bytes(int64_t{1} << 30)) << "of each its own";
}

// Rank r of a run is the r-th host of the list again, whichever machines are alike.
TEST(ScenarioText, DevicesStandInTheSurveysOrder) {
  Survey survey = cluster(std::vector<TrueWire>(4, {1e-3, 1}));
  survey.machines[1] = machine("n1", 30);
  survey.machines[3] = machine("n3", 30);
  const Scenario scenario = read(scenario_text(survey, draft));
  ASSERT_EQ(scenario.cluster.devices.size(), 4u);
  for (size_t d = 0; d < 4; ++d) EXPECT_EQ(scenario.cluster.devices[d].name, fmt::format("n{}", d));
}

TEST(ScenarioText, SaysWhichHostsAreOneMachine) {
  Survey survey = cluster(std::vector<TrueWire>(4, {1e-3, 1}));
  EXPECT_THAT(warnings_of(survey), IsEmpty());
  survey.one_machine = {{0, 2}};
  const std::string text = scenario_text(survey, draft);
  const Scenario scenario = read(text);
  const std::string twice = "n0 and n2 are one machine: its cores and memory are counted twice";
  EXPECT_THAT(text, HasSubstr("# TODO " + twice));
  EXPECT_THAT(warnings_of(survey), ElementsAre(twice));
  std::vector<std::string> machines;
  for (const Device& device : scenario.cluster.devices) machines.push_back(device.machine);
  EXPECT_THAT(machines, ElementsAre("n0", "n1", "n0", "n3")) << text;
}

TEST(ScenarioText, SaysThatNoShapeFitsTheNetwork) {
  Survey survey = cluster(std::vector<TrueWire>(12, {1e-3, 1}));
  EXPECT_THAT(scenario_text(survey, draft), Not(HasSubstr("nearest guess")));
  for (size_t i = 0; i < survey.paths.size(); ++i)
    survey.paths[i].latency = seconds(1e-4 * static_cast<double>(1 + (i * i) % 23));
  const std::string text = scenario_text(survey, draft);
  EXPECT_EQ(read(text).cluster.devices.size(), 12u);
  EXPECT_THAT(text, HasSubstr("# TODO what lies between these hosts?"));
  EXPECT_THAT(warnings_of(survey), ElementsAre(HasSubstr("neither one switch nor racks explain the network")));
}

TEST(ScenarioText, TheCommandStaysInItsComment) {
  Survey survey;
  survey.machines = {machine("desk")};
  Draft odd = draft;
  odd.written_by = "nlsim init --survey y\nlinks: [] #";
  EXPECT_THAT(scenario_text(survey, odd), HasSubstr("# nlsim init --survey y links: [] # wrote this"));
}

TEST(ScenarioText, AGpuWhoseFiguresAreThereIsADevice) {
  Survey survey = cluster(std::vector<TrueWire>(2, {1e-3, 1}));
  Gpu gpu{"NVIDIA H200, sm_90, 139 GiB",
          bytes(int64_t{139} << 30),
          flops_per_second(40e12),
          bytes_per_second(3e12),
          seconds(10e-6),
          bytes_per_second(50e9)};
  survey.machines[0].gpus = {gpu};
  gpu.compute = {};
  gpu.trouble = "no cuDNN";
  survey.machines[1].gpus = {gpu};
  const std::string text = scenario_text(survey, draft);
  const Scenario scenario = read(text);
  ASSERT_EQ(scenario.cluster.devices.size(), 3u) << text;
  EXPECT_EQ(scenario.cluster.devices[1].name, "n0-gpu0");
  EXPECT_EQ(scenario.cluster.devices[1].kind, DeviceKind::cuda);
  EXPECT_THAT(text, HasSubstr("# n1-gpu0: {host: n1, kind: cuda"));
  EXPECT_THAT(text, HasSubstr("no cuDNN"));
}

TEST(ScenarioText, NamesOfHostsMayBeNamesOfSwitches) {
  Survey survey = cluster(std::vector<TrueWire>(3, {1e-3, 1}));
  survey.machines[1].name = "sw";
  survey.machines[2].name = "10.0.0.2";
  EXPECT_EQ(read(scenario_text(survey, draft)).cluster.devices.size(), 3u);
}

TEST(ScenarioText, NamesOfHostsMayBeWordsOfYaml) {
  const std::vector<std::string> names = {"null", "True", "-", "---", ".inf", "1e3", "0x1f", "_", "no"};
  Survey survey = cluster(std::vector<TrueWire>(names.size(), {1e-3, 1}));
  for (size_t m = 0; m < names.size(); ++m) survey.machines[m].name = names[m];
  const Scenario scenario = read(scenario_text(survey, draft));
  ASSERT_EQ(scenario.cluster.devices.size(), names.size());
  for (size_t m = 0; m < names.size(); ++m) EXPECT_EQ(scenario.cluster.devices[m].name, names[m]);
}

TEST(Survey, IsWrittenAndRead) {
  Survey survey = cluster({{1e-3, 1}, {1e-3, 0.5}, {1e-3, 0.5}});
  survey.machines[1].gpus = {{"a GPU", bytes(1 << 30), flops_per_second(1e12), {}, {}, {}, "no driver"}};
  EXPECT_EQ(value_of(parse_survey(to_json(survey), "it")), survey);
  survey.one_machine = {{0, 2}};
  EXPECT_EQ(value_of(parse_survey(to_json(survey), "it")), survey);
  EXPECT_EQ(value_of(parse_machine(to_json(survey.machines[1]), "it")), survey.machines[1]);
}

TEST(Survey, WhatCannotBeIsRefused) {
  const std::string good = to_json(cluster({{1e-3, 1}, {1e-3, 0.5}}));
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    CHECK(at != std::string::npos, "the test no longer fits its text");
    text.replace(at, from.size(), to);
    const auto survey = parse_survey(text, "it");
    return survey.ok() ? "accepted" : survey.error().message;
  };
  EXPECT_THAT(broken("\"b\": 1", "\"b\": 2"), HasSubstr("it: a path between machines that are not there"));
  EXPECT_THAT(broken("\"cores\": 4", "\"cores\": 5000"), HasSubstr("its cores cannot be"));
  EXPECT_THAT(broken("\"latency_s\": ", "\"latency_s\": -"), HasSubstr("its latency_s cannot be"));
  EXPECT_THAT(broken("\"version\": 1", "\"version\": 2"), HasSubstr("no survey of version 1"));
  EXPECT_THAT(broken("\"paths\"", "\"one_machine\": [[0, 2]], \"paths\""), HasSubstr("its one_machine cannot be"));
  EXPECT_THAT(broken("\"paths\"", "\"one_machine\": [[0]], \"paths\""), HasSubstr("its one_machine cannot be"));
  EXPECT_THAT(broken("\"paths\"", "\"one_machine\": [[1, 0]], \"paths\""), HasSubstr("its one_machine cannot be"));
  EXPECT_FALSE(parse_survey("{", "it").ok());
}

TEST(Survey, MeasuresAllPairsOfFewAndSomeOfMany) {
  EXPECT_EQ(pairs_to_measure(1).size(), 0u);
  EXPECT_EQ(pairs_to_measure(2).size(), 1u);
  EXPECT_EQ(pairs_to_measure(8).size(), 28u);
  EXPECT_LT(pairs_to_measure(64).size(), 64u * 7);
  for (const size_t machines : {3u, 9u, 64u}) {
    for (const auto& [a, b] : pairs_to_measure(machines)) EXPECT_TRUE(a < b && b < machines);
  }
}

}  // namespace
}  // namespace nlsplit
