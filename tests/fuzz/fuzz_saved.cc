// Saved folders: what is read is written again alike, and both its Programs are executed with its weights.
// One input is all files, each behind a line "== NAME".
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "fuzz/execute.h"
#include "fuzz/files.h"
#include "fuzz/mutate.h"
#include "program/online.h"
#include "program/verify.h"

namespace nlsplit::fuzz {
namespace {

constexpr std::array names = {"program.nls", "unsplit.nls", "weights.idx",  "weights.bin",
                              "clock.json",  "online.json", "promise.json", "predicted.json"};

// What stands before the first such line belongs to no file.
std::map<std::string, std::string> files_of(std::string_view all) {
  std::map<std::string, std::string> files;
  std::string* into = nullptr;
  while (!all.empty()) {
    const size_t end = std::min(all.find('\n'), all.size() - 1) + 1;
    const std::string_view line = all.substr(0, end);
    all.remove_prefix(end);
    bool begins = false;
    for (const char* name : names) {
      if (line != "== " + std::string(name) + "\n") continue;
      into = &files[name];
      begins = true;
    }
    if (!begins && into != nullptr) *into += line;
  }
  return files;
}

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
  const auto files = files_of(text_of(data, size));
  for (const char* name : names) {
    const auto file = files.find(name);
    if (file == files.end())
      folder.remove(std::string("saved/") + name);
    else
      folder.write(std::string("saved/") + name, file->second);
  }
  try_saved(folder, seed_of(text_of(data, size)));
  return 0;
}
