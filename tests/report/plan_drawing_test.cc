#include "report/ranking/plan_drawing.h"

#include <gmock/gmock.h>

#include "ranking/small_scenario.h"
#include "report/ranking/explanation_text.h"
#include "report/ranking/ranking_report.h"
#include "report/table.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Cluster three_devices() {
  Cluster cluster;
  for (const char* name : {"A", "B", "C"}) {
    cluster.hosts.push_back({name, false});
    cluster.devices.push_back({name, HostId(cluster.hosts.size() - 1), DeviceKind::cpu, bytes(1 << 30), Isa::v3});
  }
  return cluster;
}

RankedPlan mixed_plan() {
  RankedPlan ranked;
  ranked.plan.stages = {{0, 2, {DeviceId(0)}},
                        {2, 4, {DeviceId(1), DeviceId(2)}, Split{SplitAxis::height, false, {2, 1}}},
                        {4, 5, {DeviceId(0), DeviceId(1)}}};
  ranked.layers = {"..conv2", "..conv4", "rest"};
  return ranked;
}

TEST(PlanDrawing, IsAsWideAsTheTime) {
  const std::vector<DrawnStage> stages = drawn_stages(mixed_plan(), {0.25, 0.25, 0.2, 0.2, 0.1}, three_devices());
  EXPECT_EQ(plan_drawing("plan 1", 8, stages),
            "plan 1  |              50 %              |           40 %           |    10 %     |\n"
            "        |               A                |           B:2            |      A      |\n"
            "        |                                |           C:1            |      B      |\n"
            "        |                                |          height          | round-robin |\n"
            "        | ..conv2                        | ..conv4                  | rest        |\n");
  EXPECT_NEAR(stages[1].heights[0], 2.0 / 3, 1e-12);
}

// Every line ends under the first, however little time a stage takes and however many devices it has.
TEST(PlanDrawing, LinesAreEquallyLong) {
  const std::vector<DrawnStage> stages = drawn_stages(mixed_plan(), {0, 0, 1, 0, 0}, three_devices());
  const std::string text = plan_drawing("p", 3, stages);
  const size_t width = text.find('\n');
  size_t lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const size_t end = text.find('\n', at);
    EXPECT_EQ(end - at, width) << text;
    at = end + 1;
  }
  EXPECT_EQ(lines, 5u);
}

TEST(PlanDrawing, SvgIsTheWholeBar) {
  const std::string svg = plan_svg(drawn_stages(mixed_plan(), {0.25, 0.25, 0.2, 0.2, 0.1}, three_devices()));
  EXPECT_THAT(
      svg, AllOf(HasSubstr("<svg xmlns"), HasSubstr("width=\"380.00\" height=\"96.00\""),
                 HasSubstr("width=\"304.00\" height=\"64.00\""), HasSubstr("B:2 ..conv4: 40 % of the time, height")));
  size_t pieces = 0;
  for (size_t at = 0; (at = svg.find("<rect", at)) != std::string::npos; ++at) ++pieces;
  EXPECT_EQ(pieces, 5u);
}

TEST(Difference, IsSaidInWords) {
  const Cluster cluster = three_devices();
  const RankedPlan a = mixed_plan();
  EXPECT_EQ(difference(a, a, cluster), "it is the same");
  RankedPlan b = a;
  b.plan.micro_batches = 4;
  EXPECT_EQ(difference(a, b, cluster), "it has 4 micro-batches instead of 1");
  b.plan.stages[0].devices = {DeviceId(2)};
  EXPECT_EQ(difference(a, b, cluster), "stage 1 is on C instead of A and it has 4 micro-batches instead of 1");
  b = a;
  b.plan.stages[0].end = b.plan.stages[1].begin = 1;
  b.layers[0] = "..conv1";
  EXPECT_EQ(difference(a, b, cluster), "stage 1 is ..conv1 instead of ..conv2");
  b = a;
  b.plan.stages[1].split = Split{SplitAxis::width, false, {1, 1}};
  EXPECT_EQ(difference(a, b, cluster), "stage 2 is worked on by width 1:1 instead of by height 2:1");
  b = a;
  b.plan.stages.pop_back();
  b.text = "A ..conv2 | B rest";
  EXPECT_EQ(difference(a, b, cluster), "it has 2 stages instead of 3 (A ..conv2 | B rest)");
  b = a;
  b.plan.prefill = {{0, 5, {DeviceId(1)}}};
  b.text = "prefill B all; decode …";
  EXPECT_EQ(difference(a, b, cluster), "it computes prompts elsewhere (prefill B all; decode …)");
  EXPECT_EQ(difference(b, a, cluster), "it computes prompts where it makes tokens");
}

TEST(RankingHtml, SaysThatADrawingIsOfDecodeOnly) {
  Ranked ranked = rank({.search = "{keep: 1}"}, {.explain = true});
  constexpr std::string_view note = "drawn is decode";
  EXPECT_THAT(ranking_html(ranked.ranking, ranked.scenario), Not(HasSubstr(note)));
  EXPECT_THAT(ranking_text(ranked.ranking, ranked.scenario), Not(HasSubstr(note)));
  Plan& plan = ranked.ranking.judged[kept(ranked.ranking)[0]].plan;
  plan.prefill = plan.stages;
  EXPECT_THAT(ranking_html(ranked.ranking, ranked.scenario), HasSubstr(note));
  EXPECT_THAT(ranking_text(ranked.ranking, ranked.scenario), HasSubstr(note));
}

TEST(RankingText, DrawsTheBestPlanAndExplainsIfAsked) {
  const Screws screws = {.compute = "100MFLOPS", .search = "{keep: 3}"};
  const Ranked plain = rank(screws);
  const std::string text = ranking_text(plain.ranking, plain.scenario);
  EXPECT_THAT(text, AllOf(HasSubstr("\nplan 1   |"), Not(HasSubstr("Bound by")), Not(HasSubstr("\nplan 2"))));
  const Ranked explained = rank(screws, {.explain = true});
  const std::string more = ranking_text(explained.ranking, explained.scenario);
  EXPECT_THAT(more, AllOf(HasSubstr("\nplan 1   "), HasSubstr("\nplan 3   "),
                          HasSubstr(" what the best single device makes"), HasSubstr("\n         Plan 2 is ")));
}

TEST(RankingHtml, HoldsTheTableAndADrawingOfEachPlan) {
  const Ranked ranked = rank({.compute = "100MFLOPS", .search = "{keep: 3}"}, {.explain = true});
  const std::string page = ranking_html(ranked.ranking, ranked.scenario);
  EXPECT_THAT(page,
              AllOf(HasSubstr("<!doctype html>"), HasSubstr("</html>"), HasSubstr("id=\"plan1\""),
                    HasSubstr("id=\"plan3\""), HasSubstr("<li>"), Not(HasSubstr("<script")), Not(HasSubstr("href="))));
  for (const size_t i : kept(ranked.ranking))
    EXPECT_THAT(page, HasSubstr(rate_text(ranked.ranking.judged[i].estimate.throughput)));
  size_t drawings = 0;
  for (size_t at = 0; (at = page.find("<svg", at)) != std::string::npos; ++at) ++drawings;
  EXPECT_GE(drawings, 3u);
}

}  // namespace
}  // namespace nlsplit
