#include "tools/nlbench_steps_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "program/text.h"
#include "tools/nlbench_conditions.h"
#include "tools/nlbench_report.h"

namespace nlsplit::inline tools {
namespace {

int steps_of(const SessionResult& result) { return result.chosen.empty() ? 0 : result.chosen[0].times; }

double throughput_of(const StepsReport& report) {
  return static_cast<double>(report.saved->program.batch) * steps_of(*report.result) / report.result->elapsed_s;
}

}  // namespace

std::string report_text(const StepsReport& report) {
  const SessionResult& result = *report.result;
  const int steps = steps_of(result);
  std::string text = headline(report.saved->program, report.transport);
  text +=
      fmt::format("steps       {} in {}, {} a step · {:.3g} samples/s\n", steps, to_string(seconds(result.elapsed_s)),
                  to_string(seconds(result.elapsed_s / steps)), throughput_of(report));
  if (const Prediction& p = report.saved->prediction; report.saved->has_prediction)
    text += fmt::format("predicted   {} for one step alone\n", to_string(seconds(p.makespan_s)));
  text += conditions_text(conditions_of(report.saved->program, result.ran_on, report.saved->clocks));
  if (!result.losses.empty())
    text += fmt::format("loss        {:.6g} in the first step, {:.6g} in step {}\n", result.losses.front().mean,
                        result.losses.back().mean, steps);
  if (!result.losses.empty() && !std::isnan(result.losses.front().gradient_norm))
    text += fmt::format("gradients   norm {:.6g} in the first step, {:.6g} in step {}\n",
                        result.losses.front().gradient_norm, result.losses.back().gradient_norm, steps);
  if (report.check) text += fmt::format("\ncheck       {}\n", to_string(*report.check));
  return text;
}

std::string report_json(const StepsReport& report) {
  nlohmann::json losses = nlohmann::json::array();
  nlohmann::json norms = nlohmann::json::array();
  for (const ExecutionLoss& loss : report.result->losses) {
    losses.push_back(loss.mean);
    if (!std::isnan(loss.gradient_norm)) norms.push_back(loss.gradient_norm);
  }
  const Program& program = report.saved->program;
  nlohmann::json file = {
      {"format", "nlsplit-run"},
      {"version", 1},
      {"program", program.name},
      {"fingerprint", hex16(fingerprint(program))},
      {"transport", report.transport},
      {"batch", program.batch},
      {"micro_batches", program.micro_batches},
      {"steps", steps_of(*report.result)},
      {"elapsed_s", report.result->elapsed_s},
      {"throughput_per_s", throughput_of(report)},
      {"losses", std::move(losses)},
      {"conditions", conditions_json(conditions_of(program, report.result->ran_on, report.saved->clocks))},
      {"check", nullptr}};
  if (!norms.empty()) file["gradient_norms"] = std::move(norms);
  if (report.check) file["check"] = check_json(*report.check);
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace nlsplit::inline tools
