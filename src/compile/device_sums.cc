// Sums of a device's gradients: over replicas, whole or a share of them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compile/collectives.h"
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
  const Operand gradients = reduction.keeps_share
                                ? buffers_.in_bucket_buffer(stage, turn.bucket)
                                : Operand{buffers_.gradients(stage).buffer, bucket.begin, bucket.end()};
  reduced_.try_emplace(stage, reduction.buckets.size());
  Reduced& here = reduced_[stage][turn.bucket];
  if (turn.round == 0) {
    here.collective = static_cast<int>(segment.collectives.size());
    segment.collectives.push_back(bucket.reduce.collective);
    if (l_.native) segment.collectives.back().native = {gradients, gradients};
    const std::string suffix = turn.bucket == 0 ? "" : fmt::format("_{}", turn.bucket);
    const int64_t elements = received_elements(rounds, static_cast<int>(member));
    if (elements > 0 && reduction.keeps_share)
      here.received = received_in(stage, bucket_buffer_of(turn.bucket));
    else if (elements > 0)
      here.received = buffers_.add_message(fmt::format("received_{}{}", stage, suffix), {DType::f32, {elements}});
  }
  const int tag = static_cast<int>(l_.flows.size()) + stage;
  const auto of_round = [&](size_t round, bool adds) {
    const Rounds one = {rounds[round]};
    const CollectivePlaces places{gradients, gradients, here.received, tag};
    std::vector<Instr> instrs = instructions_of(one, reduction.group, static_cast<int>(member), places);
    const auto sums = std::ranges::find(instrs, Opcode::reduce, &Instr::opcode);
    for (auto i = adds ? sums : instrs.begin(); i != (adds ? instrs.end() : sums); ++i) {
      i->collective = here.collective;
      emit(segment, std::move(*i));
    }
  };
  if (turn.round > 0) of_round(turn.round - 1, true);
  if (turn.round < rounds.size()) of_round(turn.round, false);
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

BufferId DeviceWriter::received_in(int stage, size_t bucket_buffer) {
  BufferId& buffer = received_[{stage, bucket_buffer}];
  if (buffer.valid()) return buffer;
  const Reduction& reduction = l_.reductions[at(stage)];
  const size_t member = l_.member_of(stage, d_);
  int64_t most = 0;
  for (size_t b = bucket_buffer; b < reduction.buckets.size(); b += bucket_buffers)
    most = std::max(most, received_elements(reduction.buckets[b].reduce.of_members[member], static_cast<int>(member)));
  return buffer = buffers_.add_message(fmt::format("received_{}_{}", stage, bucket_buffer), {DType::f32, {most}});
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
  for (Instr& instr : instructions_of(of.of_members[member], group, static_cast<int>(member), places)) {
    instr.collective = static_cast<int>(segment.collectives.size());
    emit(segment, std::move(instr));
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
