// Passes on text, for golden tests.
//
//   EXPECT_EQ(after("remove_dead", R"(graph "g" …)"), R"(graph "g" …)");
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "graph/passes/passes.h"

namespace nlsplit {

inline const Pass& pass(std::string_view name) {
  const auto found = std::ranges::find(all_passes(), name, &Pass::name);
  CHECK(found != all_passes().end(), name);
  return *found;
}

// Contents are hashes: golden texts leave them out.
inline std::string without_contents(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t mark = std::min(text.find(" content ", at), text.size());
    out += text.substr(at, mark - at);
    at = mark == text.size() ? mark : std::min(text.find('\n', mark), text.size());
  }
  return out;
}

inline Graph parse(std::string_view text) {
  auto graph = parse_graph(text, "test");
  CHECK(graph.ok(), graph.ok() ? "" : graph.error().to_string());
  return std::move(graph).value();
}

// The text after the pass, verified, without contents.
inline std::string after(std::string_view name, std::string_view text, WeightStore* weights = nullptr) {
  WeightStore none;
  auto out = pass(name).run(parse(text), weights != nullptr ? *weights : none);
  if (!out.ok()) return out.error().message;
  const Status sound = verify(*out);
  EXPECT_TRUE(sound.ok()) << sound.error().message;
  return without_contents(to_string(*out));
}

#define CONV1 "{dilations=[1,1], group=1, kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1]}"

}  // namespace nlsplit
