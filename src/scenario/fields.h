// Strict reading of a Yaml tree: every key known, every value of the right kind, every error at its place.
//
//   ASSIGN_OR_RETURN(Fields link, Fields::open(source, node, "link 1", {"between", "bandwidth", "latency"}));
//   ASSIGN_OR_RETURN(const Yaml* bandwidth, link.need("bandwidth"));
//   ASSIGN_OR_RETURN(BytesPerSecond rate, read_quantity(source, *bandwidth, parse_bandwidth));
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/yaml.h"

namespace nlsplit::inline scenario {

inline constexpr double max_slowdown = 1e6;  // of a device against its own kind, of a straggler against itself

class Fields {
 public:
  // Errors: not a map, an unknown key (with the nearest known one), a key without a value. `what` is for messages:
  // "link 1".
  static Result<Fields> open(const Source& source, const Yaml& map, std::string what,
                             const std::vector<std::string_view>& known);

  const Yaml* find(std::string_view key) const;  // nullptr if it is absent
  Result<const Yaml*> need(std::string_view key) const;
  const Yaml& map() const { return *map_; }

 private:
  Fields(const Source& source, const Yaml& map, std::string what)
      : source_(&source), map_(&map), what_(std::move(what)) {}
  const Source* source_;
  const Yaml* map_;
  std::string what_;
};

// `what` says what stands there, with its article: "a host".
Result<std::string> read_text(const Source& source, const Yaml& node, std::string_view what);
// Letters, digits, '_', '-', '.', at most 64: what stands in plans, Programs and tables without quotes.
Result<std::string> read_name(const Source& source, const Yaml& node, std::string_view what);
Result<int64_t> read_integer(const Source& source, const Yaml& node, std::string_view what, int64_t least,
                             int64_t most);
Result<double> read_number(const Source& source, const Yaml& node, std::string_view what, double least, double most);
// One of `words`; the error lists them.
Result<size_t> read_choice(const Source& source, const Yaml& node, std::string_view what,
                           std::span<const std::string_view> words);
Status expect_list(const Source& source, const Yaml& node, std::string_view what);

// `parse` is one of base/units.h; its error is put at its place.
template <class T>
Result<T> read_quantity(const Source& source, const Yaml& node, Result<T> (*parse)(std::string_view)) {
  ASSIGN_OR_RETURN(const std::string text, read_text(source, node, "a quantity with its unit"));
  Result<T> value = parse(text);
  if (!value.ok()) return source.at(node, value.error());
  return value;
}

// The same error at another place, where the user can change something; its own place stays in the sentence. `where`
// without a file leaves the error as it is.
Error moved_to(Error error, const Location& where, const std::string& line);

// "'a', 'b' or 'c'"
std::string one_of(std::span<const std::string_view> words);

}  // namespace nlsplit::inline scenario
