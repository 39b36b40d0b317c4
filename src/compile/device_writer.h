// Writes one device's part of a Program, for pass `allocate`: its segments, then buffers, instances and places.
//   device.cc         segments, one for all slots with the same work, and what they receive and send
//   device_values.cc  computations, where they find their operands and where they put their results
//   device_sums.cc    sums of gradients: reducing them over replicas, and shares of them (ZeRO)
//   device_steps.cc   what the steps of a device's stages have in common: tied weights, clipping
//   replica.h         the part of a replica, after that of another one
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile/buffers.h"
#include "compile/collectives.h"
#include "compile/instances.h"
#include "compile/lowering.h"
#include "compile/replica.h"
#include "compile/shares.h"
#include "program/in_place.h"

namespace nlsplit::inline compiler {

// [level][node]: index of its desc in the Program, or -1.
using Interned = std::map<Level, std::vector<int>>;

class DeviceWriter {
 public:
  // layouts: [flow]: the block of channels that its messages are stored in; 0: row-major.
  DeviceWriter(const Lowering& lowering, const std::vector<int>& layouts, int device, Interned& interned,
               Program& program);
  // Once.
  WrittenDevice write();

 private:
  // In which layouts a root can be read in the segment being made.
  struct Available {
    int segment = -1;  // else outdated
    bool row_major = false, blocked = false;
    int copies = 0;  // bit 0: the row-major one is the stage's own copy; bit 1: the blocked one is
    bool has(int block) const { return block == 0 ? row_major : blocked; }
    bool copied(int block) const { return (copies & (block == 0 ? 1 : 2)) != 0; }
    void set(int block) { (block == 0 ? row_major : blocked) = true; }
  };
  struct Variant {
    const OrderedSlot* slot;  // that the segment was made for
    int segment;
    bool first;
  };
  struct Reduced {
    int collective = -1;  // of the segment
    CollectivePlaces places;
  };

  // ---- device.cc: segments
  // In training a message is there from when it is sent, and the schedule's order says how many are in flight.
  InstanceRules instance_rules() const;
  // The segment of a slot: the one with the same work, peers and messages, made if there is none yet.
  int variant_of(const OrderedSlot& slot);
  // Whether the same values come from other devices, converted, and the others from this one.
  bool is_given_alike(const OrderedSlot& a, const OrderedSlot& b) const;
  // Whether the stage's sums had not begun; they have now.
  bool begin_sums(int stage);
  std::string segment_name(const OrderedSlot& slot, int number) const;
  const std::vector<std::vector<size_t>>& nodes_of(Phase phase) const;  // [stage]
  Segment make_segment(const OrderedSlot& slot, int number);
  // What leaves goes as soon as it is made; the gradient of a backward in one piece, made by I, behind W.
  void compute_and_send(Segment& segment, const OrderedSlot& slot, const std::vector<size_t>& nodes);
  // Parts of inputs are cut out before they are sent.
  void feed(Segment& segment, const OrderedSlot& slot);
  void collect(Segment& segment);

  bool is_credit(const Port& port) const { return at(port.flow) == l_.flows.size(); }
  static Instr transfer(Opcode opcode, const Operand& data, const Port& port);
  static Instr copy(Operand from, Operand to, std::string label);
  // A credit's value means nothing: copying it is what makes the computations behind it wait for it, and it for those
  // before.
  void receive(Segment& segment, const OrderedSlot& slot);
  void send(Segment& segment, const OrderedSlot& slot, size_t port);

  // A moment counts instructions in the work of their stage and phase: first what is received, then by the node, which
  // has the same number in all variants of a segment.
  static constexpr int64_t moments_of_node = int64_t{1} << 20;
  void begin_node(size_t n) { moment_ = (static_cast<int64_t>(n) + 1) * moments_of_node; }
  void begin_end() { begin_node(g_.nodes.size()); }
  void emit(Segment& segment, Instr instr);

  // ---- device_values.cc
  int made_in(ValueId root) const { return chosen_ == nullptr ? 0 : chosen_->made_in[root.index()]; }
  bool made_by(int stage, ValueId root) const;
  // What the forward pass has made is taken from its repetition, where there is one.
  bool from_repetition(const Segment& segment, ValueId root) const;
  // The same values in another layout.
  void emit_reorder(Segment& segment, ValueId root, const Stored& from, int from_block, const Stored& to, int to_block);
  // The same values in another element type.
  void emit_cast(Segment& segment, ValueId root, BufferId from, BufferId to);
  void emit_cast(Segment& segment, const std::string& name, const Operand& from, const Operand& to);
  // Of what the segment has made: once, however many devices it is sent to.
  void convert(Segment& segment, const Flow& flow);
  // A gradient's message may leave in a later slot than the one that makes it (W, not I). Converted there, it would
  // wait for that slot.
  bool is_converted_when_made(const Flow& flow) const;
  // A part of an input, taken out of it.
  Instr cut_input(ValueId part, const Stored& to);
  // Where the next computation of a stage finds a root in the layout it wants; reordered before it if need be.
  Stored wanted(Segment& segment, ValueId root, int block);
  Operand weight(const Segment& segment, ValueId value, KernelId kernel, size_t input, Bytes packed);
  // The state whose place a computed value has; none: its own place. A stage's first micro-batch begins the sums: a
  // part that nothing else reads is made where the sum lies.
  ValueId state_at(ValueId root) const;
  Operand place_of_state(const Segment& segment, ValueId state);
  const Stored& place_of_message(const Flow& flow, int block);
  void compute(Segment& segment, size_t n);
  // Of a step, each once: a tied weight is of several stages, and has one copy here.
  void compute_all(Segment& segment, const std::vector<size_t>& nodes);
  // The operands that the only result may overwrite, if all turn out to be scratch.
  void note_in_place(const Instr& instr, uint64_t reads);

  // ---- device_sums.cc
  void begin_sum(Segment& segment, const Operand& sum, const Operand& part, const std::string& label);
  void reduce_gradients(Segment& segment, int stage);
  void take_turn(Segment& segment, int stage, const ReductionTurn& turn);
  // Where replicas keep shares of sums, parts lie in bucket buffers (compile/shares.h).
  // Whether the bucket that had the buffer before is complete when a part is made, and so can be over by then.
  bool made_in_bucket_buffer(ValueId part, ValueId sum) const;
  bool lies_in_bucket_buffer(const Segment& segment, ValueId state) const;
  // A part that was not made there.
  void put_in_bucket_buffer(Segment& segment, const Node& accumulate, const std::string& label);
  // The bucket in whose buffer a node writes; none: it does not.
  std::optional<size_t> bucket_written_by(size_t n) const;
  // What a bucket buffer had before is reduced, and kept, before a node writes there.
  void free_bucket_buffer(Segment& segment, size_t n, std::vector<ReductionTurn>& turns);
  // Where a bucket's gradients lie, and what its messages take. Buckets of one bucket buffer share all.
  CollectivePlaces places_of(int stage, size_t bucket);
  // The device's share of a reduced bucket is added to that of the micro-batches before.
  void keep_share(Segment& segment, int stage, size_t bucket);
  // Where replicas keep shares of weights: gathers a group, and all that have room before a node (`gathered`: the first
  // that is not gathered).
  void gather_group(Segment& segment, const Gathers::Group& group);
  void gather_due(Segment& segment, size_t n, size_t& gathered);
  // ZeRO: the device updates the weights of its share. They go to the others bucket by bucket, each while the next one
  // is updated, by way of the places that their gradients had.
  void update_share(Segment& segment, int stage);
  void emit_collective(Segment& segment, const ExpandedCollective& of, const Operand& value, int tag);

  // ---- device_steps.cc
  int slot_of_step(const OrderedSlot& slot) const;  // among the device's slots that update weights: from 1 on
  // Where steps wait for each other: the gradients of all stages here, with the parts of other devices, and the factor
  // that clips them.
  void begin_steps(Segment& segment);
  void exchange_parts(Segment& segment);
  // The squares of the gradients, and with those of other devices the factor.
  void clip(Segment& segment);

  const Lowering& l_;
  const KernelGraph& graph_;
  const Graph& g_;
  const std::vector<int>& layouts_;
  int d_;
  Program& program_;
  DeviceProgram& out_;
  const Assignment* chosen_ = nullptr;
  const std::vector<NodeKernel>* kernels_ = nullptr;
  std::vector<int>* interned_ = nullptr;
  DeviceBuffers buffers_;
  std::vector<Available> available_;   // [root value]
  std::vector<ValueId> state_of_;      // [value]: the state whose new value it is; empty: inference
  int micro_batch_ = 0;                // of the slot that the segment being made is the first for
  std::vector<ValueId> converted_;     // in the segment being made, to be sent
  std::vector<std::set<int>> givers_;  // [stage]: stages whose results travel to it converted; empty: none do
  bool first_ = false;                 // the segment being made begins its stage's sums
  const Reduction* shares_ = nullptr;  // of its stage, if replicas keep shares of sums
  int steps_here_ = 0;                 // slots that update weights
  std::set<size_t> stepped_;           // nodes of the step that are computed
  std::vector<InPlace> in_place_;
  std::vector<PeerMark> marks_;  // of the segment being made
  WrittenDevice written_;
  int64_t moment_ = 0;
  std::vector<Variant> variants_;
  std::vector<int> begun_;                                            // stages whose sums have begun
  std::map<int, std::vector<Reduced>> reduced_;                       // [stage][bucket]
  std::map<std::pair<int, size_t>, CollectivePlaces> reduce_places_;  // by stage, and bucket or bucket buffer
};

}  // namespace nlsplit::inline compiler
