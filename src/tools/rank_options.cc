#include "tools/rank_options.h"

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

void add_tier_option(CLI::App& command, const Tier*& tier) {
  command
      .add_option_function<std::string>(
          "--tier", [&tier](const std::string& name) { tier = find_tier(name); },
          "The simulator that times plans: simgrid (messages share links; default) or fast (they do not)")
      ->type_name("NAME")
      ->check(CLI::IsMember(tier_names()));
}

}  // namespace nlsplit::inline tools
