// OutputLock: one run at a time writes to one output. The second one is told who the first is.
//
//   ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::of_folder("results"));
//
// The lock ends with the process that holds it, however that ends.
#pragma once

#include <string>

#include "base/descriptor.h"
#include "base/result.h"

namespace nlsplit::inline base {

class OutputLock {
 public:
  static Result<OutputLock> of_folder(const std::string& folder);  // which exists; the lock is FOLDER/.nlsplit-lock
  static Result<OutputLock> beside(const std::string& path);       // PATH.nlsplit-lock
  OutputLock(OutputLock&&) noexcept;
  OutputLock& operator=(OutputLock&&) = delete;
  ~OutputLock();

 private:
  OutputLock() = default;
  static Result<OutputLock> take(const std::string& output, std::string file);

  std::string file_;  // empty: nothing is to be removed
  Descriptor held_;
};

}  // namespace nlsplit::inline base
