// GGUF files: what is read has its keys and tensors inside the header and one behind the other, and its values are
// those of their kind. A network that is imported verifies, prints back, goes through the passes, and is executed.
#include <cstdint>

#include "fuzz/execute.h"
#include "fuzz/files.h"
#include "graph/gguf/gguf_file.h"
#include "graph/gguf/import.h"

namespace nlsplit::fuzz {
namespace {

void check_values(const GgufFile& file) {
  const std::string_view bytes = file.mapped->bytes();
  for (const auto& [key, value] : file.metadata) {
    expect(value.offset + value.bytes.size() <= bytes.size(), "a value lies in the file");
    const std::string name(key);
    const int kinds = (file.integer(name).ok() || file.real(name).ok() ? 1 : 0) + (file.boolean(name).ok() ? 1 : 0) +
                      (file.text(name).ok() ? 1 : 0) + (file.texts(name).ok() ? 1 : 0) +
                      (file.numbers(name).ok() ? 1 : 0);
    expect(kinds <= 1, "a value is of one kind");
  }
}

void check_tensors(const GgufFile& file) {
  const std::string_view bytes = file.mapped->bytes();
  for (const auto& [name, tensor] : file.tensors) {
    expect(element_count(tensor.shape) / block_of(tensor.type) * bytes_of_block(tensor.type) ==
               static_cast<int64_t>(tensor.bytes),
           "a tensor has the bytes of its blocks");
    for (const auto& [other, second] : file.tensors) {
      expect(name == other || tensor.offset + tensor.bytes <= second.offset ||
                 second.offset + second.bytes <= tensor.offset,
             "no two tensors overlap");
    }
    if (tensor.offset > bytes.size() || bytes.size() - tensor.offset < tensor.bytes) continue;
    const std::string values = dequantized(tensor.type, bytes.substr(tensor.offset, tensor.bytes));
    expect(static_cast<int64_t>(values.size()) == element_count(tensor.shape) * 4, "as many floats as elements");
  }
}

void try_import(const std::string& path, uint64_t seed) {
  const auto model = import_gguf(path + "?length=2");
  if (accepted(model)) check_imported(*model, seed);
}

}  // namespace
}  // namespace nlsplit::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("gguf");
  const std::string path = folder.write("model.gguf", text_of(data, size));
  const auto file = read_gguf(path);
  if (!accepted(file)) return 0;
  check_values(*file);
  check_tensors(*file);
  try_import(path, seed_of(text_of(data, size)));
  return 0;
}
