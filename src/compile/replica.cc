#include "compile/replica.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/index.h"

namespace nlsplit::inline compiler {
namespace {

// The work of two slots but for peers and micro-batches.
bool is_same_work(const OrderedSlot& a, const OrderedSlot& b) {
  const auto same_flows = [](const Ports& x, const Ports& y) {
    return std::ranges::equal(x, y, {}, &Port::flow, &Port::flow);
  };
  return a.stage == b.stage && a.phase == b.phase && a.joint == b.joint && a.reduces == b.reduces &&
         same_flows(a.recvs, b.recvs) && same_flows(a.sends, b.sends);
}

// Whether each of d's slots has the segment that the slot of the other device has: messages of those with one segment
// have the same peers, of those with several they have not.
bool has_same_segments(const std::vector<OrderedSlot>& slots, const WrittenDevice& like, const DeviceProgram& other) {
  struct Seen {
    const OrderedSlot* slot;
    bool first;
    int segment;
  };
  std::vector<Seen> seen;
  for (size_t i = 0; i < slots.size(); ++i) {
    const OrderedSlot& slot = slots[i];
    const int segment = other.order[i].segment;
    const auto known = std::ranges::find_if(seen, [&](const Seen& before) {
      return before.slot->stage == slot.stage && before.slot->phase == slot.phase && before.first == like.first[i] &&
             before.slot->reduces == slot.reduces && before.slot->recvs == slot.recvs &&
             before.slot->sends == slot.sends;
    });
    if (known != seen.end() && known->segment != segment) return false;
    if (known != seen.end()) continue;
    if (std::ranges::find(seen, segment, &Seen::segment) != seen.end()) return false;
    seen.push_back({&slot, like.first[i], segment});
  }
  return true;
}

// Whether both have a place for what arrives of a stage's gradients, or neither.
bool receive_alike(const Lowering& lowering, int stage, int a, int b) {
  const auto receives = [&](const Bucket& bucket, int device) {
    const size_t member = lowering.member_of(stage, device);
    return received_elements(bucket.reduce.of_members[member], static_cast<int>(member)) > 0;
  };
  return std::ranges::all_of(lowering.reductions[at(stage)].buckets,
                             [&](const Bucket& bucket) { return receives(bucket, a) == receives(bucket, b); });
}

class ReplicaWriter {
 public:
  ReplicaWriter(Lowering& lowering, const WrittenDevice& like, int d)
      : l_(lowering),
        like_(like),
        d_(d),
        slots_(lowering.slots[at(d)]),
        from_(lowering.program.devices[at(like.device)]),
        out_(lowering.program.devices[at(d)]) {}

  void write() {
    out_.buffers = from_.buffers;
    std::vector<const OrderedSlot*> slot_of(from_.segments.size(), nullptr);  // [segment]: the first one
    out_.order.reserve(slots_.size());
    for (size_t i = 0; i < slots_.size(); ++i) {
      const int segment = from_.order[i].segment;
      if (slot_of[at(segment)] == nullptr) slot_of[at(segment)] = &slots_[i];
      out_.order.push_back({segment, slots_[i].phase == Phase::step ? -1 : slots_[i].micro_batch, {}});
    }
    out_.segments.reserve(from_.segments.size());
    for (size_t s = 0; s < from_.segments.size(); ++s) write_segment(s, *slot_of[s]);
    assign_instances(instance_rules(), like_.touched, l_.micro_batches(), out_);
    const auto same_size = [](const Buffer& a, const Buffer& b) {
      return a.bytes == b.bytes && a.instances == b.instances;
    };
    if (std::ranges::equal(out_.buffers, from_.buffers, same_size))
      out_.arena = from_.arena;
    else
      place_buffers(out_, like_.scratch, like_.in_place);
  }

 private:
  InstanceRules instance_rules() const {
    InstanceRules rules = like_.rules;
    for (size_t i = 0; i < slots_.size(); ++i) {
      rules.slots[i].time = slots_[i].time;
      for (size_t r = 0; r < slots_[i].recvs.size(); ++r) rules.slots[i].arrivals[r].second = slots_[i].received_at[r];
    }
    return rules;
  }

  void write_segment(size_t number, const OrderedSlot& slot) {
    const Segment& from = from_.segments[number];
    Segment& made = out_.segments.emplace_back();
    made.name = from.name;
    made.stage = from.stage;
    made.shard = from.shard;
    made.phase = from.phase;
    made.instrs.reserve(from.instrs.size());
    size_t next = 0;
    const auto copy_until = [&](size_t end) {
      const auto begin = from.instrs.begin();
      std::copy(begin + static_cast<std::ptrdiff_t>(next), begin + static_cast<std::ptrdiff_t>(end),
                std::back_inserter(made.instrs));
      next = end;
    };
    for (const PeerMark& mark : like_.marks[number]) {
      copy_until(mark.begin);
      switch (mark.kind) {
        case PeerMark::Kind::recv:
          copy_until(mark.end);
          made.instrs.back().peer = slot.recvs[mark.port].peer;
          break;
        case PeerMark::Kind::send:
          copy_until(mark.end);
          made.instrs.back().peer = slot.sends[mark.port].peer;
          break;
        case PeerMark::Kind::turn:
          take_turn(made, mark.turn);
          next = mark.end;
          break;
      }
    }
    copy_until(from.instrs.size());
  }

  size_t member_of(int stage) {
    if (stage != member_stage_) member_ = l_.member_of(stage, d_);
    member_stage_ = stage;
    return member_;
  }

  void take_turn(Segment& segment, const PeerMark::Turn& of) {
    const Reduction& reduction = l_.reductions[at(of.stage)];
    const ExpandedCollective& reduce = reduction.buckets[of.turn.bucket].reduce;
    const size_t member = member_of(of.stage);
    if (of.turn.round == 0) {
      segment.collectives.push_back(reduce.collective);
      if (l_.native) segment.collectives.back().native = {of.places.value, of.places.result};
      if (of.places.received.valid()) {
        Buffer& received = out_.buffers[of.places.received.index()];
        received.type.shape = {received_elements(reduce.of_members[member], static_cast<int>(member))};
        received.bytes = size_of(received.type);
      }
    }
    const Rounds& rounds = reduce.of_members[member];
    const auto of_round = [&](size_t round) {
      return instructions_of(rounds[round], reduction.group, static_cast<int>(member), of.places);
    };
    const auto add = [&](std::vector<Instr> instrs) {
      for (Instr& instr : instrs) {
        instr.collective = of.collective;
        segment.instrs.push_back(std::move(instr));
      }
    };
    if (of.turn.round > 0) add(of_round(of.turn.round - 1).finish);
    if (of.turn.round < rounds.size()) add(of_round(of.turn.round).begin);
  }

  const Lowering& l_;
  const WrittenDevice& like_;
  const int d_;
  const std::vector<OrderedSlot>& slots_;
  const DeviceProgram& from_;
  DeviceProgram& out_;
  int member_stage_ = -1;
  size_t member_ = 0;  // its place in the group of that stage
};

}  // namespace

bool is_replica(const Lowering& lowering, const WrittenDevice& like, int d) {
  const std::vector<OrderedSlot>& slots = lowering.slots[at(d)];
  const std::vector<OrderedSlot>& others = lowering.slots[at(like.device)];
  if (lowering.training == nullptr || !std::ranges::equal(slots, others, is_same_work)) return false;
  const DeviceProgram& device = lowering.program.devices[at(d)];
  const DeviceProgram& other = lowering.program.devices[at(like.device)];
  if (device.kind != other.kind || device.level != other.level || device.cores != other.cores) return false;
  const auto is_endpoint = [&](int one) { return one == lowering.source || one == lowering.sink; };
  if (is_endpoint(d) || is_endpoint(like.device) || lowering.steps_together()) return false;
  if (lowering.cluster->messages != DType::f32) return false;
  if (!has_same_segments(slots, like, other)) return false;
  return std::ranges::all_of(slots, [&](const OrderedSlot& slot) {
    if (slot.phase != Phase::step) return true;  // there is one of each stage with gradients
    return !lowering.reductions[at(slot.stage)].sharded && receive_alike(lowering, slot.stage, like.device, d);
  });
}

void write_replica(Lowering& lowering, const WrittenDevice& like, int d) { ReplicaWriter(lowering, like, d).write(); }

}  // namespace nlsplit::inline compiler
