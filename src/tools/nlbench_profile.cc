// `nlbench profile`: what each distinct computation of a model takes on this machine.
//
// Calibration runs are Programs run by exec, the same path as the real thing: the whole unsplit network, at each
// micro-batch size and instruction level of the scenario, again and again. So what is measured is each kernel in the
// state of caches it has inside its network: activations just written, weights as far away as the rest of the network
// has pushed them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <thread>

#include "base/units.h"
#include "cost/cost_table.h"
#include "exec/kernels/kernel_library.h"
#include "exec/run_threads.h"
#include "tools/exit.h"
#include "tools/nlbench_child.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_job.h"
#include "tools/nlbench_machine.h"
#include "tools/terminal.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;

struct ProfileArguments {
  std::string scenario, output, budget = "60s", nlsim;
  int beside = 0;
};

constexpr double stable = 0.01;   // standard error of the median, relative: then more repeats tell little
constexpr int least_repeats = 5;  // fewer have no quartiles worth the name

// What was measured of one computation (choice_key): its kernels in the order they were met, so the usual one first.
struct Measured {
  std::string kernel;                  // full id
  std::map<int64_t, double> by_batch;  // median seconds
};
using Alternatives = std::map<std::string, std::vector<Measured>>;

// Samples of every distinct computation of one Program.
class Samples {
 public:
  explicit Samples(const Program& program) : program_(program), seconds_(program.descs.size()) {
    auto deps = dependencies(program);
    CHECK(deps.ok(), "one device exchanges no messages");
    deps_ = std::move(*deps);
  }

  void add(const std::vector<Interval>& times) {
    for (size_t i = 0; i < times.size(); ++i) {
      const Instr& instr = instr_of(program_, deps_.instances[i]);
      if (instr.opcode == Opcode::compute)
        seconds_[static_cast<size_t>(instr.desc)].push_back(times[i].finish - times[i].start);
    }
  }

  static MeasuredCost cost_of(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const size_t n = samples.size();
    return {seconds(median(samples)), seconds((samples[3 * (n - 1) / 4] - samples[(n - 1) / 4]) / 2),
            static_cast<int>(n)};
  }

  bool all_stable() const {
    for (const std::vector<double>& samples : seconds_) {
      if (samples.empty()) continue;
      const MeasuredCost cost = cost_of(samples);
      if (cost.spread.value() / std::sqrt(static_cast<double>(samples.size())) > stable * cost.median.value())
        return false;
    }
    return true;
  }

  void add_to(Alternatives& alternatives) const {
    for (size_t d = 0; d < seconds_.size(); ++d) {
      const ComputeDesc& desc = program_.descs[d];
      if (seconds_[d].empty() || desc.inputs[0].shape.empty()) continue;
      std::vector<Measured>& kernels = alternatives[choice_key(desc, isa_of(desc.kernel))];
      auto kernel = std::ranges::find(kernels, desc.kernel, &Measured::kernel);
      if (kernel == kernels.end()) kernel = kernels.insert(kernels.end(), {desc.kernel, {}});
      kernel->by_batch[desc.inputs[0].shape[0]] = cost_of(seconds_[d]).median.value();
    }
  }

  void write_to(std::map<std::string, MeasuredCost>& kernels) const {
    for (size_t d = 0; d < seconds_.size(); ++d) {
      if (!seconds_[d].empty())
        kernels[profile_key(program_.descs[d], program_.devices[0].cores)] = cost_of(seconds_[d]);
    }
  }

 private:
  const Program& program_;
  Dependencies deps_;
  std::vector<std::vector<double>> seconds_;  // by desc
};

// A kernel that seldom pays must be so much faster to be chosen: measurements of equals differ by less.
constexpr double clearly = 0.97;

// The fastest of each computation's kernels, over all sizes of micro-batches together, where there are several.
std::map<std::string, std::string> fastest(const Alternatives& alternatives) {
  std::map<std::string, std::string> choices;
  for (const auto& [computation, kernels] : alternatives) {
    if (kernels.size() < 2) continue;
    const auto total = [&](const Measured& kernel) {
      double sum = 0;
      for (const auto& [batch, cost] : kernel.by_batch) sum += cost;
      return sum;
    };
    const Measured* best = &kernels[0];
    for (const Measured& kernel : kernels) {
      if (kernel.by_batch.size() == best->by_batch.size() && total(kernel) < clearly * total(*best)) best = &kernel;
    }
    choices.emplace(computation, best->kernel);
  }
  return choices;
}

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

// The network's own instruction level, if this machine has it.
Status check_level(const Program& program) {
  for (const DeviceProgram& device : program.devices) {
    if (auto library = KernelLibrary::load(device.isa); !library) return library.error();
  }
  return ok_status();
}

// Copies of the network that run meanwhile, as fast as they can, until this ends.
class Company {
 public:
  Company(const LoadedJob& job, int copies) {
    for (int copy = 0; copy < copies; ++copy) {
      threads_.emplace_back([this, &job] {
        RunOptions options;
        options.keep = 1;
        options.repeats = std::numeric_limits<int>::max();
        options.after_repeat = [this](int, double, const std::vector<Interval>&) { return !over_; };
        static_cast<void>(run_threads(job.saved.unsplit, {job.contents(), job.inputs}, options));
      });
    }
  }
  ~Company() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Company(const Company&) = delete;
  Company& operator=(const Company&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

Status measure(const LoadedJob& job, double share_s, int beside, const std::function<void(double)>& progress,
               Profile& profile, Alternatives& measured) {
  Samples samples(job.saved.unsplit);
  const Company company(job, beside);
  RunOptions options;
  options.repeats = least_repeats;
  options.duration_s = share_s;
  options.keep = 1;
  options.cancelled = interrupted;
  options.after_repeat = [&](int repeats, double elapsed, const std::vector<Interval>& own) {
    samples.add(own);
    progress(elapsed);
    return !interrupted() && (repeats < least_repeats || !samples.all_stable());
  };
  auto result = run_threads(job.saved.unsplit, {job.contents(), job.inputs}, options);
  if (!result) return result.error();
  samples.write_to(profile.kernels);
  samples.add_to(measured);
  profile.model =
      job.saved.unsplit.name.substr(0, job.saved.unsplit.name.find(" ["));  // a Program is called "MODEL [PLAN]"
  return ok_status();
}

Status profile_all(const ProfileArguments& arguments) {
  ASSIGN_OR_RETURN(const Seconds budget, parse_time(arguments.budget));
  const fs::path parent = fs::path(arguments.output).parent_path();
  std::error_code failure;
  if (!parent.empty() && !fs::is_directory(parent, failure)) {
    return invalid_input(fmt::format("cannot write {}: there is no folder {}", arguments.output, parent.string()));
  }
  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  const std::string set = folder.path() + "/set";
  RETURN_IF_ERROR(run_nlsim(arguments.nlsim, {"lower", arguments.scenario, "--profile-set", set}));
  ASSIGN_OR_RETURN(const std::vector<std::string> folders, saved_folders(set));

  Profile profile;
  profile.machine = describe_machine();
  if (arguments.beside > 0)
    profile.machine +=
        fmt::format(", {} beside", arguments.beside == 1 ? std::string("a copy of the network")
                                                         : fmt::format("{} copies of the network", arguments.beside));
  Alternatives alternatives;
  size_t done = 0, measured = 0;
  std::set<std::string> absent;  // levels this machine has not
  for (const std::string& dir : folders) {
    ASSIGN_OR_RETURN(SavedProgram saved, load_program(dir));
    ASSIGN_OR_RETURN(WeightFile weights, WeightFile::open(dir));
    ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, make_inputs(saved.unsplit, {}, 1));
    const LoadedJob job{std::move(saved), std::move(weights), std::move(inputs)};
    ++done;
    if (const Status level = check_level(job.saved.unsplit); !level.ok()) {
      if (absent.insert(level.error().message).second)
        std::fprintf(stderr, "note: left out: %s\n", level.error().message.c_str());
      continue;
    }
    const double share = budget.value() / static_cast<double>(folders.size());
    const auto progress = [&](double elapsed) {
      const double part = std::min(1.0, elapsed / std::max(share, 1e-9));
      show_progress(
          "measuring, %",
          static_cast<size_t>((static_cast<double>(done - 1) + part) * 100 / static_cast<double>(folders.size())), 100);
    };
    RETURN_IF_ERROR(measure(job, share, arguments.beside, progress, profile, alternatives));
    ++measured;
  }
  clear_progress();
  if (measured == 0) return unsupported("nothing could be measured on this machine");
  profile.choices = fastest(alternatives);
  RETURN_IF_ERROR(write_profile(arguments.output, profile));
  double worst = 0;
  for (const auto& [signature, cost] : profile.kernels) worst = std::max(worst, cost.spread / cost.median);
  std::printf("%s: %zu kernels of %s on %s, largest spread ±%.1f %%\n", arguments.output.c_str(),
              profile.kernels.size(), profile.model.c_str(), profile.machine.c_str(), worst * 100);
  return ok_status();
}

}  // namespace

void add_profile_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "profile",
      "Measure each distinct kernel of a scenario's network on this machine, at all its micro-batch sizes.\n"
      "  nlbench profile scenarios/mine.yaml -o profiles/mine.json\n"
      "and then, in the scenario, for devices like this one:  costs: profiles/mine.json\n"
      "It runs the whole network again and again and takes each kernel's median, so caches are as in a real run.");
  const auto a = std::make_shared<ProfileArguments>();
  command->add_option("SCENARIO", a->scenario, "The scenario")->required();
  command->add_option("-o,--output", a->output, "The profile to write (.json)")->required();
  command->add_option("--budget", a->budget,
                      "Time to spend at most, over all sizes together (default 60s; each is run at least 5 times)");
  command
      ->add_option(
          "--beside", a->beside,
          "Run so many copies of the network meanwhile, for devices that share this machine's caches and memory "
          "with so many\nothers (default 0)")
      ->check(at_least(0));
  command->add_option("--nlsim", a->nlsim, "Where nlsim is (default: beside nlbench)");
  command->callback([a, &code] {
    catch_interrupts();
    code = end_command(profile_all(*a));
  });
}

}  // namespace nlsplit
