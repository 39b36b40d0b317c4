#include "graph/safetensors/safetensors_write.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace nlsplit::inline graph {

Status write_safetensors(const std::string& path, std::span<const NamedBytes> tensors) {
  constexpr size_t alignment = 8;  // of the first tensor
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  size_t offset = 0;
  for (const NamedBytes& tensor : tensors) {
    if (tensor.type.dtype != DType::f32)
      return unsupported(fmt::format("{}: tensor {} is {}; f32 is written", path, tensor.name, to_string(tensor.type)));
    CHECK(static_cast<int64_t>(tensor.bytes.size()) == size_of(tensor.type).value(), tensor.name);
    header[std::string(tensor.name)] = {
        {"dtype", "F32"}, {"shape", tensor.type.shape}, {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((alignment - text.size() % alignment) % alignment, ' ');
  const uint64_t size = text.size();
  std::string beginning(sizeof size, '\0');
  std::memcpy(beginning.data(), &size, sizeof size);  // little-endian
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(path));
  RETURN_IF_ERROR(file.write(beginning));
  RETURN_IF_ERROR(file.write(text));
  for (const NamedBytes& tensor : tensors) RETURN_IF_ERROR(file.write(tensor.bytes));
  return file.commit();
}

}  // namespace nlsplit::inline graph
