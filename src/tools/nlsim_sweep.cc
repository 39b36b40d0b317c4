#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>

#include "base/file.h"
#include "base/interrupts.h"
#include "base/output_lock.h"
#include "planning/load.h"
#include "sim/simgrid/platform.h"
#include "sweep/sweep_report.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/terminal.h"

namespace nlsplit::inline tools {
namespace {

struct SweepArguments {
  std::string experiment, output;
  bool fresh = false;
};

// "sweeping, about 40 s left": from what the points of this run took.
class Eta {
 public:
  void operator()(size_t done, size_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!begun_) {
      begun_ = true;
      begin_ = now;
      first_ = done;
    }
    std::string phase = "sweeping";
    if (done > first_) {
      const double took = std::chrono::duration<double>(now - begin_).count();
      const double left = took / static_cast<double>(done - first_) * static_cast<double>(total - done);
      phase += fmt::format(", about {:.0f} s left", left);
    }
    show_progress(phase, done, total);
  }

 private:
  bool begun_ = false;
  std::chrono::steady_clock::time_point begin_;
  size_t first_ = 0;
};

Status write_page(const Experiment& experiment, PointRunner& runner, const Sweep& sweep, const std::string& path) {
  constexpr size_t first_guess = 8;
  // How many slots a point has is known once some are drawn.
  std::vector<size_t> which = points_to_draw(experiment, sweep, sweep.points.size());
  std::vector<size_t> some(which.begin(),
                           which.begin() + static_cast<std::ptrdiff_t>(std::min(first_guess, which.size())));
  ASSIGN_OR_RETURN(std::vector<Drawing> drawings, draw_points(runner, sweep, some));
  size_t slots = 1;
  for (const Drawing& drawing : drawings) slots = std::max(slots, drawing.bars.size());
  which.resize(std::min(which.size(), std::max(some.size(), most_drawn_slots / slots)));
  some.assign(which.begin() + static_cast<std::ptrdiff_t>(some.size()), which.end());
  show_progress("drawing", 0, which.size());
  ASSIGN_OR_RETURN(std::vector<Drawing> rest, draw_points(runner, sweep, some));
  std::move(rest.begin(), rest.end(), std::back_inserter(drawings));
  return write_file(path, sweep_html(experiment, sweep, which, drawings));
}

// Answers whether all points are there.
Result<bool> sweep_command(const SweepArguments& arguments) {
  if (!is_scenario(arguments.experiment)) {
    return invalid_input(fmt::format("{}: sweep needs an experiment (*.yaml); scenarios/experiments/ has examples",
                                     arguments.experiment));
  }
  ASSIGN_OR_RETURN(const Experiment experiment,
                   read_experiment(arguments.experiment, {.platforms = simgrid_platforms()}));
  const std::string dir = !arguments.output.empty()
                              ? arguments.output
                              : "sweep-" + std::filesystem::path(arguments.experiment).stem().string();
  ASSIGN_OR_RETURN(const std::unique_ptr<PointRunner> runner, make_runner(experiment));
  std::error_code failure;
  std::filesystem::create_directories(dir, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", dir, failure.message()));
  ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::of_folder(dir));
  catch_interrupts();
  SweepOptions options;
  options.csv = (std::filesystem::path(dir) / "points.csv").string();
  options.fresh = arguments.fresh;
  options.progress = Eta();
  options.interrupted = interrupted;
  auto swept = run_sweep(experiment, *runner, options);
  clear_progress();
  write_after_interrupt();
  if (!swept) return swept.error();
  if (swept->interrupted) {
    fmt::print(stderr, "interrupted: {} of {} points are in {}; the same command resumes there{}\n", swept->done,
               swept->points.size(), options.csv, arguments.fresh ? ", without --fresh" : "");
    return false;
  }
  const std::string page = (std::filesystem::path(dir) / "report.html").string();
  RETURN_IF_ERROR(write_page(experiment, *runner, *swept, page));
  clear_progress();
  std::fputs(sweep_text(experiment, *swept).c_str(), stdout);
  fmt::print("\n{} and {}", options.csv, page);
  if (swept->done_before > 0) fmt::print("; {} of the points were there before", swept->done_before);
  fmt::print("\n");
  return true;
}

}  // namespace

void add_sweep_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("sweep", "Simulate a grid of schedules, plans, link speeds, noise, …");
  const auto arguments = std::make_shared<SweepArguments>();
  command->add_option("EXPERIMENT", arguments->experiment, "An experiment, e.g. one of scenarios/experiments/")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("-o,--output", arguments->output,
                   "The folder for points.csv and report.html (default: sweep- and the experiment's name)")
      ->type_name("DIR");
  command->add_flag("--fresh", arguments->fresh, "Start anew instead of continuing with the points in DIR");
  command->footer(
      "Ctrl-C ends it after the points under way, with exit code 130; the same command resumes there. Points "
      "that\ncannot exist are rows that say why. docs/sweep.md explains experiments and the columns.");
  command->callback([arguments, &code] {
    const Result<bool> complete = sweep_command(*arguments);
    if (!complete.ok())
      code = report(complete.error());
    else if (!*complete)
      code = exit_interrupted;
  });
}

}  // namespace nlsplit::inline tools
