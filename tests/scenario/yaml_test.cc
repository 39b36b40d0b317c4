#include "scenario/yaml.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace nlsplit {
namespace {

std::string error_of(const std::string& text) {
  const auto tree = parse_yaml({"y", text});
  return tree.ok() ? "fine" : tree.error().to_string();
}

// "{a: [1, 2]}", with everything resolved.
std::string flat(const Yaml& node) {
  switch (node.kind) {
    case Yaml::Kind::null:
      return "null";
    case Yaml::Kind::scalar:
      return node.text;
    case Yaml::Kind::list:
    case Yaml::Kind::map: {
      std::string text;
      for (size_t i = 0; i < node.items.size(); ++i) {
        if (i > 0) text += ", ";
        if (node.is_map()) text += node.keys[i].text + ": ";
        text += flat(node.items[i]);
      }
      return node.is_map() ? "{" + text + "}" : "[" + text + "]";
    }
  }
  return "?";
}

std::string flat(const std::string& text) {
  const auto tree = parse_yaml({"y", text});
  return tree.ok() ? flat(*tree) : tree.error().to_string();
}

TEST(Yaml, KnowsWhereEverythingStands) {
  const std::string text = "a: 1\nbc:\n  - x\n  -   [y, {z: w}]\n";
  const Yaml root = parse_yaml({"y", text}).value();
  EXPECT_EQ(flat(root), "{a: 1, bc: [x, [y, {z: w}]]}");
  const auto place = [](const Yaml& node) { return std::pair(node.line, node.column); };
  EXPECT_EQ(place(root.items[0]), std::pair(1, 4));
  EXPECT_EQ(place(root.keys[1]), std::pair(2, 1));
  EXPECT_EQ(place(root.items[1].items[0]), std::pair(3, 5));
  EXPECT_EQ(place(root.items[1].items[1].items[1].items[0]), std::pair(4, 15));
}

TEST(Yaml, ReadsWindowsLinesAndByteOrderMarks) {
  EXPECT_EQ(flat("a: 1\r\nb: 2\r\n"), "{a: 1, b: 2}");
  EXPECT_EQ(flat("\xEF\xBB\xBF"
                 "a: 1\n"),
            "{a: 1}");
}

TEST(Yaml, MergesMaps) {
  EXPECT_EQ(flat("a: &m {x: 1, y: 2}\nb: {<<: *m, y: 3}\n"), "{a: {x: 1, y: 2}, b: {y: 3, x: 1}}");
  EXPECT_EQ(flat("a: &m {x: 1, y: 2}\nb:\n  y: 3\n  <<: *m\n"), "{a: {x: 1, y: 2}, b: {y: 3, x: 1}}");
  EXPECT_EQ(flat("a: &m {x: 1}\nb: &n {x: 2, y: 2}\nc: {<<: [*m, *n], z: 3}\n"),  // the first wins
            "{a: {x: 1}, b: {x: 2, y: 2}, c: {z: 3, x: 1, y: 2}}");
  EXPECT_EQ(flat("a: &m {x: 1}\nb: &n {<<: *m, y: 2}\nc: {<<: *n}\n"), "{a: {x: 1}, b: {y: 2, x: 1}, c: {y: 2, x: 1}}");
  EXPECT_EQ(flat("a: &m [1, 2]\nb: *m\n"), "{a: [1, 2], b: [1, 2]}");
}

TEST(Yaml, Errors) {
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n"), "y:3:1: 'a' is given twice here, first in line 1\n  | a: 3");
  EXPECT_EQ(error_of("x:\n  - {a: 1, a: 1}\n"),
            "y:2:12: 'a' is given twice here, first in line 2\n  |   - {a: 1, a: 1}");
  EXPECT_EQ(error_of("a: *b\n"), "y:1:4: this is not YAML: the referenced anchor is not defined\n  | a: *b");
  EXPECT_EQ(error_of("a: &a [*a]\n"), "y:1:8: this alias is inside the node that it names\n  | a: &a [*a]");
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"), "y:3:1: a second document ('---'); only one is read\n  | b: 2");
  EXPECT_EQ(error_of("? [a]\n: b\n"), "y:1:3: a key must be a text\n  | ? [a]");
  EXPECT_EQ(error_of("a: {b: 1\n"), "y:2:1: this is not YAML: a '{' is not closed, or a ',' is missing in it");
  EXPECT_EQ(error_of("a: 1\n\tb: 2\n"),
            "y:2:1: this is not YAML: a line begins with a tab; YAML is indented by spaces\n  | \tb: 2");
}

TEST(Yaml, NothingIsLostBehindAControlCharacter) {  // yaml-cpp takes 4 for the end of the text
  EXPECT_EQ(error_of("a: 1\n \x04 b: 2\n"), "y:2:2: a control character (0x04); this must be plain UTF-8 text");
  EXPECT_EQ(error_of(std::string("a\0b", 3)), "y:1:2: a control character (0x00); this must be plain UTF-8 text");
}

TEST(Yaml, BombsAreRefused) {
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    laughs += fmt::format("a{0}: &a{0} [", i);
    for (int k = 0; k < 10; ++k) laughs += fmt::format("*a{}, ", i - 1);
    laughs += "]\n";
  }
  EXPECT_NE(error_of(laughs).find("more than 100000 values"), std::string::npos);
  // A long text counts as what its copies take.
  std::string copies = "a: &a " + std::string(100'000, 'x') + "\nb: [";
  for (int i = 0; i < 1000; ++i) copies += "*a, ";
  EXPECT_NE(error_of(copies + "]\n").find("more than 100000 values"), std::string::npos);
  for (const std::string open : {"[", "{a: "}) {
    std::string deep;
    for (int i = 0; i < 20'000; ++i) deep += open;
    EXPECT_NE(error_of(deep).find("nested too deeply"), std::string::npos);
  }
}

TEST(Source, LinesAreCutForMessages) {
  const std::string text = "first\r\n" + std::string(1000, 'x') + "\nlast";
  const Source source{"y", text};
  EXPECT_EQ(source.line(1), "first");
  EXPECT_EQ(source.line(2), std::string(200, 'x') + " ...");
  EXPECT_EQ(source.line(3), "last");
  EXPECT_EQ(source.line(4), "");
  EXPECT_EQ(source.line(0), "");
}

}  // namespace
}  // namespace nlsplit
