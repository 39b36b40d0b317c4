#include "tools/nlbench_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/npy.h"
#include "base/temporary_folder.h"
#include "exec/backends/arena.h"
#include "exec/fill_inputs.h"
#include "graph/elements.h"
#include "program/rank_hosts.h"
#include "program/scalars.h"

namespace nlsplit::inline tools {
namespace {

namespace fs = std::filesystem;

struct NamedFile {
  std::string name;  // empty: in order
  std::string path;
};

NamedFile split_argument(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {"", text};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

bool is_saved(const std::string& what) {
  std::error_code failure;
  return fs::is_directory(what, failure) && !fs::exists(fs::path(what) / "config.json", failure);  // a model
}

// Of a scenario, so that one program says it and not two.
Status check_there(const std::string& what) {
  std::error_code failure;
  if (!is_scenario(what) || fs::exists(what, failure)) return ok_status();
  return io_error(fmt::format("cannot read '{}': No such file or directory", what));
}

Result<std::string> lower_to(const TemporaryFolder& folder, const JobArguments& arguments) {
  const std::string saved = folder.path() + "/program";
  RETURN_IF_ERROR(check_there(arguments.what));
  std::vector<std::string> words = {"lower", arguments.what, "--save", saved};
  if (is_scenario(arguments.what)) {
    if (!arguments.plan.empty()) words.insert(words.end(), {"--plan", arguments.plan});
    if (!arguments.plan_file.empty()) words.insert(words.end(), {"--plan-file", arguments.plan_file});
    if (arguments.batch > 0) return invalid_input("--batch is for a model alone: a scenario says its batch itself");
    if (!arguments.isa.empty())
      return invalid_input("--isa is for a model alone: a scenario says the levels of its devices itself");
    if (!arguments.precision.empty())
      return invalid_input("--precision is for a model alone: a scenario says its model's itself");
  } else {
    if (!arguments.plan.empty() || !arguments.plan_file.empty()) {
      return invalid_input("--plan and --plan-file need a scenario (.yaml): a model alone runs on one device");
    }
    int64_t batch = arguments.batch;
    const std::string given = arguments.inputs.empty() ? "" : split_argument(arguments.inputs[0]).path;
    if (batch == 0 && !given.empty() && !lists_integers(given)) {
      ASSIGN_OR_RETURN(const NpyRaw first, read_npy_raw(given));
      if (!first.shape.empty()) batch = first.shape[0];
    }
    if (batch > 0) words.insert(words.end(), {"--batch", fmt::format("{}", batch)});
    if (!arguments.isa.empty()) words.insert(words.end(), {"--isa", arguments.isa});
    if (!arguments.precision.empty()) words.insert(words.end(), {"--precision", arguments.precision});
  }
  RETURN_IF_ERROR(run_nlsim(arguments.nlsim, words, arguments.planning));
  return saved;
}

// Or the integers themselves: "4,2".
Status take_file(NamedTensor& input, const std::string& path, Entries entries) {
  if (is_whole(input.type.dtype)) {
    ASSIGN_OR_RETURN(const auto listed, listed_integers(input.type.dtype, element_count(input.type.shape), path));
    if (listed) {
      input.raw = *listed;
      return ok_status();
    }
  }
  ASSIGN_OR_RETURN(NpyRaw array, read_npy_raw(path));
  if (entries == Entries::of_executions && array.shape.size() == input.type.shape.size() + 1 && array.shape[0] > 0)
    input.type.shape.insert(input.type.shape.begin(), array.shape[0]);
  if (array.shape != input.type.shape) {
    return invalid_input(fmt::format("{} is {}, but input {} is {}", path,
                                     to_string(TensorType{DType::f32, array.shape}), input.name,
                                     to_string(input.type)));
  }
  if (array.type != numpy_type(input.type.dtype)) {
    return invalid_input(fmt::format("'{}' holds values of type '{}', but input {} is {} ('{}')", path, array.type,
                                     input.name, to_string(input.type), numpy_type(input.type.dtype)));
  }
  if (input.type.dtype == DType::f32) {
    input.values.resize(array.raw.size() / sizeof(float));
    if (!array.raw.empty()) std::memcpy(input.values.data(), array.raw.data(), array.raw.size());
  } else {
    input.raw = std::move(array.raw);
  }
  return ok_status();
}

}  // namespace

bool is_scenario(const std::string& what) { return what.ends_with(".yaml") || what.ends_with(".yml"); }

Result<LoadedSession> load_session(const JobArguments& arguments, std::optional<TemporaryFolder>& folder,
                                   bool for_training) {
  std::string dir = arguments.what;
  if (is_scenario(arguments.what)) {
    RETURN_IF_ERROR(check_there(arguments.what));
    ASSIGN_OR_RETURN(folder, TemporaryFolder::create());
    dir = folder->path() + "/session";
    std::vector<std::string> words = {"lower", arguments.what, for_training ? "--train" : "--session", "--save", dir};
    if (!arguments.plan.empty()) words.insert(words.end(), {"--plan", arguments.plan});
    if (!arguments.plan_file.empty()) words.insert(words.end(), {"--plan-file", arguments.plan_file});
    RETURN_IF_ERROR(run_nlsim(arguments.nlsim, words));
  } else if (!arguments.plan.empty() || !arguments.plan_file.empty()) {
    return invalid_input("--plan and --plan-file need a scenario (.yaml): a session has its plan");
  }
  LoadedSession loaded;
  if (is_saved_session(dir)) {
    loaded.weights = dir;
    ASSIGN_OR_RETURN(loaded.saved, nlsplit::load_session(dir));
    return loaded;
  }
  ASSIGN_OR_RETURN(const std::string text, read_file(arguments.what));
  ASSIGN_OR_RETURN(loaded.saved.session, parse_session(text, arguments.what));
  return loaded;
}

void add_session_options(CLI::App& command, JobArguments& arguments, const std::string& what) {
  command.add_option("WHAT", arguments.what, what)->type_name("FILE")->required();
  CLI::Option* plan = command.add_option(
      "--plan", arguments.plan, "For a scenario: number in its ranking, or name of one of its plans (default 1)");
  command.add_option("--plan-file", arguments.plan_file, "For a scenario: a plan in a file of its own")->excludes(plan);
  command.add_option("--nlsim", arguments.nlsim,
                     "Path of nlsim, which plans scenarios and reads models (default: beside nlbench)");
}

Result<LoadedJob> load_job(const JobArguments& arguments, std::optional<TemporaryFolder>& folder) {
  std::string dir = arguments.what;
  if (is_saved(dir)) {
    if (!arguments.plan.empty() || !arguments.plan_file.empty() || arguments.batch > 0 || !arguments.isa.empty() ||
        !arguments.precision.empty()) {
      return invalid_input(fmt::format(
          "{} holds one plan already: --plan, --plan-file, --batch, --isa and --precision are for scenarios and models",
          dir));
    }
  } else {
    ASSIGN_OR_RETURN(folder, TemporaryFolder::create());
    ASSIGN_OR_RETURN(dir, lower_to(*folder, arguments));
  }
  ASSIGN_OR_RETURN(SavedProgram saved, load_program(dir));
  ASSIGN_OR_RETURN(WeightFile weights, WeightFile::open(dir));
  if (folder) folder->remove();
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, make_inputs(saved.program, arguments.inputs, arguments.seed));
  return LoadedJob{std::move(saved), std::move(weights), std::move(inputs)};
}

Result<std::vector<NamedTensor>> make_inputs(const Program& program, const std::vector<std::string>& files,
                                             uint64_t seed, Entries entries) {
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, wanted_inputs(program));
  for (const NamedTensor& input : inputs) {
    if (size_of(input.type) > machine_memory())
      return unsupported(fmt::format("input {} is {}, {}: this machine has {} of memory", input.name,
                                     to_string(input.type), to_string(size_of(input.type)),
                                     to_string(machine_memory())));
  }
  size_t next = 0;
  for (const std::string& argument : files) {
    const NamedFile file = split_argument(argument);
    NamedTensor* input = nullptr;
    if (file.name.empty()) {
      if (next < inputs.size()) input = &inputs[next++];
    } else {
      for (NamedTensor& candidate : inputs) {
        if (candidate.name == file.name) input = &candidate;
      }
    }
    if (input == nullptr) {
      std::string names;
      for (const NamedTensor& known : inputs) names += (names.empty() ? "" : ", ") + known.name;
      return invalid_input(fmt::format("--input {}: there is no such input; the program has {}", argument,
                                       names.empty() ? "none" : names));
    }
    RETURN_IF_ERROR(take_file(*input, file.path, entries));
  }
  fill_inputs(program, seed, inputs);
  return inputs;
}

void print_hosts(const Program& program, bool places) {
  for (const std::string& host : rank_hosts(program, places)) fmt::print("{}\n", host);
  std::fflush(stdout);
}

Status write_outputs(const std::string& path, const std::vector<OutputTensor>& outputs) {
  if (outputs.empty()) return invalid_input("--output: this program has no outputs");
  for (size_t i = 0; i < outputs.size(); ++i) {
    fs::path file = path;
    if (i > 0) {
      std::string name = outputs[i].tensor.name;
      for (char& c : name) {
        if (c == '/') c = '_';
      }
      file.replace_filename(fmt::format("{}.{}{}", file.stem().string(), name, file.extension().string()));
    }
    RETURN_IF_ERROR(write_npy(file.string(), {outputs[i].tensor.type.shape, outputs[i].tensor.values}));
  }
  return ok_status();
}

}  // namespace nlsplit::inline tools
