// Saved folders: what is read is written again alike, and both its Programs are executed with its weights.
// One input is all files, each behind a line "== NAME".
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/execute.h"
#include "fuzz/files.h"
#include "fuzz/mutate.h"
#include "program/online.h"
#include "program/verify.h"

namespace nlsplit::fuzz {
namespace {

constexpr std::array<std::string_view, 8> names = {"program.nls", "unsplit.nls", "weights.idx",  "weights.bin",
                                                   "clock.json",  "online.json", "promise.json", "predicted.json"};

void try_saved(const Folder& folder, uint64_t seed) {
  const auto saved = load_program(folder.path("saved"));
  if (!accepted(saved)) return;
  if (!saved->clocks.empty()) {
    const auto clocks = parse_clocks(clocks_text(saved->clocks), saved->program, "again");
    expect(clocks.ok() && *clocks == saved->clocks, "clocks are read as they are written");
  }
  const auto weights = WeightFile::open(folder.path("saved"));
  if (!accepted(weights)) return;
  const ContentLookup contents = [&](ContentId id) { return weights->bytes(id); };
  for (const Program* program : {&saved->program, &saved->unsplit}) {
    if (accepted(verify(*program))) execute_watched(*program, contents, seed);
  }
  if (saved->online && accepted(verify(saved->program))) {
    const auto free = free_dependencies(saved->program);
    if (accepted(free)) (void)accepted(check_table(saved->program, *free, saved->online->table));
  }
  if (!accepted(save_program_like(folder.path("again"), *saved, folder.path("saved")))) return;
  const auto again = load_program(folder.path("again"));
  expect(again.ok() && again->program == saved->program && again->unsplit == saved->unsplit &&
             again->promise == saved->promise,
         "a saved folder is read as it is written");
}

}  // namespace
}  // namespace nlsplit::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit::fuzz;
  static const Folder folder("saved");
  const auto files = files_in(text_of(data, size), names);
  for (const std::string_view name : names) {
    const auto file = files.find(name);
    const std::string path = "saved/" + std::string(name);
    if (file == files.end())
      folder.remove(path);
    else
      folder.write(path, file->second);
  }
  try_saved(folder, seed_of(text_of(data, size)));
  return 0;
}
