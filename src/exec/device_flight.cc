#include "exec/device_flight.h"

#include "base/hash.h"
#include "program/text.h"

namespace nlsplit::inline exec {
namespace {

constexpr size_t longest_instruction = 160;

}  // namespace

DeviceFlight::DeviceFlight(const DeviceIndex& index, FlightRecorder* recorder)
    : index_(index), recorder_(recorder), fifos_(index.fifo_peers.size()) {
  if (recorder_ == nullptr) return;
  for (const Segment& segment : index.device.segments) {
    std::vector<std::string>& texts = texts_.emplace_back();
    for (const Instr& instr : segment.instrs) {
      const Collective* native = native_of(segment, instr);
      texts.push_back(native == nullptr ? to_string(index.program, index.device, instr)
                                        : to_string(index.program, index.device, *native));
      if (texts.back().size() > longest_instruction) texts.back().resize(longest_instruction);
    }
  }
  for (uint32_t i = 0; i < index.count; ++i) {
    if (!index.transfers(i)) continue;
    Fifo& fifo = fifos_[index.fifo_index[i]];
    if (index.is_native(i)) {
      fifo.direction = "with";
      fifo.peers = index.native(i).group;
      fifo.tag = static_cast<int>(hash_bytes(fifo.peers.data(), fifo.peers.size() * sizeof(int)) & INT32_MAX);
      std::erase(fifo.peers, index.device_number);
      continue;
    }
    fifo.direction = index.instr(i).opcode == Opcode::send ? "send" : "recv";
    fifo.peers = {index.instr(i).peer};
    fifo.tag = index.online_slots.empty() ? -1 : index.instr(i).tag;
  }
  recorder_->ask(this);
}

DeviceFlight::~DeviceFlight() {
  if (recorder_ != nullptr) recorder_->ask(nullptr);
}

void DeviceFlight::execution(bool runs) {
  if (recorder_ == nullptr) return;
  if (runs) {
    for (Fifo& fifo : fifos_) {
      fifo.ended.store(0, std::memory_order_relaxed);
      fifo.first.store(no_instance, std::memory_order_relaxed);
    }
  }
  runs_.store(runs, std::memory_order_relaxed);
}

void DeviceFlight::write_instance(FlightWriter& out, uint32_t instance) const {
  if (instance >= index_.count) {
    out.text("any slot");
    return;
  }
  const Instance& at = index_.deps.instances[index_.begin + instance];
  const Slot& slot = index_.device.order[static_cast<size_t>(at.slot)];
  const auto segment = static_cast<size_t>(slot.segment);
  out.text("slot ").number(at.slot).text(" (").text(index_.device.segments[segment].name).text(".");
  if (slot.micro_batch < 0)
    out.text("-");
  else
    out.number(slot.micro_batch);
  out.text(") `").text(texts_[segment][static_cast<size_t>(at.instr)]).text("`");
}

// Whether the computation that waits cannot run before this FIFO has moved on.
bool DeviceFlight::is_needed(uint32_t fifo, uint32_t first, uint32_t waiting) const {
  if (waiting >= index_.count) return fifos_[fifo].direction != "send";  // whatever brings a slot
  for (uint32_t i = first; i < index_.count; ++i) {
    if (index_.fifo_index[i] != fifo) continue;
    for (uint32_t s = index_.successor_begin[i]; s < index_.successor_begin[i + 1]; ++s) {
      if (index_.successors[s] == waiting) return true;
    }
  }
  return false;
}

void DeviceFlight::write_state(FlightWriter& out, int64_t now_ns) const {
  const FlightLane& lane = recorder_->computations;
  const uint32_t count = lane.count();
  if (!runs_.load(std::memory_order_relaxed) || count == 0) {
    out.text("state outside").line();
    return;
  }
  const FlightLane::Note last = lane.get(count - 1);
  const char* state = "between";
  uint32_t waiting = no_instance;
  bool all_needed = false;
  switch (last.event) {
    case FlightEvent::begins:
      state = "computes";
      break;
    case FlightEvent::waits:
      state = "waits";
      waiting = last.instance;
      break;
    case FlightEvent::finishes:
      state = "finished";
      all_needed = true;
      break;
    case FlightEvent::ends:
    case FlightEvent::posts:
    case FlightEvent::completes:
      break;
  }
  out.text("state ").text(state).text(" ").number(now_ns - last.at_ns).text(" ");
  write_instance(out, last.instance);
  out.line();
  for (uint32_t f = 0; f < fifos_.size(); ++f) {
    const Fifo& fifo = fifos_[f];
    const uint32_t first = fifo.first.load(std::memory_order_relaxed);
    for (const int peer : fifo.peers) {
      out.text("fifo ").text(fifo.direction).text(" ").number(peer).text(" ").number(fifo.tag);
      out.text(" ").number(fifo.ended.load(std::memory_order_relaxed));
      if (first >= index_.count) {
        out.text(" closed").line();
        continue;
      }
      const bool needed = all_needed || (last.event == FlightEvent::waits && is_needed(f, first, waiting));
      out.text(" open ").number(now_ns - fifo.since_ns.load(std::memory_order_relaxed));
      out.text(needed ? " needed " : " ahead ");
      write_instance(out, first);
      out.line();
    }
  }
}

}  // namespace nlsplit::inline exec
