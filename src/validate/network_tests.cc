#include "validate/network_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_number.h"
#include "program/append_buffer.h"

namespace nlsplit::inline validation {
namespace {

using nlohmann::json;

constexpr int64_t float_bytes = 4;

// Powers of four from 256 B on, and the two sizes on either side of the limit: that is where lines are most often
// wrong.
std::vector<int64_t> sizes_for(Bytes eager_limit, int64_t largest) {
  const int64_t limit = eager_limit.value() / float_bytes * float_bytes;
  std::vector<int64_t> sizes;
  for (int64_t size = smallest_message; size <= largest; size *= 4) sizes.push_back(size);
  for (const int64_t size :
       {limit / 2 / float_bytes * float_bytes, limit, limit + float_bytes, limit * 3 / 2 / float_bytes * float_bytes}) {
    if (size >= smallest_message && size <= largest) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

// Small messages are quick and vary most.
int repeats_of(int64_t size) { return size <= 65536 ? 30 : 4; }

Instr send_instr(BufferId buffer, int64_t floats, int peer, int tag) {
  Instr instr;
  instr.opcode = Opcode::send;
  instr.peer = peer;
  instr.tag = tag;
  instr.reads = {{buffer, 0, floats}};
  return instr;
}

Instr recv_instr(BufferId buffer, int64_t floats, int peer, int tag) {
  Instr instr;
  instr.opcode = Opcode::recv;
  instr.peer = peer;
  instr.tag = tag;
  instr.writes = {{buffer, 0, floats}};
  return instr;
}

Instr copy_instr(BufferId from, BufferId to) {
  constexpr int64_t few = 16;
  Instr instr;
  instr.opcode = Opcode::copy;
  instr.reads = {{from, 0, few}};
  instr.writes = {{to, 0, few}};
  return instr;
}

// A computation that lives in a second-level cache: its time is the processor's alone. Long enough that what an
// instruction costs beside its kernel does not count.
constexpr int64_t computation_floats = 16384;

// A GPU computes by itself: what messages take from it is what its copies and its host's waiting do.
void set_level(DeviceProgram& device, Level level) {
  device.level = level;
  device.kind = is_gpu(level.isa) ? DeviceKind::cuda : DeviceKind::cpu;
}

void add_computation_buffers(DeviceProgram& device) {
  append_buffer(device, "x", {DType::f32, {computation_floats}}, BufferKind::state);  // zeros at first
  append_buffer(device, "y", {DType::f32, {computation_floats}}, BufferKind::scratch);
}

DeviceProgram test_device(const std::string& name, const std::string& host, Level level) {
  DeviceProgram device;
  device.name = name;
  device.host = host;
  set_level(device, level);
  return device;
}

Instr unary(Program& program, Level level, Op op, BufferId from, BufferId to, int64_t count) {
  ComputeDesc desc;
  desc.op = op;
  desc.inputs = desc.outputs = {{DType::f32, {count}}};
  desc.kernel = {is_gpu(level.isa) ? KernelName::gpu_unary : KernelName::unary, level};
  Instr instr;
  instr.reads = {{from, 0, count}};
  instr.writes = {{to, 0, count}};
  instr.desc = intern_desc(program, desc);
  return instr;
}

bool is_computation(const ComputeDesc& desc) { return desc.op == Op::Erf; }
bool is_computation(const Program& program, const Instr& instr) {
  return instr.opcode == Opcode::compute && is_computation(program.descs[static_cast<size_t>(instr.desc)]);
}

void add_computations(std::vector<Instr>& instrs, Program& program, Level level, BufferId x, BufferId y,
                      int computations) {
  for (int i = 0; i < computations; ++i)
    instrs.push_back(unary(program, level, Op::Erf, i % 2 == 0 ? x : y, i % 2 == 0 ? y : x, computation_floats));
}

// Each side copies a little of what came in, computes, and copies a little of that into what it sends next. So each
// message waits for the one before, and passes from the thread that computes to the one that sends and back, as in a
// plan. Receives are posted before their messages are sent.
Segment rally(Program& program, const DeviceProgram& device, int64_t floats, bool is_ping, int computations) {
  const BufferId out(0), in(1), x(2), y(3);
  const int peer = is_ping ? 1 : 0;
  const Instr send = send_instr(out, floats, peer, 0), recv = recv_instr(in, floats, peer, 0);
  std::vector<Instr> computing = {copy_instr(in, x)};
  add_computations(computing, program, device.level, x, y, computations);
  computing.push_back(copy_instr(computations % 2 == 0 ? x : y, out));
  Segment segment;
  segment.name = fmt::format("s{}", floats * float_bytes);
  segment.stage = is_ping ? 0 : 1;
  segment.instrs = is_ping ? std::vector{send, recv} : std::vector{recv};
  segment.instrs.insert(segment.instrs.end(), computing.begin(), computing.end());
  if (!is_ping) segment.instrs.push_back(send);
  return segment;
}

}  // namespace

PingPong ping_pong(const std::string& a, const std::string& b, const PingPongOptions& options) {
  PingPong result;
  Program& program = result.program;
  program.name = fmt::format("ping-pong [{}, {}]", a, b);
  program.eager_limit = options.eager_limit;
  const std::vector<int64_t> sizes = sizes_for(options.eager_limit, options.largest_bytes);
  for (const bool is_ping : {true, false}) {
    const std::optional<Level>& level = is_ping ? options.level_a : options.level_b;
    DeviceProgram device;
    device.name = is_ping ? "ping" : "pong";
    device.host = is_ping ? a : b;
    if (level) set_level(device, *level);
    for (const char* name : {"out", "in"})
      append_buffer(device, name, {DType::f32, {sizes.back() / float_bytes}}, BufferKind::comm);
    add_computation_buffers(device);
    device.memory = device.arena;
    for (const int64_t size : sizes)
      device.segments.push_back(rally(program, device, size / float_bytes, is_ping, level ? options.computations : 0));
    int number = 0;
    for (size_t s = 0; s < sizes.size(); ++s) {
      for (int repeat = 0; repeat < repeats_of(sizes[s]); ++repeat, ++number) {
        Slot slot;
        slot.segment = static_cast<int>(s);
        slot.micro_batch = number;
        device.order.push_back(slot);
        if (is_ping) result.sizes.push_back(sizes[s]);
      }
    }
    program.batch = program.micro_batches = number;
    program.devices.push_back(std::move(device));
  }
  return result;
}

Program busy_pair(const std::string& a, const std::string& b, Level level_a, Level level_b,
                  const BusyPairOptions& options) {
  const auto& [message_bytes, eager_limit, messages, slots, computations, also_without_messages] = options;
  Program program;
  program.name = fmt::format("busy [{}, {}]", a, b);
  program.eager_limit = eager_limit;
  program.batch = program.micro_batches = slots;
  const int64_t floats = message_bytes / float_bytes;
  for (const bool sends : {true, false}) {
    DeviceProgram device = test_device(sends ? "sender" : "receiver", sends ? a : b, sends ? level_a : level_b);
    append_buffer(device, "message", {DType::f32, {floats}}, BufferKind::comm, 2);
    add_computation_buffers(device);
    device.memory = device.arena;
    Segment segment;
    segment.name = "busy";
    segment.stage = sends ? 0 : 1;
    const BufferId content(0), x(1), y(2);
    const Instr message = sends ? send_instr(content, floats, 1, 0) : recv_instr(content, floats, 0, 0);
    // What is sent is written at the end of a slot and moves during the next one; what arrives is read at its start.
    if (!sends && messages) {
      segment.instrs.push_back(message);
      segment.instrs.push_back(unary(program, device.level, Op::Neg, content, x, std::min(floats, computation_floats)));
    }
    add_computations(segment.instrs, program, device.level, x, y,
                     also_without_messages ? 2 * computations : computations);
    if (sends) {
      segment.instrs.push_back(unary(program, device.level, Op::Neg, x, content, std::min(floats, computation_floats)));
      if (messages) segment.instrs.push_back(message);
    }
    device.segments.push_back(std::move(segment));
    for (int slot = 0; slot < slots; ++slot) {
      device.order.push_back({0, slot, {{BufferId(0), slot % 2}}});
    }
    program.devices.push_back(std::move(device));
  }
  return program;
}

Program with_fewer_computations(Program busy, int computations) {
  for (DeviceProgram& device : busy.devices) {
    for (Segment& segment : device.segments) {
      int left = computations;
      std::erase_if(segment.instrs, [&](const Instr& instr) { return is_computation(busy, instr) && left-- <= 0; });
    }
  }
  return busy;
}

Program crossing(const std::string& a, const std::string& b, int64_t message_bytes, Bytes eager_limit) {
  Program program;
  program.name = fmt::format("crossing [{}, {}]", a, b);
  program.eager_limit = eager_limit;
  const int64_t floats = message_bytes / float_bytes;
  for (const bool first : {true, false}) {
    DeviceProgram device;
    device.name = first ? "here" : "there";
    device.host = first ? a : b;
    for (const char* name : {"out", "in"}) append_buffer(device, name, {DType::f32, {floats}}, BufferKind::comm);
    device.memory = device.arena;
    Segment segment;
    segment.name = "exchange";
    segment.stage = first ? 0 : 1;
    const int peer = first ? 1 : 0;
    segment.instrs = {send_instr(BufferId(0), floats, peer, first ? 0 : 1),
                      recv_instr(BufferId(1), floats, peer, first ? 1 : 0)};
    device.segments.push_back(std::move(segment));
    device.order.push_back({0, 0, {}});
    program.devices.push_back(std::move(device));
  }
  return program;
}

Program clear_to_send_pair(const std::string& a, const std::string& b, Level level_a, Level level_b,
                           const ClearToSendOptions& options) {
  Program program;
  program.name = fmt::format("clear-to-send [{}, {}]", a, b);
  program.eager_limit = options.eager_limit;
  program.batch = program.micro_batches = options.slots;
  const int64_t floats = options.message_bytes / float_bytes, bulk_floats = options.bulk_bytes / float_bytes;
  const int64_t few = std::min({floats, bulk_floats, computation_floats});
  const BufferId message(0), bulk(1), x(2), y(3);
  for (const bool here : {true, false}) {
    DeviceProgram device = test_device(here ? "here" : "there", here ? a : b, here ? level_a : level_b);
    append_buffer(device, "message", {DType::f32, {floats}}, BufferKind::comm);
    append_buffer(device, "bulk", {DType::f32, {bulk_floats}}, BufferKind::comm);
    add_computation_buffers(device);
    device.memory = device.arena;
    Segment segment;
    segment.name = "clear_to_send";
    segment.stage = here ? 0 : 1;
    std::vector<Instr>& instrs = segment.instrs;
    // Each slot begins when both messages of the one before are there: each side ends with reading what it got.
    if (here) {
      if (options.bulk) instrs.push_back(recv_instr(bulk, bulk_floats, 1, 1));
      add_computations(instrs, program, device.level, x, y, options.computations);
      instrs.push_back(unary(program, device.level, Op::Neg, x, message, few));
      instrs.push_back(send_instr(message, floats, 1, 0));
      if (options.bulk) instrs.push_back(unary(program, device.level, Op::Neg, bulk, x, few));
    } else {
      if (options.bulk) instrs.push_back(send_instr(bulk, bulk_floats, 0, 1));
      instrs.push_back(recv_instr(message, floats, 0, 0));
      instrs.push_back(unary(program, device.level, Op::Neg, message, options.bulk ? bulk : x, few));
    }
    device.segments.push_back(std::move(segment));
    for (int slot = 0; slot < options.slots; ++slot) device.order.push_back({0, slot, {}});
    program.devices.push_back(std::move(device));
  }
  return program;
}

Program late_receiver(const std::string& a, const std::string& b, Level level_a, Level level_b,
                      const LateReceiverOptions& options) {
  Program program;
  program.name = fmt::format("late receiver [{}, {}]", a, b);
  program.eager_limit = options.eager_limit;
  program.batch = program.micro_batches = options.messages;
  const int64_t floats = options.message_bytes / float_bytes, few = std::min(floats, computation_floats);
  const BufferId message(0), x(1), y(2);
  for (const bool sends : {true, false}) {
    DeviceProgram device = test_device(sends ? "sender" : "receiver", sends ? a : b, sends ? level_a : level_b);
    append_buffer(device, "message", {DType::f32, {floats}}, BufferKind::comm, sends ? options.messages : 1);
    add_computation_buffers(device);
    device.memory = device.arena;
    Segment segment;
    segment.name = "late";
    segment.stage = sends ? 0 : 1;
    std::vector<Instr>& instrs = segment.instrs;
    if (sends) {
      instrs = {unary(program, device.level, Op::Neg, x, message, few), send_instr(message, floats, 1, 0)};
    } else {  // reads the message last
      instrs = {recv_instr(message, floats, 0, 0)};
      add_computations(instrs, program, device.level, x, y, options.computations);
      instrs.push_back(unary(program, device.level, Op::Neg, message, x, few));
    }
    device.segments.push_back(std::move(segment));
    for (int slot = 0; slot < options.messages; ++slot)
      device.order.push_back({0, slot, {{message, sends ? slot : 0}}});
    program.devices.push_back(std::move(device));
  }
  return program;
}

Clocks busy_clock(const Program& busy, double slot_s) {
  const auto computations = std::ranges::count_if(busy.devices[0].segments[0].instrs,
                                                  [&](const Instr& instr) { return is_computation(busy, instr); });
  std::vector<double> seconds;
  for (const ComputeDesc& desc : busy.descs)
    seconds.push_back(is_computation(desc) ? slot_s / static_cast<double>(computations) : 0);
  return Clocks(busy.devices.size(), seconds);
}

namespace {

json to_json(const std::vector<MessageTest>& tests) {
  json list = json::array();
  for (const MessageTest& test : tests) {
    list.push_back(
        {{"folder", test.folder}, {"a", test.a}, {"b", test.b}, {"bytes", test.bytes}, {"messages", test.messages}});
  }
  return list;
}

std::vector<MessageTest> message_tests_of(const json& list) {
  std::vector<MessageTest> tests;
  for (const json& entry : list) {
    tests.push_back({entry.at("folder").get<std::string>(), entry.at("a").get<std::string>(),
                     entry.at("b").get<std::string>(), whole_number<int64_t>(entry.at("bytes")),
                     whole_number<int>(entry.at("messages"))});
  }
  return tests;
}

json to_json(const std::vector<RouteEnds>& pairs) {
  json list = json::array();
  for (const RouteEnds& pair : pairs) list.push_back(json::array({pair.from, pair.to}));
  return list;
}

std::vector<RouteEnds> pairs_of(const json& list) {
  std::vector<RouteEnds> pairs;
  for (const json& pair : list) pairs.push_back({pair.at(0).get<std::string>(), pair.at(1).get<std::string>()});
  return pairs;
}

}  // namespace

std::string to_json(const NetworkTests& set) {
  json tests = json::array(), pairs = json::array(), clear_to_send = json::array(), alike = json::array();
  for (const BusyPair& pair : set.pairs) {
    pairs.push_back({{"folder", pair.folder}, {"a", pair.a}, {"b", pair.b}, {"bytes", pair.bytes}});
  }
  for (const ClearToSendTest& test : set.clear_to_send) {
    clear_to_send.push_back({{"quiet", test.alone}, {"loud", test.with_bulk}, {"a", test.a}, {"b", test.b}});
  }
  for (const PingPongTest& test : set.tests) {
    tests.push_back({{"folder", test.folder}, {"a", test.a}, {"b", test.b}, {"sizes", test.sizes}});
  }
  for (const AlikePairs& one : set.alike) {
    alike.push_back(
        {{"measured", to_json(one.measured)}, {"others", to_json(one.others)}, {"symmetric", one.symmetric}});
  }
  return json{{"format", "nlsplit-test-set"},
              {"version", 6},
              {"eager_limit_bytes", set.eager_limit.value()},
              {"tests", std::move(tests)},
              {"pairs", std::move(pairs)},
              {"crossings", to_json(set.crossings)},
              {"slowed", to_json(set.slowed)},
              {"busy", to_json(set.busy)},
              {"late", to_json(set.late)},
              {"answers", std::move(clear_to_send)},
              {"alike", std::move(alike)}}
             .dump() +
         "\n";
}

Result<NetworkTests> parse_network_tests(const std::string& text, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-test-set" || value.at("version") != 6)
      return invalid_input(fmt::format("{}: not a set of tests of version 6", file));
    NetworkTests set;
    set.eager_limit = bytes(whole_number<int64_t>(value.at("eager_limit_bytes")));
    for (const json& entry : value.at("tests")) {
      set.tests.push_back({entry.at("folder").get<std::string>(), entry.at("a").get<std::string>(),
                           entry.at("b").get<std::string>(), entry.at("sizes").get<std::vector<int64_t>>()});
    }
    for (const json& entry : value.at("pairs")) {
      set.pairs.push_back({entry.at("folder").get<std::string>(), entry.at("a").get<std::string>(),
                           entry.at("b").get<std::string>(), whole_number<int64_t>(entry.at("bytes"))});
    }
    set.crossings = message_tests_of(value.at("crossings"));
    set.slowed = message_tests_of(value.at("slowed"));
    set.busy = message_tests_of(value.at("busy"));
    set.late = message_tests_of(value.at("late"));
    for (const json& entry : value.at("answers")) {
      set.clear_to_send.push_back({entry.at("quiet").get<std::string>(), entry.at("loud").get<std::string>(),
                                   entry.at("a").get<std::string>(), entry.at("b").get<std::string>()});
    }
    for (const json& entry : value.at("alike")) {
      set.alike.push_back(
          {pairs_of(entry.at("measured")), pairs_of(entry.at("others")), entry.at("symmetric").get<bool>()});
    }
    return set;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
}

}  // namespace nlsplit::inline validation
