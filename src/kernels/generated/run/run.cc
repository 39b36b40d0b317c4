// Generated code: loops compiled once for all computations that are alike, and kept. Without the module that compiles
// them the loops are interpreted, to the same bits.
#include "kernels/module/run.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "kernels/generated/compiled.h"
#include "kernels/generated/interpret.h"
#include "kernels/generated/lower.h"

namespace nlsplit::inline kernels {
namespace {

// The module beside the one that this is in; nullptr: it was not built, or LLVM's library is missing.
const CodegenModule* codegen_beside() {
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&codegen_beside), &here) == 0 || here.dli_fname == nullptr) return nullptr;
  const std::filesystem::path path = std::filesystem::path(here.dli_fname).parent_path() / codegen_file;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return nullptr;
  const auto module = load_codegen(path.string());
  if (module.ok()) return *module;
  fmt::print(stderr, "generated kernels are interpreted, which is slower: {}\n", module.error().message);
  return nullptr;
}

struct ReadyLoops {
  Loops loops;
  LoopFunction function = nullptr;  // nullptr: interpreted
  LoopParts parts;
};

ReadyLoops make_ready(const ComputeDesc& desc) {
  static const CodegenModule* const codegen = codegen_beside();
  ReadyLoops ready{lower(desc), nullptr, {}};
  const Status sound = verify(ready.loops);
  CHECK(sound.ok(), sound.ok() ? "" : sound.error().message);
  if (codegen == nullptr || ready.loops.output.count == 0) return ready;
  auto compiled = codegen->compile(ready.loops, desc.kernel.level.isa, codegen->user_cache());
  if (!compiled.ok()) {
    fmt::print(stderr, "{} is interpreted, which is slower: {}\n", signature(desc), compiled.error().message);
    return ready;
  }
  ready.function = compiled->function;
  ready.parts = parts_of(ready.loops);
  return ready;
}

// By what is computed, and by where that was described last: a Program's descs stay where they are.
class ReadyKernels {
 public:
  const ReadyLoops& of(const ComputeDesc& desc) {
    {
      const std::shared_lock lock(mutex_);
      const auto found = by_address_.find(&desc);
      if (found != by_address_.end() && found->second->first == desc) return *found->second->second;
    }
    const std::unique_lock lock(mutex_);
    const std::string key = signature(desc);
    const auto known = by_signature_.find(key);
    auto& one = known != by_signature_.end() ? known->second : by_signature_[key];
    if (!one) one = std::make_unique<Known>(desc, std::make_unique<ReadyLoops>(make_ready(desc)));
    by_address_[&desc] = one.get();
    return *one->second;
  }

 private:
  using Known = std::pair<ComputeDesc, std::unique_ptr<ReadyLoops>>;
  std::shared_mutex mutex_;
  std::map<std::string, std::unique_ptr<Known>> by_signature_;
  std::unordered_map<const ComputeDesc*, Known*> by_address_;
};

const ReadyLoops& ready_for(const ComputeDesc& desc) {
  static ReadyKernels kernels;
  return kernels.of(desc);
}

void prepare_generated(const ComputeDesc& desc) { ready_for(desc); }

void run_generated(const KernelCall& call) {
  const ReadyLoops& ready = ready_for(*call.desc);
  const Loops& loops = ready.loops;
  if (loops.output.count == 0) return;
  const int64_t count = ready.function != nullptr ? ready.parts.count : rows_of(loops);
  // Pieces of some ten microseconds. What is folded is read for every result.
  constexpr double piece_elements = 16384, most_pieces = 1 << 20;
  double elements = 1;
  for (const int64_t extent : loops.extents) elements *= static_cast<double>(extent);
  const auto wanted = static_cast<int64_t>(std::min(elements / piece_elements, most_pieces));
  const int64_t pieces = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(count, 1));
  const int64_t each = (count + pieces - 1) / pieces;
  parallel_for(call, (count + each - 1) / each, [&](int64_t piece) {
    const int64_t begin = piece * each, end = std::min(count, begin + each);
    if (ready.function != nullptr)
      ready.function(call.inputs, call.outputs[0], begin, end);
    else
      interpret(loops, call.inputs, call.outputs[0], begin, end);
  });
}

}  // namespace

const KernelCode code::generated = {run_generated, nullptr, prepare_generated};

}  // namespace nlsplit::inline kernels
