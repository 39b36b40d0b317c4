// Folders with config.json and safetensors files: tensors that are read lie one behind the other. A network that is
// imported verifies, prints back, goes through the passes, and is executed. One input is all files, each behind a line
// "== NAME".
#include <array>
#include <cstdint>
#include <filesystem>

#include "fuzz/execute.h"
#include "fuzz/files.h"
#include "graph/safetensors/import.h"
#include "graph/safetensors/safetensors_file.h"

namespace nlsplit::fuzz {
namespace {

constexpr std::array<std::string_view, 4> names_of_models = {"config.json", "model.safetensors.index.json",
                                                             "model.safetensors", "a.safetensors"};

void check_tensors(const SafetensorsFile& file) {
  const std::string_view bytes = file.mapped->bytes();
  for (const auto& [name, tensor] : file.tensors) {
    expect(static_cast<int64_t>(tensor.bytes) == element_count(tensor.shape) * bytes_of_block(tensor.type),
           "a tensor has the bytes of its elements");
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

}  // namespace
}  // namespace nlsplit::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("safetensors");
  const std::string_view text = text_of(data, size);
  std::filesystem::remove_all(folder.path("model"));
  for (const auto& [name, content] : files_in(text, names_of_models)) {
    const std::string path = folder.write("model/" + name, content);
    if (!name.ends_with(".safetensors")) continue;
    const auto file = read_safetensors(path);
    if (accepted(file)) check_tensors(*file);
  }
  const auto model = import_safetensors(folder.path("model") + "?length=2");
  if (accepted(model)) check_imported(*model, seed_of(text));
  return 0;
}
