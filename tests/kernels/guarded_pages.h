// Bytes that end where a page ends behind which nothing may be read or written, or begin where one begins: who goes
// beyond by one element is killed, whatever compiled the code.
//
//   GuardedPages bytes("abc", GuardedPages::at_end);
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"

namespace nlsplit::testing {

class GuardedPages {
 public:
  enum Side { at_end, at_begin };

  GuardedPages(std::string_view content, Side side) : size_(content.size()) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (size_ + page - 1) / page * page + page;  // at least one, also of nothing
    whole_ = inside + 2 * page;
    void* memory = mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "no memory");
    begin_ = static_cast<char*>(memory);
    CHECK(mprotect(begin_ + page, inside, PROT_READ | PROT_WRITE) == 0, "no memory");
    data_ = side == at_begin ? begin_ + page : begin_ + page + inside - size_;
    if (size_ > 0) std::memcpy(data_, content.data(), size_);
  }
  ~GuardedPages() { munmap(begin_, whole_); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  char* data() { return data_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  size_t size_, whole_ = 0;
  char* begin_ = nullptr;
  char* data_ = nullptr;
};

}  // namespace nlsplit::testing
