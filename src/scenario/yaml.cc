// The only file that includes yaml-cpp; its exceptions, and those thrown through its parser, end here. Its events are
// read, not its Node: they tell of a key given twice, and a Node shares state in ways a value should not.
#include "scenario/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "base/units.h"

namespace nlsplit::inline scenario {

namespace {

constexpr size_t max_text = size_t{16} << 20;  // bytes
constexpr size_t max_nodes = 100'000;          // aliases copy: without a limit a page of text grows without end
constexpr size_t max_shown = 200;              // bytes of a line in a message

struct Trouble {
  Error error;
};

Yaml node_at(const YAML::Mark& mark, Yaml::Kind kind) {
  Yaml node;
  node.kind = kind;
  node.line = mark.line + 1;
  node.column = mark.column + 1;
  return node;
}

// What a copy of it takes: values, and a long text as many of them.
size_t count(const Yaml& node) {
  size_t n = 1 + node.text.size() / 256;
  for (const Yaml& key : node.keys) n += count(key);
  for (const Yaml& item : node.items) n += count(item);
  return n;
}

const Yaml* find_key(const Yaml& map, std::string_view name) {
  for (const Yaml& key : map.keys) {
    if (key.text == name) return &key;
  }
  return nullptr;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const Source& source) : source_(source) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(node_at(mark, Yaml::Kind::null), anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& value) override {
    Yaml node = node_at(mark, Yaml::Kind::scalar);
    node.text = value;
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(node_at(mark, Yaml::Kind::null), "this alias is inside the node that it names");
    nodes_ += count(found->second);
    add(found->second, YAML::NullAnchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open_.push_back({node_at(mark, Yaml::Kind::list), anchor});
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open_.push_back({node_at(mark, Yaml::Kind::map), anchor});
  }
  void OnMapEnd() override {
    merge(open_.back().node);
    close();
  }

  Yaml root;

 private:
  struct Open {
    Yaml node;
    YAML::anchor_t anchor;
    std::unordered_map<std::string, int> lines = {};  // of a map's keys
  };

  [[noreturn]] void fail(const Yaml& where, std::string message) const {
    throw Trouble{source_.at(where, std::move(message))};
  }

  void add(Yaml node, YAML::anchor_t anchor) {
    if (++nodes_ > max_nodes)
      fail(node, fmt::format("more than {} values, aliases counted as what they name", max_nodes));
    if (anchor != YAML::NullAnchor) {
      nodes_ += count(node);  // it is copied
      anchors_[anchor] = node;
    }
    if (open_.empty()) {
      root = std::move(node);
      return;
    }
    Yaml& parent = open_.back().node;
    if (parent.is_map() && parent.keys.size() == parent.items.size()) {
      check_key(open_.back(), node);
      parent.keys.push_back(std::move(node));
    } else {
      parent.items.push_back(std::move(node));
    }
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done.node), done.anchor);
  }

  void check_key(Open& map, const Yaml& key) const {
    if (!key.is_scalar()) fail(key, "a key must be a text");
    const auto [first, added] = map.lines.emplace(key.text, key.line);
    if (!added) fail(key, fmt::format("'{}' is given twice here, first in line {}", key.text, first->second));
  }

  // https://yaml.org/type/merge.html: keys of its own win, then earlier merged maps.
  void merge(Yaml& map) const {
    const Yaml* key = find_key(map, "<<");
    if (key == nullptr) return;
    const auto index = key - map.keys.data();
    const Yaml where = *key;
    const Yaml merged = std::move(map.items[static_cast<size_t>(index)]);
    map.keys.erase(map.keys.begin() + index);
    map.items.erase(map.items.begin() + index);
    std::unordered_set<std::string> known;
    for (const Yaml& own : map.keys) known.insert(own.text);
    if (merged.is_list()) {
      for (const Yaml& one : merged.items) merge_one(map, known, one, where);
    } else {
      merge_one(map, known, merged, where);
    }
  }

  void merge_one(Yaml& map, std::unordered_set<std::string>& known, const Yaml& from, const Yaml& where) const {
    if (!from.is_map()) fail(where, "'<<' merges a map, e.g. '<<: *name' where '&name' marks one");
    for (size_t i = 0; i < from.keys.size(); ++i) {
      if (!known.insert(from.keys[i].text).second) continue;
      map.keys.push_back(from.keys[i]);
      map.items.push_back(from.items[i]);
    }
  }

  const Source& source_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Yaml> anchors_;
  size_t nodes_ = 0;
};

// yaml-cpp takes byte 4 for the end of the text and guesses encodings: what follows would be silently lost.
Status check_text(const Source& source) {
  if (source.text.size() > max_text) {
    return source.at(Yaml{}, fmt::format("the text is larger than {}", to_string(bytes(max_text))));
  }
  Yaml here;
  here.line = 1;
  here.column = 1;
  for (const char c : source.text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7f) {
      Error error = invalid_input(fmt::format("a control character (0x{:02x}); this must be plain UTF-8 text", byte));
      error.where = source.location(here);
      return error;
    }
    here.column = c == '\n' ? 1 : here.column + 1;
    here.line += c == '\n' ? 1 : 0;
  }
  return ok_status();
}

// What yaml-cpp says of the mistakes that are made most often, in other words.
std::string what_is_wrong(const std::string& said, const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  if (begin != std::string::npos && line[begin] == '\t') return "a line begins with a tab; YAML is indented by spaces";
  if (said == YAML::ErrorMsg::END_OF_MAP_FLOW) return "a '{' is not closed, or a ',' is missing in it";
  if (said == YAML::ErrorMsg::END_OF_SEQ_FLOW) return "a '[' is not closed, or a ',' is missing in it";
  if (said == YAML::ErrorMsg::END_OF_MAP) return "here a key of the map around it must begin, or the map end";
  return said;
}

}  // namespace

std::string Source::line(int number) const {
  if (number < 1) return {};
  size_t start = 0;
  for (int n = 1; n < number; ++n) {
    const size_t newline = text.find('\n', start);
    if (newline == std::string_view::npos) return {};
    start = newline + 1;
  }
  std::string_view found = text.substr(start, text.find('\n', start) - start);
  const size_t last = found.find_last_not_of(" \t\r");
  found = found.substr(0, last == std::string_view::npos ? 0 : last + 1);
  return found.size() <= max_shown ? std::string(found) : std::string(found.substr(0, max_shown)) + " ...";
}

Error Source::at(const Yaml& node, std::string message) const { return at(node, invalid_input(std::move(message))); }

Error Source::at(const Yaml& node, Error error) const {
  error.where = location(node);
  error.fragment = line(node.line);
  return error;
}

Result<Yaml> parse_yaml(const Source& source) {
  RETURN_IF_ERROR(check_text(source));
  try {
    std::istringstream stream{std::string(source.text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(source);
    parser.HandleNextDocument(builder);
    Yaml root = std::move(builder.root);
    TreeBuilder rest(source);
    if (parser.HandleNextDocument(rest)) return source.at(rest.root, "a second document ('---'); only one is read");
    return root;
  } catch (const Trouble& trouble) {
    return trouble.error;
  } catch (const YAML::DeepRecursion& e) {  // its own text is "bad file"
    return source.at(node_at(e.mark, Yaml::Kind::null), "lists and maps are nested too deeply");
  } catch (const YAML::Exception& e) {
    const Yaml here = node_at(e.mark, Yaml::Kind::null);
    return source.at(here, fmt::format("this is not YAML: {}", what_is_wrong(e.msg, source.line(here.line))));
  }
}

}  // namespace nlsplit::inline scenario
