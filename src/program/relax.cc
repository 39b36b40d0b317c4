#include "program/relax.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/index.h"
#include "program/online.h"
#include "program/relax_memory.h"

namespace nlsplit::inline program {
namespace {

// Slots as one node each, and messages: the two ends of one are one node. Finds the slots that some circle goes
// through.
class Circles {
 public:
  Circles(const Program& program, const RelaxedOrder& relaxed) : program_(program), deps_(relaxed.dependencies) {
    for (const DeviceProgram& device : program.devices) {
      first_slot_.push_back(slots_);
      slots_ += static_cast<uint32_t>(device.order.size());
    }
    nodes_ = slots_;
    message_.assign(deps_.instances.size(), no_instance);
    for (uint32_t i = 0; i < deps_.instances.size(); ++i) {
      if (instr_of(program, deps_.instances[i]).opcode == Opcode::send)
        message_[i] = message_[deps_.match[i]] = nodes_++;
    }
    collect(relaxed);
  }

  // Calls found(device, slot) for each.
  template <class Found>
  void visit(const Found& found) {
    find_components();
    std::vector<uint32_t> size(nodes_, 0);
    for (uint32_t node = 0; node < nodes_; ++node) ++size[component_[node]];
    for (size_t d = 0; d < first_slot_.size(); ++d) {
      for (uint32_t s = 0; s < program_.devices[d].order.size(); ++s) {
        if (size[component_[first_slot_[d] + s]] > 1) found(d, s);
      }
    }
  }

 private:
  uint32_t node_of(uint32_t instance) const {
    if (message_[instance] != no_instance) return message_[instance];
    const Instance& where = deps_.instances[instance];
    return first_slot_[at(where.device)] + static_cast<uint32_t>(where.slot);
  }

  void collect(const RelaxedOrder& relaxed) {
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (uint32_t i = 0; i < deps_.instances.size(); ++i) {
      for (const Edge& edge : deps_.into(i)) {
        const uint32_t from = node_of(edge.from), to = node_of(i);
        if (from != to) edges.emplace_back(from, to);
      }
    }
    for (size_t d = 0; d < relaxed.devices.size(); ++d) {
      for (uint32_t s = 0; s < relaxed.devices[d].size(); ++s) {
        for (const int before : relaxed.devices[d][s].after)
          edges.emplace_back(first_slot_[d] + static_cast<uint32_t>(before), first_slot_[d] + s);
      }
    }
    begin_.assign(nodes_ + 1, 0);
    for (const auto& edge : edges) ++begin_[edge.first + 1];
    for (uint32_t node = 0; node < nodes_; ++node) begin_[node + 1] += begin_[node];
    next_.resize(edges.size());
    std::vector<uint32_t> place(begin_.begin(), begin_.end() - 1);
    for (const auto& edge : edges) next_[place[edge.first]++] = edge.second;
  }

  // Strongly connected components: Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1 (1972),
  // with a stack of its own instead of recursion.
  void find_components() {
    constexpr uint32_t unseen = ~0u;
    std::vector<uint32_t> number(nodes_, unseen), low(nodes_, 0), edge(nodes_, 0), open, path;
    std::vector<bool> is_open(nodes_, false);
    component_.assign(nodes_, 0);
    uint32_t count = 0, components = 0;
    for (uint32_t root = 0; root < nodes_; ++root) {
      if (number[root] != unseen) continue;
      path.push_back(root);
      while (!path.empty()) {
        const uint32_t node = path.back();
        if (number[node] == unseen) {
          number[node] = low[node] = count++;
          edge[node] = begin_[node];
          open.push_back(node);
          is_open[node] = true;
        }
        bool deeper = false;
        for (; edge[node] < begin_[node + 1] && !deeper; ++edge[node]) {
          const uint32_t next = next_[edge[node]];
          if (number[next] == unseen) {
            path.push_back(next);
            deeper = true;
            break;  // its edge is looked at again afterwards, for its `low`
          }
          if (is_open[next]) low[node] = std::min(low[node], low[next]);
        }
        if (deeper) continue;
        path.pop_back();
        if (low[node] != number[node]) continue;
        for (uint32_t member = unseen; member != node;) {
          member = open.back();
          open.pop_back();
          is_open[member] = false;
          component_[member] = components;
        }
        ++components;
      }
    }
  }

  const Program& program_;
  const Dependencies& deps_;
  uint32_t slots_ = 0, nodes_ = 0;
  std::vector<uint32_t> first_slot_;  // [device]
  std::vector<uint32_t> message_;     // [instance]: node of the message; none: a computation
  std::vector<uint32_t> begin_, next_;
  std::vector<uint32_t> component_;
};

class Relaxer {
 public:
  explicit Relaxer(const Program& program) : program_(program) {}

  Result<RelaxedOrder> run() {
    ASSIGN_OR_RETURN(const Dependencies deps, dependencies(program_));
    out_.dependencies.instances = deps.instances;
    out_.dependencies.device_begin = deps.device_begin;
    out_.dependencies.match = deps.match;
    out_.dependencies.edge_begin.reserve(deps.edge_begin.size());
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      RETURN_IF_ERROR(make_slots(program_.devices[d]));
      add_edges(d);
    }
    out_.dependencies.edge_begin.push_back(static_cast<uint32_t>(out_.dependencies.edges.size()));
    memory_ = after_of_all();
    // A slot that gets its place binds others, and that may close another circle.
    for (bool more = true; more;) {
      more = false;
      keep_places();
      Circles(program_, out_).visit([&](size_t d, uint32_t s) {
        RelaxedSlot& slot = out_.devices[d][s];
        more = more || !slot.fixed;
        slot.fixed = true;
        slot.chosen = false;
      });
    }
    return std::move(out_);
  }

 private:
  Status make_slots(const DeviceProgram& device) {
    std::vector<RelaxedSlot>& slots = out_.devices.emplace_back();
    for (const Slot& slot : device.order) {
      const Segment& segment = device.segments[at(slot.segment)];
      if (segment.phase == Phase::recompute)
        return unsupported("an online policy cannot be asked where activations are recomputed");
      RelaxedSlot& made = slots.emplace_back();
      made.computes =
          std::ranges::any_of(segment.instrs, [](const Instr& instr) { return !is_transfer(instr.opcode); });
      made.slot = {segment.stage, segment.phase, slot.micro_batch};
      made.chosen = made.computes && is_work(made.slot);
    }
    return ok_status();
  }

  // Those that end at the device's instances.
  void add_edges(size_t d) {
    Dependencies& deps = out_.dependencies;
    const DeviceProgram& device = program_.devices[d];
    std::map<std::tuple<int, bool, int>, uint32_t> last_of_tag;  // peer, sends, tag
    RelaxedMemory memory(device);
    for (uint32_t i = deps.device_begin[d]; i < deps.device_begin[d + 1]; ++i) {
      deps.edge_begin.push_back(static_cast<uint32_t>(deps.edges.size()));
      const Instr& instr = instr_of(program_, deps.instances[i]);
      const int slot = deps.instances[i].slot;
      if (is_transfer(instr.opcode)) {
        const auto [last, first] = last_of_tag.try_emplace({instr.peer, instr.opcode == Opcode::send, instr.tag}, i);
        if (!first) deps.edges.push_back({std::exchange(last->second, i), EdgeKind::stream});
      } else {
        if (last_compute_ != no_instance && deps.instances[last_compute_].device == static_cast<int>(d) &&
            deps.instances[last_compute_].slot == slot) {
          deps.edges.push_back({last_compute_, EdgeKind::stream});
        }
        last_compute_ = i;
      }
      memory.touch(i, slot, instr, deps.edges, out_.devices[d][at(slot)].after);
    }
  }

  std::vector<std::vector<std::vector<int>>> after_of_all() const {
    std::vector<std::vector<std::vector<int>>> all;
    for (const std::vector<RelaxedSlot>& slots : out_.devices) {
      std::vector<std::vector<int>>& of_device = all.emplace_back();
      for (const RelaxedSlot& slot : slots) of_device.push_back(slot.after);
    }
    return all;
  }

  // What memory asks for, and that fixed slots keep their place.
  void keep_places() {
    for (size_t d = 0; d < out_.devices.size(); ++d) {
      int last_fixed = -1;
      std::vector<int> since;  // slots behind it
      for (size_t s = 0; s < out_.devices[d].size(); ++s) {
        RelaxedSlot& slot = out_.devices[d][s];
        slot.after = memory_[d][s];
        if (!slot.computes) continue;
        if (last_fixed >= 0) {
          std::erase_if(slot.after, [&](int before) { return before <= last_fixed; });
          slot.after.push_back(last_fixed);
        }
        if (slot.fixed) {
          slot.after.insert(slot.after.end(), since.begin(), since.end());
          last_fixed = static_cast<int>(s);
          since.clear();
        } else {
          since.push_back(static_cast<int>(s));
        }
        std::ranges::sort(slot.after);
        slot.after.erase(std::unique(slot.after.begin(), slot.after.end()), slot.after.end());
      }
    }
  }

  const Program& program_;
  RelaxedOrder out_;
  uint32_t last_compute_ = no_instance;
  std::vector<std::vector<std::vector<int>>> memory_;  // [device][slot]: `after` without fixed slots
};

}  // namespace

Result<RelaxedOrder> relax(const Program& program) { return Relaxer(program).run(); }

}  // namespace nlsplit::inline program
