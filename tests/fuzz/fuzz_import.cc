// The ONNX importer: what is accepted verifies, prints back, goes through the passes, and is executed.
#include <cstdint>
#include <string>

#include "fuzz/execute.h"
#include "fuzz/files.h"
#include "graph/onnx/import.h"
#include "graph/onnx/onnx_file.h"

namespace nlsplit::fuzz {
namespace {

// Every extent that is left open is 2.
ImportOptions options_for(const OnnxModel& file) {
  ImportOptions options;
  options.effort = 1 << 16;
  for (const OnnxInput& input : file.inputs) {
    bool nameless = false;
    for (size_t i = 0; i < input.shape.size(); ++i) {
      if (input.shape[i] >= 0) continue;
      nameless = nameless || input.symbols[i].empty();
      if (!input.symbols[i].empty()) options.dims[input.symbols[i]] = 2;
    }
    if (!nameless && input.ranked) continue;
    Shape shape = input.ranked ? input.shape : Shape{2, 2};
    for (int64_t& extent : shape) extent = extent < 0 ? 2 : extent;
    options.input_shapes[input.name] = shape;
  }
  return options;
}

void try_import(const std::string& path, uint64_t seed) {
  const auto file = read_onnx(path);
  if (!accepted(file)) return;
  const auto model = import_onnx(path, options_for(*file));
  if (accepted(model)) check_imported(*model, seed);
}

}  // namespace
}  // namespace nlsplit::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit::fuzz;
  // A file of external data beside the model, and one that no model may read.
  static const Folder folder("import");
  static const bool written = !folder.write("secret.bin", std::string(4096, 'S')).empty() &&
                              !folder.write("model/w.bin", std::string(4096, '\0')).empty();
  expect(written, "the files beside the model are there");
  try_import(folder.write("model/model.onnx", text_of(data, size)), seed_of(text_of(data, size)));
  return 0;
}
