// Yaml: a YAML text as a plain tree that knows where everything stands. The only module and file that know yaml-cpp are
// behind it.
//
//   Source source{"mine.yaml", text};
//   ASSIGN_OR_RETURN(Yaml root, parse_yaml(source));
//   return source.at(root.items[0], "a model is expected");     // mine.yaml:3:8: a model is expected | the line
//
// Anchors and aliases are resolved, and so is the merge key: `{<<: *machine, host: b}` is *machine's map with another
// host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline scenario {

struct Yaml {
  enum class Kind : uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;         // scalar
  std::vector<Yaml> keys;   // map: scalars, no two alike, in the text's order
  std::vector<Yaml> items;  // list: its items; map: the values, one a key
  int line = 0;             // from 1
  int column = 0;

  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_list() const { return kind == Kind::list; }
  bool is_map() const { return kind == Kind::map; }
};

// What the user wrote, for messages. The text must outlive it.
struct Source {
  std::string file;
  std::string_view text;

  Location location(const Yaml& node) const { return {file, node.line, node.column}; }
  std::string line(int number) const;                     // without white space at its end
  Error at(const Yaml& node, std::string message) const;  // invalid input there
  Error at(const Yaml& node, Error error) const;          // the same error, there
};

// One document. Errors: not YAML, no UTF-8 text, a key twice or no text, an alias of a node around it, several
// documents, too large.
Result<Yaml> parse_yaml(const Source& source);

}  // namespace nlsplit::inline scenario
