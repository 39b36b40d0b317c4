// Program: everything that will happen, on every device, and nothing left to decide. docs/program.md is its
// specification. Two executors read it: exec runs it, sim times it. It is a value and a text (program/text.h).
//
//   device A cpu host a isa v3 memory 8589934592 arena 41216
//     buffer in f32[8,3,8,8] comm bytes 6144 instances 2 at 0
//     buffer a1 f32[8,16,8,8] comm bytes 32768 instances 2 at 12288
//     segment F0 stage 0 F
//       recv in from S tag 0
//       a1 = Conv(in, w1, b1) {…} + Relu kernel conv_gemm_v3 as "conv1, relu1"
//       send a1 to B tag 1
//     order
//       F0.0
//       F0.1 in:1 a1:1
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cost/cluster.h"
#include "graph/graph.h"
#include "kernels/catalogue.h"
#include "program/collective.h"
#include "program/operand.h"
#include "schedule/schedules.h"

namespace nlsplit::inline program {

enum class BufferKind : uint8_t {
  input,    // the Program's input: instance m is micro-batch m's share, there before the first slot
  output,   // the Program's output: instance m is micro-batch m's share, read after the last slot
  weight,   // constant, from `content`
  state,    // changed by step; starts as `content`, or zero
  stash,    // kept from one phase for another
  scratch,  // lives within one slot
  comm,     // sent or received
  view,     // another buffer's bytes under another shape; no storage of its own
};
std::string_view name_of(BufferKind kind);

// Where a state is a part of a tensor that several devices share: elements [begin, begin + extent) of `whole` along an
// axis, the extent being that of the buffer. The parts of all devices together are the whole tensor
// (program/state_parts.h).
struct StatePart {
  std::string whole;
  int axis = 0;
  int64_t begin = 0;
  int64_t of = 0;  // the whole tensor's extent along the axis
  friend bool operator==(const StatePart&, const StatePart&) = default;
};

struct Buffer {
  std::string name;  // unique on its device
  TensorType type;
  BufferKind kind = BufferKind::scratch;
  Bytes bytes;               // of one instance; more than the type needs if a kernel packs it
  int instances = 1;         // for several micro-batches in flight
  int64_t offset = 0;        // of instance 0 in the device's arena; instance b is at offset + b * stride()
  BufferId of;               // view: whose bytes (never itself a view)
  bool has_content = false;  // weight and state: initial bytes are `content`, packed for input `packed_input` of kernel
  ContentId content;         // `packed_for` if that is chosen
  KernelId packed_for;
  int packed_input = 0;
  std::optional<int64_t> max = {};     // of integers: its values are 0 … max; what scalars are read from (scalars.h)
  std::optional<StatePart> part = {};  // of a state that is not all of its tensor

  int64_t stride() const;  // bytes rounded up to the arena's alignment
  int64_t extent() const;  // from instance 0's first byte to the last instance's last one
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

enum class Opcode : uint8_t {
  compute,  // writes = kernel(reads)                              y = Op(a, b) {…} kernel K
  reduce,   // writes[0] = reads[0] + reads[1] + … in this order   y = reduce(a, b)
  copy,     // writes[0] = reads[0], same number of elements       y = copy(x)
  pack,     // writes[0] = reads[0][…, begin:end along axis, …]    y = pack(x) axis 1 begin 0 end 16
  unpack,   // writes[0][…, begin:end along axis, …] = reads[0]    y = unpack(x) axis 1 begin 0 end 16
  send,     // reads[0] to peer                                    send x to B tag 1
  recv,     // writes[0] from peer                                 recv x from A tag 1
};
std::string_view name_of(Opcode opcode);
inline bool is_transfer(Opcode opcode) { return opcode == Opcode::send || opcode == Opcode::recv; }

struct Instr {
  Opcode opcode{};
  std::vector<Operand> reads;
  std::vector<Operand> writes;
  int desc = -1;               // compute: index into Program::descs
  Operand workspace;           // compute: scratch for the kernel, if it needs any
  int peer = -1;               // send, recv: device index
  int tag = 0;                 // send, recv: equal at both ends
  int axis = 0;                // pack, unpack
  int64_t begin = 0, end = 0;  // pack, unpack
  int collective = -1;         // index into Segment::collectives if it is part of one
  std::string label;           // the model's names of what it does: "conv1, relu1"
  friend bool operator==(const Instr&, const Instr&) = default;
};

inline constexpr int io_stage = -1;  // segments without work: shard 0 feeds inputs, 1 collects outputs, 2 receives
                                     // early, so that a FIFO has the same order at both ends

// The instructions of one part of the work, written once. Several segments may serve one (stage, phase): replicas talk
// to changing peers, the first micro-batch writes a gradient and later ones add.
struct Segment {
  std::string name;  // unique on its device
  int stage = 0;
  int shard = 0;  // which part of the stage's work, where several devices share one micro-batch
  Phase phase = Phase::forward;
  std::vector<Instr> instrs;
  std::vector<Collective> collectives;
  friend bool operator==(const Segment&, const Segment&) = default;
};

struct InstanceUse {
  BufferId buffer;
  int instance = 0;
  friend bool operator==(const InstanceUse&, const InstanceUse&) = default;
};

// One execution of a segment.
struct Slot {
  int segment = 0;
  int micro_batch = -1;  // -1: none (init, step)
  std::vector<InstanceUse>
      instances;  // of buffers with several instances that the segment touches, by buffer; instance 0 may be left out
  friend bool operator==(const Slot&, const Slot&) = default;
};

struct DeviceProgram {
  std::string name;
  DeviceKind kind = DeviceKind::cpu;
  std::string host;
  Level level = Isa::v3;
  int cores = 1;  // threads that share each computation
  Bytes memory;   // what the device has
  Bytes arena;    // what this Program uses of it: everything, weights too
  std::vector<Buffer> buffers;
  std::vector<Segment> segments;
  std::vector<Slot> order;
  friend bool operator==(const DeviceProgram&, const DeviceProgram&) = default;

  const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
  BufferId root(BufferId id) const { return buffer(id).kind == BufferKind::view ? buffer(id).of : id; }
};

// Of an instruction its native collective (program/collective.h); nullptr: it is part of none.
const Collective* native_of(const Segment& segment, const Instr& instr);
bool has_native(const DeviceProgram& device);

struct Program {
  std::string name;   // of the model and plan
  int64_t batch = 1;  // samples of one execution
  int micro_batches = 1;
  Bytes eager_limit;                   // a send of at most this size does not wait for its recv to be posted
  int nic_window = 0;                  // concurrent outgoing transfers of a host; 0: unlimited
  std::vector<DeviceProgram> devices;  // MPI rank r runs devices[r]
  std::vector<ComputeDesc> descs;      // distinct computations in order of first use
  friend bool operator==(const Program&, const Program&) = default;
};

// Bytes an operand spans, and where it begins in its root buffer's instance.
Bytes bytes_of(const DeviceProgram& device, const Operand& operand);
TensorType type_of(const DeviceProgram& device, const Operand& operand);          // flat [n] if not whole
int instance_of(const DeviceProgram& device, const Slot& slot, BufferId buffer);  // resolves views
// Byte offset of the operand in the device's arena for this slot.
int64_t address_of(const DeviceProgram& device, const Slot& slot, const Operand& operand);
// Index of desc in the program's table, added if new.
int intern_desc(Program& program, const ComputeDesc& desc);
// Numbers the computations in the order of their first use, as a text does, and drops those that nothing uses. Figures
// that are kept by these numbers (clocks) then mean the same before and after. Returns the number that each had.
std::vector<int> number_descs_by_use(Program& program);

}  // namespace nlsplit::inline program
