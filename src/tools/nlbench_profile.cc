// `nlbench profile`: what each distinct computation of a model takes on this machine.
//
// Calibration runs are Programs run by exec, the same path as the real thing: the whole unsplit network, at each
// micro-batch size and instruction level of the scenario, again and again. So what is measured is each kernel in the
// state of caches it has inside its network: activations just written, weights as far away as the rest of the network
// has pushed them. A kernel that the network computes in several places is one measurement, with the samples of all.
//
// What is there already is not measured again, so an interrupted profile goes on where it stopped.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/interrupts.h"
#include "base/output_lock.h"
#include "base/process_seconds.h"
#include "base/temporary_folder.h"
#include "base/units.h"
#include "cost/samples.h"
#include "exec/cuda/copies.h"
#include "exec/fill_inputs.h"
#include "exec/run_threads.h"
#include "kernels/module/kernel_library.h"
#include "measure/child.h"
#include "measure/profile_samples.h"
#include "program/scalar_values.h"
#include "program/scalars.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_job.h"
#include "tools/nlbench_machine.h"
#include "tools/option_values.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct ProfileArguments {
  std::string scenario, output, budget = "60s", nlsim, gpu_backend;
  int beside = 0;
  bool fresh = false, more = false;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Result<std::vector<std::string>> saved_folders(const std::string& set) {
  std::vector<std::string> folders;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(set, failure)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  if (failure) return io_error(fmt::format("cannot read {}: {}", set, failure.message()));
  std::sort(folders.begin(), folders.end());
  return folders;
}

// The network's own instruction level, if this machine has it; of a GPU, that there is one: what stands in for it has
// other times.
Status check_level(const Program& program, const GpuOptions& gpu) {
  for (const DeviceProgram& device : program.devices) {
    if (device.kind == DeviceKind::cuda) {
      if (auto backend = choose_backend(gpu); !backend) return backend.error();
      continue;
    }
    if (auto library = KernelLibrary::load(device.level.isa); !library) return library.error();
  }
  return ok_status();
}

// Copies of the network that run meanwhile, as fast as they can, until this ends.
class CopiesBeside {
 public:
  CopiesBeside(const LoadedJob& job, int copies) {
    for (int copy = 0; copy < copies; ++copy) {
      threads_.emplace_back([this, &job, inputs = job.inputs] {
        RunOptions options;
        options.keep = 1;
        options.repeats = std::numeric_limits<int>::max();
        options.after_repeat = [this](const Repeat&) { return !over_; };
        const auto result =
            run_threads(job.saved.unsplit, {job.contents(), inputs, {}, {}, {}, job.checksums()}, options);
        if (!result) fail(result.error());
      });
    }
  }
  ~CopiesBeside() { static_cast<void>(end()); }
  CopiesBeside(const CopiesBeside&) = delete;
  CopiesBeside& operator=(const CopiesBeside&) = delete;

  bool failed() const { return failed_; }
  // The error of the first copy that failed: from then on fewer ran than were asked for.
  Status end() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return error_ ? Status(*error_) : ok_status();
  }

 private:
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    failed_ = true;
  }

  std::atomic<bool> over_{false}, failed_{false};
  std::mutex mutex_;
  std::optional<Error> error_;
  std::vector<std::thread> threads_;
};

// Whether other work kept this process from computing since it was last asked: then it had less of the processor than
// its computations lasted.
class Disturbance {
 public:
  bool since(const std::vector<Interval>& times) {
    constexpr double tolerated = 0.02;  // of the time; less does not show in a median
    const double now = process_seconds();
    double computed = 0;
    for (const Interval& interval : times) computed += interval.finish - interval.start;
    const bool disturbed = now - before_ < (1 - tolerated) * computed;
    before_ = now;
    return disturbed;
  }

 private:
  double before_ = process_seconds();
};

// Parts of their maxima that lengths and offsets are measured with. What attention takes is nearly a straight line in
// what it sees; but where a cache is full its heads lie one behind the other, which processors fetch faster.
constexpr double fills[] = {1, 0.875, 0.5, 0};

// The inputs that executions take turns with.
Result<std::vector<std::vector<NamedTensor>>> inputs_of(const Program& program) {
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, make_inputs(program, {}, 1));
  const bool has_scalars = std::ranges::any_of(program.descs, reads_scalars) && fill_scalars(program, 1, inputs);
  std::vector<std::vector<NamedTensor>> all;
  for (const double part : fills) {
    if (has_scalars) fill_scalars(program, part, inputs);
    all.push_back(inputs);
    if (!has_scalars) break;
  }
  return all;
}

Result<std::vector<ScalarTable>> scalars_of(const Program& program,
                                            const std::vector<std::vector<NamedTensor>>& inputs) {
  ASSIGN_OR_RETURN(const Dependencies deps, dependencies(program));
  std::vector<ScalarTable> tables;
  for (const std::vector<NamedTensor>& one : inputs) {
    GivenScalars given;
    for (const NamedTensor& input : one) {
      if (is_whole(input.type.dtype)) given.inputs[input.name] = input.raw;
    }
    ASSIGN_OR_RETURN(tables.emplace_back(), scalar_values(program, deps, given));
  }
  return tables;
}

// One Program of the set.
struct Measured {
  std::string folder;
  Program program;
  std::vector<std::vector<NamedTensor>> inputs;
  Samples samples, beside;  // alone, and with copies of the network beside it
  Measured(std::string dir, Program unsplit, std::vector<std::vector<NamedTensor>> given,
           const std::vector<ScalarTable>& scalars, std::set<std::string>& taken, BestCalibration& best)
      : folder(std::move(dir)),
        program(std::move(unsplit)),
        inputs(std::move(given)),
        samples(program, scalars, taken, best),
        beside(samples) {}
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;
};

// Sizes take turns, so that a minute in which the processor is slow falls on all of them alike.
constexpr int least_rounds = 3, repeats_in_a_row = 2;
static_assert(least_rounds * repeats_in_a_row >= least_repeats);

bool on_gpu(const Program& program) {
  return std::ranges::any_of(program.devices,
                             [](const DeviceProgram& device) { return device.kind == DeviceKind::cuda; });
}

struct Measuring {
  const ProfileArguments& arguments;
  double budget_s = 0;
  Profile profile;
  std::string model = {};
  Profile before = {};  // as the file was
  BestCalibration best = BestCalibration(profile.calibration_s);
  std::deque<Measured> programs = {};
  Clock::time_point start = Clock::now();

  GpuOptions gpu() const { return {arguments.gpu_backend, GpuMissing::error}; }
  // What need not be measured again.
  const Profile& known() const {
    static const Profile nothing;
    return arguments.more ? nothing : profile;
  }
  double left() const { return budget_s - seconds_since(start); }
  size_t all_kernels() const {
    size_t count = 0;
    for (const Measured& one : programs) count += one.samples.measurables().size();
    return count;
  }
  size_t known_kernels() const {
    size_t count = 0;
    for (const Measured& one : programs) {
      for (const Measurable& what : one.samples.measurables()) count += profile.kernels.contains(what.key) ? 1 : 0;
    }
    return count;
  }
  void draw_progress() const {
    show_progress(fmt::format("measured for {:.0f} of {:.0f} s; kernels known", seconds_since(start), budget_s),
                  known_kernels(), all_kernels());
  }
};

// What is there from before, or an empty profile of this machine.
Result<Profile> known_profile(const ProfileArguments& arguments) {
  Profile fresh;
  fresh.machine = describe_machine();
  fresh.beside = arguments.beside;
  std::error_code failure;
  if (arguments.fresh || !fs::exists(arguments.output, failure)) return fresh;
  const std::string otherwise =
      fmt::format("name another file, or replace {} with what is measured now: --fresh", arguments.output);
  auto known = read_profile(arguments.output);
  if (!known) {
    Error error = known.error();
    error.message += "; " + otherwise;
    return error;
  }
  if (known->machine != fresh.machine) {
    return invalid_input(fmt::format("{} holds measurements of {}, and this machine is {}; {}", arguments.output,
                                     known->machine, fresh.machine, otherwise));
  }
  if (known->beside == 0) known->beside = fresh.beside;  // what was measured alone stays good
  if (known->beside != fresh.beside) {
    return invalid_input(fmt::format("{} was measured with --beside {}, not {}; {}", arguments.output, known->beside,
                                     fresh.beside, otherwise));
  }
  return known;
}

Status write(Measuring& measuring) {
  std::vector<Measurable> all;
  std::vector<double> gaps;
  for (const Measured& one : measuring.programs) {
    const Profile* add_to = measuring.arguments.more ? &measuring.before : nullptr;
    one.samples.write_to(measuring.profile, add_to);
    one.beside.write_beside_to(measuring.profile, add_to);
    gaps.insert(gaps.end(), one.samples.gaps().begin(), one.samples.gaps().end());
    all.insert(all.end(), one.samples.measurables().begin(), one.samples.measurables().end());
  }
  if (gaps.size() >= least_repeats) {
    measuring.profile.dispatch = measuring.before.dispatch;
    keep_surer(measuring.profile.dispatch, cost_of_samples(std::move(gaps)));
  }
  for (auto& [computation, kernel] : fastest_kernels(all, measuring.profile)) {
    // With --more runs of today's choices are to be compared with what is predicted then.
    if (!measuring.arguments.more || !measuring.before.choices.contains(computation))
      measuring.profile.choices[computation] = kernel;
  }
  measuring.profile.calibration_s = measuring.best.best_s();
  measuring.profile.measured_at =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return measuring.profile.kernels.empty() ? ok_status() : write_profile(measuring.arguments.output, measuring.profile);
}

// Runs a Program for so long, at least twice, or until all it is measured for is known well.
Status measure(Measuring& measuring, Measured& one, int beside, double share_s) {
  ASSIGN_OR_RETURN(SavedProgram saved, load_program(one.folder));
  ASSIGN_OR_RETURN(WeightFile weights, WeightFile::open(one.folder));
  LoadedJob job{std::move(saved), std::move(weights), one.inputs.front()};
  CopiesBeside copies(job, beside);
  Samples& samples = beside > 0 ? one.beside : one.samples;
  const auto enough = [&] {
    return beside > 0 ? samples.beside_settled(measuring.known()) : samples.all_settled(measuring.known());
  };
  RunOptions options;
  options.repeats = repeats_in_a_row;
  options.duration_s = share_s / static_cast<double>(one.inputs.size());
  options.keep = 1;
  options.keep_states = !is_training(one.program);  // a cache is as far away as others of its size
  options.cancelled = interrupted;
  options.gpu = measuring.gpu();
  const bool gpu = on_gpu(job.saved.unsplit);
  for (size_t fill = 0; fill < one.inputs.size() && !interrupted() && !copies.failed(); ++fill) {
    job.inputs = one.inputs[fill];
    Disturbance disturbance;
    options.after_repeat = [&](const Repeat& repeat) {
      // With copies beside, a shortage of processor time does not show a disturbance; nor does it on a GPU.
      const bool kept_off = disturbance.since(repeat.times) && beside == 0 && !gpu;
      samples.add(repeat.times, kept_off ? std::numeric_limits<double>::infinity() : repeat.calibration_s, fill);
      measuring.draw_progress();
      return !interrupted() && !copies.failed() && (samples.executions() < least_repeats || !enough());
    };
    auto result = run_threads(job.saved.unsplit, {job.contents(), job.inputs, {}, {}, {}, job.checksums()}, options);
    if (!result && !interrupted()) return result.error();
  }
  RETURN_IF_ERROR(copies.end());
  return write(measuring);  // after each, so that nothing but a Program's own time is ever lost
}

// Every Program in turn, those that need more again and again, for as long as the budget lasts.
Status measure_all(Measuring& measuring) {
  for (int round = 1; !interrupted(); ++round) {
    std::vector<std::pair<Measured*, int>> open;  // with so many beside
    for (Measured& one : measuring.programs) {
      if (!one.samples.all_settled(measuring.known())) open.emplace_back(&one, 0);
      if (measuring.arguments.beside > 0 && !one.beside.beside_settled(measuring.known()))
        open.emplace_back(&one, measuring.arguments.beside);
    }
    if (open.empty() || (round > least_rounds && measuring.left() <= 0)) break;
    const double until = measuring.left() * std::max(0, least_rounds - round) / std::max(1, least_rounds - round + 1);
    for (size_t i = 0; i < open.size() && !interrupted() && (round <= least_rounds || measuring.left() > 0); ++i) {
      RETURN_IF_ERROR(measure(measuring, *open[i].first, open[i].second,
                              std::max(0.0, measuring.left() - until) / static_cast<double>(open.size() - i)));
    }
  }
  clear_progress();
  return ok_status();
}

// What copies to and from its GPU take, if a Program needs one.
Status measure_host_copies(Measuring& measuring) {
  if (measuring.profile.copies) return ok_status();
  if (std::ranges::none_of(measuring.programs, [](const Measured& one) { return on_gpu(one.program); }))
    return ok_status();
  ASSIGN_OR_RETURN(const ChosenBackend chosen, choose_backend(measuring.gpu()));
  ASSIGN_OR_RETURN(measuring.profile.copies, measure_copies(*chosen.backend, 0, {}));
  return ok_status();
}

// The Programs of the scenario's set that this machine can run.
Status load_set(Measuring& measuring, const std::string& set) {
  std::set<std::string> taken, absent;  // absent: levels this machine has not
  ASSIGN_OR_RETURN(const std::vector<std::string> folders, saved_folders(set));
  for (const std::string& folder : folders) {
    ASSIGN_OR_RETURN(SavedProgram saved, load_program(folder));
    if (const Status level = check_level(saved.unsplit, measuring.gpu()); !level.ok()) {
      if (absent.insert(level.error().message).second)
        std::fprintf(stderr, "note: left out: %s\n", level.error().message.c_str());
      continue;
    }
    measuring.model =
        saved.unsplit.name.substr(0, saved.unsplit.name.find(" ["));  // a Program is called "MODEL [PLAN]"
    ASSIGN_OR_RETURN(std::vector<std::vector<NamedTensor>> inputs, inputs_of(saved.unsplit));
    ASSIGN_OR_RETURN(const std::vector<ScalarTable> scalars, scalars_of(saved.unsplit, inputs));
    measuring.programs.emplace_back(folder, std::move(saved.unsplit), std::move(inputs), scalars, taken,
                                    measuring.best);
  }
  if (measuring.programs.empty()) return unsupported("nothing could be measured on this machine");
  if (std::ranges::find(measuring.profile.models, measuring.model) == measuring.profile.models.end())
    measuring.profile.models.push_back(measuring.model);
  return ok_status();
}

// "p.json: 128 kernels of resnet18 on AMD EPYC, …", and how good they are.
void print_summary(const Measuring& measuring, size_t known_before) {
  size_t unsettled = 0;
  const Measurable* worst = nullptr;
  double worst_uncertainty = 0;
  for (const Measured& one : measuring.programs) {
    for (const Measurable& what : one.samples.measurables()) {
      const auto found = measuring.profile.kernels.find(what.key);
      if (found == measuring.profile.kernels.end() || settled(found->second)) continue;
      ++unsettled;
      if (worst != nullptr && uncertainty(found->second) <= worst_uncertainty) continue;
      worst = &what;
      worst_uncertainty = uncertainty(found->second);
    }
  }
  const size_t known = measuring.known_kernels(), missing = measuring.all_kernels() - known;
  fmt::print("{}: {} kernels of {} on {}", measuring.arguments.output, known, measuring.model,
             measuring.profile.machine);
  if (known_before > 0) fmt::print(", {} of them from before", known_before);
  fmt::print("\n");
  if (missing > 0) fmt::print("{} are missing: the same command resumes where this one stopped\n", missing);
  if (worst != nullptr) {
    fmt::print("{} not yet known to ±{:.0f} %, the worst to ±{:.1f} %: the same command measures them longer\n  {}\n",
               unsettled == 1 ? std::string("1 is") : fmt::format("{} are", unsettled), settled_uncertainty * 100,
               worst_uncertainty * 100, worst->key);
  }
  size_t executions = 0, disturbed = 0;
  for (const Measured& one : measuring.programs) {
    for (const Samples* samples : {&one.samples, &one.beside}) {
      executions += samples->executions();
      disturbed += samples->disturbed();
    }
  }
  if (disturbed > 0) {
    fmt::print(
        "during {} of {} executions the processor was slower than at its best, or had other work; they count only for "
        "kernels with fewer than {} others\n",
        disturbed, executions, least_repeats);
  }
  if (const double slowness = slowness_of(measuring.profile); slowness > 0)
    fmt::print("on average kernels took {:.3f} times as long as these medians: predictions include this factor\n",
               slowness);
}

Status profile_all(const ProfileArguments& arguments) {
  ASSIGN_OR_RETURN(const Seconds budget, time_option("--budget", arguments.budget));
  const fs::path parent = fs::path(arguments.output).parent_path();
  std::error_code failure;
  if (!parent.empty() && !fs::is_directory(parent, failure)) {
    return invalid_input(fmt::format("cannot write {}: there is no folder {}", arguments.output, parent.string()));
  }
  ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::beside(arguments.output));
  ASSIGN_OR_RETURN(Profile known, known_profile(arguments));
  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  const std::string set = folder.path() + "/set";
  RETURN_IF_ERROR(run_nlsim(arguments.nlsim, {"lower", arguments.scenario, "--profile-set", set}));
  Measuring measuring{arguments, budget.value(), std::move(known)};
  measuring.before = measuring.profile;
  RETURN_IF_ERROR(load_set(measuring, set));
  // All its kernels may be known from another model's, so that nothing is measured.
  if (measuring.profile.models != measuring.before.models) RETURN_IF_ERROR(write(measuring));
  const size_t before = measuring.known_kernels();
  RETURN_IF_ERROR(measure_host_copies(measuring));
  RETURN_IF_ERROR(measure_all(measuring));
  print_summary(measuring, before);
  return interrupted() ? Status(failed("interrupted")) : ok_status();
}

}  // namespace

void add_profile_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "profile",
      "Measure each distinct kernel of a scenario's network on this machine, at all its micro-batch sizes.\n"
      "  nlbench profile scenarios/mine.yaml -o profiles/mine.json\n"
      "Then write in the scenario, for devices like this one:  costs: profiles/mine.json\n"
      "It runs the whole network again and again, so caches are as in a real run, and keeps each kernel's median and\n"
      "mean.\n"
      "For a GPU it also measures the copies to and from the host: a scenario that gives no `bus` uses them.\n"
      "Ctrl-C keeps what was measured; the same command continues. Other sizes and other models are added to an "
      "existing\n"
      "file. `nlsim profile show FILE` says what is in it.");
  const auto a = std::make_shared<ProfileArguments>();
  command->add_option("SCENARIO", a->scenario, "The scenario")->required();
  command->add_option("-o,--output", a->output, "The profile to write, or to add to (.json)")->required();
  command->add_option("--budget", a->budget,
                      "Time to spend on all sizes together; ends earlier when every kernel is known to ±1 % (default "
                      "60s; each size\nruns at least 5 times)");
  command
      ->add_option("--beside", a->beside,
                   "Measure a second time while this many copies of the network run: how devices that share this "
                   "machine's\ncaches and memory slow each other down (default 0: do not)")
      ->check(at_least(0));
  command->add_option("--gpu-backend", a->gpu_backend,
                      "Module that computes on GPUs (default: libbackend_cuda.so beside nlbench)");
  CLI::Option* fresh = command->add_flag("--fresh", a->fresh, "Replace the file instead of adding to it");
  command
      ->add_flag(
          "--more", a->more,
          "Measure all again, also what is known well, and average with the file: on a machine that others\nshare, "
          "several short measurements tell more than a long one. The choice between kernels stays as it was")
      ->excludes(fresh);
  command->add_option("--nlsim", a->nlsim, "Path of nlsim (default: beside nlbench)");
  command->callback([a, &code] {
    catch_interrupts();
    code = end_command(profile_all(*a));
  });
}

}  // namespace nlsplit::inline tools
