#include "graph/safetensors/safetensors_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/json_place.h"
#include "base/text_reader.h"

namespace nlsplit::inline graph {
namespace {

constexpr uint64_t most_header_bytes = 100'000'000;
constexpr int64_t most_tensor_bytes = int64_t{1} << 50;
constexpr std::string_view metadata_key = "__metadata__";

struct TypeName {
  std::string_view name;
  GgmlType type;
};
constexpr std::array known_types = {TypeName{"F32", GgmlType::F32}, TypeName{"F16", GgmlType::F16},
                                    TypeName{"BF16", GgmlType::BF16}};

Result<GgmlType> read_type(const JsonPlace& place) {
  ASSIGN_OR_RETURN(const std::string name, place.text());
  for (const TypeName& known : known_types) {
    if (known.name == name) return known.type;
  }
  return place.not_supported(fmt::format("elements of type {} are not read; F32, F16 and BF16 are", place.excerpt()));
}

Result<Shape> read_shape(const JsonPlace& place) {
  RETURN_IF_ERROR(place.must_be_array());
  Shape shape;
  for (size_t axis = 0; axis < place.value->size(); ++axis) {
    ASSIGN_OR_RETURN(const int64_t extent, place.element(axis).integer());
    if (extent < 1 || extent > int64_t{1} << 40) return place.wrong(fmt::format("an extent of {}", extent));
    shape.push_back(extent);
  }
  if (const Status sound = check_type({DType::f32, shape}); !sound.ok()) return place.wrong(sound.error().message);
  return shape;
}

// Its offset is still from where tensors begin.
Result<SafeTensor> read_tensor(const JsonPlace& place) {
  RETURN_IF_ERROR(place.must_be_object({"dtype", "shape", "data_offsets"}));
  SafeTensor tensor;
  ASSIGN_OR_RETURN(tensor.type, read_type(place.optional("dtype")));
  ASSIGN_OR_RETURN(tensor.shape, read_shape(place.optional("shape")));
  const JsonPlace offsets = place.optional("data_offsets");
  RETURN_IF_ERROR(offsets.must_be_array());
  if (offsets.value->size() != 2) return offsets.wrong(fmt::format("{} are not two offsets", offsets.excerpt()));
  ASSIGN_OR_RETURN(const int64_t begin, offsets.element(0).integer());
  ASSIGN_OR_RETURN(const int64_t end, offsets.element(1).integer());
  const int64_t wanted = element_count(tensor.shape) * bytes_of_block(tensor.type);
  if (begin < 0 || end < begin || end > most_tensor_bytes || end - begin != wanted) {
    return offsets.wrong(fmt::format("bytes {} to {}; [{}] of {} have {}", begin, end, fmt::join(tensor.shape, ", "),
                                     place.optional("dtype").excerpt(), wanted));
  }
  tensor.offset = static_cast<size_t>(begin);
  tensor.bytes = static_cast<size_t>(wanted);
  return tensor;
}

// Each byte behind the header belongs to one tensor, but for those that a file that is cut off lacks.
Status check_places(const SafetensorsFile& file, size_t data) {
  std::vector<const std::pair<const std::string, SafeTensor>*> order;
  for (const auto& entry : file.tensors) order.push_back(&entry);
  std::ranges::sort(order, {}, [](const auto* entry) { return entry->second.offset; });
  size_t next = 0;
  std::string_view before = "the header";
  for (const auto* entry : order) {
    const auto& [name, tensor] = *entry;
    if (tensor.offset != next) {
      return invalid_input(
          fmt::format("{}: tensor {}: it begins at byte {} of the tensors, but {} ends at {}: {}", file.path,
                      quote(name.substr(0, 80)), tensor.offset, before, next,
                      tensor.offset < next ? "two tensors share bytes" : "the bytes between belong to no tensor"));
    }
    next += tensor.bytes;
    before = name;
  }
  const size_t size = file.mapped->bytes().size() - data;
  if (size <= next) return ok_status();
  return invalid_input(fmt::format("{}: there are {} bytes after its tensors", file.path, size - next));
}

}  // namespace

Result<SafetensorsFile> read_safetensors(const std::string& path) {
  SafetensorsFile file;
  file.path = path;
  ASSIGN_OR_RETURN(file.mapped, MappedFile::open(path));
  const std::string_view bytes = file.mapped->bytes();
  uint64_t size = 0;
  if (bytes.size() < sizeof size)
    return invalid_input(fmt::format("{}: it has {} bytes and is cut off in its header", path, bytes.size()));
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size > most_header_bytes)
    return invalid_input(fmt::format("{}: its first 8 bytes say that its header has {} bytes; {} are the most", path,
                                     size, most_header_bytes));
  const size_t data = sizeof size + static_cast<size_t>(size);
  if (data > bytes.size())
    return invalid_input(fmt::format("{}: it is cut off in its header of {} bytes, {} of them are missing", path, size,
                                     data - bytes.size()));
  ASSIGN_OR_RETURN(const nlohmann::json header, parse_json(bytes.substr(sizeof size, size), path, KeyTwice::is_wrong));
  if (!header.is_object()) return invalid_input(fmt::format("{}: its header is no JSON object", path));
  for (const auto& [name, value] : header.items()) {
    if (name == metadata_key) continue;
    Result<SafeTensor> tensor = read_tensor({&value, ""});
    if (!tensor.ok()) {
      Error error = std::move(tensor).error();
      error.message = fmt::format("{}: tensor {}: {}", path, quote(name.substr(0, 80)), error.message);
      return error;
    }
    file.tensors.emplace(name, std::move(*tensor));
  }
  RETURN_IF_ERROR(check_places(file, data));
  for (auto& [name, tensor] : file.tensors) tensor.offset += data;
  file.header_hash = hash_bytes(bytes.data(), data);
  return file;
}

}  // namespace nlsplit::inline graph
