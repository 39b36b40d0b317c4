#include "program/dependencies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/limits.h"
#include "program/access_lists.h"
#include "program/free_order.h"
#include "program/text.h"

namespace nlsplit::inline program {
namespace {

enum class Natives : uint8_t { written_out, as_run };

// Buffers that some transfer touches. Only these can need edges: the compute stream is in order.
std::vector<bool> transferred_buffers(const DeviceProgram& device, Natives natives) {
  std::vector<bool> found(device.buffers.size(), false);
  for (const Segment& segment : device.segments) {
    for (const Collective& collective : segment.collectives) {
      if (natives == Natives::written_out || !collective.native) continue;
      for (const Operand& operand : {collective.native->value, collective.native->result})
        found[device.root(operand.buffer).index()] = true;
    }
    for (const Instr& instr : segment.instrs) {
      if (!is_transfer(instr.opcode)) continue;
      for (const auto* operands : {&instr.reads, &instr.writes}) {
        for (const Operand& operand : *operands) found[device.root(operand.buffer).index()] = true;
      }
    }
  }
  return found;
}

// Any order: all that carry something from slot to slot, but weights, which are only read.
std::vector<bool> shared_buffers(const DeviceProgram& device, const std::vector<bool>& own) {
  std::vector<bool> found;
  for (size_t b = 0; b < device.buffers.size(); ++b) {
    const BufferKind kind = device.buffers[b].kind;
    found.push_back(kind != BufferKind::weight && kind != BufferKind::view && !own[b]);
  }
  return found;
}

// [segment][collective]: the instruction that stands for a native one; -1: it is none.
std::vector<std::vector<int>> native_steps(const DeviceProgram& device) {
  std::vector<std::vector<int>> steps;
  for (const Segment& segment : device.segments) {
    std::vector<int>& of = steps.emplace_back(segment.collectives.size(), -1);
    for (size_t i = segment.instrs.size(); i-- > 0;) {
      if (native_of(segment, segment.instrs[i]) != nullptr)
        of[static_cast<size_t>(segment.instrs[i].collective)] = static_cast<int>(i);
    }
  }
  return steps;
}

// What each instruction of a segment does to these buffers: computed once, used by every slot.
struct Touch {
  uint32_t buffer;
  int64_t begin, end;
  bool writes;
};
using SegmentTouches = std::vector<std::vector<Touch>>;  // by instruction

std::vector<SegmentTouches> segment_touches(const DeviceProgram& device, const AccessLists& lists,
                                            const std::vector<bool>& awaited, Natives natives) {
  const auto steps = native_steps(device);
  std::vector<SegmentTouches> all(device.segments.size());
  for (size_t s = 0; s < device.segments.size(); ++s) {
    for (const Instr& instr : device.segments[s].instrs) {
      std::vector<Touch>& touches = all[s].emplace_back();
      const auto add = [&](const Operand& operand, bool writes) {
        if (!operand.buffer.valid()) return;
        const BufferId root = device.root(operand.buffer);
        if (!awaited[root.index()]) return;
        const DType dtype = device.buffer(operand.buffer).type.dtype;
        const int64_t begin = size_of(dtype, operand.begin);
        const int64_t end = operand.whole() ? lists.stride(root) : size_of(dtype, operand.end);
        touches.push_back({static_cast<uint32_t>(root.index()), begin, end, writes});
      };
      if (natives == Natives::as_run && native_of(device.segments[s], instr) != nullptr) {
        const NativeBytes& native = *native_of(device.segments[s], instr)->native;
        if (steps[s][static_cast<size_t>(instr.collective)] != std::ssize(all[s]) - 1) continue;
        add(native.value, true);
        if (native.result != native.value) add(native.result, true);
        continue;
      }
      for (const Operand& operand : instr.reads) add(operand, false);
      for (const Operand& operand : instr.writes) add(operand, true);
      add(instr.workspace, true);
    }
  }
  return all;
}

// Of one instance bytes matter; of two that share bytes the instances do: verify keeps apart what is stored there, not
// what an access takes of it.
bool overlap(const Access& a, const Access& b) {
  if (a.of == b.of) return a.begin < b.end && b.begin < a.end;
  return a.instance_begin < b.instance_end && b.instance_begin < a.instance_end;
}

// Whether every later access that must wait for `earlier` must wait for `now` as well.
bool covers(const Access& now, const Access& earlier) {
  if (now.of == earlier.of) return now.begin <= earlier.begin && earlier.end <= now.end;
  return now.begin <= earlier.instance_begin && earlier.instance_end <= now.end;
}

// Adds the edges that this access needs from earlier ones, and replaces those it makes superfluous. `after`, where
// the order is free: the slots whose computations must come before this one's.
void touch(AccessList& list, const Access& now, std::vector<Edge>& edges, std::vector<int>* after) {
  list.add(now, [&](const Access& earlier) {
    const bool overlaps = overlap(earlier, now);
    const bool message = earlier.transfer || now.transfer;
    const bool in_order = !message && (after == nullptr || earlier.slot == now.slot);
    const bool apart = earlier.own && now.own;  // of two slots: one is over when the other begins
    if (overlaps && earlier.instance != now.instance && (earlier.writes || now.writes)) {
      if (message)
        edges.push_back({earlier.instance, now.writes ? EdgeKind::reuse : EdgeKind::data});
      else if (!in_order && !apart)
        after->push_back(earlier.slot);
    }
    // A write that covers an access comes before all later accesses, and a later computation that reads the same bytes
    // replaces earlier ones. Reads of slots without a fixed order do not: a write must wait for each of them.
    const bool covered = covers(now, earlier);
    return covered && (now.writes ? in_order || message || !apart : in_order && !earlier.writes);
  });
}

Error mismatch(const Program& program, const Dependencies& deps, uint32_t instance, const std::string& why) {
  const Instance& at = deps.instances[instance];
  return invalid_input(describe_instance(program, at) + ": " + why);
}

// The FIFO from each device to each other one: what is sent, and what is received, in order.
struct Fifo {
  int source, destination;
  std::vector<uint32_t> sends, recvs;
};

// Collects them device by device, each end by itself: what this takes grows with the FIFOs there are, not with the
// pairs of devices.
class FifoEnds {
 public:
  explicit FifoEnds(size_t devices) : at_{std::vector<int>(devices, -1), std::vector<int>(devices, -1)} {}

  void begin_device() {
    for (; first_ < ends_.size(); ++first_) at_[ends_[first_].sends ? 1 : 0][ends_[first_].peer()] = -1;
  }
  // Of the device that was begun.
  std::vector<uint32_t>& queue(int self, int peer, bool sends) {
    int& at = at_[sends ? 1 : 0][static_cast<size_t>(peer)];
    if (at < 0) {
      at = static_cast<int>(ends_.size());
      ends_.push_back({sends ? self : peer, sends ? peer : self, sends, {}});
    }
    return ends_[static_cast<size_t>(at)].queue;
  }
  // Both ends together, by when the first of them was seen. What was collected is gone then.
  std::vector<Fifo> joined() {
    std::vector<size_t> order(ends_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto pair = [&](size_t end) { return std::pair(ends_[end].source, ends_[end].destination); };
    std::ranges::stable_sort(order, {}, pair);
    std::vector<std::pair<size_t, Fifo>> found;  // and its first end
    for (const size_t end : order) {
      if (found.empty() || pair(found.back().first) != pair(end))
        found.push_back({end, {ends_[end].source, ends_[end].destination, {}, {}}});
      Fifo& fifo = found.back().second;
      (ends_[end].sends ? fifo.sends : fifo.recvs) = std::move(ends_[end].queue);
    }
    std::ranges::sort(found, {}, &std::pair<size_t, Fifo>::first);
    std::vector<Fifo> fifos;
    for (auto& [first, fifo] : found) fifos.push_back(std::move(fifo));
    return fifos;
  }

 private:
  struct End {
    int source, destination;
    bool sends;
    std::vector<uint32_t> queue;  // instances, in order
    size_t peer() const { return static_cast<size_t>(sends ? destination : source); }
  };
  std::vector<End> ends_;
  size_t first_ = 0;                    // of the device that was begun
  std::array<std::vector<int>, 2> at_;  // [sends][peer]: its place in ends_; -1: none yet
};

Status match_fifo(const Program& program, const Fifo& fifo, Dependencies& deps) {
  const size_t both = std::min(fifo.sends.size(), fifo.recvs.size());
  for (size_t i = 0; i < both; ++i) {
    const uint32_t send = fifo.sends[i], recv = fifo.recvs[i];
    const Instr& out = instr_of(program, deps.instances[send]);
    const Instr& in = instr_of(program, deps.instances[recv]);
    const auto partner = [&] { return describe_instance(program, deps.instances[recv]); };
    if (out.tag != in.tag) {
      return mismatch(
          program, deps, send,
          fmt::format("message {} of this pair has tag {}, but the receiver expects tag {} at {}: tags are crossed", i,
                      out.tag, in.tag, partner()));
    }
    const int64_t sent = bytes_of(program.devices[static_cast<size_t>(fifo.source)], out.reads[0]).value();
    const int64_t received = bytes_of(program.devices[static_cast<size_t>(fifo.destination)], in.writes[0]).value();
    if (sent != received) {
      return mismatch(program, deps, send,
                      fmt::format("sends {} B, but {} takes {} B: sizes differ", sent, partner(), received));
    }
    deps.match[send] = recv;
    deps.match[recv] = send;
  }
  if (fifo.sends.size() > both) {
    return mismatch(program, deps, fifo.sends[both],
                    fmt::format("no recv on {} takes this message: a receive is missing",
                                program.devices[static_cast<size_t>(fifo.destination)].name));
  }
  if (fifo.recvs.size() > both) {
    return mismatch(program, deps, fifo.recvs[both],
                    fmt::format("no send on {} gives this message: a send is missing",
                                program.devices[static_cast<size_t>(fifo.source)].name));
  }
  return ok_status();
}

size_t count_instances(const DeviceProgram& device) {
  size_t count = 0;
  for (const Slot& slot : device.order) count += device.segments[static_cast<size_t>(slot.segment)].instrs.size();
  return count;
}

// Instances and edges, device by device; the FIFOs' ends, which are not matched yet.
class Collector {
 public:
  // any_order: of the slots of a device.
  Collector(const Program& program, Reuse reuse, bool any_order, Natives natives, size_t total)
      : ends(program.devices.size()), program_(program), reuse_(reuse), any_order_(any_order), natives_(natives) {
    CHECK(total <= most_steps, "check_structure counts them");
    deps.instances.reserve(total);
    deps.edge_begin.reserve(total + 1);
    deps.edges.reserve(total * 2);
    deps.match.assign(total, no_instance);
    if (natives_ == Natives::as_run && std::ranges::any_of(program.devices, has_native))
      deps.native.assign(total, no_instance);
  }

  void begin_device() { deps.device_begin.push_back(static_cast<uint32_t>(deps.instances.size())); }

  // Of the device that was begun. Any order: what free_slots() says of it is there.
  void add(size_t d) {
    const DeviceProgram& device = program_.devices[d];
    AccessLists lists(device, reuse_);
    ends.begin_device();
    const std::vector<bool> own = any_order_ ? own_scratch(device) : std::vector<bool>(device.buffers.size(), false);
    const std::vector<SegmentTouches> touches = segment_touches(
        device, lists,
        lists.with_neighbours(any_order_ ? shared_buffers(device, own) : transferred_buffers(device, natives_)),
        natives_);
    std::map<std::tuple<int, bool, int>, uint32_t> last_of_tag;  // any order: by peer, whether it sends, tag
    const std::vector<std::vector<int>> steps = native_steps(device);
    std::vector<uint32_t> natives;  // [collective]: of the slot at hand
    instance_.assign(device.buffers.size(), 0);
    uint32_t last_compute = no_instance;
    for (size_t s = 0; s < device.order.size(); ++s) {
      const Slot& slot = device.order[s];
      const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
      std::vector<int>* after = any_order_ ? &deps.free_slots[d][s].after : nullptr;
      if (any_order_) last_compute = no_instance;
      // Native collectives begin in the order in which the segment has them: the same on all devices, whichever has
      // instructions of its own first.
      std::map<uint32_t, uint32_t> before_native;
      natives.assign(deps.native.empty() ? 0 : segment.collectives.size(), no_instance);
      for (size_t c = 0; !deps.native.empty() && c < segment.collectives.size(); ++c) {
        const int step = steps[static_cast<size_t>(slot.segment)][c];
        if (step < 0) continue;
        std::vector<uint32_t>& queue = native_queues[segment.collectives[c].group][static_cast<int>(d)];
        const auto first = static_cast<uint32_t>(deps.instances.size()) + static_cast<uint32_t>(step);
        before_native[first] = queue.empty() ? no_instance : queue.back();
        queue.push_back(first);
        natives[c] = first;
      }
      for (const InstanceUse& use : slot.instances) instance_[use.buffer.index()] = use.instance;
      for (size_t i = 0; i < segment.instrs.size(); ++i) {
        const Instr& instr = segment.instrs[i];
        const auto now = static_cast<uint32_t>(deps.instances.size());
        deps.instances.push_back({static_cast<int>(d), static_cast<int>(s), static_cast<int>(i)});
        deps.edge_begin.push_back(static_cast<uint32_t>(deps.edges.size()));
        uint32_t before = no_instance;
        const Collective* native = deps.native.empty() ? nullptr : native_of(segment, instr);
        const bool transfer = is_transfer(instr.opcode) || native != nullptr;
        if (native != nullptr) {
          deps.native[now] = natives[static_cast<size_t>(instr.collective)];
          if (deps.native[now] == now) before = before_native[now];
        } else if (transfer) {
          const bool sends = instr.opcode == Opcode::send;
          std::vector<uint32_t>& queue = ends.queue(static_cast<int>(d), instr.peer, sends);
          if (any_order_) {
            const auto [last, first] = last_of_tag.try_emplace({instr.peer, sends, instr.tag}, now);
            if (!first) before = std::exchange(last->second, now);
          } else if (!queue.empty()) {
            before = queue.back();
          }
          queue.push_back(now);
        } else {
          before = last_compute;
          last_compute = now;
        }
        if (before != no_instance) deps.edges.push_back({before, EdgeKind::stream});
        for (const Touch& t : touches[static_cast<size_t>(slot.segment)][i]) {
          const InstanceUse of{BufferId(t.buffer), instance_[t.buffer]};
          const int64_t origin = lists.origin(of);
          touch(lists.list(of),
                {now, static_cast<int>(s), of, origin + t.begin, origin + t.end, origin,
                 origin + lists.stride(of.buffer), t.writes, transfer, own[t.buffer]},
                deps.edges, after);
        }
      }
      for (const InstanceUse& use : slot.instances) instance_[use.buffer.index()] = 0;
    }
  }

  void end() {
    begin_device();
    deps.edge_begin.push_back(static_cast<uint32_t>(deps.edges.size()));
  }

  Dependencies deps;
  FifoEnds ends;
  std::map<std::vector<int>, std::map<int, std::vector<uint32_t>>> native_queues;  // by group and member

 private:
  const Program& program_;
  const Reuse reuse_;
  const bool any_order_;
  const Natives natives_;
  std::vector<int> instance_;
};

// The members' native collectives, each with those of the others: who begins them in another order waits for ever.
Status match_natives(const Program& program, Collector& collector) {
  Dependencies& deps = collector.deps;
  const auto collective = [&](uint32_t i) -> const Collective& {
    const Instance& at = deps.instances[i];
    const DeviceProgram& device = program.devices[static_cast<size_t>(at.device)];
    const int segment = device.order[static_cast<size_t>(at.slot)].segment;
    return *native_of(device.segments[static_cast<size_t>(segment)], instr_of(program, at));
  };
  for (auto& [group, members] : collector.native_queues) {
    const std::vector<uint32_t>& first = members[group.front()];
    for (const int member : group) {
      const std::vector<uint32_t>& queue = members[member];
      const auto same = [&](uint32_t a, uint32_t b) { return same_collective(collective(a), collective(b)); };
      if (std::ranges::equal(queue, first, same)) continue;
      return invalid_input(fmt::format(
          "devices {} and {} begin other native collectives of their group, or in another order",
          program.devices[static_cast<size_t>(group.front())].name, program.devices[static_cast<size_t>(member)].name));
    }
    for (size_t k = 0; k < first.size(); ++k) {
      uint32_t last = members[group.back()][k];
      for (const int member : group) {
        const uint32_t next = members[member][k];
        deps.match[std::exchange(last, next)] = next;
      }
    }
  }
  return ok_status();
}

Result<Dependencies> find_dependencies(const Program& program, Reuse reuse, bool any_order, Natives natives) {
  size_t total = 0;
  for (const DeviceProgram& device : program.devices) total += count_instances(device);
  Collector collector(program, reuse, any_order, natives, total);
  for (size_t d = 0; d < program.devices.size(); ++d) {
    collector.begin_device();
    if (any_order) {
      ASSIGN_OR_RETURN(collector.deps.free_slots.emplace_back(), free_slots(program.devices[d]));
    }
    collector.add(d);
  }
  collector.end();
  for (const Fifo& fifo : collector.ends.joined()) RETURN_IF_ERROR(match_fifo(program, fifo, collector.deps));
  RETURN_IF_ERROR(match_natives(program, collector));
  return std::move(collector.deps);
}

}  // namespace

const Instr& instr_of(const Program& program, const Instance& instance) {
  const DeviceProgram& device = program.devices[static_cast<size_t>(instance.device)];
  const Slot& slot = device.order[static_cast<size_t>(instance.slot)];
  return device.segments[static_cast<size_t>(slot.segment)].instrs[static_cast<size_t>(instance.instr)];
}

std::string describe_instance(const Program& program, const Instance& instance) {
  const DeviceProgram& device = program.devices[static_cast<size_t>(instance.device)];
  const Slot& slot = device.order[static_cast<size_t>(instance.slot)];
  return fmt::format("device {} slot {} ({}) `{}`", device.name, instance.slot, slot_name(device, slot),
                     to_string(program, device, instr_of(program, instance)));
}

Result<Dependencies> dependencies(const Program& program, Reuse reuse) {
  return find_dependencies(program, reuse, false, Natives::written_out);
}

Result<Dependencies> dependencies_as_run(const Program& program) {
  return find_dependencies(program, Reuse::of_buffers, false, Natives::as_run);
}

Dependencies dependencies_of(const Program& program, size_t device, Reuse reuse) {
  Collector collector(program, reuse, false, Natives::as_run, count_instances(program.devices[device]));
  for (size_t d = 0; d < program.devices.size(); ++d) {
    collector.begin_device();
    if (d == device) collector.add(d);
  }
  collector.end();
  return std::move(collector.deps);
}

Result<Dependencies> free_dependencies(const Program& program) {
  if (std::ranges::any_of(program.devices, has_native))
    return unsupported("an online policy cannot be asked where the transport's own collectives run");
  ASSIGN_OR_RETURN(Dependencies deps, find_dependencies(program, Reuse::of_bytes, true, Natives::written_out));
  RETURN_IF_ERROR(keep_places(program, deps));
  return deps;
}

}  // namespace nlsplit::inline program
