#include "schedule/pipeline_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/index.h"
#include "schedule/pipeline_csv_cells.h"

namespace nlsplit::inline schedules {
namespace {

using Kind = PipelineAction::Kind;
using Rows = std::vector<std::vector<std::string>>;

struct KindName {
  Kind kind;
  std::string_view name;
  bool has_micro_batch;
};

constexpr std::array<KindName, 14> kinds = {{
    {Kind::forward, "F", true},
    {Kind::input_gradient, "I", true},
    {Kind::weight_gradient, "W", true},
    {Kind::backward, "B", true},
    {Kind::send_forward, "SEND_F", true},
    {Kind::receive_forward, "RECV_F", true},
    {Kind::send_gradient, "SEND_B", true},
    {Kind::receive_gradient, "RECV_B", true},
    {Kind::wait_send_forward, "WAIT_SEND_F", true},
    {Kind::wait_send_gradient, "WAIT_SEND_B", true},
    {Kind::unshard, "UNSHARD", false},
    {Kind::reshard, "RESHARD", false},
    {Kind::reduce_gradient, "REDUCE_GRAD", false},
    {Kind::wait_reduce_gradient, "WAIT_REDUCE_GRAD", false},
}};
constexpr std::string_view overlap_name = "OVERLAP_F_B";
constexpr int most = 1'000'000;  // stages and micro-batches

const KindName& row_of(Kind kind) {
  const auto found = std::ranges::find(kinds, kind, &KindName::kind);
  CHECK(found != kinds.end(), "an overlap is not one action");
  return *found;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Digits at the front of `text`, taken from it.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || text.front() == '-' || value >= most) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

Result<PipelineAction> parse_single(std::string_view text) {
  const std::string cell(text);
  const auto bad = [&](std::string_view why) { return invalid_input(fmt::format("'{}' {}", cell, why)); };
  PipelineAction action;
  const auto stage = take_number(text);
  if (!stage) return bad("does not begin with a stage; an action is e.g. 2F0");
  action.stage = *stage;
  const size_t letters = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view name = text.substr(0, letters);
  text.remove_prefix(letters);
  const auto found = std::ranges::find(kinds, name, &KindName::name);
  if (found == kinds.end()) {
    std::vector<std::string_view> names;
    for (const KindName& kind : kinds) names.push_back(kind.name);
    return bad(fmt::format("has no action {} (there are {}), e.g. 2F0", name.empty() ? "at all" : name,
                           fmt::join(names, " ")));
  }
  action.kind = found->kind;
  if (!found->has_micro_batch && text.empty()) return action;
  if (!found->has_micro_batch) return bad(fmt::format("has a micro-batch, and {} has none", name));
  const auto micro_batch = text.empty() ? std::nullopt : take_number(text);
  if (!micro_batch || !text.empty()) return bad("does not end with a micro-batch, as 2F0 does");
  action.micro_batch = *micro_batch;
  return action;
}

Result<PipelineAction> parse_action(std::string_view text) {
  if (text.front() != '(') return parse_single(text);
  const size_t close = text.find(')');
  if (close == std::string_view::npos || text.substr(close + 1) != overlap_name) {
    return invalid_input(fmt::format("'{}': two actions beside each other are (0F7;7B3){}", text, overlap_name));
  }
  PipelineAction overlap;
  overlap.kind = Kind::overlap;
  std::string_view inside = text.substr(1, close - 1);
  while (true) {
    const size_t end = inside.find(';');
    const std::string_view part = trimmed(inside.substr(0, end));
    if (part.empty()) return invalid_input(fmt::format("'{}': an action is missing between the brackets", text));
    ASSIGN_OR_RETURN(PipelineAction action, parse_single(part));
    if (!computes(action.kind))
      return invalid_input(fmt::format("'{}': {} is a message, and beside each other is computing", text, part));
    overlap.beside.push_back(std::move(action));
    if (end == std::string_view::npos) break;
    inside.remove_prefix(end + 1);
  }
  if (overlap.beside.size() < 2) return invalid_input(fmt::format("'{}': two actions go beside each other", text));
  return overlap;
}

// The cells of a line and where they begin, RFC 4180 without line breaks within quotes.
struct Cell {
  std::string text;
  int column = 0;  // byte of the line, from 1
};
std::vector<Cell> cells_of(std::string_view line) {
  std::vector<Cell> cells;
  if (line.empty()) return cells;
  size_t i = 0;
  while (true) {
    Cell cell{"", static_cast<int>(i) + 1};
    if (i < line.size() && line[i] == '"') {
      for (++i; i < line.size() && (line[i] != '"' || (i + 1 < line.size() && line[i + 1] == '"')); ++i) {
        if (line[i] == '"') ++i;
        cell.text += line[i];
      }
      if (i < line.size()) ++i;
    }
    const size_t end = std::min(line.find(',', i), line.size());
    cell.text += line.substr(i, end - i);
    cell.text = std::string(trimmed(cell.text));
    cells.push_back(std::move(cell));
    if (end == line.size()) return cells;
    i = end + 1;
  }
}

// The cells around one, in columns, the one itself in brackets.
std::string grid_around(const Rows& rows, int rank, int column) {
  constexpr int beside = 3;
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> head = {"slot"};
  const int first = std::max(0, column - beside), last = column + beside;
  for (int c = first; c <= last; ++c) head.push_back(fmt::format(" {} ", c + 1));
  lines.push_back(head);
  for (int r = std::max(0, rank - 2); r <= std::min(static_cast<int>(rows.size()) - 1, rank + 2); ++r) {
    std::vector<std::string> line = {fmt::format("rank {}", r)};
    for (int c = first; c <= last; ++c) {
      const std::string text = at(c) < rows[at(r)].size() ? rows[at(r)][at(c)] : "";
      line.push_back(r == rank && c == column ? "[" + text + "]" : " " + text + " ");
    }
    lines.push_back(line);
  }
  std::vector<size_t> width(head.size(), 0);
  for (const auto& line : lines) {
    for (size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], line[c].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (size_t c = 0; c < line.size(); ++c) row += fmt::format("{:<{}} ", line[c], width[c]);
    row.erase(row.find_last_not_of(' ') + 1);
    text += (text.empty() ? "" : "\n") + row;
  }
  return text;
}

Rows texts_of(const PipelineCsv& csv) {
  Rows rows;
  for (const auto& rank : csv.ranks) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const auto& cell : rank) row.push_back(cell ? to_string(*cell) : "");
  }
  return rows;
}

}  // namespace

bool computes(Kind kind) {
  return kind == Kind::forward || kind == Kind::input_gradient || kind == Kind::weight_gradient ||
         kind == Kind::backward;
}

std::vector<PipelineAction> actions_of(const std::optional<PipelineAction>& cell) {
  if (!cell) return {};
  return cell->kind == Kind::overlap ? cell->beside : std::vector{*cell};
}

Error fault_at(const PipelineCsv& csv, int rank, int column, const std::string& reason) {
  Error error = invalid_input(reason);
  error.where.file = csv.file;
  if (rank < 0) return error;
  const Rows rows = texts_of(csv);
  error.where.line = rank + 1;
  if (column < 0 || at(column) >= rows[at(rank)].size()) return error;
  error.where.column = 1;
  for (int c = 0; c < column; ++c) error.where.column += static_cast<int>(rows[at(rank)][at(c)].size()) + 1;
  error.message = fmt::format("rank {}, slot {} ({}): {}", rank, column + 1, rows[at(rank)][at(column)], reason);
  error.fragment = grid_around(rows, rank, column);
  return error;
}

std::string to_string(const PipelineAction& action) {
  if (action.kind == Kind::overlap) {
    std::vector<std::string> parts;
    for (const PipelineAction& part : action.beside) parts.push_back(to_string(part));
    return fmt::format("({}){}", fmt::join(parts, ";"), overlap_name);
  }
  const std::string text = fmt::format("{}{}", action.stage, row_of(action.kind).name);
  return action.micro_batch < 0 ? text : fmt::format("{}{}", text, action.micro_batch);
}

Result<PipelineCsv> parse_pipeline_csv(std::string_view text, std::string file) {
  PipelineCsv csv;
  csv.file = std::move(file);
  csv.line_end = text.find("\r\n") != std::string_view::npos ? "\r\n" : "\n";
  csv.last_line_ended = text.empty() || text.back() == '\n';
  Rows rows;
  std::vector<std::vector<Cell>> cells;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    const bool ended = end < text.size();  // a '\r' alone ends no line
    if (ended && !line.empty() && line.back() == '\r') line.remove_suffix(1);
    cells.push_back(cells_of(line));
    std::vector<std::string>& row = rows.emplace_back();
    for (const Cell& cell : cells.back()) row.push_back(cell.text);
    begin = end + 1;
  }
  for (size_t r = 0; r < cells.size(); ++r) {
    auto& rank = csv.ranks.emplace_back();
    for (size_t c = 0; c < cells[r].size(); ++c) {
      if (cells[r][c].text.empty()) {
        rank.emplace_back();
        continue;
      }
      auto action = parse_action(cells[r][c].text);
      if (!action.ok()) {
        Error error = invalid_input(fmt::format("rank {}, slot {}: {}", r, c + 1, action.error().message));
        error.where = {csv.file, static_cast<int>(r) + 1, cells[r][c].column};
        error.fragment = grid_around(rows, static_cast<int>(r), static_cast<int>(c));
        return error;
      }
      rank.emplace_back(std::move(*action));
    }
  }
  return csv;
}

std::string to_text(const PipelineCsv& csv) {
  std::string text;
  for (size_t r = 0; r < csv.ranks.size(); ++r) {
    const auto& rank = csv.ranks[r];
    if (rank.size() == 1 && !rank[0]) text += "\"\"";  // a row of one empty cell is not a row of none
    for (size_t c = 0; c < rank.size(); ++c) {
      if (c > 0) text += ',';
      if (rank[c]) text += to_string(*rank[c]);
    }
    if (r + 1 < csv.ranks.size() || csv.last_line_ended) text += csv.line_end;
  }
  return text;
}

}  // namespace nlsplit::inline schedules
