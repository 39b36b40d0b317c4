// One device's buffers while its part of a Program is made: each is made when first asked for. Kinds follow from use:
// what a transfer touches is comm; what two phases or two stages touch is a stash; the rest is scratch of its phase.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compile/arena.h"
#include "compile/lowering.h"

namespace nlsplit::inline compiler {

// Where a value lies.
struct Stored {
  BufferId buffer;
  ValueId as;  // the root, or the view of it whose type the buffer has
};

class DeviceBuffers {
 public:
  // layouts: [flow]: the block of channels that its messages are stored in; 0: row-major.
  DeviceBuffers(const Lowering& lowering, const std::vector<int>& layouts, int device, DeviceProgram& out);
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  // Those of the Program's inputs, at the source, and of its outputs, at the sink.
  void add_inputs();
  void add_outputs();
  // Outputs that have to be copied, and to where.
  const std::vector<std::pair<ValueId, BufferId>>& copied_outputs() const { return copies_; }

  // Each root of a computed value or input has up to two places that all slots share, one in each layout: the one it is
  // made in, and the one its messages have. A reader that wants another layout gets a copy of its own stage.
  Stored& place_of(ValueId root, int block) { return (block == 0 ? row_major_ : blocked_)[root.index()]; }
  // `as` says under which type if it is row-major.
  Stored storage(ValueId root, int block, ValueId as);
  // What a recomputation makes of it; row-major.
  Stored recomputed(ValueId root);
  // What its messages are sent from and received in: of a flow that is not converted the value itself.
  BufferId message(const Flow& flow);
  // Where a flow that is converted lies as it travels.
  Stored converted(const Flow& flow);
  // Where a flow's messages are once they are there; in training.
  BufferId received(const Flow& flow) const {
    return l_.is_converted(flow) ? converted_.at(flow.root).buffer : row_major_[flow.root.index()].buffer;
  }
  // A segment's own copy of a value, of its stage and phase.
  const Stored& copy_of(const Segment& segment, ValueId root, int block);
  // A value as itself, given where its root is stored.
  BufferId seen_as(const Stored& stored, ValueId value);

  // A weight that nothing changes, as a kernel takes it: packed for its input if packed > 0.
  BufferId weight(ValueId value, KernelId kernel, size_t input, Bytes packed);
  // Trained weights, what an optimizer keeps of them, sums of gradients.
  bool is_state(ValueId root) const { return states_[root.index()]; }
  // A stage's sums lie in one buffer, so that they are reduced at once. They last no longer than an execution: the
  // first micro-batch's part begins them.
  Operand state(int stage, ValueId root);
  Operand gradients(int stage);  // all sums, or the share of them that is kept; none: the stage trains nothing
  // Where the gradients of a bucket lie that are reduced a micro-batch at a time, and the part of a sum in it.
  Operand in_bucket_buffer(int stage, size_t bucket);
  Operand in_bucket_buffer(int stage, ValueId sum);
  // A weight that another replica keeps, while a phase uses it (compile/gathers.h); none: it is kept here.
  std::optional<Operand> gathered(int stage, Phase phase, ValueId weight);
  // A part of a tied weight's gradient, as it comes from the stage that adds it up.
  Operand received_part(ValueId sum);
  // With clipping: the sums of squares of a stage's gradients, which lie in one buffer too; the one that is this value,
  // none: it is another.
  BufferId squares(int stage);
  std::optional<Operand> sum_of_squares(ValueId value);

  BufferId add_message(const std::string& name, const TensorType& type);  // of a collective
  BufferId workspace(Bytes needed);
  BufferId credit_in() { return known(credit_in_, "credit_in", BufferKind::comm); }
  BufferId credit_out() { return known(credit_out_, "credit_out", BufferKind::comm); }
  BufferId token() { return known(token_, "token", BufferKind::state); }

  // Notes what an instruction touches. moment: its place in the work of its stage and phase, the same in all segments
  // of these.
  void note(const Segment& segment, const Instr& instr, int64_t moment);
  // Settles the workspace's size and the kinds of buffers.
  void settle();
  // Behind settle(): of each stage and phase, its scratch.
  std::vector<std::vector<ScratchLifetime>> lifetimes() const;
  // Whether micro-batches have instances of a buffer, whose number is to be found.
  bool has_instances(BufferId buffer) const;

 private:
  struct Use {
    bool open = false;                         // its kind is settled by its uses
    bool transferred = false, shared = false;  // shared: by two groups
    int group = -1;                            // stage and phase
    int64_t first = std::numeric_limits<int64_t>::max(), last = -1;
  };

  bool runs_here(int stage) const;
  int uses_of(const Flow& flow) const;
  bool is_read_here(const Flow& flow) const;
  int instances_of(const Flow& flow) const;
  std::string free_name(ValueId value);
  std::string own_name(ValueId value);
  std::string unique_name(const std::string& wanted);
  std::string layout_name(ValueId root, int block);
  BufferId add_buffer(Buffer buffer);
  BufferId add_stored(const std::string& name, const TensorType& type, BufferKind kind, int instances);
  BufferId add_open(const std::string& name, const TensorType& type, int instances);
  ValueId received_as(const Flow& flow) const;
  BufferId known(BufferId& buffer, std::string_view name, BufferKind kind);

  const Lowering& l_;
  const Graph& g_;
  const std::vector<int>& layouts_;
  int d_;
  DeviceProgram& out_;
  std::vector<int> stages_here_;
  std::vector<Stored> row_major_, blocked_;  // [root value]
  std::map<ValueId, Stored> recomputed_;
  std::map<ValueId, Stored> converted_;
  std::map<std::tuple<int, Phase, ValueId, int>, Stored> segment_copies_;  // by stage, phase, root and layout
  std::map<std::pair<BufferId, ValueId>, BufferId> views_;
  std::vector<bool> named_;                              // [value]: a buffer has its name
  std::unordered_set<std::string> made_up_;              // names that are no value's
  std::unordered_multimap<uint64_t, BufferId> weights_;  // by content
  std::vector<bool> states_, changed_;                   // [value]; changed: a weight that is a state
  std::map<ValueId, BufferId> parts_;
  std::map<int, BufferId> gradients_, squares_;                // by stage
  std::map<std::pair<int, size_t>, BufferId> bucket_buffers_;  // by stage and number
  std::vector<std::pair<ValueId, BufferId>> copies_;
  std::vector<Use> uses_;  // [buffer]
  BufferId workspace_, gathered_;
  BufferId credit_in_, credit_out_, token_;
};

}  // namespace nlsplit::inline compiler
