// Of a workload, what a training step does.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "scenario/parse.h"

namespace nlsplit::inline scenario {
namespace {

constexpr double least_rate = 1e-12, most_rate = 1e6;
constexpr double most_decay = 1e6;
constexpr double below_one = 0.999999999;  // a moving mean with a factor of 1 never moves
constexpr int64_t most_steps = int64_t{1} << 40;

constexpr std::string_view keys_of_training[] = {"optimizer", "learning_rate", "clip",       "batch_norm",
                                                 "recompute", "loss",          "all_reduce", "all_reduce_buckets",
                                                 "seed",      "zero"};

Result<double> read_rate(const Source& source, const Yaml& node, std::string_view what) {
  return read_number(source, node, what, least_rate, most_rate);
}

// {100: 0.01, 200: 0.001}: from that many steps on.
Status parse_rate_steps(const Source& source, const Yaml& node, RateSchedule& schedule) {
  if (!node.is_map() || node.keys.empty())
    return source.at(node, "'steps' must be a map of rates, e.g. {1000: 0.01, 2000: 0.001}");
  for (size_t i = 0; i < node.keys.size(); ++i) {
    RateSchedule::Step step;
    ASSIGN_OR_RETURN(step.begin, read_integer(source, node.keys[i], "a number of steps", 1, most_steps));
    ASSIGN_OR_RETURN(step.rate, read_rate(source, node.items[i], "a rate"));
    if (!schedule.steps.empty() && schedule.steps.back().begin >= step.begin)
      return source.at(node.keys[i],
                       fmt::format("steps must ascend: {} is not after {}", step.begin, schedule.steps.back().begin));
    if (step.begin < schedule.warmup)
      return source.at(node.keys[i], fmt::format("step {} is within the warm-up of {}", step.begin, schedule.warmup));
    schedule.steps.push_back(step);
  }
  return ok_status();
}

Status parse_cosine(const Source& source, const Yaml& node, RateSchedule& schedule) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, "cosine", {"steps", "floor"}));
  ASSIGN_OR_RETURN(const Yaml* steps, fields.need("steps"));
  ASSIGN_OR_RETURN(schedule.cosine, read_integer(source, *steps, "steps", 1, most_steps));
  if (const Yaml* floor = fields.find("floor")) {
    ASSIGN_OR_RETURN(schedule.floor, read_number(source, *floor, "floor", 0, schedule.peak));
  }
  return ok_status();
}

// A number, or {peak: 3e-4, warmup: 100, cosine: {steps: 1000, floor: 3e-5}}.
Result<RateSchedule> parse_rate_schedule(const Source& source, const Yaml& node, double usual) {
  RateSchedule schedule{usual};
  if (!node.is_map()) {
    ASSIGN_OR_RETURN(schedule.peak, read_rate(source, node, "rate"));
    return schedule;
  }
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, "rate", {"peak", "warmup", "cosine", "steps"}));
  if (const Yaml* peak = fields.find("peak")) {
    ASSIGN_OR_RETURN(schedule.peak, read_rate(source, *peak, "peak"));
  }
  if (const Yaml* warmup = fields.find("warmup")) {
    ASSIGN_OR_RETURN(schedule.warmup, read_integer(source, *warmup, "warmup", 0, most_steps));
  }
  const Yaml *cosine = fields.find("cosine"), *steps = fields.find("steps");
  if (cosine != nullptr && steps != nullptr) return source.at(*steps, "a rate has 'cosine' or 'steps', not both");
  if (cosine != nullptr) RETURN_IF_ERROR(parse_cosine(source, *cosine, schedule));
  if (steps != nullptr) RETURN_IF_ERROR(parse_rate_steps(source, *steps, schedule));
  return schedule;
}

// Keys that an optimizer has besides rate, decay and no_decay.
std::vector<std::string_view> keys_of(Optimizer optimizer) {
  std::vector<std::string_view> keys = {"rate", "decay", "no_decay"};
  const auto add = [&](std::initializer_list<std::string_view> more) { keys.insert(keys.end(), more); };
  switch (optimizer) {
    case Optimizer::sgd:
      break;
    case Optimizer::momentum:
      add({"momentum", "nesterov"});
      break;
    case Optimizer::adam:
    case Optimizer::adamw:
      add({"beta1", "beta2", "epsilon"});
      break;
  }
  return keys;
}

Status parse_settings(const Source& source, const Yaml& node, TrainingOptions& options) {
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, std::string(name_of(options.optimizer)), keys_of(options.optimizer)));
  OptimizerSettings& settings = options.settings;
  const auto number = [&](std::string_view key, double& value, double least, double most) -> Status {
    if (const Yaml* given = fields.find(key)) {
      ASSIGN_OR_RETURN(value, read_number(source, *given, key, least, most));
    }
    return ok_status();
  };
  if (const Yaml* rate = fields.find("rate")) {
    ASSIGN_OR_RETURN(settings.rate, parse_rate_schedule(source, *rate, usual_rate(options.optimizer)));
  }
  if (const Yaml* decay = fields.find("decay")) {
    ASSIGN_OR_RETURN(settings.decay, read_number(source, *decay, "decay", 0, most_decay));
  }
  if (const Yaml* group = fields.find("no_decay")) {
    static constexpr std::array<std::string_view, 2> groups = {"none", "norms_and_biases"};
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *group, "no_decay", groups));
    settings.decay_matrices_only = chosen == 1;
  }
  if (const Yaml* nesterov = fields.find("nesterov")) {
    static constexpr std::array<std::string_view, 2> answers = {"false", "true"};
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *nesterov, "nesterov", answers));
    settings.nesterov = chosen == 1;
  }
  RETURN_IF_ERROR(number("momentum", settings.momentum, 0, 1));
  RETURN_IF_ERROR(number("beta1", settings.beta1, 0, below_one));
  RETURN_IF_ERROR(number("beta2", settings.beta2, 0, below_one));
  return number("epsilon", settings.epsilon, 0, 1);
}

// A name, or a map from it to its settings.
Status parse_optimizer(const Source& source, const Yaml& node, TrainingOptions& options) {
  std::vector<std::string_view> names;
  for (const Optimizer one : all_optimizers()) names.push_back(name_of(one));
  if (!node.is_map()) {
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node, "optimizer", names));
    options.optimizer = all_optimizers()[chosen];
    return ok_status();
  }
  if (node.keys.size() != 1)
    return source.at(node,
                     "an optimizer is a name, or a map from one name to its settings, e.g. {adamw: {rate: 3e-4}}");
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node.keys[0], "optimizer", names));
  options.optimizer = all_optimizers()[chosen];
  if (node.items[0].kind == Yaml::Kind::null) return ok_status();
  return parse_settings(source, node.items[0], options);
}

// frozen, batch, or {batch: {momentum: 0.01}}.
Status parse_batch_norm(const Source& source, const Yaml& node, TrainingOptions& options) {
  static constexpr std::array<std::string_view, 2> ways = {"frozen", "batch"};
  if (!node.is_map()) {
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node, "batch_norm", ways));
    options.batch_norm = static_cast<BatchNorm>(chosen);
    return ok_status();
  }
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, "batch_norm", {"batch"}));
  ASSIGN_OR_RETURN(const Yaml* batch, fields.need("batch"));
  options.batch_norm = BatchNorm::batch;
  ASSIGN_OR_RETURN(const Fields settings, Fields::open(source, *batch, "batch", {"momentum"}));
  if (const Yaml* momentum = settings.find("momentum")) {
    ASSIGN_OR_RETURN(options.batch_norm_momentum, read_number(source, *momentum, "momentum", 0, 1));
  }
  return ok_status();
}

}  // namespace

std::span<const std::string_view> training_keys() { return keys_of_training; }

Status parse_training(const Source& source, const Fields& workload, Scenario& scenario) {
  if (!scenario.training) {
    for (const std::string_view key : training_keys()) {
      if (const Yaml* given = workload.find(key); given != nullptr)
        return source.at(*given, fmt::format("'{}' is for training: mode: training", key));
    }
    return ok_status();
  }
  TrainingOptions& options = *scenario.training;
  if (const Yaml* loss = workload.find("loss")) {
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *loss, "loss", loss_names()));
    options.loss = static_cast<Loss>(chosen);
  }
  if (const Yaml* optimizer = workload.find("optimizer")) {
    RETURN_IF_ERROR(parse_optimizer(source, *optimizer, options));
  }
  if (const Yaml* rate = workload.find("learning_rate")) {
    if (options.settings.rate) return source.at(*rate, "the optimizer has a 'rate' already");
    ASSIGN_OR_RETURN(options.settings.rate, parse_rate_schedule(source, *rate, usual_rate(options.optimizer)));
  }
  if (const Yaml* clip = workload.find("clip")) {
    constexpr double least_norm = 1e-12, most_norm = 1e12;
    ASSIGN_OR_RETURN(options.clip, read_number(source, *clip, "clip", least_norm, most_norm));
  }
  if (const Yaml* all_reduce = workload.find("all_reduce")) {
    std::vector<std::string_view> names;
    const auto algorithms = algorithms_of(CollectiveKind::all_reduce);
    for (const CollectiveAlgorithm one : algorithms) names.push_back(name_of(one));
    names.insert(names.end(), {"exact", "native"});
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *all_reduce, "all_reduce", names));
    scenario.exact = names[chosen] == "exact";
    scenario.native = names[chosen] == "native";
    if (chosen < algorithms.size()) scenario.all_reduce = algorithms[chosen];
  }
  if (const Yaml* zero = workload.find("zero")) {
    constexpr int64_t last_stage = 3;
    ASSIGN_OR_RETURN(const int64_t stage, read_integer(source, *zero, "zero", 0, last_stage));
    scenario.zero = static_cast<int>(stage);
  }
  if (const Yaml* buckets = workload.find("all_reduce_buckets")) {
    constexpr int64_t most_buckets = 1024;
    ASSIGN_OR_RETURN(const int64_t count, read_integer(source, *buckets, "all_reduce_buckets", 1, most_buckets));
    scenario.buckets = static_cast<int>(count);
  }
  if (const Yaml* batch_norm = workload.find("batch_norm")) {
    RETURN_IF_ERROR(parse_batch_norm(source, *batch_norm, options));
  }
  if (const Yaml* seed = workload.find("seed")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *seed, "seed", 0, INT64_MAX));
    options.seed = static_cast<uint64_t>(value);
  }
  if (const Yaml* recompute = workload.find("recompute")) {
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *recompute, "recompute", recompute_names));
    options.recompute = static_cast<Recompute>(chosen);
  }
  return ok_status();
}

}  // namespace nlsplit::inline scenario
