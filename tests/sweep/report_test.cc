// The summary and the page: who is first where, and that nothing of the data is lost or escapes.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sweep/experiments.h"
#include "sweep/sweep_report.h"

namespace nlsplit {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;
using ::testing::Not;

// Interleaved has half of 1F1B's bubble and twice its messages: it is first while messages are short.
constexpr std::string_view reversal =
    "pipeline: {devices: 4, micro_batches: 8, times: [1s, 1s, 1s]}\n"
    "axes: {schedule: [1f1b, interleaved, dualpipe_v], message: [0s, 100ms, 1s]}\n";

struct Swept {
  Experiment experiment;
  Sweep sweep;
};
Swept swept(const std::string& text) {
  const Scratch scratch;
  Swept made{experiment_of(text), {}};
  made.sweep = sweep_of(made.experiment, {.csv = scratch / "p.csv"});
  return made;
}

nlohmann::json data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(SweepReport, FindsWhereTheOrderChanges) {
  // ZB-V has no bubble, but every message twice.
  const Swept s = swept(
      "pipeline: {devices: 8, micro_batches: 32, times: [20s, 24s, 16s]}\n"
      "axes: {schedule: [zb_v, zb_h2], message: [0s, 1s, 3s]}\n");
  const SweepOrders orders = orders_of(s.experiment, s.sweep);
  EXPECT_EQ(series_title(s.experiment, orders), "schedule");
  ASSERT_TRUE(orders.x.has_value());
  EXPECT_EQ(s.experiment.axes[*orders.x].column, "message_s");
  ASSERT_EQ(orders.slices.size(), 1u);
  const OrderSlice& slice = orders.slices[0];
  EXPECT_EQ(slice.along[0].placed[0].series, "zb_v");
  EXPECT_EQ(slice.along[2].placed[0].series, "zb_h2");
  ASSERT_EQ(slice.changes.size(), 1u);
  EXPECT_EQ(slice.changes[0].passes, (std::vector<std::pair<std::string, std::string>>{{"zb_h2", "zb_v"}}));
  const std::string text = sweep_text(s.experiment, s.sweep);
  EXPECT_THAT(text, HasSubstr("6 points\n"));
  EXPECT_THAT(text, HasSubstr("makespan by schedule, best first\n"));
  EXPECT_THAT(text, HasSubstr("The order changes first between message_s "));
  EXPECT_THAT(text, HasSubstr(": zb_h2 passes zb_v."));
}

TEST(SweepReport, SaysWhatIsImpossible) {
  const Swept s = swept(with(std::string(reversal), "micro_batches: 8", "micro_batches: 6"));
  const std::string text = sweep_text(s.experiment, s.sweep);
  EXPECT_THAT(text, HasSubstr("9 points, 6 of them impossible; the first is interleaved 6 0 : "));
  EXPECT_THAT(text, HasSubstr("The order never changes."));
}

TEST(SweepReport, AveragesSeedsAndTellsSlicesApart) {
  const Swept s = swept(
      "pipeline: {devices: 2, times: [1s, 1s, 1s]}\n"
      "axes: {micro_batches: [4, 8], schedule: [gpipe, 1f1b], jitter: [10%, 20%, 30%], seeds: 4}\n");
  const SweepOrders orders = orders_of(s.experiment, s.sweep);
  EXPECT_EQ(s.experiment.axes[*orders.x].column, "jitter");
  ASSERT_EQ(orders.slices.size(), 2u);
  EXPECT_EQ(orders.slices[1].fixed, "micro_batches 8");
  double mean = 0;
  for (size_t i = 0; i < 4; ++i) mean += figure(s.sweep, i, "makespan_s") / 4;  // 4 gpipe 10 %
  const OrderAt& first = orders.slices[0].along[0];
  const auto gpipe = std::ranges::find(first.placed, "gpipe", &Placed::series);
  ASSERT_NE(gpipe, first.placed.end());
  EXPECT_NEAR(gpipe->makespan_s, mean, 1e-12);
}

TEST(SweepReport, ThePageHasThePointsAndTheirTimelines) {
  const Swept s = swept(std::string(reversal));
  const std::vector<size_t> drawn = points_to_draw(s.experiment, s.sweep, 100);
  const auto runner = make_runner(s.experiment).value();
  const std::vector<Drawing> drawings = draw_points(*runner, s.sweep, drawn).value();
  const std::string page = sweep_html(s.experiment, s.sweep, drawn, drawings);
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  for (const char* outside : {"https://", "src=", "href=", "@import", "@DATA@"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  EXPECT_EQ(page.find("http://"), page.rfind("http://"));  // the name of SVG
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data.at("points").at("number").size(), 9u);
  EXPECT_EQ(data.at("points").at("at").size(), 9u * s.experiment.axes.size());
  EXPECT_EQ(data.at("axes").at(data.at("x").get<size_t>()).at("column"), "message_s");
  EXPECT_NEAR(data.at("points").at("makespan_s").at(0).get<double>(), figure(s.sweep, 0, "makespan_s"), 1e-3);
  ASSERT_EQ(data.at("timelines").size(), drawn.size());
  const nlohmann::json& timeline = data.at("timelines").at(0);
  EXPECT_EQ(timeline.at("devices").size(), 4u);
  EXPECT_EQ(timeline.at("bars").size(), 6u * 4 * 8 * 3);
  EXPECT_DOUBLE_EQ(timeline.at("end_s").get<double>(), figure(s.sweep, drawn[0], "makespan_s"));
}

TEST(SweepReport, ThePageStaysSmall) {
  const Swept s = swept(
      "pipeline: {devices: 8, micro_batches: 64, times: [1s, 1s, 1s]}\n"
      "axes: {schedule: [gpipe, 1f1b], jitter: [10%], seeds: 100}\n");
  std::vector<size_t> drawn = points_to_draw(s.experiment, s.sweep, 150);
  ASSERT_EQ(drawn.size(), 150u);
  // The first seed of both schedules before the second of any.
  EXPECT_EQ(drawn[0], 0u);
  EXPECT_EQ(drawn[1], 100u);
  EXPECT_EQ(drawn[2], 1u);
  const auto runner = make_runner(s.experiment).value();
  const std::vector<Drawing> drawings = draw_points(*runner, s.sweep, drawn).value();
  const std::string page = sweep_html(s.experiment, s.sweep, drawn, drawings);
  EXPECT_EQ(data_of(page).at("timelines").size(), most_drawn_slots / (8 * 64 * 3));
  EXPECT_LT(page.size(), size_t{4} << 20);
}

TEST(SweepReport, NamesCannotEndTheScript) {
  Swept s = swept(with(std::string(reversal), ", dualpipe_v", ""));
  s.experiment.axes[0].values[0].text = "</script><b>";
  const std::string page = sweep_html(s.experiment, s.sweep, {}, {});
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  EXPECT_EQ(data_of(page).at("axes").at(0).at("values").at(0), "</script><b>");
}

TEST(SweepReport, AScenariosTimelineHasItsMemory) {
  const Scratch scratch;
  scratch.write("s.yaml", training_scenario());
  const Experiment experiment = experiment_of(
      "scenario: s.yaml\naxes: {schedule: [1f1b], plan: [mine], micro_batches: [4]}\n", scratch / "e.yaml");
  auto runner = make_runner(experiment).value();
  const Sweep sweep = run_sweep(experiment, *runner, {.csv = scratch / "p.csv"}).value();
  const Drawing drawing = draw_points(*runner, sweep, {0}).value().at(0);
  EXPECT_EQ(drawing.devices, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(drawing.kept_until_input.size(), 2u);
  EXPECT_GT(drawing.kept_until_input[0], 0);
  EXPECT_GT(drawing.arena.at(0), drawing.kept_until_input[0]);
  size_t forwards = 0;
  double end = 0;
  for (const SlotBar& bar : drawing.bars) {
    forwards += bar.phase == Phase::forward ? 1 : 0;
    end = std::max(end, bar.finish);
  }
  EXPECT_EQ(forwards, 2u * 4);
  EXPECT_NEAR(end, figure(sweep, 0, "makespan_s"), 1e-12);
}

}  // namespace
}  // namespace nlsplit
