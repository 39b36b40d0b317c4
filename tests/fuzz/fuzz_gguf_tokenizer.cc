// The tokenizer of a GGUF file: what is read encodes any text or says why not, and its tokens are decoded.
#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/files.h"
#include "text/decode.h"
#include "text/tokenizer_gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("gguf_tokenizer");
  const std::string_view text = text_of(data, size);
  const auto read = read_tokenizer_gguf(folder.write("tokenizer.gguf", text));
  if (!accepted(read)) return 0;
  const size_t half = std::min<size_t>(size / 2, 300);
  for (const std::string_view part : {text.substr(0, half), text.substr(size - half)}) {
    std::string printable(part);
    std::replace_if(
        printable.begin(), printable.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, ' ');
    const auto tokens = encode(*read, printable);
    if (accepted(tokens)) expect(accepted(decode(*read, *tokens)), "its own tokens are known");
  }
  return 0;
}
