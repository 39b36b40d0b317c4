// A pipeline without a model: equal stages, times as the papers have them.
#include <fmt/format.h>

#include <array>

#include "base/percentage.h"
#include "sweep/parse.h"

namespace nlsplit::inline sweeps {
namespace {

constexpr double max_seconds = 1e6;
constexpr double min_speed = 1e-3, max_speed = 1e3;

Result<std::vector<double>> read_messages(const Source& source, const Yaml& node) {
  std::vector<double> messages;
  if (!node.is_list()) {
    ASSIGN_OR_RETURN(const double seconds, read_seconds(source, node));
    return std::vector<double>{seconds};
  }
  if (node.items.empty()) return source.at(node, "the list of message times is empty: one for each boundary of stages");
  for (const Yaml& item : node.items) {
    ASSIGN_OR_RETURN(const double seconds, read_seconds(source, item));
    messages.push_back(seconds);
  }
  return messages;
}

Result<std::vector<int64_t>> read_kept(const Source& source, const Yaml& node) {
  const std::vector<Yaml> single = {node};
  const std::vector<Yaml>& items = node.is_list() ? node.items : single;
  if (items.empty() || items.size() > 2) {
    return source.at(node,
                     "'kept' takes one size, or two: what a micro-batch keeps from F until I, and from then until W");
  }
  std::vector<int64_t> kept;
  for (const Yaml& item : items) {
    ASSIGN_OR_RETURN(const Bytes size, read_quantity(source, item, parse_size));
    kept.push_back(size.value());
  }
  if (kept.size() == 1) kept.push_back(kept[0]);
  return kept;
}

Status read_memory(const Source& source, const Fields& fields, Pipeline& pipeline) {
  const bool training = pipeline.times.size() > 1;
  const Yaml* kept = fields.find("kept");
  const Yaml* memory = fields.find("memory");
  for (const Yaml* key : {kept, memory}) {
    if (key != nullptr && !training)
      return source.at(*key, "inference keeps nothing: 'kept' and 'memory' are for times F, I, W");
  }
  if (kept != nullptr) {
    ASSIGN_OR_RETURN(pipeline.kept, read_kept(source, *kept));
  }
  if (memory != nullptr) {
    if (kept == nullptr) return source.at(*memory, "'memory' needs 'kept': what one micro-batch takes of it");
    ASSIGN_OR_RETURN(pipeline.memory, read_quantity(source, *memory, parse_size));
  }
  return ok_status();
}

Result<std::vector<double>> read_speeds(const Source& source, const Yaml& node, int devices) {
  RETURN_IF_ERROR(expect_list(source, node, "'speed', a number for each device,"));
  std::vector<double> speeds;
  for (const Yaml& item : node.items) {
    ASSIGN_OR_RETURN(const double speed, read_number(source, item, "a speed", min_speed, max_speed));
    speeds.push_back(speed);
  }
  if (devices > 0 && speeds.size() != static_cast<size_t>(devices))
    return source.at(node, fmt::format("{} speeds for {} devices", speeds.size(), devices));
  return speeds;
}

Status read_counts(const Source& source, const Fields& fields, Pipeline& pipeline) {
  struct Count {
    const char* key;
    const char* what;
    int* value;
    int64_t most;
  };
  for (const Count& count :
       {Count{"devices", "a number of devices", &pipeline.devices, max_pipeline_devices},
        Count{"stages", "a number of stages", &pipeline.stages, max_pipeline_devices},
        Count{"micro_batches", "a number of micro-batches", &pipeline.micro_batches, max_sweep_micro_batches}}) {
    const Yaml* node = fields.find(count.key);
    if (node == nullptr) continue;
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *node, count.what, 1, count.most));
    *count.value = static_cast<int>(value);
  }
  return ok_status();
}

}  // namespace

Result<double> read_seconds(const Source& source, const Yaml& node) {
  ASSIGN_OR_RETURN(const Seconds time, read_quantity(source, node, parse_time));
  if (time.value() > max_seconds)
    return source.at(node, fmt::format("a time is at most {:g} s, not {}", max_seconds, node.text));
  return time.value();
}

Result<std::vector<double>> read_times(const Source& source, const Yaml& node) {
  const std::vector<Yaml> single = {node};
  const std::vector<Yaml>& items = node.is_list() ? node.items : single;
  if (items.size() != 1 && items.size() != 3) {
    return source.at(node,
                     fmt::format("times are F, or F, I and W, e.g. [10ms, 12ms, 8ms]; these are {}", items.size()));
  }
  std::vector<double> times;
  for (const Yaml& item : items) {
    ASSIGN_OR_RETURN(const double seconds, read_seconds(source, item));
    times.push_back(seconds);
  }
  if (!(times[0] > 0)) return source.at(items[0], "a stage that takes no time makes no schedule");
  return times;
}

Result<double> read_share(const Source& source, const Yaml& node, std::string_view what) {
  ASSIGN_OR_RETURN(const double value, read_quantity(source, node, parse_percentage));
  constexpr double most = 10;
  if (!(value >= 0 && value <= most))
    return source.at(node, fmt::format("{} must be from 0% to {:g}%, not {}", what, most * 100, node.text));
  return value;
}

Result<std::string> read_placement(const Source& source, const Yaml& node) {
  static constexpr std::array<std::string_view, 4> placements = {"chain", "loop", "v", "mirrored"};
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node, "placement", placements));
  return std::string(placements[chosen]);
}

Result<Pipeline> parse_pipeline(const Source& source, const Yaml& node) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, "pipeline",
                                                     {"devices", "stages", "micro_batches", "placement", "times",
                                                      "message", "speed", "kept", "memory", "jitter"}));
  Pipeline pipeline;
  RETURN_IF_ERROR(read_counts(source, fields, pipeline));
  if (const Yaml* placement = fields.find("placement")) {
    ASSIGN_OR_RETURN(pipeline.placement, read_placement(source, *placement));
  }
  ASSIGN_OR_RETURN(const Yaml* times, fields.need("times"));
  ASSIGN_OR_RETURN(pipeline.times, read_times(source, *times));
  if (const Yaml* message = fields.find("message")) {
    ASSIGN_OR_RETURN(pipeline.messages, read_messages(source, *message));
  }
  if (const Yaml* speed = fields.find("speed")) {
    ASSIGN_OR_RETURN(pipeline.speed, read_speeds(source, *speed, pipeline.devices));
  }
  RETURN_IF_ERROR(read_memory(source, fields, pipeline));
  if (const Yaml* jitter = fields.find("jitter")) {
    ASSIGN_OR_RETURN(pipeline.jitter, read_share(source, *jitter, "jitter"));
  }
  return pipeline;
}

}  // namespace nlsplit::inline sweeps
