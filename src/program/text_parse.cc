// Text → Program. Recursive descent, a line at a time; names are resolved as they are read, except those of peers and
// views, which may come later. text_parse_instr.cc has the lines of segments.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <unordered_map>

#include "base/hash.h"
#include "base/text_reader.h"
#include "graph/memory.h"
#include "program/text.h"
#include "program/text_fields.h"
#include "program/text_parse_instr.h"
#include "program/text_words.h"
#include "program/verify.h"

namespace nlsplit::inline program {
namespace {

constexpr int64_t most_summable_bytes = std::numeric_limits<int64_t>::max() / 4;  // sums of two do not overflow

class Parser {
 public:
  Parser(std::string_view text, std::string file) : in_(text, file), text_(text), file_(std::move(file)) {}

  Result<Program> run() {
    RETURN_IF_ERROR(collect_device_names());
    RETURN_IF_ERROR(header());
    while (in_.next_line()) RETURN_IF_ERROR(device());
    if (Status sound = check_structure(program_); !sound.ok()) {
      Error error = sound.error();
      error.where.file = file_;
      return error;
    }
    if (has_fingerprint_ && fingerprint(program_) != fingerprint_) {
      Error error = invalid_input(
          "the fingerprint does not fit: this text was changed after it was made; remove `fingerprint …` from "
          "its first line if that was on purpose");
      error.where = {file_, 1, 1};
      return error;
    }
    return std::move(program_);
  }

 private:
  // ---- the head

  Status collect_device_names() {
    TextReader in(text_, file_);
    while (in.next_line()) {
      if (!in.accept("device")) continue;
      ASSIGN_OR_RETURN(const std::string name, read_name(in, "a device name"));
      if (!devices_.emplace(name, static_cast<int>(devices_.size())).second) {
        return in.error(fmt::format("two devices are called {}", name));
      }
    }
    return ok_status();
  }

  Status header() {
    if (!in_.next_line() || !in_.accept(format_word) || !in_.accept(kind_word)) {
      Error error = invalid_input("not a program: its first line must be `nlsplit program 1`");
      error.where = {file_, 1, 1};
      return error;
    }
    ASSIGN_OR_RETURN(const int64_t version, in_.integer("the format's version"));
    if (version != format_version) {
      return in_.error(fmt::format("format version {}; this build reads version {}", version, format_version));
    }
    if (in_.accept("fingerprint")) {
      ASSIGN_OR_RETURN(fingerprint_, in_.hex("a fingerprint"));
      has_fingerprint_ = true;
    }
    RETURN_IF_ERROR(in_.end_of_line());
    if (!in_.next_line()) return in_.error("the line `program …` is missing");
    RETURN_IF_ERROR(in_.expect("program"));
    ASSIGN_OR_RETURN(program_.name, read_name(in_, "the program's name"));
    ASSIGN_OR_RETURN(program_.batch, read_keyed(in_, "batch"));
    RETURN_IF_ERROR(in_.expect("micro_batches"));
    ASSIGN_OR_RETURN(program_.micro_batches, read_small(in_, "micro_batches", 1));
    if (in_.accept("eager_limit")) {
      ASSIGN_OR_RETURN(const int64_t limit, read_integer(in_, "eager_limit", 0, most_summable_bytes));
      program_.eager_limit = bytes(limit);
    }
    if (in_.accept("nic_window")) {
      ASSIGN_OR_RETURN(program_.nic_window, read_small(in_, "nic_window"));
    }
    return in_.end_of_line();
  }

  // ---- a device

  Status device() {
    RETURN_IF_ERROR(in_.expect("device"));
    DeviceProgram& device = program_.devices.emplace_back();
    device_ = &device;
    buffers_.clear();
    segments_.clear();
    views_.clear();
    unplaced_.clear();
    ASSIGN_OR_RETURN(device.name, read_name(in_, "a device name"));
    ASSIGN_OR_RETURN(const std::string_view kind, in_.word("a kind of device"));
    auto parsed_kind = parse_device_kind(kind);
    if (!parsed_kind) return in_.error(parsed_kind.error().message);
    device.kind = *parsed_kind;
    RETURN_IF_ERROR(in_.expect("host"));
    ASSIGN_OR_RETURN(device.host, read_name(in_, "a host name"));
    if (in_.accept("isa")) {
      ASSIGN_OR_RETURN(const std::string_view text, in_.word("an instruction level"));
      auto level = parse_level(text);
      if (!level) return in_.error(level.error().message);
      device.level = *level;
    }
    if (in_.accept("cores")) {
      ASSIGN_OR_RETURN(device.cores, read_small(in_, "cores", 1));
    }
    ASSIGN_OR_RETURN(const int64_t memory, read_keyed(in_, "memory"));
    device.memory = bytes(memory);
    bool has_arena = false;
    if (in_.accept("arena")) {
      ASSIGN_OR_RETURN(const int64_t arena, read_integer(in_, "arena", 0, most_summable_bytes));
      device.arena = bytes(arena);
      has_arena = true;
    }
    RETURN_IF_ERROR(in_.end_of_line());

    bool more = in_.next_line();
    for (; more && in_.accept("buffer"); more = in_.next_line()) RETURN_IF_ERROR(buffer());
    RETURN_IF_ERROR(resolve_views());
    place_buffers(has_arena);
    while (more && in_.accept("segment")) {
      ASSIGN_OR_RETURN(more, segment());
    }
    if (!more) return in_.error(fmt::format("device {} has no `order`", device.name));
    RETURN_IF_ERROR(in_.expect("order"));
    RETURN_IF_ERROR(in_.end_of_line());
    while (in_.next_line()) {
      if (in_.peek() == "device") {
        in_.push_back_line();
        break;
      }
      RETURN_IF_ERROR(slot());
    }
    return ok_status();
  }

  Result<BufferKind> buffer_kind() {
    ASSIGN_OR_RETURN(const std::string_view word, in_.word("a kind of buffer"));
    for (const BufferKind kind : {BufferKind::input, BufferKind::output, BufferKind::weight, BufferKind::state,
                                  BufferKind::stash, BufferKind::scratch, BufferKind::comm, BufferKind::view}) {
      if (name_of(kind) == word) return kind;
    }
    return in_.error("kinds of buffers: input output weight state stash scratch comm view");
  }

  Result<StatePart> state_part() {
    StatePart part;
    RETURN_IF_ERROR(in_.expect("of"));
    ASSIGN_OR_RETURN(part.whole, read_name(in_, "a state's name"));
    RETURN_IF_ERROR(in_.expect("axis"));
    ASSIGN_OR_RETURN(part.axis, read_small(in_, "axis"));
    RETURN_IF_ERROR(in_.expect("begin"));
    ASSIGN_OR_RETURN(part.begin, read_integer(in_, "begin", 0, most_summable_bytes));
    RETURN_IF_ERROR(in_.expect("extent"));
    ASSIGN_OR_RETURN(part.of, read_integer(in_, "extent", 1, most_summable_bytes));
    return part;
  }

  Status buffer() {
    Buffer buffer;
    ASSIGN_OR_RETURN(buffer.name, read_name(in_, "a buffer name"));
    ASSIGN_OR_RETURN(buffer.type, read_type(in_));
    ASSIGN_OR_RETURN(buffer.kind, buffer_kind());
    const auto index = device_->buffers.size();
    if (buffer.kind == BufferKind::view) {
      RETURN_IF_ERROR(in_.expect("of"));
      ASSIGN_OR_RETURN(const std::string of, read_name(in_, "a buffer name"));
      views_.push_back({index, of, in_.error("")});
    } else {
      buffer.bytes = size_of(buffer.type);
      if (in_.accept("bytes")) {
        ASSIGN_OR_RETURN(const int64_t size, read_integer(in_, "bytes", 0, most_summable_bytes));
        buffer.bytes = bytes(size);
      }
      const bool is_old = in_.accept("banks");  // the word before
      if (is_old || in_.accept("instances")) {
        has_fingerprint_ &= !is_old;  // that of a text with the old word
        ASSIGN_OR_RETURN(buffer.instances, read_small(in_, "instances", 1));
      }
      if (in_.accept("max")) {
        ASSIGN_OR_RETURN(buffer.max, read_integer(in_, "a maximum", 0, std::numeric_limits<int64_t>::max()));
      }
      if (in_.accept("part")) {
        ASSIGN_OR_RETURN(buffer.part, state_part());
      }
      if (in_.accept("at")) {
        ASSIGN_OR_RETURN(buffer.offset, read_integer(in_, "a place in the arena", 0, most_summable_bytes));
      } else {
        unplaced_.push_back(index);
      }
      if (in_.accept("content")) {
        ASSIGN_OR_RETURN(buffer.content.value, in_.hex("a content id"));
        buffer.has_content = true;
      }
      if (in_.accept("packed_for")) {
        ASSIGN_OR_RETURN(buffer.packed_for, read_kernel(in_));
        RETURN_IF_ERROR(in_.expect("input"));
        ASSIGN_OR_RETURN(buffer.packed_input, read_small(in_, "input"));
      }
    }
    if (!buffers_.emplace(buffer.name, BufferId(index)).second) {
      return in_.error(fmt::format("two buffers are called {}", buffer.name));
    }
    device_->buffers.push_back(std::move(buffer));
    return in_.end_of_line();
  }

  Status resolve_views() {
    for (const View& view : views_) {
      const auto found = buffers_.find(view.of);
      if (found == buffers_.end()) {
        Error error = view.where;
        error.message = fmt::format("unknown buffer {}", view.of);
        return error;
      }
      device_->buffers[view.index].of = found->second;
    }
    return ok_status();
  }

  // Buffers without `at` get places of their own behind all others.
  void place_buffers(bool has_arena) {
    int64_t end = 0;
    const auto grow = [&](const Buffer& buffer) {
      // Impossible sizes are check_structure's to report; they must only not overflow here.
      const int64_t stride = std::min(buffer.stride(), std::numeric_limits<int64_t>::max() / 8 / buffer.instances);
      end = std::max(end, std::min(buffer.offset, std::numeric_limits<int64_t>::max() / 8) + stride * buffer.instances);
    };
    std::vector<bool> unplaced(device_->buffers.size(), false);
    for (const size_t index : unplaced_) unplaced[index] = true;
    for (size_t i = 0; i < device_->buffers.size(); ++i) {
      if (!unplaced[i] && device_->buffers[i].kind != BufferKind::view) grow(device_->buffers[i]);
    }
    for (const size_t index : unplaced_) {
      device_->buffers[index].offset = (end + arena_alignment - 1) / arena_alignment * arena_alignment;
      grow(device_->buffers[index]);
    }
    if (!has_arena) device_->arena = bytes(end);
  }

  // ---- segments

  // One that begins here, or goes on: its number.
  Result<int> collective(Segment& segment) {
    const auto count = static_cast<int64_t>(segment.collectives.size());
    if (!in_.peek().empty() && std::isdigit(static_cast<unsigned char>(in_.peek().front())) != 0) {
      ASSIGN_OR_RETURN(const int64_t number, in_.integer("the number of a collective"));
      if (number >= count) return in_.error(fmt::format("the segment has no collective {} so far", number));
      RETURN_IF_ERROR(in_.expect("{"));
      return static_cast<int>(number);
    }
    ASSIGN_OR_RETURN(Collective collective, instructions_.collective(buffers_));
    segment.collectives.push_back(std::move(collective));
    return static_cast<int>(count);
  }

  // Answers whether there is a line after the segment, already begun.
  Result<bool> segment() {
    Segment segment;
    ASSIGN_OR_RETURN(segment.name, read_name(in_, "a segment name"));
    RETURN_IF_ERROR(in_.expect("stage"));
    if (in_.accept(io_stage_word)) {
      segment.stage = io_stage;
    } else {
      ASSIGN_OR_RETURN(segment.stage, read_small(in_, "a stage"));
    }
    if (in_.accept("shard")) {
      ASSIGN_OR_RETURN(segment.shard, read_small(in_, "a shard"));
    }
    RETURN_IF_ERROR(in_.expect("phase"));
    ASSIGN_OR_RETURN(const std::string_view phase, in_.word("a phase"));
    auto parsed = parse_phase(phase);
    if (!parsed) return in_.error(parsed.error().message);
    segment.phase = *parsed;
    if (!segments_.emplace(segment.name, static_cast<int>(device_->segments.size())).second) {
      return in_.error(fmt::format("two segments are called {}", segment.name));
    }
    RETURN_IF_ERROR(in_.end_of_line());

    int region = -1;
    bool more = in_.next_line();
    for (; more; more = in_.next_line()) {
      const std::string_view first = in_.peek();
      if (first == "segment" || first == "order" || first == "device") break;
      if (region < 0 && in_.accept("collective")) {
        ASSIGN_OR_RETURN(region, collective(segment));
        RETURN_IF_ERROR(in_.end_of_line());
      } else if (region >= 0 && in_.accept("}")) {
        RETURN_IF_ERROR(in_.end_of_line());
        region = -1;
      } else {
        ASSIGN_OR_RETURN(Instr instr, instructions_.parse(*device_, buffers_));
        instr.collective = region;
        segment.instrs.push_back(std::move(instr));
      }
    }
    if (region >= 0) return in_.error("the collective's } is missing");
    device_->segments.push_back(std::move(segment));
    return more;
  }

  // ---- order

  Status slot() {
    Slot slot;
    // "F0.3" is one word; a quoted segment name is followed by the word ".3".
    std::string segment, micro_batch;
    if (in_.peek().starts_with('"')) {
      ASSIGN_OR_RETURN(segment, in_.quoted("a segment"));
      ASSIGN_OR_RETURN(const std::string_view word, in_.word("a micro-batch"));
      if (!word.starts_with('.')) return in_.error("a slot is segment.micro-batch, or segment.- without one");
      micro_batch = std::string(word.substr(1));
    } else {
      ASSIGN_OR_RETURN(const std::string_view word, in_.word("a slot"));
      const size_t dot = word.rfind('.');
      if (dot == std::string_view::npos) return in_.error("a slot is segment.micro-batch, or segment.- without one");
      segment = std::string(word.substr(0, dot));
      micro_batch = std::string(word.substr(dot + 1));
    }
    const auto found = segments_.find(segment);
    if (found == segments_.end()) return unknown_name(in_, "segment", segment);
    slot.segment = found->second;
    if (micro_batch != "-") {
      TextReader number(micro_batch, file_);
      const auto value = number.next_line() ? number.integer("a micro-batch") : Result<int64_t>(-1);
      if (!value.ok() || *value < 0 || *value >= program_.micro_batches) {
        return in_.error(fmt::format("micro-batch must be 0 … {}", program_.micro_batches - 1));
      }
      slot.micro_batch = static_cast<int>(*value);
    }
    while (!in_.at_end_of_line()) RETURN_IF_ERROR(instance(slot));
    device_->order.push_back(std::move(slot));
    return ok_status();
  }

  Status instance(Slot& slot) {
    std::string buffer, number;
    if (in_.peek().starts_with('"')) {
      ASSIGN_OR_RETURN(buffer, in_.quoted("a buffer"));
      ASSIGN_OR_RETURN(const std::string_view word, in_.word("an instance"));
      number = std::string(word.starts_with(':') ? word.substr(1) : "");
    } else {
      ASSIGN_OR_RETURN(const std::string_view word, in_.word("buffer:instance"));
      const size_t colon = word.rfind(':');
      buffer = std::string(word.substr(0, colon));
      number = std::string(colon == std::string_view::npos ? "" : word.substr(colon + 1));
    }
    const auto found = buffers_.find(buffer);
    if (found == buffers_.end()) return unknown_name(in_, "buffer", buffer);
    TextReader reader(number, file_);
    const auto value = reader.next_line() ? reader.integer("an instance") : Result<int64_t>(-1);
    if (!value.ok() || *value < 0 || *value >= device_->buffer(found->second).instances) {
      return in_.error(fmt::format("{} has instances 0 … {}", buffer, device_->buffer(found->second).instances - 1));
    }
    slot.instances.push_back({found->second, static_cast<int>(*value)});
    return ok_status();
  }

  struct View {
    size_t index;
    std::string of;
    Error where;
  };

  TextReader in_;
  std::string_view text_;
  std::string file_;
  Program program_;
  bool has_fingerprint_ = false;
  uint64_t fingerprint_ = 0;
  std::map<std::string, int> devices_;
  DeviceProgram* device_ = nullptr;
  std::unordered_map<std::string, BufferId> buffers_;  // of the current device
  std::unordered_map<std::string, int> segments_;
  std::vector<View> views_;
  std::vector<size_t> unplaced_;
  InstrParser instructions_{in_, file_, program_, devices_};
};

}  // namespace

Result<Program> parse_program(std::string_view text, const std::string& file) { return Parser(text, file).run(); }

}  // namespace nlsplit::inline program
