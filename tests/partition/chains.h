// Chains of layers on stars of machines, for tests of searching.
#pragma once

#include <fmt/format.h>

#include "graph/builder.h"
#include "partition/search.h"

namespace nlsplit::testing {

// A star of hosts "a" … with one device "A" … each around a switch.
inline Cluster star(size_t devices, double bytes_per_s) {
  Cluster cluster;
  for (size_t i = 0; i < devices; ++i) {
    cluster.hosts.push_back({std::string(1, static_cast<char>('a' + i)), false});
    cluster.devices.push_back(
        {std::string(1, static_cast<char>('A' + i)), HostId(i), DeviceKind::cpu, bytes(1 << 30), Isa::v3});
  }
  cluster.hosts.push_back({"sw", true});
  for (size_t i = 0; i < devices; ++i) {
    cluster.links.push_back({"", HostId(i), HostId(devices), bytes_per_second(bytes_per_s), seconds(0), true});
  }
  return cluster;
}

// n Relus in a row on a tensor of `count` floats.
inline Graph chain(size_t n, int64_t count) {
  GraphBuilder builder("chain");
  ValueId value = builder.input("x", {DType::f32, {1, count}});
  for (size_t i = 0; i < n; ++i) value = builder.add(Op::Relu, fmt::format("r{}", i), {value}, {}).value();
  builder.output(value);
  return std::move(builder).finish();
}

// n convolutions in a row, 8 channels of 16x16: they can be split by samples, rows, columns and channels.
inline Graph convolutions(size_t n) {
  GraphBuilder builder("convolutions");
  ValueId value = builder.input("x", {DType::f32, {4, 8, 16, 16}});
  for (size_t i = 0; i < n; ++i) {
    const ValueId weight = builder.weight(fmt::format("w{}", i), {DType::f32, {8, 8, 3, 3}}, ContentId{i + 1});
    const Attrs attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                         {"group", int64_t{1}},
                         {"kernel_shape", std::vector<int64_t>{3, 3}},
                         {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                         {"strides", std::vector<int64_t>{1, 1}}};
    value = builder.add(Op::Conv, fmt::format("c{}", i), {value, weight}, attrs).value();
  }
  builder.output(value);
  return std::move(builder).finish();
}

inline SearchCosts costs_of(size_t nodes, const std::vector<double>& seconds_per_node, double cut, int micro_batches) {
  SearchCosts costs;
  costs.micro_batches = micro_batches;
  for (const double s : seconds_per_node) costs.node_seconds.emplace_back(nodes, s);
  costs.cut_bytes.assign(nodes + 1, cut);
  costs.input_bytes = costs.output_bytes = cut;
  return costs;
}

}  // namespace nlsplit::testing
