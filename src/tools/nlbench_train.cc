#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/interrupts.h"
#include "graph/safetensors/safetensors_write.h"
#include "report/table.h"
#include "tools/exit.h"
#include "tools/launch_options.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_conditions.h"
#include "tools/nlbench_ranks.h"
#include "tools/nlbench_training_job.h"
#include "tools/outputs.h"
#include "train/event_file.h"

namespace nlsplit::inline tools {
namespace {

constexpr double time_to_save_s = 60;  // after an interrupt

struct TrainCommand {
  TrainArguments training;
  RanksArguments ranks;
  std::string json, output, tensorboard;
  int64_t log_every = 0;  // 0: some twenty lines in all
  bool check_numbers = false;
};

struct LoggedEvaluation {
  int64_t step = 0;
  double loss = 0;
  std::optional<double> accuracy;
};

// What rank 0 says of a training while it goes on, and writes.
class TrainingLog {
 public:
  // Borrowed; events: nullptr: nobody watches.
  TrainingLog(const TrainCommand& arguments, const TrainingJob& job, EventFile* events)
      : arguments_(arguments), job_(job), events_(events) {
    constexpr int64_t lines = 20;
    const int64_t steps = job.plan.steps - job.plan.first_step;
    every_ = arguments.log_every > 0 ? arguments.log_every : std::max<int64_t>(1, steps / lines);
  }

  void begin() const {
    if (!speaks()) return;
    const Program& program = job_.session().programs.front();
    fmt::print("{} · {} in {} on {}\n", job_.session().name, counted(program.batch, "sample"),
               counted(program.micro_batches, "micro-batch"), counted(std::ssize(program.devices), "device"));
    const auto has = [&](Op op) {
      return std::ranges::find(program.descs, op, &ComputeDesc::op) != program.descs.end();
    };
    if (has(Op::BatchNormalization))
      fmt::print("batch norm  frozen, by the model's mean and variance; `batch_norm: batch` takes the micro-batch's\n");
    if (has(Op::BatchNormalizationTraining)) fmt::print("batch norm  by the mean and variance of each micro-batch\n");
    fmt::print("data        {}{}, {:.4g} steps an epoch\n", counted(job_.data.samples(), "sample"),
               job_.drawn ? " drawn at random (--data gives some)" : "",
               static_cast<double>(job_.data.samples()) / static_cast<double>(program.batch));
    if (job_.plan.first_step > 0)
      fmt::print("from        {}, step {}\n", arguments_.training.checkpoint, job_.plan.first_step);
    fmt::print("\n");
    std::fflush(stdout);
  }

  TrainingHooks hooks() {
    TrainingHooks hooks{[this](int64_t step, double loss, double norm) { add_loss(step, loss, norm); },
                        [this](int64_t step, const Evaluation& of) { add(step, of); },
                        {},
                        interrupted};
    if (!arguments_.training.checkpoint.empty() || !arguments_.output.empty())
      hooks.on_states = [this](int64_t step, int64_t samples, std::vector<StateTensor> states) {
        return save(step, samples, std::move(states));
      };
    return hooks;
  }

  // Of what could not be written on the way.
  const Status& status() const { return status_; }

  Status conclude(const TrainingRun& run, const RanOn& ran_on) const {
    const Conditions conditions = conditions_of(job_.session().programs.front(), ran_on, job_.loaded.saved.clocks);
    if (!arguments_.json.empty() && arguments_.json != "-")
      RETURN_IF_ERROR(write_file(arguments_.json, result_json(run, conditions)));
    if (arguments_.json == "-")
      fmt::print("{}", result_json(run, conditions));
    else
      fmt::print("{}", result_text(run, conditions));
    return ok_status();
  }

 private:
  bool speaks() const { return arguments_.json != "-"; }

  void add_loss(int64_t step, double loss, double norm) {
    losses_.push_back(loss);
    add_event("loss", step, loss);
    const bool has_norm = !std::isnan(norm);
    if (has_norm) {
      norms_.push_back(norm);
      add_event("gradient_norm", step, norm);
    }
    if (speaks() && (step % every_ == 0 || step == job_.plan.steps)) {
      fmt::print("step {:>{}} of {}   loss {:.4f}{}\n", step, digits(), job_.plan.steps, loss,
                 has_norm ? fmt::format("   gradient norm {:.4g}", norm) : "");
      std::fflush(stdout);
    }
  }

  void add(int64_t step, const Evaluation& of) {
    LoggedEvaluation& logged = evaluations_.emplace_back(LoggedEvaluation{step, of.loss(), std::nullopt});
    if (of.has_accuracy()) logged.accuracy = of.accuracy();
    add_event("validation/loss", step, logged.loss);
    if (logged.accuracy) add_event("validation/accuracy", step, *logged.accuracy);
    if (!speaks()) return;
    fmt::print("step {:>{}} of {}   validation: loss {:.4f}{}\n", step, digits(), job_.plan.steps, logged.loss,
               logged.accuracy ? fmt::format(", accuracy {:.2f} %", 100 * *logged.accuracy) : "");
    std::fflush(stdout);
  }

  void add_event(std::string_view tag, int64_t step, double value) {
    if (events_ == nullptr) return;
    if (const Status added = events_->add(tag, step, value); !added.ok() && status_.ok()) status_ = added;
  }

  // The weights alone, too, in the end. What was trained is not lost because one of the two cannot be written.
  Status save(int64_t step, int64_t samples, std::vector<StateTensor> states) {
    write_after_interrupt(time_to_save_s);
    RETURN_IF_ERROR(check_states(step, states));
    const std::set<std::string> weights(job_.made_for().weights.begin(), job_.made_for().weights.end());
    const bool ends = step == job_.plan.steps || interrupted();
    Status written = ends && !arguments_.output.empty() ? write_weights(states, weights) : ok_status();
    if (const std::string& dir = arguments_.training.checkpoint; !dir.empty()) {
      RETURN_IF_ERROR(write_checkpoint(dir,
                                       {job_.made_for().model, step, samples, job_.plan.seed, job_.plan.shuffled,
                                        job_.data.fingerprint(), std::move(states)},
                                       weights));
      saved_ = step;
    }
    return written;
  }

  // A loss is of the weights before its step: it says nothing of what the last update has made.
  static Status check_states(int64_t step, const std::vector<StateTensor>& states) {
    for (const StateTensor& state : states) {
      if (state.type.dtype != DType::f32) continue;
      for (size_t at = 0; at < state.bytes.size(); at += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, state.bytes.data() + at, sizeof value);
        if (!std::isfinite(value))
          return invalid_input(fmt::format(
              "{} holds {} after step {}, which is not a number, and is not saved: is the learning rate too high?",
              state.name, value, step));
      }
    }
    return ok_status();
  }

  Status write_weights(const std::vector<StateTensor>& states, const std::set<std::string>& weights) const {
    std::vector<NamedBytes> tensors;
    for (const StateTensor& state : states) {
      if (weights.contains(state.name)) tensors.push_back({state.name, state.type, state.bytes});
    }
    return write_safetensors(arguments_.output, tensors);
  }

  int digits() const { return static_cast<int>(std::to_string(job_.plan.steps).size()); }
  double samples_per_s(double step_s) const {
    return static_cast<double>(job_.session().programs.front().batch) / step_s;
  }

  std::string result_text(const TrainingRun& run, const Conditions& conditions) const {
    Table table({{""}, {"measured", Align::right}, {"predicted", Align::right}});
    const double predicted = job_.made_for().step_s, measured = run.step_seconds();
    const auto time = [](double s) { return s > 0 ? to_string(seconds(s)) : std::string("-"); };
    const auto rate = [&](double s) { return s > 0 ? fmt::format("{:.3g}", samples_per_s(s)) : std::string("-"); };
    table.add({"a step", time(measured), time(predicted)});
    table.add({"samples/s", rate(measured), rate(predicted)});
    std::string text = "\n" + table.to_string() + conditions_text(conditions);
    if (saved_ > 0) text += fmt::format("\nsaved {} at step {}\n", arguments_.training.checkpoint, saved_);
    if (saved_ > 0 && run.status().ok() && run.steps_done() < job_.plan.steps) text += "--resume continues there\n";
    return text;
  }

  std::string result_json(const TrainingRun& run, const Conditions& conditions) const {
    nlohmann::json evaluations = nlohmann::json::array();
    for (const LoggedEvaluation& of : evaluations_) {
      nlohmann::json one = {{"step", of.step}, {"loss", of.loss}};
      if (of.accuracy) one["accuracy"] = *of.accuracy;
      evaluations.push_back(std::move(one));
    }
    nlohmann::json file = {{"format", "nlsplit-training-run"},
                           {"version", 1},
                           {"session", job_.session().name},
                           {"batch", job_.form.batch},
                           {"samples", job_.data.samples()},
                           {"first_step", job_.plan.first_step},
                           {"steps", run.steps_done()},
                           {"losses", losses_},
                           {"evaluations", std::move(evaluations)},
                           {"step_s", run.step_seconds()},
                           {"predicted_step_s", job_.made_for().step_s},
                           {"conditions", conditions_json(conditions)}};
    if (!norms_.empty()) file["gradient_norms"] = norms_;
    return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  const TrainCommand& arguments_;
  const TrainingJob& job_;
  EventFile* events_;
  int64_t every_ = 1, saved_ = 0;
  std::vector<double> losses_, norms_;
  std::vector<LoggedEvaluation> evaluations_;
  Status status_;
};

RunOptions options_of(const TrainCommand& arguments) {
  RunOptions options = run_options(arguments.ranks);
  options.cancelled = nullptr;  // an interrupt ends it between two steps, so that they are not lost
  options.leave_states = true;
  options.keep_choices = false;
  options.check_numbers = arguments.check_numbers;
  return options;
}

// What rank 0 has read, and where it writes.
struct OpenTraining {
  TrainingJob job;
  std::optional<EventFile> events;
};

Result<OpenTraining> open_training(const TrainCommand& arguments) {
  RETURN_IF_ERROR(check_outputs({arguments.json, arguments.output}));
  ASSIGN_OR_RETURN(TrainingJob job, read_training_job(arguments.training));
  OpenTraining opened{std::move(job), std::nullopt};
  if (!arguments.tensorboard.empty()) {
    ASSIGN_OR_RETURN(EventFile events, EventFile::open(arguments.tensorboard));
    opened.events.emplace(std::move(events));
  }
  return opened;
}

Status train(const TrainCommand& arguments, OpenTraining& opened, const RunOnRanks& run) {
  const TrainingJob& job = opened.job;
  TrainingLog log(arguments, job, opened.events ? &*opened.events : nullptr);
  log.begin();
  TrainingRun training(job.form, job.data, job.validation ? &*job.validation : nullptr, job.plan, log.hooks());
  const Result<SessionResult> result = run(job.session(), job.job(), training.choices());
  if (!result && training.steps_done() == 0) return result.error();
  const Status ended = !result ? Status(result.error()) : !training.status().ok() ? training.status() : log.status();
  const Status concluded = log.conclude(training, result ? result->ran_on : RanOn());
  return ended.ok() ? concluded : ended;
}

int train_command(const TrainCommand& arguments) {
  if (arguments.ranks.hosts.asked) return print_session_hosts(arguments.training.plan, arguments.ranks, true);
  return run_session_command(
      arguments.ranks, options_of(arguments), [&] { return open_training(arguments); },
      [&](OpenTraining& opened, const RunOnRanks& run) { return train(arguments, opened, run); }, time_to_save_s);
}

}  // namespace

void add_train_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "train",
      "Train a network that is split over machines.\n"
      "  nlbench train S.yaml --plan 1 --data digits.npz --validation rest.npz --epochs 20 --transport threads\n"
      "  mpirun -np 2 nlbench train S.yaml --plan 1 --data digits.npz --steps 500 --checkpoint DIR --save-every 100\n"
      "The scenario has `workload: {mode: training, …}` (docs/training.md). Prints measured beside predicted times.");
  const auto a = std::make_shared<TrainCommand>();
  add_training_options(*command, a->training);
  add_ranks_options(*command, a->ranks);
  command->add_option("--output", a->output, "Write the trained weights to FILE.safetensors at the end")
      ->type_name("FILE");
  command->add_option("--tensorboard", a->tensorboard, "Write events for TensorBoard to DIR during the training")
      ->type_name("DIR");
  command->add_option("--log-every", a->log_every, "Print the loss of every N-th step (default: some twenty lines)")
      ->type_name("N")
      ->check(at_least(1));
  command->add_flag("--check-numbers", a->check_numbers,
                    "Check every result, and name the first computation that makes NaN or an infinity");
  command->add_option("--json", a->json, "Write losses, evaluations and times to FILE (-: to standard output)")
      ->type_name("FILE");
  command->callback([a, &code] { code = train_command(*a); });
}

}  // namespace nlsplit::inline tools
