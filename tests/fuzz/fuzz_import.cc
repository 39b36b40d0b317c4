// The ONNX importer: what is accepted verifies, prints back, and goes through the passes.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/expect.h"
#include "graph/onnx/import.h"
#include "graph/onnx/onnx_file.h"
#include "graph/passes.h"

namespace nlsplit::fuzz {
namespace {

// A folder with a file of external data and one beside it that no model may read.
class Folder {
 public:
  Folder() : root_(std::filesystem::temp_directory_path() / ("fuzz_import_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(root_ / "model");
    std::ofstream(root_ / "secret.bin", std::ios::binary) << std::string(4096, 'S');
    std::ofstream(root_ / "model/w.bin", std::ios::binary) << std::string(4096, '\0');
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  std::string model() const { return (root_ / "model/model.onnx").string(); }

 private:
  std::filesystem::path root_;
};

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

void try_import(const std::string& path) {
  const auto file = read_onnx(path);
  if (!accepted(file)) return;
  const auto model = import_onnx(path, options_for(*file));
  if (!accepted(model)) return;
  expect(verify(model->graph).ok(), "what is imported verifies");
  const auto again = parse_graph(to_string(model->graph), "again");
  expect(again.ok() && *again == model->graph, "the text form says it all");
  WeightStore weights = model->weights;
  (void)accepted(optimize(model->graph, weights));  // which verifies after every pass
}

}  // namespace
}  // namespace nlsplit::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlsplit::fuzz::Folder folder;
  std::ofstream(folder.model(), std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  nlsplit::fuzz::try_import(folder.model());
  return 0;
}
