// Profiles as JSON. The exceptions of its library end here.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cost/profile.h"

namespace nlsplit::inline cost {

namespace {

using nlohmann::json;

constexpr std::string_view format_name = "nlsplit-profile";
constexpr int format_version = 2;
constexpr int64_t most_repeats = 1'000'000'000;
constexpr int64_t most_beside = 4096;
constexpr int64_t last_date = 253'402'300'799;  // the end of the year 9999

Error in_profile(const std::string& path, std::string message) {
  Error error = invalid_input(std::move(message));
  error.where.file = path;
  return error;
}

Location location_of(const std::string& path, std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte > 0 ? byte - 1 : 0, text.size()));
  const size_t newline = before.rfind('\n');
  const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  return {path, 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
          static_cast<int>(before.size() - line_start) + 1};
}

Result<json> parse_json(const std::string& path, const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& e) {
    Error error = invalid_input(e.byte > text.size() && !text.empty() ? "the file ends in the middle: it was cut short"
                                                                      : "this is not JSON, so it is not a profile");
    error.where = location_of(path, text, e.byte);
    return error;
  } catch (const json::exception& e) {  // a number no double can hold
    return in_profile(path, fmt::format("this is not usable JSON: {}", e.what()));
  }
}

Result<std::string> text_field(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return invalid_input(fmt::format("\"{}\" is missing", key));
  if (!at->is_string()) return invalid_input(fmt::format("\"{}\" must be a text, it is {}", key, at->dump()));
  return at->get<std::string>();
}

Result<double> time_field(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return invalid_input(fmt::format("\"{}\" is missing", key));
  if (!at->is_number())
    return invalid_input(fmt::format("\"{}\" must be a number of seconds, it is {}", key, at->dump()));
  const double value = at->get<double>();
  if (value < 0) return invalid_input(fmt::format("\"{}\" is negative: {}", key, value));
  return value;
}

Result<BytesPerSecond> rate_field(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return invalid_input(fmt::format("\"{}\" is missing", key));
  if (!at->is_number() || at->get<double>() <= 0)
    return invalid_input(fmt::format("\"{}\" must be a number of bytes a second, it is {}", key, at->dump()));
  return bytes_per_second(at->get<double>());
}

Result<int64_t> integer_field(const json& object, const char* key, int64_t least, int64_t most) {
  const auto at = object.find(key);
  if (at == object.end()) return invalid_input(fmt::format("\"{}\" is missing", key));
  if (!at->is_number_integer() || *at < least || *at > most) {
    return invalid_input(
        fmt::format("\"{}\" must be an integer from {} to {}, it is {}", key, least, most, at->dump()));
  }
  return at->get<int64_t>();
}

Result<MeasuredCost> measured_cost(const json& entry) {
  ASSIGN_OR_RETURN(const double median, time_field(entry, "median_s"));
  ASSIGN_OR_RETURN(const double spread, time_field(entry, "spread_s"));
  ASSIGN_OR_RETURN(const int64_t repeats, integer_field(entry, "repeats", 1, most_repeats));
  MeasuredCost cost{seconds(median), seconds(spread), static_cast<int>(repeats)};
  if (entry.contains("beside_s")) {
    ASSIGN_OR_RETURN(const double beside, time_field(entry, "beside_s"));
    cost.beside = seconds(beside);
  }
  if (entry.contains("mean_s")) {
    ASSIGN_OR_RETURN(const double mean, time_field(entry, "mean_s"));
    cost.mean = seconds(mean);
  }
  return cost;
}

nlohmann::ordered_json cost_json(const MeasuredCost& cost) {
  nlohmann::ordered_json json = {
      {"median_s", cost.median.value()}, {"spread_s", cost.spread.value()}, {"repeats", cost.repeats}};
  if (cost.beside.value() > 0) json["beside_s"] = cost.beside.value();
  if (cost.mean.value() > 0) json["mean_s"] = cost.mean.value();
  return json;
}

Status check_format(const json& root) {
  if (!root.is_object()) return invalid_input("a profile is a JSON object");
  const auto format = root.find("format");
  if (format == root.end() || *format != format_name) {
    return invalid_input(fmt::format("this is not a profile: \"format\" must be \"{}\"{}", format_name,
                                     format == root.end() ? "" : fmt::format(", it is {}", format->dump())));
  }
  const auto version = root.find("version");
  if (version == root.end()) return invalid_input("\"version\" is missing");
  if (*version != format_version) {
    return unsupported(
        fmt::format("this profile has version {}; this program reads version {}: measure again with nlbench profile",
                    version->dump(), format_version));
  }
  return ok_status();
}

// Profiles of before kernels were chosen by measurement have none.
Status parse_choices(const json& root, Profile& profile) {
  const auto choices = root.find("choices");
  if (choices == root.end()) return ok_status();
  if (!choices->is_array()) return invalid_input("\"choices\" must be a list");
  for (size_t i = 0; i < choices->size(); ++i) {
    const json& entry = (*choices)[i];
    const auto wrong = [&](const std::string& why) {
      return invalid_input(fmt::format("choice {} of the list: {}", i + 1, why));
    };
    if (!entry.is_object()) return wrong("it is not an object");
    auto computation = text_field(entry, "computation");
    if (!computation) return wrong(computation.error().message);
    auto kernel = text_field(entry, "kernel");
    if (!kernel) return wrong(kernel.error().message);
    const auto id = parse_kernel(*kernel);
    if (!id) return wrong(id.error().message);
    if (!profile.choices.emplace(*computation, *id).second) return wrong("this computation was there before");
  }
  return ok_status();
}

Status parse_models(const json& root, Profile& profile) {
  const auto models = root.find("models");
  if (models == root.end()) return invalid_input("\"models\" is missing");
  if (!models->is_array()) return invalid_input("\"models\" must be a list of texts");
  for (const json& model : *models) {
    if (!model.is_string()) return invalid_input("\"models\" must be a list of texts");
    profile.models.push_back(model.get<std::string>());
  }
  return ok_status();
}

Status parse_dispatch(const json& root, Profile& profile) {
  const auto entry = root.find("dispatch");
  if (entry == root.end()) return ok_status();
  if (!entry->is_object()) return invalid_input("\"dispatch\" must be an object");
  auto cost = measured_cost(*entry);
  if (!cost) return invalid_input("\"dispatch\": " + cost.error().message);
  profile.dispatch = *cost;
  return ok_status();
}

Result<json> object_field(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return invalid_input(fmt::format("\"{}\" is missing", key));
  if (!at->is_object()) return invalid_input(fmt::format("\"{}\" must be an object", key));
  return *at;
}

Result<CopyLine> parse_line(const json& copies, const char* direction) {
  ASSIGN_OR_RETURN(const json entry, object_field(copies, direction));
  CopyLine line;
  ASSIGN_OR_RETURN(const double latency, time_field(entry, "latency_s"));
  ASSIGN_OR_RETURN(line.cost.bandwidth, rate_field(entry, "bytes_per_s"));
  ASSIGN_OR_RETURN(line.largest_error, time_field(entry, "largest_error"));
  line.cost.latency = seconds(latency);
  return line;
}

Result<Copies> parse_copies(const json& root, const char* memory) {
  ASSIGN_OR_RETURN(const json entry, object_field(root, memory));
  Copies copies;
  ASSIGN_OR_RETURN(copies.in, parse_line(entry, "in"));
  ASSIGN_OR_RETURN(copies.out, parse_line(entry, "out"));
  ASSIGN_OR_RETURN(copies.both, rate_field(entry, "both_bytes_per_s"));
  return copies;
}

// Only machines with a GPU have them.
Result<std::optional<HostCopies>> parse_host_copies(const json& root) {
  if (!root.contains("copies")) return std::optional<HostCopies>();
  ASSIGN_OR_RETURN(const json entry, object_field(root, "copies"));
  const auto parse = [&]() -> Result<HostCopies> {
    HostCopies all;
    ASSIGN_OR_RETURN(all.gpu, text_field(entry, "gpu"));
    ASSIGN_OR_RETURN(all.pinned, parse_copies(entry, "pinned"));
    ASSIGN_OR_RETURN(all.pageable, parse_copies(entry, "pageable"));
    return all;
  };
  auto all = parse();
  if (!all) return invalid_input("\"copies\": " + all.error().message);
  return std::optional<HostCopies>(std::move(*all));
}

nlohmann::ordered_json copies_json(const Copies& copies) {
  const auto line = [](const CopyLine& one) -> nlohmann::ordered_json {
    return {{"latency_s", one.cost.latency.value()},
            {"bytes_per_s", one.cost.bandwidth.value()},
            {"largest_error", one.largest_error}};
  };
  return {{"in", line(copies.in)}, {"out", line(copies.out)}, {"both_bytes_per_s", copies.both.value()}};
}

Result<Profile> parse_profile(const std::string& path, const json& root) {
  RETURN_IF_ERROR(check_format(root));
  Profile profile;
  profile.file = path;
  RETURN_IF_ERROR(parse_models(root, profile));
  ASSIGN_OR_RETURN(profile.machine, text_field(root, "machine"));
  ASSIGN_OR_RETURN(const int64_t beside, integer_field(root, "beside", 0, most_beside));
  profile.beside = static_cast<int>(beside);
  ASSIGN_OR_RETURN(profile.measured_at, integer_field(root, "measured_at_s", 0, last_date));
  if (const char* key = root.contains("gauge_s") ? "gauge_s" : "calibration_s"; root.contains(key)) {
    ASSIGN_OR_RETURN(profile.calibration_s, time_field(root, key));
  }
  RETURN_IF_ERROR(parse_dispatch(root, profile));
  ASSIGN_OR_RETURN(profile.copies, parse_host_copies(root));
  const auto kernels = root.find("kernels");
  if (kernels == root.end()) return invalid_input("\"kernels\" is missing");
  if (!kernels->is_array()) return invalid_input("\"kernels\" must be a list");
  for (size_t i = 0; i < kernels->size(); ++i) {
    const json& entry = (*kernels)[i];
    if (!entry.is_object()) return invalid_input(fmt::format("kernel {} of the list is not an object", i + 1));
    auto signature = text_field(entry, "signature");
    if (!signature.ok()) {
      return invalid_input(fmt::format("kernel {} of the list: {}", i + 1, signature.error().message));
    }
    auto cost = measured_cost(entry);
    if (!cost.ok()) {
      Error error = invalid_input(fmt::format("kernel {} of the list: {}", i + 1, cost.error().message));
      error.fragment = *signature;
      return error;
    }
    if (!profile.kernels.emplace(*signature, *cost).second) {
      Error error = invalid_input(fmt::format("kernel {} of the list: this signature was there before", i + 1));
      error.fragment = *signature;
      return error;
    }
  }
  RETURN_IF_ERROR(parse_choices(root, profile));
  return profile;
}

bool writable(Seconds time) { return std::isfinite(time.value()) && time.value() >= 0; }
bool writable(const Copies& copies) {
  const auto possible = [](const CopyLine& line) {
    return writable(line.cost.latency) && writable(seconds(line.largest_error)) &&
           std::isfinite(line.cost.bandwidth.value()) && line.cost.bandwidth.value() > 0;
  };
  return possible(copies.in) && possible(copies.out) && std::isfinite(copies.both.value()) && copies.both.value() > 0;
}
bool writable(const MeasuredCost& cost) {
  return writable(cost.median) && writable(cost.spread) && writable(cost.beside) && writable(cost.mean) &&
         cost.repeats >= 1;
}

}  // namespace

Result<Profile> read_profile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  ASSIGN_OR_RETURN(const json root, parse_json(path, text));
  auto profile = parse_profile(path, root);
  if (!profile.ok()) profile.error().where.file = path;
  return profile;
}

Status write_profile(const std::string& path, const Profile& profile) {
  nlohmann::ordered_json root;
  root["format"] = format_name;
  root["version"] = format_version;
  root["models"] = profile.models;
  root["machine"] = profile.machine;
  root["beside"] = profile.beside;
  root["measured_at_s"] = profile.measured_at;
  const auto refused = [&](const std::string& what) {
    Error error = failed("a measurement is not a time, so the profile is not written");
    error.where.file = path;
    error.fragment = what;
    return error;
  };
  if (profile.calibration_s > 0) root["calibration_s"] = profile.calibration_s;
  if (profile.dispatch.repeats > 0) {
    if (!writable(profile.dispatch)) return refused("dispatch");
    root["dispatch"] = cost_json(profile.dispatch);
  }
  root["kernels"] = nlohmann::ordered_json::array();
  for (const auto& [signature, cost] : profile.kernels) {
    if (!writable(cost)) return refused(signature);
    nlohmann::ordered_json entry = {{"signature", signature}};
    entry.update(cost_json(cost));
    root["kernels"].push_back(std::move(entry));
  }
  root["choices"] = nlohmann::ordered_json::array();
  for (const auto& [computation, kernel] : profile.choices)
    root["choices"].push_back({{"computation", computation}, {"kernel", to_string(kernel)}});
  if (profile.copies) {
    if (!writable(profile.copies->pinned) || !writable(profile.copies->pageable)) return refused("copies");
    root["copies"] = {{"gpu", profile.copies->gpu},
                      {"pinned", copies_json(profile.copies->pinned)},
                      {"pageable", copies_json(profile.copies->pageable)}};
  }
  return write_file(path, root.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace nlsplit::inline cost
