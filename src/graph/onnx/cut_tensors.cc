#include "graph/onnx/cut_tensors.h"

#include <cstdint>
#include <optional>

namespace nlsplit::inline graph {
namespace {

// The messages of onnx.proto that lead to tensors.
enum class Message : uint8_t { model, graph, node, attribute, tensor };

enum WireType : uint8_t { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };

constexpr uint64_t raw_data = 9, external_data = 13;  // of TensorProto
constexpr int most_depth = 64;  // of messages in messages; what is deeper is kept as it is, and protobuf refuses it

std::optional<Message> inside(Message message, uint64_t field) {
  switch (message) {
    case Message::model:
      if (field == 7) return Message::graph;
      break;
    case Message::graph:
      if (field == 1) return Message::node;
      if (field == 5) return Message::tensor;  // initializer
      break;
    case Message::node:
      if (field == 5) return Message::attribute;
      break;
    case Message::attribute:
      if (field == 5 || field == 10) return Message::tensor;  // t, tensors
      if (field == 6 || field == 11) return Message::graph;   // g, graphs
      break;
    case Message::tensor:
      break;
  }
  return std::nullopt;
}

// At most ten bytes of seven bits, the lowest first.
std::optional<uint64_t> take_varint(std::string_view& rest) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 70 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest[0]);
    rest.remove_prefix(1);
    if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_delimited(std::string& out, uint64_t field, std::string_view content) {
  put_varint(out, field << 3 | delimited);
  put_varint(out, content.size());
  out += content;
}

// An entry of external_data, which is a StringStringEntryProto: key is its field 1, value its field 2.
void put_cut(std::string& out, size_t range) {
  std::string entry;
  put_delimited(entry, 1, cut_key);
  put_delimited(entry, 2, std::to_string(range));
  put_delimited(out, external_data, entry);
}

class Cutter {
 public:
  Cutter(std::string_view file, size_t least) : file_(file), least_(least) {}

  Result<CutModel> run() {
    if (!copy(file_, Message::model, 0, out_.rest)) return invalid_input("not the wire format of a message");
    return std::move(out_);
  }

 private:
  // false: a field does not end within `rest`, or is of a kind that there is not.
  bool copy(std::string_view rest, Message message, int depth, std::string& out) {
    while (!rest.empty()) {
      const std::string_view field_begin = rest;
      const auto tag = take_varint(rest);
      if (!tag) return false;
      const uint64_t field = *tag >> 3;
      if ((*tag & 7) != delimited) {
        if (!skip(static_cast<WireType>(*tag & 7), rest)) return false;
        out += field_begin.substr(0, field_begin.size() - rest.size());
        continue;
      }
      const auto size = take_varint(rest);
      if (!size || *size > rest.size()) return false;
      const std::string_view content = rest.substr(0, static_cast<size_t>(*size));
      rest.remove_prefix(content.size());
      if (const auto next = inside(message, field); next && depth < most_depth) {
        std::string made;
        if (!copy(content, *next, depth + 1, made)) return false;
        put_delimited(out, field, made);
      } else if (message == Message::tensor && field == raw_data && content.size() >= least_) {
        put_cut(out, out_.ranges.size());
        out_.ranges.push_back({static_cast<size_t>(content.data() - file_.data()), content.size()});
      } else {
        out += field_begin.substr(0, field_begin.size() - rest.size());
      }
    }
    return true;
  }

  static bool skip(WireType type, std::string_view& rest) {
    switch (type) {
      case varint:
        return take_varint(rest).has_value();
      case fixed64:
      case fixed32: {
        const size_t size = type == fixed64 ? 8 : 4;
        if (rest.size() < size) return false;
        rest.remove_prefix(size);
        return true;
      }
      case delimited:
        break;
    }
    return false;  // groups, which ONNX never had
  }

  std::string_view file_;
  size_t least_;
  CutModel out_;
};

}  // namespace

Result<CutModel> cut_tensors(std::string_view file, size_t least) { return Cutter(file, least).run(); }

}  // namespace nlsplit::inline graph
