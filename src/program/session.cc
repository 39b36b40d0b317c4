#include "program/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <utility>

#include "base/limits.h"
#include "graph/memory.h"
#include "program/state_parts.h"
#include "program/verify.h"
#include "program/verify_parts.h"

namespace nlsplit::inline program {
namespace {

constexpr std::string_view choice_name = "session/choice";

bool is_shared(const Buffer& buffer) { return buffer.kind == BufferKind::state || buffer.kind == BufferKind::weight; }

Status check_devices(const Program& first, const Program& other) {
  const auto differ = [&](std::string_view what) {
    return invalid_input(fmt::format("programs {} and {} of a session {}", first.name, other.name, what));
  };
  if (first.devices.size() != other.devices.size()) return differ("have other devices");
  if (first.eager_limit != other.eager_limit || first.nic_window != other.nic_window)
    return differ("have another eager_limit or nic_window");
  for (size_t d = 0; d < first.devices.size(); ++d) {
    const DeviceProgram &a = first.devices[d], &b = other.devices[d];
    if (a.name != b.name || a.kind != b.kind || a.host != b.host || a.level != b.level || a.cores != b.cores ||
        a.memory != b.memory)
      return differ(fmt::format("describe device {} differently", a.name));
  }
  return ok_status();
}

// What a Program's buffers, segments and computations are in the joined one.
struct Places {
  std::vector<std::vector<BufferId>> buffers;  // [device][buffer]
  std::vector<size_t> first_segment;           // [device]
};

struct Joined {
  Program program;
  std::vector<Places> places;  // by Program of the session
};

class Joiner {
 public:
  explicit Joiner(const Session& session) : session_(session) {}

  Result<Joined> run() {
    if (session_.programs.empty()) return invalid_input(fmt::format("session {} has no program", session_.name));
    Program& all = joined_.program;
    const Program& first = session_.programs.front();
    all.name = session_.name;
    all.eager_limit = first.eager_limit;
    all.nic_window = first.nic_window;
    for (const DeviceProgram& device : first.devices) {
      DeviceProgram& made = all.devices.emplace_back(device);
      made.arena = bytes(0);
      made.buffers.clear();
      made.segments.clear();
      made.order.clear();
    }
    known_.resize(all.devices.size());
    for (size_t p = 0; p < session_.programs.size(); ++p) {
      const Program& program = session_.programs[p];
      for (size_t q = 0; q < p; ++q) {
        if (session_.programs[q].name == program.name)
          return invalid_input(fmt::format("two programs of session {} are called {}", session_.name, program.name));
      }
      RETURN_IF_ERROR(check_structure(program));
      RETURN_IF_ERROR(check_devices(first, program));
      RETURN_IF_ERROR(add(program));
    }
    RETURN_IF_ERROR(check_structure(all));  // together they may have two of a name, or too much of something
    return std::move(joined_);
  }

 private:
  Status add(const Program& program) {
    Program& all = joined_.program;
    all.batch = std::max(all.batch, program.batch);
    all.micro_batches = std::max(all.micro_batches, program.micro_batches);
    descs_.clear();
    for (const ComputeDesc& desc : program.descs) descs_.push_back(intern_desc(all, desc));
    Places& places = joined_.places.emplace_back();
    for (size_t d = 0; d < all.devices.size(); ++d) {
      const DeviceProgram& from = program.devices[d];
      DeviceProgram& to = all.devices[d];
      to.arena = std::max(to.arena, from.arena);
      std::vector<BufferId>& map = places.buffers.emplace_back(from.buffers.size());
      for (size_t b = 0; b < from.buffers.size(); ++b) {
        ASSIGN_OR_RETURN(map[b], add_buffer(program, d, from.buffers[b]));
      }
      for (size_t b = 0; b < from.buffers.size(); ++b) {
        if (from.buffers[b].kind == BufferKind::view) to.buffers[map[b].index()].of = map[from.buffers[b].of.index()];
      }
      places.first_segment.push_back(to.segments.size());
      for (const Segment& segment : from.segments) add_segment(program, segment, map, to);
    }
    return ok_status();
  }

  Result<BufferId> add_buffer(const Program& program, size_t d, const Buffer& buffer) {
    DeviceProgram& device = joined_.program.devices[d];
    const bool shared = is_shared(buffer);
    if (!shared) {
      device.buffers.push_back(buffer);
      device.buffers.back().name = program.name + "/" + buffer.name;
      return BufferId(device.buffers.size() - 1);
    }
    const auto [at, added] = known_[d].try_emplace(buffer.name, Known{BufferId(device.buffers.size()), &program});
    if (added) {
      device.buffers.push_back(buffer);
    } else if (device.buffer(at->second.id) != buffer) {
      return invalid_input(
          fmt::format("device {}: {} {} of program {} is not as in program {} (type, kind, place, instances, content, "
                      "maximum, part)",
                      device.name, name_of(buffer.kind), buffer.name, program.name, at->second.first->name));
    }
    return at->second.id;
  }

  void add_segment(const Program& program, const Segment& segment, const std::vector<BufferId>& map,
                   DeviceProgram& device) const {
    Segment& made = device.segments.emplace_back(segment);
    made.name = program.name + "/" + segment.name;
    const auto move = [&](Operand& operand) {
      if (operand.buffer.valid()) operand.buffer = map[operand.buffer.index()];
    };
    for (Collective& collective : made.collectives) {
      if (!collective.native) continue;
      move(collective.native->value);
      move(collective.native->result);
    }
    for (Instr& instr : made.instrs) {
      for (Operand& operand : instr.reads) move(operand);
      for (Operand& operand : instr.writes) move(operand);
      move(instr.workspace);
      if (instr.opcode == Opcode::compute) instr.desc = descs_[static_cast<size_t>(instr.desc)];
    }
  }

  struct Known {
    BufferId id;
    const Program* first;  // that has it
  };

  const Session& session_;
  Joined joined_;
  std::vector<std::map<std::string, Known>> known_;  // [device]: shared buffers
  std::vector<int> descs_;                           // of the Program that is added
};

// One segment a device: the choice goes out, or comes in.
void add_choice_segments(Program& program) {
  for (size_t d = 0; d < program.devices.size(); ++d) {
    DeviceProgram& device = program.devices[d];
    Buffer buffer;
    buffer.name = choice_name;
    buffer.type = {DType::i64, {2}};
    buffer.kind = BufferKind::comm;
    buffer.bytes = choice_bytes;
    buffer.offset = (device.arena.value() + arena_alignment - 1) / arena_alignment * arena_alignment;
    device.arena = bytes(buffer.offset) + choice_bytes;
    const Operand operand{BufferId(device.buffers.size()), 0, -1};
    device.buffers.push_back(std::move(buffer));
    Segment segment;
    segment.name = choice_name;
    segment.stage = io_stage;
    segment.phase = Phase::init;
    for (size_t peer = 0; peer < program.devices.size(); ++peer) {
      if (peer == d || (d > 0 && peer > 0)) continue;
      Instr instr;
      instr.opcode = d == 0 ? Opcode::send : Opcode::recv;
      (d == 0 ? instr.reads : instr.writes).push_back(operand);
      instr.peer = static_cast<int>(peer);
      segment.instrs.push_back(std::move(instr));
    }
    device.segments.push_back(std::move(segment));
  }
}

struct Added {
  uint32_t to;
  Edge edge;
};

// A choice waits for the end of all that its device did before, and all that follows waits for it.
class ChoiceEdges {
 public:
  ChoiceEdges(const Program& program, const Dependencies& deps, const std::vector<std::vector<int>>& execution_of)
      : program_(program), deps_(deps), execution_of_(execution_of) {}

  std::vector<Added> find() {
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      open_.clear();
      last_compute_ = choice_ = no_instance;
      for (uint32_t i = deps_.device_begin[d]; i < deps_.device_begin[d + 1]; ++i) {
        if (execution_of_[d][static_cast<size_t>(deps_.instances[i].slot)] < 0)
          choice(i);
        else
          follower(i);
      }
    }
    return std::move(added_);
  }

 private:
  void choice(uint32_t i) {
    for (const uint32_t earlier : open_) added_.push_back({i, {earlier, EdgeKind::reuse}});
    if (last_compute_ != no_instance) added_.push_back({i, {last_compute_, EdgeKind::data}});
    // The sends of one choice go to different peers; each waits for the one before.
    open_ = {i};
    last_compute_ = no_instance;
    choice_ = i;
  }

  void follower(uint32_t i) {
    const bool transfer = is_transfer(instr_of(program_, deps_.instances[i]).opcode);
    // The first computation after a choice holds up those behind it.
    if (choice_ != no_instance && (transfer || last_compute_ == no_instance))
      added_.push_back({i, {choice_, EdgeKind::data}});
    if (transfer)
      open_.push_back(i);
    else
      last_compute_ = i;
  }

  const Program& program_;
  const Dependencies& deps_;
  const std::vector<std::vector<int>>& execution_of_;
  std::vector<uint32_t> open_;           // transfers since the last choice, and that choice
  uint32_t last_compute_ = no_instance;  // since the last choice
  uint32_t choice_ = no_instance;
  std::vector<Added> added_;
};

void insert(Dependencies& deps, const std::vector<Added>& added) {  // ascending by `to`
  std::vector<uint32_t> begin;
  std::vector<Edge> edges;
  edges.reserve(deps.edges.size() + added.size());
  auto next = added.begin();
  for (uint32_t i = 0; i < deps.instances.size(); ++i) {
    begin.push_back(static_cast<uint32_t>(edges.size()));
    std::ranges::copy(deps.into(i), std::back_inserter(edges));
    for (; next != added.end() && next->to == i; ++next) edges.push_back(next->edge);
  }
  begin.push_back(static_cast<uint32_t>(edges.size()));
  deps.edge_begin = std::move(begin);
  deps.edges = std::move(edges);
}

bool touches(const DeviceProgram& device, const std::vector<Operand>& operands, BufferKind kind) {
  return std::ranges::any_of(operands, [&](const Operand& operand) {
    return operand.buffer.valid() && device.buffer(device.root(operand.buffer)).kind == kind;
  });
}

// [execution]: how the choices that it is of refill; none for the first execution of each.
std::vector<Refill> refills_of(std::span<const Choice> choices) {
  std::vector<Refill> refills;
  for (const Choice& choice : choices) {
    for (int time = 0; time < choice.times; ++time) refills.push_back(time == 0 ? Refill::none : choice.refill);
  }
  return refills;
}

// Device 0's instances that read inputs wait for those of the execution before that did, or for its outputs.
std::vector<Refilling> find_refillings(const Sequence& sequence, std::span<const Choice> choices) {
  const std::vector<Refill> refills = refills_of(choices);
  if (std::ranges::all_of(refills, [](Refill refill) { return refill == Refill::none; })) return {};
  const DeviceProgram& device = sequence.program.devices.front();
  const Dependencies& deps = sequence.dependencies;
  struct Touching {
    std::vector<uint32_t> reads, answers;
  };
  std::map<std::pair<int, int>, Touching> by_micro_batch;  // (execution, micro-batch)
  for (uint32_t i = deps.device_begin[0]; i < deps.device_begin[1]; ++i) {
    const Slot& slot = device.order[static_cast<size_t>(deps.instances[i].slot)];
    const int execution = sequence.execution_of[0][static_cast<size_t>(deps.instances[i].slot)];
    if (execution < 0 || slot.micro_batch < 0) continue;
    const Instr& instr = instr_of(sequence.program, deps.instances[i]);
    Touching& touching = by_micro_batch[{execution, slot.micro_batch}];
    if (touches(device, instr.reads, BufferKind::input)) touching.reads.push_back(i);
    if (touches(device, instr.writes, BufferKind::output)) touching.answers.push_back(i);
  }
  std::vector<Refilling> found;
  for (const auto& [which, touching] : by_micro_batch) {
    const auto [execution, micro_batch] = which;
    const Refill refill = refills[static_cast<size_t>(execution)];
    if (refill == Refill::none || touching.reads.empty()) continue;
    Refilling& one = found.emplace_back(Refilling{execution, micro_batch, {}, touching.reads});
    const Touching& last = by_micro_batch.at({execution - 1, micro_batch});
    one.after = last.reads;
    if (refill == Refill::answered) one.after.insert(one.after.end(), last.answers.begin(), last.answers.end());
  }
  return found;
}

std::vector<Added> edges_of(const std::vector<Refilling>& refillings) {
  std::vector<Added> added;
  for (const Refilling& one : refillings) {
    for (const uint32_t to : one.before) {
      for (const uint32_t from : one.after) added.push_back({to, {from, EdgeKind::data}});
    }
  }
  std::ranges::stable_sort(added, {}, &Added::to);
  return added;
}

void add_refillings(Sequence& sequence, std::span<const Choice> choices) {
  sequence.refillings = find_refillings(sequence, choices);
  if (!sequence.refillings.empty()) insert(sequence.dependencies, edges_of(sequence.refillings));
}

// The order of all devices; `messages`: with the choices.
Status add_order(const Session& session, const Joined& joined, std::span<const Choice> choices, bool messages,
                 Sequence& sequence) {
  for (size_t d = 0; d < sequence.program.devices.size(); ++d) {
    DeviceProgram& device = sequence.program.devices[d];
    std::vector<int>& execution_of = sequence.execution_of.emplace_back();
    int execution = 0;
    int64_t steps = 0;
    for (const Choice& choice : choices) {
      if (choice.program < 0 || choice.program >= std::ssize(session.programs) || choice.times < 0)
        return invalid_input(fmt::format("session {} has no program number {}", session.name, choice.program));
      if (messages) {
        device.order.push_back({static_cast<int>(device.segments.size()) - 1, -1, {}});
        execution_of.push_back(-1);
      }
      const auto p = static_cast<size_t>(choice.program);
      const Places& places = joined.places[p];
      for (int time = 0; time < choice.times; ++time, ++execution) {
        for (Slot slot : session.programs[p].devices[d].order) {
          slot.segment += static_cast<int>(places.first_segment[d]);
          for (InstanceUse& use : slot.instances) use.buffer = places.buffers[d][use.buffer.index()];
          steps += std::ssize(device.segments[static_cast<size_t>(slot.segment)].instrs);
          if (steps > most_steps / std::ssize(sequence.program.devices))
            return invalid_input("too many instructions to run");
          device.order.push_back(std::move(slot));
          execution_of.push_back(execution);
        }
      }
    }
  }
  return ok_status();
}

Result<Sequence> lay_out(const Session& session, Joined joined, std::span<const Choice> choices, Choosing choosing) {
  Sequence sequence{std::move(joined.program), {}, {}, {}};
  const bool messages = choosing == Choosing::messages && sequence.program.devices.size() > 1;
  if (messages) add_choice_segments(sequence.program);
  RETURN_IF_ERROR(add_order(session, joined, choices, messages, sequence));
  ASSIGN_OR_RETURN(sequence.dependencies, dependencies(sequence.program, Reuse::of_bytes));
  if (messages)
    insert(sequence.dependencies, ChoiceEdges(sequence.program, sequence.dependencies, sequence.execution_of).find());
  add_refillings(sequence, choices);
  return sequence;
}

}  // namespace

Result<Program> join(const Session& session) {
  ASSIGN_OR_RETURN(Joined joined, Joiner(session).run());
  return std::move(joined.program);
}

Result<Sequence> in_sequence(const Session& session, std::span<const Choice> choices, Choosing choosing) {
  ASSIGN_OR_RETURN(Joined joined, Joiner(session).run());
  return lay_out(session, std::move(joined), choices, choosing);
}

Result<Sequence> in_sequence_of(const Session& session, std::span<const Choice> choices, size_t device) {
  ASSIGN_OR_RETURN(Joined joined, Joiner(session).run());
  Sequence sequence{std::move(joined.program), {}, {}, {}};
  RETURN_IF_ERROR(add_order(session, joined, choices, false, sequence));
  sequence.dependencies = dependencies_of(sequence.program, device, Reuse::of_bytes);
  if (device == 0) add_refillings(sequence, choices);
  return sequence;
}

Status verify_session(const Session& session) {
  ASSIGN_OR_RETURN(const Program joined, join(session));
  RETURN_IF_ERROR(check_state_parts(joined));
  for (const Program& program : session.programs) {
    if (const Status sound = verify(program); !sound.ok()) {
      Error error = sound.error();
      error.message = fmt::format("program {}: {}", program.name, error.message);
      return error;
    }
  }
  for (const DeviceProgram& device : joined.devices) {
    if (device.arena > device.memory)
      return invalid_input(fmt::format("device {} has {} of memory, and this needs {}", device.name,
                                       to_string(device.memory), to_string(device.arena)));
  }
  // Twice each: after itself and after another one. What holds of this order holds of all, since the dependencies of
  // bytes keep apart whatever follows whatever.
  std::vector<Choice> each;
  for (int p = 0; p < std::ssize(session.programs); ++p) each.push_back({p, 2});
  ASSIGN_OR_RETURN(const Sequence sequence, in_sequence(session, each, Choosing::known));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> order, dry_run(sequence.program, sequence.dependencies));
  OverlapChecker overlaps(sequence.program, sequence.dependencies, order);
  for (size_t d = 0; d < sequence.program.devices.size(); ++d) RETURN_IF_ERROR(overlaps.check(d));
  return ok_status();
}

Result<std::vector<Choice>> parse_choices(const Session& session, std::string_view text) {
  std::vector<Choice> choices;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) return choices;
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    const std::string_view name = word.substr(0, word.rfind('*'));
    Choice choice;
    if (name.size() < word.size()) {
      const std::string_view number = word.substr(name.size() + 1);
      const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), choice.times);
      if (code != std::errc() || end != number.data() + number.size() || choice.times < 1)
        return invalid_input(fmt::format("`{}`: `{}` is not a number of executions", word, number));
    }
    const auto found = std::ranges::find(session.programs, name, &Program::name);
    if (found == session.programs.end()) {
      std::string names;
      for (const Program& program : session.programs) names += (names.empty() ? "" : ", ") + program.name;
      return invalid_input(
          fmt::format("`{}`: session {} has no program {}; there are {}", word, session.name, name, names));
    }
    choice.program = static_cast<int>(found - session.programs.begin());
    choices.push_back(choice);
  }
}

}  // namespace nlsplit::inline program
