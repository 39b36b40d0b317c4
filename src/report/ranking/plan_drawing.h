// Which part of the network sits where, drawn: a bar over the layers from first to last, as wide as their share of the
// time, with the devices of each stage in it; those that share a stage or take turns are stacked.
//
//   |   38 %   |    41 %     |  21 %  |
//   |    A     |     B:2     |   D    |
//   |          |     C:1     |        |
//   |          |   height    |        |
//   | ..layer1 | ..layer3    | rest   |
#pragma once

#include <string>
#include <vector>

#include "ranking/ranking.h"

namespace nlsplit::inline reports {

struct DrawnStage {
  double share = 0;                  // of the time of the whole network; all stages together 1
  std::vector<std::string> devices;  // from top to bottom: "A"; of a split stage with the shares, "A:2", "B:1"
  std::vector<DeviceId> ids;         // the same
  std::vector<double> heights;       // of each, in all 1: its share of the work of this stage
  std::string how;     // "height", "height, halo recomputed", "round-robin, recomputed"; empty: one device
  std::string layers;  // "..layer1", "rest", "all"
};
// node_shares: Ranking::node_shares; stages of no time have a little nevertheless.
std::vector<DrawnStage> drawn_stages(const RankedPlan& ranked, const std::vector<double>& node_shares,
                                     const Cluster& cluster);

// As above, every line behind `indent` blanks, but the first, which begins with `head`.
std::string plan_drawing(const std::string& head, size_t indent, const std::vector<DrawnStage>& stages);

// An <svg> element; a device has the same colour in all plans of a page.
std::string plan_svg(const std::vector<DrawnStage>& stages);

}  // namespace nlsplit::inline reports
