// What parsing and verifying say of a text.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "program/text.h"
#include "program/verify.h"

namespace nlsplit::testing {

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "the test no longer fits its text: " << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The message of parsing or verifying; empty: accepted.
inline std::string complaint(const std::string& text) {
  const auto program = parse_program(text, "test.nls");
  if (!program.ok()) return program.error().to_string();
  const Status status = verify(*program);
  return status.ok() ? "" : status.error().to_string();
}

}  // namespace nlsplit::testing
