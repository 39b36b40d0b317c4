// Result<T>: a value or an Error. How every function that can meet a user's or a file's mistake answers.
//
//   Result<Graph> import_onnx(const std::string& path);
//   ASSIGN_OR_RETURN(Graph graph, import_onnx(path));   // returns the error to our caller, or goes on
//   RETURN_IF_ERROR(verify(graph));
//
// Our own mistakes are not errors but bugs: CHECK (base/check.h) stops the program.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace nlsplit::inline base {

enum class ErrorKind {
  invalid_input,  // what the user or a file said is wrong
  unsupported,    // it is right, but we cannot do it
  io,             // the operating system refused
  failed,         // the work was started and did not succeed (a check found a difference)
  lost,           // a device of a run died, hangs, or is cut off
};

// Where in the user's text the trouble is. Lines and columns count from 1; 0 is "not known".
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
  friend bool operator==(const Location&, const Location&) = default;
};

struct Error {
  ErrorKind kind = ErrorKind::invalid_input;
  std::string message;   // one sentence that names the offending thing, no trailing period needed
  Location where;        // empty file: no place in a text
  std::string fragment;  // the offending line or token of the text, empty if none

  // "file:line:column: message\n  | fragment"
  std::string to_string() const;
};

Error invalid_input(std::string message);
Error unsupported(std::string message);
Error io_error(std::string message);
Error failed(std::string message);
Error lost(std::string message);

// 0 fine, 1 the work failed, 2 bad input (also what is unsupported or cannot be read), 3 a device of a run was lost.
int exit_code(const Error& error);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK(ok(), error().to_string());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok(), error().to_string());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok(), error().to_string());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }
  Error& error() { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }
  Error& error() { return *error_; }

 private:
  std::optional<Error> error_;  // one that is fine costs no strings
};

using Status = Result<void>;
inline Status ok_status() { return {}; }

#define NLS_CONCAT_(a, b) a##b
#define NLS_CONCAT(a, b) NLS_CONCAT_(a, b)

#define RETURN_IF_ERROR(expression)                         \
  do {                                                      \
    if (auto nls_status = (expression); !nls_status.ok()) { \
      return std::move(nls_status).error();                 \
    }                                                       \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression) \
  NLS_ASSIGN_OR_RETURN(NLS_CONCAT(nls_result_, __LINE__), declaration, expression)
#define NLS_ASSIGN_OR_RETURN(temporary, declaration, expression) \
  auto temporary = (expression);                                 \
  if (!temporary.ok()) return std::move(temporary).error();      \
  declaration = std::move(temporary).value()

}  // namespace nlsplit::inline base
