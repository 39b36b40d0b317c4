// A safetensors file: a header of JSON that says where its tensors lie. Nothing of it is trusted, and the tensors'
// bytes are not read. https://github.com/huggingface/safetensors#format
//
//   ASSIGN_OR_RETURN(const SafetensorsFile file, read_safetensors("model.safetensors"));
//   const auto found = file.tensors.find("model.norm.weight");
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/mapped_file.h"
#include "graph/ggml.h"
#include "graph/graph.h"

namespace nlsplit::inline graph {

struct SafeTensor {
  GgmlType type{};    // F32, F16, BF16: ggml stores them alike
  Shape shape;        // row-major
  size_t offset = 0;  // in the file
  size_t bytes = 0;   // which may end behind a file that is cut off
};

struct SafetensorsFile {
  std::string path;
  std::shared_ptr<const MappedFile> mapped;
  uint64_t header_hash = 0;  // of all before the tensors' bytes
  std::map<std::string, SafeTensor, std::less<>> tensors;
};

// Errors name the file and the tensor: missing, cut off before its tensors begin, a header of more than 100 MB (the
// most that the format's own library reads) or that is no JSON, a name that stands twice, an element type other than
// F32, F16 and BF16, extents that make no tensor, offsets that do not fit the extents, bytes that two tensors share or
// that belong to none. A file that is cut off among its tensors' bytes is read: its header says all that planning
// needs.
Result<SafetensorsFile> read_safetensors(const std::string& path);

}  // namespace nlsplit::inline graph
