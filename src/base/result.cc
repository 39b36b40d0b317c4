#include "base/result.h"

#include <fmt/format.h>

namespace nlsplit::inline base {

namespace {

Error make_error(ErrorKind kind, std::string message) {
  Error error;
  error.kind = kind;
  error.message = std::move(message);
  return error;
}

}  // namespace

std::string Error::to_string() const {
  std::string text;
  if (!where.file.empty()) {
    text += where.file;
    if (where.line > 0) text += fmt::format(":{}", where.line);
    // A column without a line would read as a line.
    if (where.line > 0 && where.column > 0) text += fmt::format(":{}", where.column);
    text += ": ";
  }
  text += message;
  if (!fragment.empty()) {
    text += "\n  | ";
    for (const char c : fragment) {
      text += c;
      if (c == '\n') text += "  | ";
    }
  }
  return text;
}

Error invalid_input(std::string message) { return make_error(ErrorKind::invalid_input, std::move(message)); }
Error unsupported(std::string message) { return make_error(ErrorKind::unsupported, std::move(message)); }
Error io_error(std::string message) { return make_error(ErrorKind::io, std::move(message)); }
Error failed(std::string message) { return make_error(ErrorKind::failed, std::move(message)); }
Error lost(std::string message) { return make_error(ErrorKind::lost, std::move(message)); }

int exit_code(const Error& error) {
  switch (error.kind) {
    case ErrorKind::failed:
      return 1;
    case ErrorKind::invalid_input:
    case ErrorKind::unsupported:
    case ErrorKind::io:
      return 2;
    case ErrorKind::lost:
      return 3;
  }
  return 1;
}

}  // namespace nlsplit::inline base
