// What a test needs from a file, or from anything else that can fail.
//
//   const std::string text = value_of(read_file(path));
//
// Where it fails, the test fails with the error's message, and the program goes on with the next test: GoogleTest
// catches what is thrown. To dereference the Result would end the program.
#pragma once

#include <stdexcept>
#include <utility>

#include "base/result.h"

namespace nlsplit {

template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().to_string());
  return std::move(result).value();
}

}  // namespace nlsplit
