// A GGUF file (versions 2 and 3, little-endian): metadata and where its tensors lie. Nothing of it is trusted, and
// nothing is copied: keys, texts and arrays are views of the mapped file.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
//   ASSIGN_OR_RETURN(const GgufFile file, read_gguf("model.gguf"));
//   ASSIGN_OR_RETURN(const std::string_view family, file.text("general.architecture"));
//   const GgufTensor* table = file.tensor("token_embd.weight");
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "graph/ggml.h"
#include "graph/graph.h"

namespace nlsplit::inline graph {

enum class GgufKind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };
std::string_view name_of(GgufKind kind);

struct GgufValue {
  GgufKind kind{};         // of an array: of its elements
  bool is_array = false;   // never of arrays
  uint64_t count = 1;      // elements
  std::string_view bytes;  // of a text itself; otherwise as the elements lie in the file
  size_t offset = 0;       // in the file
};

struct GgufTensor {
  std::string_view name;
  GgmlType type{};
  Shape shape;        // row-major: blocks lie along the last axis, which is the file's first extent
  size_t offset = 0;  // in the file
  size_t bytes = 0;   // which may end behind a file that is cut off
  size_t part = 0;    // of a model in several files: which one has it (graph/gguf/gguf_parts.h)
};

struct GgufFile {
  std::string path;
  std::shared_ptr<const MappedFile> mapped;
  uint64_t header_hash = 0;  // of all before the tensors' bytes
  std::map<std::string_view, GgufValue> metadata;
  std::map<std::string_view, GgufTensor> tensors;
  std::vector<GgufFile> others;  // the parts behind the first

  const GgufFile& part_of(const GgufTensor& tensor) const { return tensor.part == 0 ? *this : others[tensor.part - 1]; }
  const GgufTensor* tensor(std::string_view name) const;  // nullptr: there is none
  const GgufValue* find(std::string_view key) const;

  // A value by its key; an array of values. Errors name the file, the key and what is there: it is missing, or of
  // another kind.
  Result<int64_t> integer(std::string_view key) const;
  Result<double> real(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string_view> text(std::string_view key) const;
  Result<std::vector<std::string_view>> texts(std::string_view key) const;
  Result<std::vector<double>> numbers(std::string_view key) const;

  Error error(std::string_view key, std::string_view why) const;  // about a value of the metadata
};

// Errors name the file, the key or tensor, and the offset: missing, no GGUF, another version or byte order, cut off
// before its tensors begin, counts that the file has no room for, a key or tensor that stands twice, an unknown kind or
// element type, extents that make no tensor, offsets other than one tensor behind the other. A file that is cut off
// among its tensors' bytes is read: its metadata says all that planning needs.
Result<GgufFile> read_gguf(const std::string& path);

}  // namespace nlsplit::inline graph
