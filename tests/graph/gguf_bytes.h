// GGUF files for tests, byte by byte.
//
//   GgufBytes file;
//   file.text("general.architecture", "llama").integer("llama.block_count", 2);
//   file.tensor("output_norm.weight", {64}, 0, raw);
//   const std::string path = file.write("case.gguf");
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace nlsplit {

template <class Number>
std::string little(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

inline std::string gguf_text(std::string_view text) {
  return little(static_cast<uint64_t>(text.size())) + std::string(text);
}

inline std::string write_gguf(const std::string& name, const std::string& content) {
  const auto folder = std::filesystem::temp_directory_path() / ("nlsplit_gguf_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / name).string();
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

class GgufBytes {
 public:
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  // what is written; the key is the caller's
  std::string tensors_bytes, values_bytes, infos;
  uint64_t tensors = 0, values = 0;

  GgufBytes& value(std::string_view key, uint32_t kind, const std::string& raw) {
    values_bytes += gguf_text(key) + little(kind) + raw;
    ++values;
    return *this;
  }
  GgufBytes& text(std::string_view key, std::string_view content) { return value(key, 8, gguf_text(content)); }
  GgufBytes& integer(std::string_view key, uint32_t number) { return value(key, 4, little(number)); }
  GgufBytes& real(std::string_view key, float number) { return value(key, 6, little(number)); }

  // Extents as the file has them: the last axis first.
  GgufBytes& info(std::string_view name, const std::vector<uint64_t>& extents, uint32_t type, uint64_t offset) {
    infos += gguf_text(name) + little(static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) infos += little(extent);
    infos += little(type) + little(offset);
    ++tensors;
    return *this;
  }
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& extents, uint32_t type,
                    const std::string& raw) {
    info(name, extents, type, tensors_bytes.size());
    tensors_bytes += raw;
    tensors_bytes.resize((tensors_bytes.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }

  std::string header() const {
    return magic + little(version) + little(tensors) + little(values) + values_bytes + infos;
  }
  std::string bytes() const {
    std::string all = header();
    all.resize((all.size() + alignment - 1) / alignment * alignment, '\0');
    return all + tensors_bytes;
  }
  std::string write(const std::string& name) const { return write_gguf(name, bytes()); }
};

}  // namespace nlsplit
