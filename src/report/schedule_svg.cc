#include "report/schedule_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/html_text.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

// In pixels.
constexpr double label_width = 80, row_height = 26, bar_height = 20, top = 34, margin = 12, letter_width = 6.6;
constexpr double least_width = 480, most_width = 1600;  // of the time axis

struct Bar {
  std::string label;
  std::string title;
  std::string_view fill;
  double start = 0, finish = 0;
};

std::string_view fill_of(const ScheduledSlot& slot) {
  if (slot.whole) return "#e08a3c";
  switch (slot.phase) {
    case Phase::forward:
      return "#5b9bd5";
    case Phase::input_gradient:
      return "#f0a860";
    case Phase::weight_gradient:
      return "#79b978";
    case Phase::init:
    case Phase::recompute:
    case Phase::step:
      return "#999999";
  }
  CHECK(false, "unknown phase");
}

std::vector<Bar> bars_of(const std::vector<ScheduledSlot>& order, const std::vector<SlotSpan>& spans, bool several) {
  std::vector<Bar> bars;
  for (size_t i = 0; i < order.size(); ++i) {
    const ScheduledSlot& slot = order[i];
    Bar bar{several ? fmt::format("{}", slot.stage) : "", "", fill_of(slot), spans[i].start, spans[i].finish};
    if (slot.whole) bar.finish = spans[++i].finish;  // W is the rest of it
    if (bar.finish <= bar.start) continue;
    const std::string_view phase = slot.whole ? "B" : name_of(slot.phase);
    bar.label += slot.phase == Phase::step ? "step" : fmt::format("{}{}", phase, slot.micro_batch);
    bar.title = slot.phase == Phase::step
                    ? fmt::format("stage {} step", slot.stage)
                    : fmt::format("stage {} {} of micro-batch {}", slot.stage, phase, slot.micro_batch);
    bar.title += fmt::format(": {:.6g} to {:.6g}", bar.start, bar.finish);
    bars.push_back(std::move(bar));
  }
  return bars;
}

bool hosts_several(const ScheduleInput& input) {
  std::vector<int> stages(static_cast<size_t>(input.devices), 0);
  for (const std::vector<int>& devices : input.stage_devices) {
    for (const int device : devices) ++stages[static_cast<size_t>(device)];
  }
  return std::ranges::any_of(stages, [](int count) { return count > 1; });
}

}  // namespace

std::string schedule_svg(const std::string& name, const ScheduleInput& input, const SlotTable& table,
                         const SlotTiming& timing) {
  const bool several = hosts_several(input);
  std::vector<std::vector<Bar>> rows;
  double scale = 0;  // pixels a second, so that every name fits
  for (size_t d = 0; d < table.devices.size(); ++d) {
    rows.push_back(bars_of(table.devices[d], timing.slots[d], several));
    for (const Bar& bar : rows.back())
      scale = std::max(scale, (static_cast<double>(bar.label.size()) * letter_width + 4) / (bar.finish - bar.start));
  }
  const double width = std::clamp(scale * timing.makespan, least_width, most_width);
  scale = timing.makespan > 0 ? width / timing.makespan : 0;
  const double height = top + static_cast<double>(rows.size()) * row_height;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"system-ui,sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n",
      label_width + width + margin, height + 30);
  svg +=
      fmt::format("<text x=\"8\" y=\"20\" font-size=\"14\">{} · {}, {}, {}</text>\n", html_escaped(name),
                  counted(input.devices, "device"), counted(static_cast<int64_t>(input.stage_devices.size()), "stage"),
                  counted(input.micro_batches, "micro-batch"));
  for (size_t d = 0; d < rows.size(); ++d) {
    const double y = top + static_cast<double>(d) * row_height;
    svg += fmt::format("<text x=\"8\" y=\"{:.1f}\">device {}</text>\n", y + 14, d);
    svg += fmt::format(
        "<rect class=\"idle\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"#eeeeee\"/>\n",
        label_width, y, width, bar_height);
    for (const Bar& bar : rows[d]) {
      const double x = label_width + bar.start * scale, wide = (bar.finish - bar.start) * scale;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"#ffffff\" "
          "stroke-width=\"0.5\"><title>{}</title></rect>\n",
          x, y, wide, bar_height, bar.fill, html_escaped(bar.title));
      if (wide >= static_cast<double>(bar.label.size()) * letter_width)
        svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x + wide / 2, y + 14,
                           html_escaped(bar.label));
    }
  }
  svg += fmt::format(
      "<text x=\"8\" y=\"{:.1f}\">makespan {:.6g} · bubble {:.1f} % of the devices' time · longest idle time "
      "within a device {:.6g}</text>\n</svg>\n",
      height + 16, timing.makespan, 100 * timing.bubble(), timing.inner_bubble());
  return svg;
}

}  // namespace nlsplit::inline reports
