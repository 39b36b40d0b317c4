#include "tools/nlbench_training_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/folder_writer.h"
#include "base/temporary_folder.h"
#include "exec/states.h"
#include "report/table.h"
#include "tools/exit.h"

namespace nlsplit::inline tools {
namespace {

constexpr int64_t most_steps = int64_t{1} << 40;
constexpr int64_t most_samples = int64_t{1} << 53;  // as a checkpoint's
constexpr int64_t drawn_batches = 8;                // of data that nobody gave

Status check_options(const TrainArguments& arguments) {
  if (arguments.steps > 0 && arguments.epochs > 0) return invalid_input("--steps and --epochs say the same: give one");
  if (arguments.evaluate_every > 0 && arguments.validation.empty())
    return invalid_input("--evaluate-every needs --validation FILE");
  if (arguments.checkpoint.empty() && (arguments.resume || arguments.save_every > 0))
    return invalid_input(fmt::format("{} needs --checkpoint DIR", arguments.resume ? "--resume" : "--save-every"));
  return ok_status();
}

// What cannot be written is better said before hours are spent.
Status check_writable(const TrainArguments& arguments) {
  if (arguments.checkpoint.empty()) return ok_status();
  const Result<FolderWriter> folder = FolderWriter::open(arguments.checkpoint);  // also puts back what a crash left
  return folder.ok() ? ok_status() : Status(folder.error());
}

Status resume(const TrainArguments& arguments, TrainingJob& job) {
  ASSIGN_OR_RETURN(Checkpoint from, read_checkpoint(arguments.checkpoint));
  const std::string& model = job.made_for().model;
  if (from.model != model)
    return invalid_input(
        fmt::format("{}: a checkpoint of model {}, and the scenario has {}", arguments.checkpoint, from.model, model));
  if (from.data != job.data.fingerprint())
    return invalid_input(
        fmt::format("{}: a checkpoint of a training on other data: its position has no meaning "
                    "in these",
                    arguments.checkpoint));
  std::map<std::string_view, const StateTensor*> given;
  for (const StateTensor& state : from.states) given.emplace(state.name, &state);
  ASSIGN_OR_RETURN(const Program joined, join(job.session()));
  for (const StateTensor& state : states_of(joined)) {
    const auto found = given.find(state.name);
    if (found == given.end())
      return invalid_input(
          fmt::format("{}: there is no {}, which the session keeps: was it another optimizer or batch_norm?",
                      arguments.checkpoint, state.name));
    if (found->second->type != state.type)
      return invalid_input(fmt::format("{}: {} is {}, and {} in the session", arguments.checkpoint, state.name,
                                       to_string(found->second->type), to_string(state.type)));
    given.erase(found);
  }
  if (!given.empty())
    return invalid_input(fmt::format("{}: the session has no {}: was it another optimizer or batch_norm?",
                                     arguments.checkpoint, given.begin()->first));
  job.plan.first_step = from.steps;
  job.plan.first_sample = from.samples;
  job.plan.shuffled = from.shuffled;
  job.plan.seed = from.seed;
  job.states = std::move(from.states);
  return ok_status();
}

Status find_place(const TrainArguments& arguments, TrainingJob& job) {
  TrainingPlan& plan = job.plan;
  plan.shuffled = !arguments.in_order;
  plan.seed = arguments.seed;
  plan.evaluate_every = arguments.evaluate_every;
  plan.save_every = arguments.save_every;
  std::error_code failure;
  const bool there = std::filesystem::exists(arguments.checkpoint, failure);
  if (arguments.resume) {
    RETURN_IF_ERROR(resume(arguments, job));
  } else if (!arguments.checkpoint.empty() && there) {
    return invalid_input(
        fmt::format("{} is there already: --resume continues it, or name another folder", arguments.checkpoint));
  }
  // An epoch takes each sample once, whatever the batch was before.
  plan.steps = arguments.steps;
  if (plan.steps == 0) {
    int64_t samples = 0;
    if (__builtin_mul_overflow(std::max<int64_t>(arguments.epochs, 1), job.data.samples(), &samples) ||
        samples > most_samples)
      return invalid_input(
          fmt::format("--epochs {} of {} are too many", arguments.epochs, counted(job.data.samples(), "sample")));
    const int64_t left = samples - plan.first_sample, batch = job.form.batch;
    if (left < 0)
      return invalid_input(fmt::format("{} has taken {}, and {} are asked for in all: --epochs N", arguments.checkpoint,
                                       counted(plan.first_sample, "sample"), samples));
    plan.steps = plan.first_step + (left + batch - 1) / batch;
  }
  if (plan.steps < plan.first_step)  // as many: there is nothing left but to evaluate and to write
    return invalid_input(fmt::format("{} has {} done, and {} are asked for in all: --steps N", arguments.checkpoint,
                                     counted(plan.first_step, "step"), plan.steps));
  return ok_status();
}

// They are written before each step.
Result<std::vector<NamedTensor>> empty_inputs(const Session& session) {
  ASSIGN_OR_RETURN(const Program joined, join(session));
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, wanted_inputs(joined));
  for (NamedTensor& input : inputs) {
    if (input.type.dtype == DType::f32)
      input.values.assign(static_cast<size_t>(element_count(input.type.shape)), 0.0F);
    else
      input.raw.assign(static_cast<size_t>(size_of(input.type).value()), '\0');
  }
  return inputs;
}

Result<DataSet> read_files(const std::vector<std::string>& files, const TrainingForm& form) {
  const bool text = files.size() == 1 && files[0].ends_with(".txt");
  return text ? DataSet::of_text(files[0], form.features()) : DataSet::open(files, form.features());
}

Result<DataSet> read_data(const TrainArguments& arguments, const TrainingForm& form) {
  if (!arguments.data.empty()) return read_files(arguments.data, form);
  return DataSet::drawn(form.features(), drawn_batches * form.batch, arguments.seed);
}

}  // namespace

Job TrainingJob::job() const {
  Job job;
  job.contents = [this](ContentId id) { return weights.bytes(id); };
  job.checksums = [this](ContentId id) { return weights.checksum(id); };
  job.inputs = inputs;
  job.clocks = loaded.saved.clocks;
  job.states = states;
  return job;
}

Result<TrainingJob> read_training_job(const TrainArguments& arguments) {
  RETURN_IF_ERROR(check_options(arguments));
  RETURN_IF_ERROR(check_writable(arguments));
  std::optional<TemporaryFolder> folder;  // its weights are mapped, and nobody needs it afterwards
  ASSIGN_OR_RETURN(LoadedSession loaded, load_session(arguments.plan, folder, true));
  RETURN_IF_ERROR(verify_session(loaded.saved.session));
  if (!loaded.saved.training)
    return invalid_input(
        fmt::format("{}: a session that does not train; `nlsim lower S.yaml --train --save DIR` makes "
                    "those that do",
                    arguments.plan.what));
  ASSIGN_OR_RETURN(TrainingForm form, training_form(loaded.saved.session, *loaded.saved.training));
  ASSIGN_OR_RETURN(WeightFile weights, WeightFile::open(loaded.weights));
  ASSIGN_OR_RETURN(DataSet data, read_data(arguments, form));
  TrainingJob job{std::move(loaded),
                  std::move(weights),
                  std::move(form),
                  std::move(data),
                  std::nullopt,
                  arguments.data.empty(),
                  {},
                  {},
                  {}};
  if (!arguments.validation.empty()) {
    ASSIGN_OR_RETURN(job.validation, read_files(arguments.validation, job.form));
  }
  RETURN_IF_ERROR(find_place(arguments, job));
  ASSIGN_OR_RETURN(job.inputs, empty_inputs(job.session()));
  return job;
}

void add_training_options(CLI::App& command, TrainArguments& arguments) {
  add_session_options(command, arguments.plan,
                      "A scenario (.yaml) that trains, or a folder saved by `nlsim lower S --train --save DIR`");
  command
      .add_option(
          "--data", arguments.data,
          "What to train on: FILE.npz with an array for each input of the step, or INPUT=FILE.npy for each; FILE.txt "
          "for a language model of bytes.\n"
          "Axis 0 counts the samples. Without --data a few random batches are used, to measure the time of a step")
      ->type_name("FILE");
  command
      .add_option("--validation", arguments.validation,
                  "The same arrays, of samples for validation: loss and accuracy after the last step")
      ->type_name("FILE");
  CLI::Option* steps = command.add_option("--steps", arguments.steps, "How many steps in all (default: one epoch)")
                           ->check(CLI::Range(int64_t{1}, most_steps));
  command.add_option("--epochs", arguments.epochs, "How many epochs in all")
      ->check(CLI::Range(int64_t{1}, most_steps))
      ->excludes(steps);
  command
      .add_option("--evaluate-every", arguments.evaluate_every, "Evaluate the validation data after every N steps, too")
      ->type_name("N")
      ->check(at_least(1));
  command
      .add_option("--checkpoint", arguments.checkpoint,
                  "Save weights, optimizer states and the position in the data to DIR at the end, and when interrupted")
      ->type_name("DIR");
  command.add_option("--save-every", arguments.save_every, "With --checkpoint: save after every N steps, too")
      ->type_name("N")
      ->check(at_least(1));
  command.add_flag("--resume", arguments.resume,
                   "Resume from --checkpoint DIR, under any plan on any machines, with its seed and order of samples");
  command.add_option("--seed", arguments.seed, "Seed of the order of samples, and of random samples (default 0)");
  command.add_flag("--in-order", arguments.in_order, "Do not shuffle the samples in each epoch");
}

}  // namespace nlsplit::inline tools
