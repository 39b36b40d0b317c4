// Sums of a device's gradients: over replicas, whole or a share of them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compile/device_writer.h"
#include "compile/gathers.h"

namespace nlsplit::inline compiler {

void DeviceWriter::begin_sum(Segment& segment, const Operand& sum, const Operand& part, const std::string& label) {
  if (part != sum) emit(segment, copy(part, sum, label));
}

void DeviceWriter::reduce_gradients(Segment& segment, int stage) {
  if (reduced_.contains(stage)) return;  // while the last W went on, or every W
  moment_ = 0;
  for (const ReductionTurn& turn : l_.reductions[at(stage)].turns) take_turn(segment, stage, turn);
}

void DeviceWriter::take_turn(Segment& segment, int stage, const ReductionTurn& turn) {
  const Reduction& reduction = l_.reductions[at(stage)];
  const Bucket& bucket = reduction.buckets[turn.bucket];
  const auto member = std::ranges::find(reduction.group, d_) - reduction.group.begin();
  const Rounds& rounds = bucket.reduce.of_members[at(member)];
  reduced_.try_emplace(stage, reduction.buckets.size());
  Reduced& here = reduced_[stage][turn.bucket];
  if (turn.round == 0) {
    here.collective = static_cast<int>(segment.collectives.size());
    here.places = places_of(stage, turn.bucket);
    segment.collectives.push_back(bucket.reduce.collective);
    if (l_.native) segment.collectives.back().native = {here.places.value, here.places.result};
  }
  const auto emit_all = [&](std::vector<Instr> instrs) {
    for (Instr& instr : instrs) {
      if (instr.opcode == Opcode::compute) {
        emit_cast(segment, fmt::format("gradients of bucket {}", turn.bucket), instr.reads[0], instr.writes[0]);
      } else {
        instr.collective = here.collective;
        emit(segment, std::move(instr));
      }
    }
  };
  const auto of_round = [&](size_t round) {
    return instructions_of(rounds[round], reduction.group, static_cast<int>(member), here.places,
                           sums_are_copied(bucket.reduce.rounds, round));
  };
  const size_t begin = segment.instrs.size();
  if (turn.round > 0) emit_all(of_round(turn.round - 1).finish);
  if (turn.round < rounds.size()) emit_all(of_round(turn.round).begin);
  marks_.push_back(
      {PeerMark::Kind::turn, begin, segment.instrs.size(), 0, {stage, turn, here.places, here.collective}});
  if (turn.round == rounds.size() && reduction.keeps_share) keep_share(segment, stage, turn.bucket);
}

bool DeviceWriter::made_in_bucket_buffer(ValueId part, ValueId sum) const {
  const size_t bucket = bucket_of(*shares_, shares_->begin.at(sum));
  return bucket < bucket_buffers ||
         shares_->buckets[bucket - bucket_buffers].completed_by < g_.value(part).producer.index();
}

bool DeviceWriter::lies_in_bucket_buffer(const Segment& segment, ValueId state) const {
  return shares_ != nullptr && segment.phase != Phase::step && shares_->begin.contains(state);
}

void DeviceWriter::put_in_bucket_buffer(Segment& segment, const Node& accumulate, const std::string& label) {
  const ValueId part = accumulate.inputs[1], root = graph_.root[part.index()];
  if (state_at(root).valid()) return;
  const Operand made{buffers_.seen_as(wanted(segment, root, 0), part)};
  emit(segment, copy(made, buffers_.in_bucket_buffer(segment.stage, state_of_[accumulate.outputs[0].index()]), label));
}

std::optional<size_t> DeviceWriter::bucket_written_by(size_t n) const {
  for (const ValueId value : g_.nodes[n].outputs) {
    const ValueId state = state_at(value);
    if (state.valid() && shares_->begin.contains(state)) return bucket_of(*shares_, shares_->begin.at(state));
  }
  return std::nullopt;
}

void DeviceWriter::free_bucket_buffer(Segment& segment, size_t n, std::vector<ReductionTurn>& turns) {
  const std::optional<size_t> bucket = bucket_written_by(n);
  if (!bucket || *bucket < bucket_buffers) return;
  const auto had_it = [&](const ReductionTurn& turn) { return turn.bucket == *bucket - bucket_buffers; };
  for (const ReductionTurn& turn : turns) {
    if (had_it(turn)) take_turn(segment, segment.stage, turn);
  }
  std::erase_if(turns, had_it);
}

CollectivePlaces DeviceWriter::places_of(int stage, size_t bucket) {
  const Reduction& reduction = l_.reductions[at(stage)];
  const size_t number = reduction.keeps_share ? bucket_buffer_of(bucket) : bucket;
  const size_t next = reduction.keeps_share ? bucket_buffers : reduction.buckets.size();
  const auto [known, is_new] = reduce_places_.try_emplace({stage, number});
  CollectivePlaces& places = known->second;
  const Bucket& of = reduction.buckets[bucket];
  places.value = places.result = reduction.keeps_share ? buffers_.in_bucket_buffer(stage, bucket)
                                                       : Operand{buffers_.gradients(stage).buffer, of.begin, of.end()};
  if (!is_new) return places;
  places.tag = static_cast<int>(l_.flows.size()) + stage;
  const auto member = static_cast<int>(l_.member_of(stage, d_));
  int64_t received = 0;
  MessageRoom room;
  for (size_t b = number; b < reduction.buckets.size(); b += next) {
    const Rounds& rounds = reduction.buckets[b].reduce.of_members[at(member)];
    received = std::max(received, received_elements(rounds, member));
    const MessageRoom one = message_room(rounds, member);
    room.outgoing = std::max(room.outgoing, one.outgoing);
    room.incoming = std::max(room.incoming, one.incoming);
  }
  const std::string suffix = number == 0 && !reduction.keeps_share ? "" : fmt::format("_{}", number);
  const auto add = [&](std::string_view name, DType type, int64_t elements) {
    return elements == 0 ? BufferId()
                         : buffers_.add_message(fmt::format("{}_{}{}", name, stage, suffix), {type, {elements}});
  };
  places.received = add("received", DType::f32, received);
  if (const DType type = l_.cluster->messages; type != DType::f32) {
    places.outgoing = add("outgoing", type, room.outgoing);
    places.incoming = add("incoming", type, room.incoming);
  }
  return places;
}

void DeviceWriter::keep_share(Segment& segment, int stage, size_t bucket) {
  const KeptShare share = kept_share(*shares_, bucket, l_.member_of(stage, d_));
  if (share.begin == share.end) return;
  const Operand part{buffers_.in_bucket_buffer(stage, bucket).buffer, share.begin, share.end};
  const Operand kept{buffers_.gradients(stage).buffer, share.kept, share.kept + share.end - share.begin};
  if (first_) return emit(segment, copy(part, kept, fmt::format("share of bucket {}", bucket)));
  Instr sum;
  sum.opcode = Opcode::reduce;
  sum.reads = {kept, part};
  sum.writes = {kept};
  emit(segment, std::move(sum));
}

void DeviceWriter::gather_due(Segment& segment, size_t n, size_t& gathered) {
  const std::span<const Gathers::Group> groups = groups_of(l_, segment.stage, segment.phase);
  for (; gathered < groups.size(); ++gathered) {
    if (gathered >= groups_at_once && groups[gathered - groups_at_once].last >= n) return;
    gather_group(segment, groups[gathered]);
  }
}

void DeviceWriter::gather_group(Segment& segment, const Gathers::Group& group) {
  for (const ValueId weight : group.weights) {
    const std::optional<Operand> here = buffers_.gathered(segment.stage, segment.phase, weight);
    const Operand kept = here ? Operand() : buffers_.state(segment.stage, weight);
    const Operand place = here ? *here : Operand{kept.buffer, 0, element_count(g_.value(weight).type.shape)};
    emit_collective(segment, l_.gathers[at(segment.stage)].broadcasts.at(weight), place, l_.weights_tag(segment.stage));
  }
}

void DeviceWriter::emit_collective(Segment& segment, const ExpandedCollective& of, const Operand& value, int tag) {
  const std::vector<int>& group = of.collective.group;
  const auto member = static_cast<size_t>(std::ranges::find(group, d_) - group.begin());
  const CollectivePlaces places{value, value, {}, tag};
  const auto emit_all = [&](std::vector<Instr> instrs) {
    for (Instr& instr : instrs) {
      instr.collective = static_cast<int>(segment.collectives.size());
      emit(segment, std::move(instr));
    }
  };
  for (const std::vector<Piece>& round : of.of_members[member]) {
    RoundInstrs instrs = instructions_of(round, group, static_cast<int>(member), places);
    emit_all(std::move(instrs.begin));
    emit_all(std::move(instrs.finish));
  }
  segment.collectives.push_back(of.collective);
  if (l_.native) segment.collectives.back().native = {value, value};
}

void DeviceWriter::update_share(Segment& segment, int stage) {
  const StepNodes& step = l_.training->nodes;
  const Reduction& reduction = l_.reductions[at(stage)];
  const size_t member = l_.member_of(stage, d_);
  const auto move = [&](size_t t, bool here) {  // a new weight
    const ValueId weight = step.trained[t];
    const ValueId of = step.sums[step.parts[t][0]].state;
    const Operand sum = reduction.keeps_share ? buffers_.in_bucket_buffer(stage, of) : buffers_.state(stage, of);
    const Operand state = buffers_.state(stage, weight);
    const std::string label = fmt::format("new {}", g_.value(weight).name);
    begin_end();
    emit(segment, here ? copy(state, sum, label) : copy(sum, state, label));
  };
  const auto take = [&](const Bucket& bucket) {  // what others have updated
    for (const size_t t : l_.weights_of(stage, bucket)) {
      if (l_.owner_of(stage, bucket, t) != member) move(t, false);
    }
  };
  for (size_t b = 0; b < reduction.buckets.size(); ++b) {
    const Bucket& bucket = reduction.buckets[b];
    for (const size_t t : l_.weights_of(stage, bucket)) {
      if (l_.owner_of(stage, bucket, t) != member) continue;
      compute_all(segment, step.of_weights[t]);
      if (bucket.gather) move(t, true);
    }
    if (!bucket.gather) continue;  // the phases that use the weights gather them
    const Operand all = reduction.keeps_share ? buffers_.in_bucket_buffer(stage, b)
                                              : Operand{buffers_.gradients(stage).buffer, bucket.begin, bucket.end()};
    emit_collective(segment, *bucket.gather, all, static_cast<int>(l_.flows.size()) + stage);
    if (reduction.keeps_share && b > 0) take(reduction.buckets[b - 1]);  // the next one comes to its buffer
  }
  if (reduction.keeps_weights) return;
  const size_t left = reduction.keeps_share ? reduction.buckets.size() - 1 : 0;
  std::for_each(reduction.buckets.begin() + static_cast<std::ptrdiff_t>(left), reduction.buckets.end(), take);
}

}  // namespace nlsplit::inline compiler
