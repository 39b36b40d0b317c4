#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit::inline reports {
namespace {

constexpr std::string_view gap = "  ";

void append_cell(std::string& line, std::string_view text, size_t width, Align align) {
  const size_t fill = width - std::min(width, display_width(text));
  if (align == Align::right) line.append(fill, ' ');
  line += text;
  if (align == Align::left) line.append(fill, ' ');
}

std::pair<std::string_view, std::string_view> two_lines(std::string_view title) {
  const size_t cut = title.find('\n');
  if (cut == std::string_view::npos) return {title, ""};
  return {title.substr(0, cut), title.substr(cut + 1)};
}

}  // namespace

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string rate_text(double per_second) {
  const int decimals = per_second >= 100 ? 0 : per_second >= 10 ? 1 : per_second >= 1 ? 2 : 3;
  return fmt::format("{:.{}f}", per_second, decimals);
}

std::string percent(double share, int decimals) { return fmt::format("{:.{}f} %", share * 100, decimals); }

std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string counted(int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", grouped(static_cast<double>(count)), thing,
                     count == 1              ? ""
                     : thing.ends_with("ch") ? "es"
                                             : "s");
}

std::string Table::to_string() const {
  std::vector<std::vector<std::string>> lines(1);
  bool second = false;
  for (const Column& column : columns_) {
    lines[0].emplace_back(two_lines(column.title).first);
    second = second || !two_lines(column.title).second.empty();
  }
  if (second) {
    lines.emplace_back();
    for (const Column& column : columns_) lines[1].emplace_back(two_lines(column.title).second);
  }
  lines.insert(lines.end(), rows_.begin(), rows_.end());

  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& cells : lines) {
    for (size_t c = 0; c < columns_.size() && c < cells.size(); ++c)
      widths[c] = std::max(widths[c], display_width(cells[c]));
  }
  std::string out;
  for (const auto& cells : lines) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line += gap;
      append_cell(line, c < cells.size() ? std::string_view(cells[c]) : "", widths[c], columns_[c].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace nlsplit::inline reports
