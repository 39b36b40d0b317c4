#include "graph/gguf/gguf_parts.h"

#include <fmt/format.h>

#include "base/text_reader.h"

namespace nlsplit::inline graph {
namespace {

constexpr std::string_view count_key = "split.count", number_key = "split.no", tensors_key = "split.tensors.count";

std::string ending_of(int64_t part, int64_t count) { return fmt::format("-{:05}-of-{:05}.gguf", part + 1, count); }

Status check_part(const GgufFile& part, int64_t number, int64_t count) {
  ASSIGN_OR_RETURN(const int64_t own, part.integer(number_key));
  ASSIGN_OR_RETURN(const int64_t all, part.integer(count_key));
  if (own != number) return part.error(number_key, fmt::format("it is {}; by its name it would be {}", own, number));
  if (all != count) return part.error(count_key, fmt::format("it is {}; by its name it would be {}", all, count));
  return ok_status();
}

}  // namespace

Result<GgufFile> read_gguf_parts(const std::string& path) {
  ASSIGN_OR_RETURN(GgufFile file, read_gguf(path));
  if (file.find(count_key) == nullptr) return file;
  ASSIGN_OR_RETURN(const int64_t count, file.integer(count_key));
  if (count <= 1) return file;
  constexpr int64_t most = 99'999;  // that such names can count
  if (count > most) return file.error(count_key, fmt::format("{} files; their names count to {}", count, most));
  ASSIGN_OR_RETURN(const int64_t number, file.integer(number_key));
  if (number != 0) return file.error(number_key, fmt::format("it is part {} of {}; give the first", number + 1, count));
  const std::string first = ending_of(0, count);
  if (!path.ends_with(first))
    return file.error(count_key, fmt::format("it is one of {} files, and its name does not end in {}", count, first));
  const std::string stem = path.substr(0, path.size() - first.size());
  for (int64_t part = 1; part < count; ++part) {
    ASSIGN_OR_RETURN(GgufFile other, read_gguf(stem + ending_of(part, count)));
    RETURN_IF_ERROR(check_part(other, part, count));
    for (const auto& [name, tensor] : other.tensors) {
      GgufTensor placed = tensor;
      placed.part = static_cast<size_t>(part);
      if (!file.tensors.emplace(name, placed).second)
        return invalid_input(
            fmt::format("{}: tensor {}: another part has it too", other.path, quote(std::string(name.substr(0, 80)))));
    }
    file.others.push_back(std::move(other));
  }
  if (file.find(tensors_key) == nullptr) return file;
  ASSIGN_OR_RETURN(const int64_t tensors, file.integer(tensors_key));
  if (tensors != static_cast<int64_t>(file.tensors.size()))
    return file.error(tensors_key, fmt::format("{}; the files have {}", tensors, file.tensors.size()));
  return file;
}

}  // namespace nlsplit::inline graph
