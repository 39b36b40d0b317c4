#include <fmt/format.h>

#include <algorithm>

#include "report/table.h"
#include "sweep/sweep_report.h"

namespace nlsplit::inline sweeps {
namespace {

constexpr size_t most_places = 6, most_slices = 8, most_passes = 4;

std::string passes_text(const OrderChange& change) {
  std::string text;
  for (size_t i = 0; i < std::min(change.passes.size(), most_passes); ++i)
    text += fmt::format("{}{} passes {}", i == 0 ? "" : ", ", change.passes[i].first, change.passes[i].second);
  if (change.passes.size() > most_passes) text += fmt::format(" and {} more", change.passes.size() - most_passes);
  return text;
}

std::string slice_text(const Experiment& experiment, const SweepOrders& orders, const OrderSlice& slice) {
  std::string text = fmt::format("makespan by {}, best first{}{}\n", series_title(experiment, orders),
                                 slice.fixed.empty() ? "" : "; ", slice.fixed);
  size_t places = 0;
  for (const OrderAt& at : slice.along) places = std::max(places, at.placed.size());
  std::vector<Table::Column> columns = {{orders.x ? experiment.axes[*orders.x].column : "", Align::right}};
  for (size_t p = 0; p < std::min(places, most_places); ++p) columns.push_back({p == 0 ? "best" : "then"});
  Table table(columns);
  for (const OrderAt& at : slice.along) {
    std::vector<std::string> row = {at.x};
    for (size_t p = 0; p < columns.size() - 1; ++p) {
      if (p >= at.placed.size()) {
        row.emplace_back();
        continue;
      }
      const Placed& placed = at.placed[p];
      row.push_back(
          p == 0 ? fmt::format("{} {}", placed.series, to_string(seconds(placed.makespan_s)))
                 : fmt::format("{} +{:.1f} %", placed.series, 100 * (placed.makespan_s / at.placed[0].makespan_s - 1)));
    }
    table.add(std::move(row));
  }
  text += table.to_string();
  if (!orders.x) return text;
  if (slice.changes.empty()) return text + "The order never changes.\n";
  const std::string& x = experiment.axes[*orders.x].column;
  const OrderChange& first = slice.changes.front();
  text +=
      fmt::format("The order changes first between {} {} and {}: {}.\n", x, first.from, first.to, passes_text(first));
  for (size_t i = 1; i < slice.changes.size(); ++i) {
    const OrderChange& change = slice.changes[i];
    text += fmt::format("Again between {} and {}: {}.\n", change.from, change.to, passes_text(change));
  }
  return text;
}

}  // namespace

std::string sweep_text(const Experiment& experiment, const Sweep& sweep) {
  const size_t status = column_of(sweep, "status"), reason = column_of(sweep, "reason");
  size_t possible = 0, impossible = 0;
  std::string first;
  for (const CsvRow& row : sweep.rows) {
    if (row.empty()) continue;
    if (row[status] == "ok") {
      ++possible;
      continue;
    }
    if (impossible++ == 0) {
      first =
          fmt::format("{}: {}", fmt::join(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(sweep.settings), " "),
                      row[reason]);
    }
  }
  std::string text = counted(static_cast<int64_t>(possible + impossible), "point");
  if (impossible > 0) text += fmt::format(", {} of them impossible; the first is {}", impossible, first);
  text += "\n";
  const SweepOrders orders = orders_of(experiment, sweep);
  for (size_t i = 0; i < std::min(orders.slices.size(), most_slices); ++i)
    text += "\n" + slice_text(experiment, orders, orders.slices[i]);
  if (orders.slices.size() > most_slices)
    text += fmt::format("\nand {} more such tables, which the page shows\n", orders.slices.size() - most_slices);
  return text;
}

}  // namespace nlsplit::inline sweeps
