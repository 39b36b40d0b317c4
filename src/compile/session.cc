#include "compile/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "program/part.h"

namespace nlsplit::inline compiler {
namespace {

bool is_shared(const Buffer& buffer) { return buffer.kind == BufferKind::weight || buffer.kind == BufferKind::state; }
bool lasts(const Buffer& buffer) {
  return is_shared(buffer) || buffer.kind == BufferKind::input || buffer.kind == BufferKind::output;
}

// Programs have states as one buffer by what they are called, weights by what they hold. Buffers that may be one have
// the same key.
using SharedKey = std::tuple<BufferKind, std::string, ContentId>;
SharedKey shared_key(const Buffer& buffer) {
  const bool state = buffer.kind == BufferKind::state;
  return {buffer.kind, state ? buffer.name : std::string(), state ? ContentId() : buffer.content};
}
bool is_same(const Buffer& known, const Buffer& buffer) {
  if (known.kind == BufferKind::state) return true;
  Buffer there = buffer;
  there.name = known.name;
  there.offset = known.offset;
  return known == there;
}

// One device of all Programs: first what lasts from one execution to the next, each once; behind it, in the same
// region, what a Program needs while it runs.
class SharedDevice {
 public:
  SharedDevice(std::vector<Program>& programs, size_t device) : programs_(programs), d_(device) {}

  void place() {
    for (Program& program : programs_) {
      for (const Buffer& buffer : program.devices[d_].buffers) names_.insert(buffer.name);
    }
    std::vector<int64_t> transient;  // [Program]: where its other buffers began
    for (Program& program : programs_) {
      DeviceProgram& device = program.devices[d_];
      int64_t begin = device.arena.value();
      for (const Buffer& buffer : device.buffers) {
        if (!lasts(buffer) && buffer.kind != BufferKind::view) begin = std::min(begin, buffer.offset);
      }
      transient.push_back(begin);
      for (Buffer& buffer : device.buffers) {
        if (is_shared(buffer))
          share(buffer);
        else if (lasts(buffer))
          append(buffer);
      }
    }
    for (size_t p = 0; p < programs_.size(); ++p) {
      DeviceProgram& device = programs_[p].devices[d_];
      const int64_t shift = end_ - transient[p];
      for (Buffer& buffer : device.buffers) {
        if (!lasts(buffer) && buffer.kind != BufferKind::view) buffer.offset += shift;
      }
      device.arena += bytes(shift);
    }
  }

 private:
  void append(Buffer& buffer) {
    buffer.offset = end_;
    end_ += buffer.instances * buffer.stride();
  }

  void share(Buffer& buffer) {
    std::vector<Buffer>& alike = shared_[shared_key(buffer)];
    const auto known = std::ranges::find_if(alike, [&](const Buffer& other) { return is_same(other, buffer); });
    if (known != alike.end()) {
      buffer.name = known->name;
      buffer.offset = known->offset;
      return;
    }
    if (shared_names_.contains(buffer.name)) buffer.name = free_name(buffer.name);
    append(buffer);
    shared_names_.insert(buffer.name);
    alike.push_back(buffer);
  }

  std::string free_name(const std::string& name) {
    for (int i = 2;; ++i) {
      std::string made = fmt::format("{}_{}", name, i);
      if (names_.insert(made).second) return made;
    }
  }

  std::vector<Program>& programs_;
  size_t d_;
  int64_t end_ = 0;
  std::map<SharedKey, std::vector<Buffer>> shared_;  // as they are called and placed
  std::set<std::string> shared_names_;
  std::set<std::string> names_;  // of all Programs' buffers here
};

// A weight that one part trains is no constant of another.
void check_states(std::span<const SessionPart> parts) {
  std::set<std::string> trained;
  for (const SessionPart& part : parts) {
    if (part.graph->training == nullptr) continue;
    for (const ValueId weight : changed_weights(part.graph->training->nodes))
      trained.insert(part.graph->graph.value(weight).name);
  }
  for (const SessionPart& part : parts) {
    const KernelGraph& graph = part.graph->training ? part.graph->training->step : *part.graph;
    for (size_t v = 0; v < graph.graph.values.size(); ++v) {
      const Value& value = graph.graph.values[v];
      const bool changes = value.kind == ValueKind::weight && trained.contains(value.name);
      CHECK(!changes || std::ranges::find(graph.states, ValueId(v)) != graph.states.end(),
            "a session that trains a weight which one of its Programs takes for a constant");
    }
  }
}

// Where replicas keep shares of weights: who has those that a Program trains. Error: others than in the Programs
// before.
Status add_holders(const SessionPart& part, const Program& program, Holders& holders) {
  Holders here;
  for (const ValueId weight : changed_weights(part.graph->training->nodes)) {
    const std::string& name = part.graph->graph.value(weight).name;
    for (size_t d = 0; d < program.devices.size(); ++d) {
      const auto is_it = [&](const Buffer& buffer) { return buffer.kind == BufferKind::state && buffer.name == name; };
      if (std::ranges::any_of(program.devices[d].buffers, is_it)) here[name].push_back(static_cast<int>(d));
    }
  }
  for (const auto& [name, devices] : here) {
    if (holders.try_emplace(name, devices).first->second != devices)
      return unsupported(fmt::format("zero: 3: weight {} is kept by other replicas than in a Program before", name));
  }
  return ok_status();
}

// Of all parts, if they are not all of the same.
std::vector<DeviceId> devices_of(std::span<const SessionPart> parts) {
  std::vector<DeviceId> all;
  bool alike = true;
  for (const SessionPart& part : parts) {
    std::vector<DeviceId> own;
    for (const Stage& stage : part.plan.stages) {
      for (const DeviceId device : stage.devices) {
        if (std::ranges::find(own, device) == own.end()) own.push_back(device);
      }
    }
    if (all.empty()) all = own;
    alike &= own == all;
    for (const DeviceId device : own) {
      if (std::ranges::find(all, device) == all.end()) all.push_back(device);
    }
  }
  if (alike) all.clear();
  return all;
}

// As the first Program has them.
void order_devices(const Program& first, Program& program) {
  CHECK(program.devices.size() == first.devices.size(), "Programs of other devices");
  for (size_t d = 0; d < first.devices.size(); ++d) {
    const auto at = std::ranges::find(program.devices, first.devices[d].name, &DeviceProgram::name);
    CHECK(at != program.devices.end(), "Programs of other devices");
    exchange_devices(program, d, static_cast<size_t>(at - program.devices.begin()));
  }
}

// Who continues a sequence reads what was made of it and says how it goes on, so both are to be in one place.
Result<size_t> chooser_of(std::span<const SessionPart> parts, const Session& session, bool inputs_on_first) {
  const auto has_states = [](const SessionPart& part) { return !part.graph->updates.empty(); };
  if (!inputs_on_first && std::ranges::none_of(parts, has_states)) return size_t{0};
  std::set<size_t> ends;
  for (const Program& program : session.programs) {
    for (size_t d = 0; d < program.devices.size(); ++d) {
      for (const Buffer& buffer : program.devices[d].buffers) {
        if (buffer.kind == BufferKind::input || buffer.kind == BufferKind::output) ends.insert(d);
      }
    }
  }
  if (ends.size() == 1) return *ends.begin();
  return unsupported("what writes inputs between executions needs the source and the sink on the same host");
}

}  // namespace

Result<CompiledSession> compile_session(const std::string& name, std::span<const SessionPart> parts,
                                        const Cluster& cluster, const Endpoints& endpoints, const CostTable* costs,
                                        const CompileOptions& options) {
  check_states(parts);
  CompiledSession result;
  result.session.name = name;
  Holders holders;
  const std::vector<DeviceId> devices = devices_of(parts);
  for (const SessionPart& part : parts) {
    CompileOptions own = options;
    own.idle = devices;
    own.table = nullptr;
    own.holders = &holders;
    auto compiled = compile(*part.graph, part.plan, cluster, endpoints, costs, own);
    if (!compiled) {
      Error error = compiled.error();
      error.message = fmt::format("program {}: {}", part.name, error.message);
      return error;
    }
    if (part.graph->training != nullptr && options.zero > 2)
      RETURN_IF_ERROR(add_holders(part, compiled->program, holders));
    compiled->program.name = part.name;
    if (!devices.empty() && !result.session.programs.empty())
      order_devices(result.session.programs.front(), compiled->program);
    result.session.programs.push_back(std::move(compiled->program));
    std::ranges::move(compiled->slices, std::back_inserter(result.slices));
    if (compiled->training) result.trainings.push_back(std::move(compiled->training));
    std::ranges::move(compiled->notes, std::back_inserter(result.notes));
    if (compiled->promise.tolerance > result.promise.tolerance) result.promise = std::move(compiled->promise);
  }
  CHECK(!result.session.programs.empty(), "a session without programs");
  for (size_t d = 0; d < result.session.programs[0].devices.size(); ++d)
    SharedDevice(result.session.programs, d).place();
  ASSIGN_OR_RETURN(const size_t chooser, chooser_of(parts, result.session, options.inputs_on_first));
  for (Program& program : result.session.programs) exchange_devices(program, 0, chooser);
  if (options.verify) RETURN_IF_ERROR(verify_session(result.session));
  return result;
}

}  // namespace nlsplit::inline compiler
