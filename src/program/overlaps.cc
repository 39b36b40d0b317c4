// Buffers that share bytes of an arena. A *generation* of a buffer's instance is one value it holds: from the write
// that makes it to the last access before the next such write. Of two overlapping buffers, every generation of one must
// be over (happens-before) when a generation of the other begins; but accesses to parts of them without a byte in
// common need no order. Only a computation in place may read one and write the other, if both have the same bytes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>

#include "program/in_place.h"
#include "program/text.h"
#include "program/verify_parts.h"

namespace nlsplit::inline program {

// Vector clocks over the streams of one device: its computations, and its end of each FIFO. Of an instance,
// clock[s] counts the instances of stream s that are finished before it starts.
class HappensBefore {
 public:
  // through_others: also what a message to another device and one back say. Without, only what the device's own
  // dependencies say: nearly always enough, and the work of one device instead of all.
  HappensBefore(const Program& program, const Dependencies& deps, const std::vector<uint32_t>& order, size_t device,
                bool through_others)
      : program_(program), deps_(deps), own_(deps.device_begin[device]), own_end_(deps.device_begin[device + 1]) {
    find_streams();
    first_ = through_others ? 0 : own_;
    const size_t count = through_others ? deps.instances.size() : own_end_ - own_;
    start_.assign(count * width_, 0);
    finish_.assign(count * width_, 0);
    for (const uint32_t i : order) {
      if (through_others || is_own(i)) pass(i, through_others);
    }
    finish_ = {};
    start_ = {start_.begin() + static_cast<std::ptrdiff_t>((own_ - first_) * width_),
              start_.begin() + static_cast<std::ptrdiff_t>((own_end_ - first_) * width_)};
  }

  // Of two instances of the device.
  bool operator()(uint32_t earlier, uint32_t later) const {
    return start_[(later - own_) * width_ + stream_[earlier - own_]] >= position_[earlier - own_];
  }

 private:
  bool is_own(uint32_t i) const { return own_ <= i && i < own_end_; }

  void find_streams() {
    // -1: computations; -2: native collectives, which are not used here; peer * 2 + sends: a FIFO's end
    std::map<int, uint32_t> streams;
    std::vector<uint32_t> length;
    for (uint32_t i = own_; i < own_end_; ++i) {
      const Instr& instr = instr_of(program_, deps_.instances[i]);
      const int lane = deps_.is_native(i)          ? -2
                       : is_transfer(instr.opcode) ? instr.peer * 2 + (instr.opcode == Opcode::send ? 1 : 0)
                                                   : -1;
      const auto [at, added] = streams.try_emplace(lane, static_cast<uint32_t>(length.size()));
      if (added) length.push_back(0);
      stream_.push_back(at->second);
      position_.push_back(++length[at->second]);
    }
    width_ = length.size();
  }

  void join(std::vector<uint32_t>& into, uint32_t i, const std::vector<uint32_t>& from, uint32_t j) const {
    for (size_t s = 0; s < width_; ++s) {
      uint32_t& clock = into[(i - first_) * width_ + s];
      clock = std::max(clock, from[(j - first_) * width_ + s]);
    }
  }

  void pass(uint32_t i, bool through_others) {
    const bool native = deps_.is_native(i);
    const bool receives = native || instr_of(program_, deps_.instances[i]).opcode == Opcode::recv;
    for (const Edge& edge : deps_.into(i)) {
      // Receives are posted ahead: the one before must have ended when this ends, not when it is posted.
      join(receives && edge.kind == EdgeKind::stream ? finish_ : start_, i, finish_, edge.from);
    }
    join(finish_, i, start_, i);
    // What was done before the send is done when the message is here.
    if (receives && !native && through_others) join(finish_, i, start_, deps_.match[i]);
    if (!is_own(i)) return;
    uint32_t& own = finish_[(i - first_) * width_ + stream_[i - own_]];
    own = std::max(own, position_[i - own_]);
  }

  const Program& program_;
  const Dependencies& deps_;
  const uint32_t own_, own_end_;             // the device's instances
  uint32_t first_ = 0;                       // of those that have clocks
  std::vector<uint32_t> stream_, position_;  // [own instance]
  std::vector<uint32_t> start_, finish_;     // [instance][stream]; in the end start_ of own instances alone
  size_t width_ = 0;
};

namespace {

bool persistent(BufferKind kind) {
  switch (kind) {
    case BufferKind::input:
    case BufferKind::output:
    case BufferKind::weight:
    case BufferKind::state:
      return true;
    case BufferKind::stash:
    case BufferKind::scratch:
    case BufferKind::comm:
    case BufferKind::view:
      return false;
  }
  CHECK(false, "unknown buffer kind");
}

struct Generation {
  uint32_t first;        // instance in the device's order
  size_t begin, end;     // into the accesses of its buffer's instance
  bool computes = true;  // none is a transfer
};

// Of one instance of a buffer. Its accesses stand in one list: a generation has few, and there are very many of them.
struct Uses {
  std::vector<uint32_t> accesses;  // ascending
  std::vector<Generation> generations;

  std::span<const uint32_t> of(const Generation& generation) const {
    return std::span(accesses).subspan(generation.begin, generation.end - generation.begin);
  }
};

struct ArenaRange {
  int64_t begin, end;
};

ArenaRange place(const Buffer& buffer, int instance) {
  const int64_t begin = buffer.offset + instance * buffer.stride();
  return {begin, begin + buffer.bytes.value()};
}
bool meet(ArenaRange a, ArenaRange b) { return a.begin < b.end && b.begin < a.end; }

class DeviceOverlaps {
 public:
  DeviceOverlaps(const Program& program, const Dependencies& deps, const std::vector<uint32_t>& order, size_t d)
      : program_(program), deps_(deps), order_(order), device_(program.devices[d]), d_(d) {}

  Status run() {
    const std::vector<uint32_t> by_offset = stored_buffers();
    const std::vector<bool> shares = sharing_buffers(by_offset);
    if (std::ranges::none_of(shares, [](bool one) { return one; })) return ok_status();
    RETURN_IF_ERROR(check_natives(shares));
    collect_generations(shares);
    // Most buffers are touched by computations alone, which are in one order: these are looked at all at once. If they
    // clash, the pairs say which.
    std::vector<bool> apart = computed_buffers();
    if (!lives_apart(apart)) apart.assign(apart.size(), false);
    const std::vector<std::pair<uint32_t, uint32_t>> pairs = overlapping_buffers(by_offset, apart);
    for (const auto& [x, y] : pairs) {
      for (const uint32_t one : {x, y}) {
        if (persistent(device_.buffers[one].kind)) {
          return invalid_input(fmt::format(
              "device {}: buffer {} ({}) overlaps buffer {} in the arena, but is needed all the time", device_.name,
              device_.buffers[one].name, name_of(device_.buffers[one].kind), device_.buffers[one == x ? y : x].name));
        }
      }
    }
    for (const auto& [x, y] : pairs) {
      const Buffer &bx = device_.buffers[x], &by = device_.buffers[y];
      for (const Key& i : used_instances(x)) {
        for (const Key& j : used_instances(y)) {
          if (meet(place(bx, i.second), place(by, j.second))) RETURN_IF_ERROR(check_pair(i, j));
        }
      }
    }
    return ok_status();
  }

 private:
  using Key = std::pair<uint32_t, int>;  // buffer, instance

  struct Life {  // of one generation
    uint32_t first, last;
    ArenaRange at;
    Key key;
  };

  // By where they begin.
  std::vector<uint32_t> stored_buffers() const {
    std::vector<uint32_t> by_offset;
    for (uint32_t b = 0; b < device_.buffers.size(); ++b) {
      if (device_.buffers[b].kind != BufferKind::view && device_.buffers[b].bytes.value() > 0) by_offset.push_back(b);
    }
    std::stable_sort(by_offset.begin(), by_offset.end(),
                     [&](uint32_t a, uint32_t b) { return device_.buffers[a].offset < device_.buffers[b].offset; });
    return by_offset;
  }

  // All instances.
  int64_t end_of(uint32_t buffer) const {
    const Buffer& b = device_.buffers[buffer];
    return b.offset + b.extent();
  }

  // [buffer]: another has bytes between its first and its last.
  std::vector<bool> sharing_buffers(const std::vector<uint32_t>& by_offset) const {
    std::vector<bool> shares(device_.buffers.size(), false);
    int64_t reached = std::numeric_limits<int64_t>::min();
    for (size_t i = 0; i < by_offset.size(); ++i) {
      const uint32_t b = by_offset[i];
      const bool next = i + 1 < by_offset.size() && device_.buffers[by_offset[i + 1]].offset < end_of(b);
      shares[b] = next || device_.buffers[b].offset < reached;
      reached = std::max(reached, end_of(b));
    }
    return shares;
  }

  // As run: the bytes of a native collective belong to the transport alone.
  Status check_natives(const std::vector<bool>& shares) const {
    if (deps_.native.empty()) return ok_status();
    for (const Segment& segment : device_.segments) {
      for (const Collective& collective : segment.collectives) {
        if (!collective.native) continue;
        for (const Operand& operand : {collective.native->value, collective.native->result}) {
          const BufferId root = device_.root(operand.buffer);
          if (!shares[root.index()]) continue;
          return invalid_input(fmt::format("device {} segment {}: a native {} of buffer {}, whose bytes others use",
                                           device_.name, segment.name, name_of(collective.kind),
                                           device_.buffer(root).name));
        }
      }
    }
    return ok_status();
  }

  // [buffer]: no transfer touches it, and it is not needed all the time.
  std::vector<bool> computed_buffers() const {
    std::vector<bool> computed;
    for (const Buffer& buffer : device_.buffers) computed.push_back(!persistent(buffer.kind));
    for (size_t b = 0; b < uses_.size(); ++b) {
      for (const auto& [instance, uses] : uses_[b]) {
        for (const Generation& generation : uses.generations) {
          if (!generation.computes) computed[b] = false;
        }
      }
    }
    return computed;
  }

  // Whether none of these buffers' generations begins where another is not over: in the order of their beginnings, with
  // what is held at each place.
  bool lives_apart(const std::vector<bool>& buffers) const {
    std::vector<Life> lives;
    for (uint32_t b = 0; b < uses_.size(); ++b) {
      if (!buffers[b]) continue;
      for (const auto& [instance, uses] : uses_[b]) {
        const ArenaRange at = place(device_.buffers[b], instance);
        for (const Generation& generation : uses.generations)
          lives.push_back({generation.first, uses.of(generation).back(), at, {b, instance}});
      }
    }
    std::ranges::stable_sort(lives, {}, &Life::first);
    std::map<int64_t, const Life*> held;  // by their beginnings; no two have bytes in common
    for (const Life& life : lives) {
      auto at = held.upper_bound(life.at.begin);
      if (at != held.begin() && std::prev(at)->second->at.end > life.at.begin) --at;
      while (at != held.end() && at->first < life.at.end) {
        const Life& other = *at->second;
        const bool over = other.key == life.key || other.last < life.first ||
                          (other.last == life.first && in_place(life.first, other.key, life.key));
        if (!over) return false;
        at = held.erase(at);
      }
      held[life.at.begin] = &life;
    }
    return true;
  }

  // But not those that are known to be apart.
  std::vector<std::pair<uint32_t, uint32_t>> overlapping_buffers(const std::vector<uint32_t>& by_offset,
                                                                 const std::vector<bool>& apart) const {
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    for (size_t i = 0; i < by_offset.size(); ++i) {
      const uint32_t a = by_offset[i];
      const int64_t end = end_of(a);
      for (size_t j = i + 1; j < by_offset.size() && device_.buffers[by_offset[j]].offset < end; ++j) {
        if (!apart[a] || !apart[by_offset[j]]) pairs.emplace_back(a, by_offset[j]);
      }
    }
    return pairs;
  }

  void collect_generations(const std::vector<bool>& wanted) {
    uses_.resize(device_.buffers.size());
    for (uint32_t i = deps_.device_begin[d_]; i < deps_.device_begin[d_ + 1]; ++i) {
      if (deps_.is_native(i)) continue;
      const Instr& instr = instr_of(program_, deps_.instances[i]);
      const bool transfer = is_transfer(instr.opcode);
      const Slot& slot = device_.order[static_cast<size_t>(deps_.instances[i].slot)];
      const auto access = [&](const Operand& operand, bool writes) {
        if (!operand.buffer.valid()) return;
        const BufferId root = device_.root(operand.buffer);
        if (!wanted[root.index()]) return;
        Uses& uses = uses_[root.index()][instance_of(device_, slot, root)];
        const bool begins = writes && operand.whole();  // a write of a part continues the value
        if (uses.generations.empty() || begins) uses.generations.push_back({i, uses.accesses.size(), 0});
        uses.accesses.push_back(i);
        Generation& generation = uses.generations.back();
        generation.end = uses.accesses.size();
        generation.computes = generation.computes && !transfer;
      };
      for (const Operand& operand : instr.reads) access(operand, false);
      for (const Operand& operand : instr.writes) access(operand, true);
      access(instr.workspace, true);
    }
  }

  // A text may have a million instances; unused ones cannot overlap.
  std::vector<Key> used_instances(uint32_t buffer) const {
    std::vector<Key> used;
    for (const auto& [instance, uses] : uses_[buffer]) used.emplace_back(buffer, instance);
    return used;
  }

  bool on_compute(uint32_t i) const { return !is_transfer(instr_of(program_, deps_.instances[i]).opcode); }

  bool before(uint32_t earlier, uint32_t later) {
    if (on_compute(earlier) && on_compute(later)) return earlier < later;  // one stream, in order
    if (!here_) here_.emplace(program_, deps_, order_, d_, false);
    if ((*here_)(earlier, later)) return true;
    if (!everywhere_) everywhere_.emplace(program_, deps_, order_, d_, true);
    return (*everywhere_)(earlier, later);
  }

  // From the first byte of a buffer's instance that an instance of the device touches to the last one, in the arena.
  ArenaRange touched(uint32_t i, Key key) const {
    const Instr& instr = instr_of(program_, deps_.instances[i]);
    ArenaRange all{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
    const auto add = [&](const Operand& operand) {
      if (!operand.buffer.valid() || device_.root(operand.buffer) != BufferId(key.first)) return;
      const Buffer& root = device_.buffers[key.first];
      const int64_t begin = root.offset + key.second * root.stride() +
                            size_of(device_.buffer(operand.buffer).type.dtype, operand.whole() ? 0 : operand.begin);
      all.begin = std::min(all.begin, begin);
      all.end =
          std::max(all.end, operand.whole() ? place(root, key.second).end : begin + bytes_of(device_, operand).value());
    };
    for (const Operand& operand : instr.reads) add(operand);
    for (const Operand& operand : instr.writes) add(operand);
    add(instr.workspace);
    return all;
  }

  Status check_pair(Key x, Key y) {
    const auto ux = uses_[x.first].find(x.second), uy = uses_[y.first].find(y.second);
    if (ux == uses_[x.first].end() || uy == uses_[y.first].end()) return ok_status();
    const std::vector<Generation>&gx = ux->second.generations, &gy = uy->second.generations;
    size_t i = 0, j = 0;
    std::span<const uint32_t> last;  // accesses
    bool last_is_x = false, last_computes = false;
    while (i < gx.size() || j < gy.size()) {
      const bool take_x = j == gy.size() || (i < gx.size() && gx[i].first < gy[j].first);
      const Generation& next = take_x ? gx[i++] : gy[j++];
      const std::span<const uint32_t> accesses = (take_x ? ux : uy)->second.of(next);
      // Of instances on one stream the order says it all: most pairs are such.
      const bool plain = !last.empty() && last_computes && next.computes && last.back() < accesses.front();
      if (!last.empty() && last_is_x != take_x && !plain) {
        for (const uint32_t a : last) {
          for (const uint32_t b : accesses) {
            const Key held = last_is_x ? x : y, wanted = take_x ? x : y;
            const bool apart =
                a == b ? in_place(a, held, wanted) : before(a, b) || !meet(touched(a, held), touched(b, wanted));
            if (!apart) return clash(held, a, wanted, b);
          }
        }
      }
      last = accesses;
      last_is_x = take_x;
      last_computes = next.computes;
    }
    return ok_status();
  }

  bool in_place(uint32_t i, Key held, Key wanted) const {
    const ArenaRange from = place(device_.buffers[held.first], held.second);
    const ArenaRange to = place(device_.buffers[wanted.first], wanted.second);
    if (from.begin != to.begin || from.end != to.end) return false;
    const Instr& instr = instr_of(program_, deps_.instances[i]);
    return may_overwrite(device_, instr, in_place_reads(program_, instr), BufferId(held.first)) &&
           device_.root(instr.writes[0].buffer) == BufferId(wanted.first);
  }

  Error clash(Key held, uint32_t a, Key wanted, uint32_t b) const {
    return invalid_input(
        fmt::format("{}: uses buffer {}, whose bytes buffer {} may still need: {} is not over before it",
                    describe_instance(program_, deps_.instances[b]), device_.buffers[wanted.first].name,
                    device_.buffers[held.first].name, describe_instance(program_, deps_.instances[a])));
  }

  const Program& program_;
  const Dependencies& deps_;
  const std::vector<uint32_t>& order_;
  const DeviceProgram& device_;
  size_t d_;
  std::vector<std::map<int, Uses>> uses_;           // [buffer], by instance
  std::optional<HappensBefore> here_, everywhere_;  // made when the first pair of buffers needs them
};

}  // namespace

OverlapChecker::OverlapChecker(const Program& program, const Dependencies& dependencies,
                               const std::vector<uint32_t>& order)
    : program_(program), dependencies_(dependencies), order_(order) {}

Status OverlapChecker::check(size_t device) const {
  return DeviceOverlaps(program_, dependencies_, order_, device).run();
}

}  // namespace nlsplit::inline program
