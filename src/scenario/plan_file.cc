// Plans of one's own: in a scenario, and in a file of their own (what `rank --save-plans` writes and `run --plan FILE`
// reads).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "scenario/parse.h"
#include "schedule/online_choice.h"
#include "schedule/pipeline_csv.h"
#include "schedule/schedules.h"

namespace nlsplit::inline scenario {

namespace {

constexpr size_t max_counts = 64;

// A double-quoted scalar of YAML 1.2, section 7.3.1.
std::string yaml_quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string flow_list(const auto& items, auto text_of) {
  std::string list = "[";
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) list += ", ";
    list += text_of(items[i]);
  }
  return list + "]";
}

// mark: what its parts begin with, of a plan with others besides.
Result<UserPlan> parse_stages_of(const Source& source, const Yaml& node, std::string name, std::string_view mark = {}) {
  RETURN_IF_ERROR(expect_list(source, node, "the stages of a plan, e.g. [..conv2@A, rest@B],"));
  if (node.items.empty()) return source.at(node, "a plan needs at least one stage, e.g. [rest@A]");
  UserPlan plan;
  plan.name = std::move(name);
  plan.where = source.location(node);
  plan.line = source.line(node.line);
  for (const Yaml& item : node.items) {
    ASSIGN_OR_RETURN(std::string part, read_text(source, item, "a stage, e.g. ..conv2@A,"));
    plan.stages.push_back(fmt::format("{}{}", mark, part));
  }
  return plan;
}

// {prefill: [rest@A], decode: [..conv2@B, rest@C]}: as one list in which parts of prefill say so (partition/plan.h).
Result<UserPlan> parse_both_stages(const Source& source, const Fields& fields, std::string name) {
  if (const Yaml* stages = fields.find("stages"))
    return source.at(*stages, "a plan has `stages`, or `prefill` and `decode`");
  ASSIGN_OR_RETURN(const Yaml* of_prompts, fields.need("prefill"));
  ASSIGN_OR_RETURN(const Yaml* of_tokens, fields.need("decode"));
  ASSIGN_OR_RETURN(UserPlan plan, parse_stages_of(source, *of_prompts, std::move(name), "prefill: "));
  ASSIGN_OR_RETURN(const UserPlan decode, parse_stages_of(source, *of_tokens, ""));
  plan.stages.insert(plan.stages.end(), decode.stages.begin(), decode.stages.end());
  return plan;
}

// A file of slots that a schedule names: found beside the file it is named in and read right away, so that what is
// wrong with its text is said before anything else is done. It also says the number of micro-batches. Answers its path.
Result<std::string> read_schedule_file(const Source& source, const Yaml& node, const Yaml& file, int64_t workload_batch,
                                       UserPlan& plan) {
  ASSIGN_OR_RETURN(const std::string path, read_text(source, file, "a path"));
  const std::string resolved = beside(source.file, path);
  const auto text = read_file(resolved);
  if (!text.ok()) return source.at(file, text.error());
  ASSIGN_OR_RETURN(const PipelineCsv csv, parse_pipeline_csv(*text, resolved));
  ASSIGN_OR_RETURN(const PipelineShape shape, shape_of(csv));
  if (!plan.micro_batches.empty() && plan.micro_batches != std::vector{shape.micro_batches}) {
    return source.at(
        node, fmt::format("the schedule is for {} micro-batches: leave micro_batches away", shape.micro_batches));
  }
  if (workload_batch > 0 && workload_batch % shape.micro_batches != 0) {
    return source.at(node,
                     fmt::format("the schedule is for {} micro-batches, and they do not divide the batch of {} evenly",
                                 shape.micro_batches, workload_batch));
  }
  plan.micro_batches = {shape.micro_batches};
  return resolved;
}

Status parse_online_schedule(const Source& source, const Yaml& node, const Fields& fields, int64_t workload_batch,
                             UserPlan& plan) {
  std::vector<std::string_view> names;
  for (const OnlinePolicy& policy : all_online_policies()) names.push_back(policy.name);
  const Yaml* online = fields.find("online");
  if (online == nullptr) return source.at(node, "a schedule has a `file`, or asks an `online` policy");
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *online, "online policy", names));
  OnlineChoice choice;
  choice.policy = names[chosen];
  if (const Yaml* base = fields.find("base")) {
    ASSIGN_OR_RETURN(choice.base, parse_schedule_name(source, *base));
  }
  if (const Yaml* count = fields.find("in_flight")) {
    ASSIGN_OR_RETURN(const int64_t room, read_integer(source, *count, "in_flight", 1, max_micro_batches));
    choice.in_flight = static_cast<int>(room);
  }
  if (const Yaml* replay = fields.find("replay")) {
    ASSIGN_OR_RETURN(choice.replay, read_schedule_file(source, node, *replay, workload_batch, plan));
  }
  plan.schedule = to_string(choice);
  return ok_status();
}

// A name, {file: mine.csv} or {online: longest_path}.
Status parse_plan_schedule(const Source& source, const Yaml& node, int64_t workload_batch, UserPlan& plan) {
  if (!node.is_map()) {
    ASSIGN_OR_RETURN(plan.schedule, parse_schedule_name(source, node));
    return ok_status();
  }
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, "a schedule", {"file", "online", "base", "in_flight", "replay"}));
  const Yaml* file = fields.find("file");
  if (file == nullptr) return parse_online_schedule(source, node, fields, workload_batch, plan);
  for (const std::string_view key : {"online", "base", "in_flight", "replay"}) {
    if (const Yaml* other = fields.find(key))
      return source.at(*other, fmt::format("a schedule in a file leaves nothing for '{}' to say", key));
  }
  ASSIGN_OR_RETURN(const std::string path, read_schedule_file(source, node, *file, workload_batch, plan));
  plan.schedule = std::string(schedule_file_prefix) + path;
  return ok_status();
}

std::string online_schedule_text(const OnlineChoice& choice) {
  std::string text = fmt::format("schedule: {{online: {}", yaml_quote(choice.policy));
  if (!choice.base.empty()) text += fmt::format(", base: {}", yaml_quote(choice.base));
  if (choice.in_flight > 0) text += fmt::format(", in_flight: {}", choice.in_flight);
  if (!choice.replay.empty())
    text += fmt::format(", replay: {}", yaml_quote(std::filesystem::absolute(choice.replay).string()));
  return text + "}\n";
}

}  // namespace

Result<std::string> parse_schedule_name(const Source& source, const Yaml& node) {
  std::vector<std::string_view> names;
  for (const SchedulePolicy& policy : all_schedules()) names.push_back(policy.name);
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node, "schedule", names));
  return std::string(names[chosen]);
}

Result<std::vector<int>> parse_micro_batches(const Source& source, const Yaml& node, int64_t workload_batch) {
  const std::vector<Yaml> single = {node};
  const std::vector<Yaml>& items = node.is_list() ? node.items : single;
  if (items.empty()) return source.at(node, "at least one micro-batch count is needed");
  if (items.size() > max_counts) return source.at(node, fmt::format("at most {} counts can be tried", max_counts));
  std::vector<int> counts;
  for (const Yaml& item : items) {
    ASSIGN_OR_RETURN(const int64_t count,
                     read_integer(source, item, "a number of micro-batches", 1, max_micro_batches));
    if (workload_batch > 0 && workload_batch % count != 0) {
      return source.at(item,
                       fmt::format("{} micro-batches do not divide the batch of {} evenly", count, workload_batch));
    }
    if (std::find(counts.begin(), counts.end(), count) != counts.end()) {
      return source.at(item, fmt::format("{} is given twice", count));
    }
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

Result<UserPlan> parse_plan(const Source& source, const Yaml& node, std::string name, int64_t workload_batch) {
  if (!node.is_map()) return parse_stages_of(source, node, std::move(name));
  auto opened = workload_batch == 0 ? Fields::open(source, node, "a plan",
                                                   {"name", "stages", "prefill", "decode", "micro_batches", "schedule"})
                                    : Fields::open(source, node, fmt::format("plan '{}'", name),
                                                   {"stages", "prefill", "decode", "micro_batches", "schedule"});
  ASSIGN_OR_RETURN(const Fields fields, std::move(opened));
  UserPlan plan;
  if (fields.find("prefill") != nullptr || fields.find("decode") != nullptr) {
    ASSIGN_OR_RETURN(plan, parse_both_stages(source, fields, std::move(name)));
  } else {
    ASSIGN_OR_RETURN(const Yaml* stages, fields.need("stages"));
    ASSIGN_OR_RETURN(plan, parse_stages_of(source, *stages, std::move(name)));
  }
  if (const Yaml* own_name = fields.find("name")) {
    ASSIGN_OR_RETURN(plan.name, read_text(source, *own_name, "a name"));
  }
  if (const Yaml* counts = fields.find("micro_batches")) {
    ASSIGN_OR_RETURN(plan.micro_batches, parse_micro_batches(source, *counts, workload_batch));
  }
  if (const Yaml* schedule = fields.find("schedule")) {
    RETURN_IF_ERROR(parse_plan_schedule(source, *schedule, workload_batch, plan));
  }
  return plan;
}

Result<UserPlan> read_plan_file(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const Source source{path, text};
  ASSIGN_OR_RETURN(const Yaml tree, parse_yaml(source));
  if (tree.kind == Yaml::Kind::null) {
    Error error = invalid_input("this plan file is empty");
    error.where.file = path;
    return error;
  }
  return parse_plan(source, tree, std::filesystem::path(path).stem().string(), 0);
}

std::string plan_file_text(const UserPlan& plan) {
  std::string text;
  if (!plan.name.empty()) text += fmt::format("name: {}\n", yaml_quote(plan.name));
  text += fmt::format("stages: {}\n", flow_list(plan.stages, [](const std::string& part) { return yaml_quote(part); }));
  if (!plan.micro_batches.empty()) {
    text +=
        fmt::format("micro_batches: {}\n", flow_list(plan.micro_batches, [](int n) { return fmt::format("{}", n); }));
  }
  if (plan.schedule.starts_with(schedule_file_prefix)) {
    const std::string path = std::filesystem::absolute(plan.schedule.substr(schedule_file_prefix.size())).string();
    text += fmt::format("schedule: {{file: {}}}\n", yaml_quote(path));
  } else if (is_online(plan.schedule)) {
    const auto choice = parse_online_choice(plan.schedule);
    CHECK(choice.ok(), "an online schedule nobody wrote");
    text += online_schedule_text(*choice);
  } else if (!plan.schedule.empty()) {
    text += fmt::format("schedule: {}\n", yaml_quote(plan.schedule));
  }
  return text;
}

}  // namespace nlsplit::inline scenario
