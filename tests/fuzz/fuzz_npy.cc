// NPY files: what is read has as many bytes as its shape says, and floats are written and read again alike.
#include <cstdint>
#include <cstring>

#include "base/npy.h"
#include "fuzz/files.h"
#include "testing/read_npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("npy");
  const std::string path = folder.write("x.npy", text_of(data, size));
  const auto raw = read_npy_raw(path);
  const auto array = read_npy(path);
  if (!accepted(raw) || !accepted(array)) return 0;
  expect(raw->shape == array->shape && raw->raw.size() == array->values.size() * sizeof(float), "both read the same");
  if (array->shape.size() > 1000) return 0;  // a header that our writer has no room for
  expect(write_npy(folder.path("again.npy"), *array).ok(), "an array can be written");
  const auto again = read_npy_raw(folder.path("again.npy"));
  expect(again.ok() && again->raw == raw->raw && again->shape == raw->shape, "what is written is read");
  return 0;
}
