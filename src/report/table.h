// A table for terminals and files: columns as wide as their widest cell, numbers to the right, words to the left.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nlsplit::inline reports {

enum class Align { left, right };

class Table {
 public:
  struct Column {
    std::string title;  // may have a second line after '\n' (a unit)
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string to_string() const;  // every line ends in a newline; no trailing spaces

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Samples a second, with three digits or more: "0.312", "9.20", "28.7", "53618".
std::string rate_text(double per_second);

// A share in percent: "93 %", with a decimal "92.7 %".
std::string percent(double share, int decimals = 0);

// 1,234,567
std::string grouped(double value);

// "1 device", "2 devices"; "1 micro-batch", "4,096 micro-batches".
std::string counted(int64_t count, std::string_view thing);

// Columns a text takes on a terminal: UTF-8 code points.
size_t display_width(std::string_view text);

}  // namespace nlsplit::inline reports
