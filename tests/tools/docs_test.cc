// Links between the pages lead somewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;

// As GitHub makes it of a heading: letters, digits, hyphens and underscores in small letters, spaces as hyphens. Bytes
// of other scripts stay.
std::string anchor_of(const std::string& heading) {
  const std::string text = std::regex_replace(heading, std::regex(R"(\[([^\]]*)\]\([^)]*\))"), "$1");
  std::string anchor;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || byte >= 0x80 || c == '-' || c == '_')
      anchor += static_cast<char>(std::tolower(byte));
    else if (c == ' ')
      anchor += '-';
  }
  return anchor;
}

std::set<std::string> anchors_of(const fs::path& page) {
  std::set<std::string> anchors;
  std::istringstream lines(value_of(read_file(page.string())));
  bool is_code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) is_code = !is_code;
    if (is_code || !line.starts_with('#')) continue;
    const size_t begin = line.find_first_not_of("# ");
    if (begin != std::string::npos) anchors.insert(anchor_of(line.substr(begin)));
  }
  return anchors;
}

// "docs/search.md: there is no nowhere.md", one for each link that leads nowhere.
std::vector<std::string> broken_links(const fs::path& page) {
  const std::string text = value_of(read_file(page.string()));
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> broken;
  for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
    const std::string target = (*at)[1];
    if (target.starts_with("http")) continue;
    const size_t hash = target.find('#');
    const std::string file = target.substr(0, hash);
    const fs::path path = file.empty() ? page : page.parent_path() / file;
    if (!fs::exists(path))
      broken.push_back(page.string() + ": there is no " + target);
    else if (hash != std::string::npos && !anchors_of(path).contains(target.substr(hash + 1)))
      broken.push_back(page.string() + ": there is no heading " + target);
  }
  return broken;
}

TEST(Docs, LinksLeadSomewhere) {
  const fs::path root = NLS_SOURCE_DIR;
  std::vector<fs::path> pages = {root / "README.md", root / "CONTRIBUTING.md", root / "src/README.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  EXPECT_GT(pages.size(), 20u);
  for (const fs::path& page : pages) EXPECT_THAT(broken_links(page), ::testing::IsEmpty());
}

TEST(Docs, BrokenLinksAreFound) {
  const Scratch scratch;
  scratch.write("other.md", "# Other\n\n## What `is` here\n```\n# no heading\n```\n");
  scratch.write("page.md",
                "# Page\n[a](other.md) [b](other.md#what-is-here) [c](#page) [d](https://example.org/x)\n"
                "[e](nowhere.md) [f](other.md#no-heading) [g](#elsewhere)\n");
  EXPECT_THAT(broken_links(scratch / "page.md"),
              ::testing::ElementsAre(::testing::EndsWith("there is no nowhere.md"),
                                     ::testing::EndsWith("there is no heading other.md#no-heading"),
                                     ::testing::EndsWith("there is no heading #elsewhere")));
}

// Each page stands in the index.
TEST(Docs, TheIndexHasThemAll) {
  const fs::path docs = fs::path(NLS_SOURCE_DIR) / "docs";
  const std::string index = value_of(read_file((docs / "README.md").string()));
  for (const auto& entry : fs::directory_iterator(docs)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".md") || name == "README.md") continue;
    EXPECT_THAT(index, ::testing::HasSubstr("](" + name)) << "docs/README.md";
  }
}

}  // namespace
}  // namespace nlsplit
