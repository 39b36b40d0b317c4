#include "report/ranking/plan_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/html_text.h"
#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

constexpr double bar_columns = 64;                                        // of a drawing whose cells need no more
constexpr double least_share = 0.01;                                      // so much of the bar for a stage of no time
constexpr double svg_width = 760, svg_height = 96, svg_text_height = 18;  // pixels
constexpr double letter_width = 7;

std::string shared_how(const Stage& stage) {
  if (!stage.split) return stage.devices.size() > 1 ? "round-robin" : "";
  std::string text(name_of(stage.split->axis));
  if (stage.split->recompute_halo) text += ", halo recomputed";
  const size_t groups = stage.devices.size() / stage.split->shares.size();
  return groups > 1 ? fmt::format("{}, {} groups round-robin", text, groups) : text;
}

std::string how_of(const Stage& stage) {
  std::string how = shared_how(stage);
  if (!stage.recompute) return how;
  return how.empty() ? "recomputed" : how + ", recomputed";
}

std::string centered(const std::string& text, size_t width) {
  const size_t used = display_width(text), left = (width - used) / 2;
  return std::string(left, ' ') + text + std::string(width - used - left, ' ');
}

// Distinct for the first dozen devices, repeating later.
std::string colour_of(DeviceId device) {
  const size_t turn = device.index() * 5 % 12;
  return fmt::format("hsl({},{}%,{}%)", turn * 30, 55, 72 + 6 * (device.index() / 12 % 3));
}

}  // namespace

std::vector<DrawnStage> drawn_stages(const RankedPlan& ranked, const std::vector<double>& node_shares,
                                     const Cluster& cluster) {
  std::vector<DrawnStage> drawn;
  double all = 0;
  for (size_t s = 0; s < ranked.plan.stages.size(); ++s) {
    const Stage& stage = ranked.plan.stages[s];
    DrawnStage& one = drawn.emplace_back();
    CHECK(stage.end <= node_shares.size(), "shares of another network");
    one.share =
        std::max(least_share, std::accumulate(node_shares.begin() + static_cast<std::ptrdiff_t>(stage.begin),
                                              node_shares.begin() + static_cast<std::ptrdiff_t>(stage.end), 0.0));
    all += one.share;
    one.how = how_of(stage);
    one.layers = s < ranked.layers.size() ? ranked.layers[s] : "";
    double shares = 0;
    for (size_t d = 0; d < stage.devices.size(); ++d) {
      const bool split = stage.split.has_value();
      const int64_t share = split ? stage.split->shares[d % stage.split->shares.size()] : 1;
      const std::string& name = cluster.device(stage.devices[d]).name;
      one.devices.push_back(split ? fmt::format("{}:{}", name, share) : name);
      one.ids.push_back(stage.devices[d]);
      one.heights.push_back(static_cast<double>(share));
      shares += static_cast<double>(share);
    }
    for (double& height : one.heights) height /= shares;
  }
  for (DrawnStage& one : drawn) one.share /= all;
  return drawn;
}

std::string plan_drawing(const std::string& head, size_t indent, const std::vector<DrawnStage>& stages) {
  std::vector<size_t> widths;
  size_t rows = 0;
  bool any_how = false;
  for (const DrawnStage& stage : stages) {
    size_t width =
        std::max({display_width(stage.layers), display_width(stage.how), display_width(percent(stage.share))});
    for (const std::string& device : stage.devices) width = std::max(width, display_width(device));
    widths.push_back(std::max(width + 2, static_cast<size_t>(std::lround(stage.share * bar_columns))));
    rows = std::max(rows, stage.devices.size());
    any_how |= !stage.how.empty();
  }
  std::string text = head;
  text.resize(std::max(text.size(), indent), ' ');
  const auto line = [&](auto cell) {
    std::string out;
    for (size_t s = 0; s < stages.size(); ++s) out += "|" + cell(stages[s], widths[s]);
    return out + "|\n";
  };
  text += line([](const DrawnStage& stage, size_t width) { return centered(percent(stage.share), width); });
  const std::string margin(indent, ' ');
  for (size_t r = 0; r < rows; ++r) {
    text += margin + line([r](const DrawnStage& stage, size_t width) {
              return centered(r < stage.devices.size() ? stage.devices[r] : "", width);
            });
  }
  if (any_how) text += margin + line([](const DrawnStage& stage, size_t width) { return centered(stage.how, width); });
  return text + margin + line([](const DrawnStage& stage, size_t width) {
           return " " + stage.layers + std::string(width - 1 - display_width(stage.layers), ' ');
         });
}

std::string plan_svg(const std::vector<DrawnStage>& stages) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n",
      svg_width, svg_height + 2 * svg_text_height);
  double x = 0;
  for (const DrawnStage& stage : stages) {
    const double width = stage.share * svg_width;
    const auto fits = [&](const std::string& text) {
      return static_cast<double>(display_width(text)) * letter_width < width - 4;
    };
    double y = svg_text_height;
    for (size_t d = 0; d < stage.devices.size(); ++d) {
      const double height = stage.heights[d] * svg_height;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" "
          "stroke=\"#fff\"><title>{}</title></rect>\n",
          x, y, width, height, colour_of(stage.ids[d]),
          html_escaped(fmt::format("{} {}: {} of the time{}", stage.devices[d], stage.layers, percent(stage.share),
                                   stage.how.empty() ? "" : ", " + stage.how)));
      if (fits(stage.devices[d]) && height >= 12) {
        svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"middle\">{}</text>\n", x + width / 2,
                           y + height / 2 + 4, html_escaped(stage.devices[d]));
      }
      y += height;
    }
    if (const std::string top = percent(stage.share) + (stage.how.empty() ? "" : " " + stage.how); fits(top))
      svg += fmt::format("<text x=\"{:.2f}\" y=\"12\" text-anchor=\"middle\">{}</text>\n", x + width / 2,
                         html_escaped(top));
    if (fits(stage.layers)) {
      svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"middle\">{}</text>\n", x + width / 2,
                         svg_height + 2 * svg_text_height - 5, html_escaped(stage.layers));
    }
    x += width;
  }
  return svg + "</svg>\n";
}

}  // namespace nlsplit::inline reports
