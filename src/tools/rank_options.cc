#include "tools/rank_options.h"

#include <fmt/format.h>

#include <string>

#include "base/interrupts.h"
#include "sim/tiers/tiers.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {

RankOptions terminal_options() {
  RankOptions options;
  options.progress = show_progress;
  options.interrupted = interrupted;
  return options;
}

Result<RankedPlan> choose_plan_at_terminal(Loaded& loaded, const PlanChoice& choice) {
  auto chosen = choose_plan(loaded, choice, terminal_options());
  clear_progress();
  return chosen;
}

namespace {

std::string about_tiers(const Tier& usual) {
  std::string about = "The simulator whose times count:";
  for (const Tier* tier : all_tiers()) {
    about += fmt::format("{} {} (messages {}share links{})", tier == all_tiers().front() ? "" : ",", tier->name(),
                         tier->shares_links() ? "" : "do not ", tier == &usual ? "; default" : "");
  }
  return about;
}

}  // namespace

void add_tier_option(CLI::App& command, const Tier*& tier) {
  command
      .add_option_function<std::string>(
          "--tier", [&tier](const std::string& name) { tier = find_tier(name); }, about_tiers(*tier))
      ->type_name("NAME")
      ->check(CLI::IsMember(tier_names()));
}

CLI::Option* add_confidence_option(CLI::App& command, double& confidence, const std::string& about) {
  return command.add_option("--confidence", confidence, about)->type_name("P")->check(CLI::Range(0.01, 0.999));
}

}  // namespace nlsplit::inline tools
