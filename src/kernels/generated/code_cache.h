// CodeCache: compiled code that is kept from one process to the next, a file for each piece of it in one folder. A key
// is all that decides the code, and its file holds the whole key, so code is never taken for another's.
//
//   ASSIGN_OR_RETURN(const auto cache, CodeCache::open(folder));
//   if (const auto code = cache->find(key)) return *code;
//   cache->keep(key, compile(…));
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/result.h"

namespace nlsplit::inline kernels {

// Where this user's code is kept: $NLSPLIT_CODE_CACHE, which may be `off`, or below $XDG_CACHE_HOME or ~/.cache.
struct CodeCacheFolder {
  std::string path;    // empty: nowhere
  bool named = false;  // by $NLSPLIT_CODE_CACHE
};
CodeCacheFolder code_cache_folder();

class CodeCache {
 public:
  static constexpr int64_t usual_limit = int64_t{64} << 20;

  // Makes the folder where there is none. Once its files have `limit` bytes, those that were used least recently go.
  // Errors: io, it cannot be made or opened; invalid input, others could put files into it: they would be run.
  static Result<std::unique_ptr<CodeCache>> open(const std::string& folder, int64_t limit = usual_limit);

  // Any thread, and any number of processes. What cannot be read or written is not found and not kept, without a word:
  // whoever asks can compile.
  std::optional<std::string> find(std::string_view key) const;
  void keep(std::string_view key, std::string_view code);

 private:
  CodeCache(Descriptor folder, int64_t limit) : folder_(std::move(folder)), limit_(limit) {}
  void make_room(int64_t bytes);

  const Descriptor folder_;
  const int64_t limit_;
  std::mutex mutex_;
  std::optional<int64_t> used_;  // bytes, as far as this process knows
};

// The user's; nullptr: there is none. That a folder cannot be made is told only to those who named it, since programs
// may run without a home; that one is refused, to all.
std::unique_ptr<CodeCache> open_user_cache();

}  // namespace nlsplit::inline kernels
