#include "graph/gguf/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "base/text_reader.h"

namespace nlsplit::inline graph {
namespace {

constexpr std::string_view gguf_magic = "GGUF";
constexpr size_t default_alignment = 32, most_extents = 4;

struct KindRow {
  std::string_view name;
  size_t bytes;  // 0: of no fixed size
};
constexpr std::array<KindRow, 13> kind_rows = {{{"uint8", 1},
                                                {"int8", 1},
                                                {"uint16", 2},
                                                {"int16", 2},
                                                {"uint32", 4},
                                                {"int32", 4},
                                                {"float32", 4},
                                                {"bool", 1},
                                                {"string", 0},
                                                {"array", 0},
                                                {"uint64", 8},
                                                {"int64", 8},
                                                {"float64", 8}}};

size_t bytes_of(GgufKind kind) { return kind_rows[static_cast<size_t>(kind)].bytes; }

// What a file calls something may be long, and anything.
std::string shown(std::string_view name) {
  constexpr size_t most = 80;
  std::string text;
  for (const char c : name.substr(0, most)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return quote(text) + (name.size() > most ? "…" : "");
}

template <class Number>
Number number_at(std::string_view bytes, size_t at) {
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// Reads on in the header. `what` says what is read: for messages alone.
class HeaderReader {
 public:
  HeaderReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  size_t offset() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  Error error(std::string_view what, std::string_view why) const {
    return invalid_input(fmt::format("{}: {} at offset {}: {}", path_, what, begin_, why));
  }

  Result<std::string_view> take(uint64_t size, std::string_view what) {
    begin_ = at_;
    if (size > left()) return error(what, fmt::format("{} bytes, but the file ends {} bytes later", size, left()));
    const std::string_view taken = bytes_.substr(at_, static_cast<size_t>(size));
    at_ += taken.size();
    return taken;
  }

  template <class Number>
  Result<Number> number(std::string_view what) {
    ASSIGN_OR_RETURN(const std::string_view raw, take(sizeof(Number), what));
    return number_at<Number>(raw, 0);
  }

  Result<std::string_view> text(std::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t size, number<uint64_t>(what));
    return take(size, what);
  }

  // How many of something that takes at least `least` bytes each.
  Result<uint64_t> count(std::string_view what, size_t least) {
    ASSIGN_OR_RETURN(const uint64_t count, number<uint64_t>(what));
    if (count > left() / least)
      return error(what, fmt::format("{} of them, but the file ends {} bytes later", count, left()));
    return count;
  }

 private:
  std::string_view bytes_;
  const std::string& path_;
  size_t at_ = 0, begin_ = 0;  // begin_: of what was taken last
};

Result<GgufKind> read_kind(HeaderReader& in, std::string_view what) {
  ASSIGN_OR_RETURN(const auto kind, in.number<uint32_t>(what));
  if (kind >= kind_rows.size()) return in.error(what, fmt::format("there is no kind {} of values", kind));
  return static_cast<GgufKind>(kind);
}

Result<GgufValue> read_value(HeaderReader& in, std::string_view what) {
  GgufValue value;
  ASSIGN_OR_RETURN(value.kind, read_kind(in, what));
  if (value.kind == GgufKind::array) {
    value.is_array = true;
    ASSIGN_OR_RETURN(value.kind, read_kind(in, what));
    if (value.kind == GgufKind::array) return in.error(what, "an array of arrays");
    const size_t each = bytes_of(value.kind);
    ASSIGN_OR_RETURN(value.count, in.count(what, each == 0 ? sizeof(uint64_t) : each));
    value.offset = in.offset();
    if (each == 0) {
      HeaderReader begin = in;
      for (uint64_t i = 0; i < value.count; ++i) RETURN_IF_ERROR(in.text(what));
      ASSIGN_OR_RETURN(value.bytes, begin.take(in.offset() - begin.offset(), what));
      return value;
    }
    ASSIGN_OR_RETURN(value.bytes, in.take(value.count * each, what));
    return value;
  }
  value.offset = in.offset();
  if (value.kind == GgufKind::text) {
    ASSIGN_OR_RETURN(value.bytes, in.text(what));
  } else {
    ASSIGN_OR_RETURN(value.bytes, in.take(bytes_of(value.kind), what));
  }
  return value;
}

Status read_metadata(HeaderReader& in, uint64_t count, GgufFile& file) {
  for (uint64_t i = 0; i < count; ++i) {
    const size_t begin = in.offset();
    ASSIGN_OR_RETURN(const std::string_view key, in.text(fmt::format("the key of value {}", i)));
    ASSIGN_OR_RETURN(const GgufValue value, read_value(in, "the value of " + shown(key)));
    if (!file.metadata.emplace(key, value).second) {
      return invalid_input(fmt::format("{}: key {} at offset {} stands twice", file.path, shown(key), begin));
    }
  }
  return ok_status();
}

// Its offset is still from where tensors begin, and their order is the file's.
Result<GgufTensor> read_tensor(HeaderReader& in, uint64_t number) {
  GgufTensor tensor;
  ASSIGN_OR_RETURN(tensor.name, in.text(fmt::format("the name of tensor {}", number)));
  const std::string what = "tensor " + shown(tensor.name);
  ASSIGN_OR_RETURN(const auto extents, in.number<uint32_t>(what));
  if (extents > most_extents) return in.error(what, fmt::format("{} extents; at most {}", extents, most_extents));
  for (uint32_t i = 0; i < extents; ++i) {
    ASSIGN_OR_RETURN(const auto extent, in.number<uint64_t>(what));
    if (extent < 1 || extent > uint64_t{1} << 40) return in.error(what, fmt::format("an extent of {}", extent));
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
  }
  if (const Status sound = check_type({DType::f32, tensor.shape}); !sound.ok())
    return in.error(what, sound.error().message);
  ASSIGN_OR_RETURN(const auto stored, in.number<uint32_t>(what));
  const std::optional<GgmlType> type = ggml_type(stored);
  if (!type) {
    return unsupported(
        in.error(what, fmt::format("its elements are {}; those that are read are {}", ggml_name(stored), ggml_types()))
            .message);
  }
  tensor.type = *type;
  const int64_t elements = element_count(tensor.shape), block = block_of(*type),
                row = extents == 0 ? 1 : tensor.shape.back();
  if (row % block != 0) {
    return in.error(what, fmt::format("rows of {} elements are not whole blocks of {}, which have {}", row,
                                      ggml_name(stored), block));
  }
  tensor.bytes = static_cast<size_t>(elements / block * bytes_of_block(*type));
  ASSIGN_OR_RETURN(tensor.offset, in.number<uint64_t>(what));
  return tensor;
}

Result<size_t> alignment_of(const GgufFile& file) {
  constexpr std::string_view key = "general.alignment";
  if (file.find(key) == nullptr) return default_alignment;
  ASSIGN_OR_RETURN(const int64_t alignment, file.integer(key));
  if (alignment < 1 || alignment > 1 << 30 || !std::has_single_bit(static_cast<uint64_t>(alignment)))
    return file.error(key, fmt::format("it is {}, which is not a power of two", alignment));
  return static_cast<size_t>(alignment);
}

// Writers put one tensor behind the other, each at the alignment, and readers hold them to it: so none overlap.
Status place_tensors(HeaderReader& in, uint64_t count, GgufFile& file) {
  ASSIGN_OR_RETURN(const size_t alignment, alignment_of(file));
  const auto aligned = [&](size_t size) { return (size + alignment - 1) / alignment * alignment; };
  size_t next = 0;
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(GgufTensor tensor, read_tensor(in, i));
    const std::string what = "tensor " + shown(tensor.name);
    if (tensor.offset != next) {
      return in.error(what, fmt::format("its bytes are at {} after the header; the tensors before it end at {}",
                                        tensor.offset, next));
    }
    next += aligned(tensor.bytes);
    if (next > size_t{1} << 50) return in.error(what, "there are more than 2^50 bytes up to its end");
    if (!file.tensors.emplace(tensor.name, tensor).second) return in.error(what, "its name stands twice");
  }
  const size_t header = in.offset(), begin = aligned(header);
  for (auto& [name, tensor] : file.tensors) tensor.offset += begin;
  file.header_hash = hash_bytes(file.mapped->bytes().data(), header);
  return ok_status();
}

bool is_integer(GgufKind kind) {
  return bytes_of(kind) != 0 && kind != GgufKind::boolean && kind != GgufKind::f32 && kind != GgufKind::f64;
}

// Of a u64 above the largest int64_t: that.
int64_t integer_at(GgufKind kind, std::string_view bytes, size_t at) {
  switch (kind) {
    case GgufKind::u8:
    case GgufKind::boolean:
      return number_at<uint8_t>(bytes, at);
    case GgufKind::i8:
      return number_at<int8_t>(bytes, at);
    case GgufKind::u16:
      return number_at<uint16_t>(bytes, at);
    case GgufKind::i16:
      return number_at<int16_t>(bytes, at);
    case GgufKind::u32:
      return number_at<uint32_t>(bytes, at);
    case GgufKind::i32:
      return number_at<int32_t>(bytes, at);
    case GgufKind::u64:
      return static_cast<int64_t>(std::min<uint64_t>(number_at<uint64_t>(bytes, at), INT64_MAX));
    case GgufKind::i64:
      return number_at<int64_t>(bytes, at);
    default:
      CHECK(false, "no kind of integers");
  }
}

double real_at(GgufKind kind, std::string_view bytes, size_t at) {
  if (kind == GgufKind::f32) return static_cast<double>(number_at<float>(bytes, at));
  if (kind == GgufKind::f64) return number_at<double>(bytes, at);
  return static_cast<double>(integer_at(kind, bytes, at));
}

// The value of a key, if it is of a kind that will do.
template <class Fits>
Result<const GgufValue*> value_of(const GgufFile& file, std::string_view key, bool array, std::string_view wanted,
                                  Fits fits) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return file.error(key, fmt::format("it is missing; it must be {}", wanted));
  if (value->is_array != array || !fits(value->kind)) {
    return file.error(key, fmt::format("it is {}{}; it must be {}", value->is_array ? "an array of " : "",
                                       name_of(value->kind), wanted));
  }
  return value;
}

bool is_number(GgufKind kind) { return is_integer(kind) || kind == GgufKind::f32 || kind == GgufKind::f64; }

}  // namespace

std::string_view name_of(GgufKind kind) { return kind_rows[static_cast<size_t>(kind)].name; }

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

Error GgufFile::error(std::string_view key, std::string_view why) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return invalid_input(fmt::format("{}: {}: {}", path, key, why));
  return invalid_input(fmt::format("{}: {} at offset {}: {}", path, key, value->offset, why));
}

Result<int64_t> GgufFile::integer(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, value_of(*this, key, false, "an integer", is_integer));
  return integer_at(value->kind, value->bytes, 0);
}

Result<double> GgufFile::real(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, value_of(*this, key, false, "a number", is_number));
  const double number = real_at(value->kind, value->bytes, 0);
  if (!std::isfinite(number)) return error(key, fmt::format("it is {}", number));
  return number;
}

Result<bool> GgufFile::boolean(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value,
                   value_of(*this, key, false, "a bool", [](GgufKind kind) { return kind == GgufKind::boolean; }));
  return value->bytes[0] != 0;
}

Result<std::string_view> GgufFile::text(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value,
                   value_of(*this, key, false, "a string", [](GgufKind kind) { return kind == GgufKind::text; }));
  return value->bytes;
}

Result<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, value_of(*this, key, true, "an array of strings",
                                                    [](GgufKind kind) { return kind == GgufKind::text; }));
  std::vector<std::string_view> texts;
  for (size_t i = 0, at = 0; i < value->count; ++i) {
    const auto size = static_cast<size_t>(number_at<uint64_t>(value->bytes, at));
    texts.push_back(value->bytes.substr(at + sizeof(uint64_t), size));
    at += sizeof(uint64_t) + size;
  }
  return texts;
}

Result<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, value_of(*this, key, true, "an array of numbers", is_number));
  std::vector<double> numbers;
  for (size_t i = 0; i < value->count; ++i)
    numbers.push_back(real_at(value->kind, value->bytes, i * bytes_of(value->kind)));
  return numbers;
}

Result<GgufFile> read_gguf(const std::string& path) {
  GgufFile file;
  file.path = path;
  ASSIGN_OR_RETURN(file.mapped, MappedFile::open(path));
  HeaderReader in(file.mapped->bytes(), file.path);
  ASSIGN_OR_RETURN(const std::string_view magic, in.take(gguf_magic.size(), "the first bytes"));
  if (magic != gguf_magic) return in.error("the first bytes", fmt::format("they are {}, not \"GGUF\"", shown(magic)));
  ASSIGN_OR_RETURN(const auto version, in.number<uint32_t>("the version"));
  if (version != 2 && version != 3) {
    const bool turned = (version & 0xffff) == 0 && version != 0;
    return unsupported(
        in.error("the version", turned ? "the file is big-endian" : fmt::format("it is {}; 2 and 3 are read", version))
            .message);
  }
  // The least of a tensor: an empty name, no extents, type and offset; of a value: an empty key and a byte.
  ASSIGN_OR_RETURN(const uint64_t tensors, in.count("the count of tensors", 24));
  ASSIGN_OR_RETURN(const uint64_t values, in.count("the count of values", 13));
  RETURN_IF_ERROR(read_metadata(in, values, file));
  RETURN_IF_ERROR(place_tensors(in, tensors, file));
  return file;
}

}  // namespace nlsplit::inline graph
