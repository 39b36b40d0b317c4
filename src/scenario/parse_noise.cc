// The noise of a scenario. What contradicts the cluster, or itself, is refused: noise that silently does nothing would
// pass for robustness.
#include <fmt/format.h>

#include <algorithm>

#include "base/percentage.h"
#include "base/text_reader.h"
#include "scenario/parse.h"
#include "scenario/parse_cluster.h"

namespace nlsplit::inline scenario {

namespace {

constexpr int64_t least_runs = 2, max_runs = 10'000;
constexpr double max_jitter = 1;      // 100 %
constexpr double max_time = 3600;     // s, as latencies
constexpr double least_burst = 1e-6;  // s: every burst is simulated

// "30%" → 0.3, above 0 and at most `most`.
Result<double> read_percentage(const Source& source, const Yaml& node, std::string_view what, double most) {
  ASSIGN_OR_RETURN(const double value, read_quantity(source, node, parse_percentage));
  if (!(value > 0) || value > most)
    return source.at(node, fmt::format("{} must be above 0% and at most {:g}%, not {}", what, most * 100, node.text));
  return value;
}

Result<double> read_time(const Source& source, const Yaml& node, std::string_view what, double least = 0) {
  ASSIGN_OR_RETURN(const Seconds time, read_quantity(source, node, parse_time));
  if (time.value() > max_time) return source.at(node, fmt::format("{} of more than an hour cannot be", what));
  if (time.value() < least)
    return source.at(node, fmt::format("{} must be at least {}", what, to_string(seconds(least))));
  return time.value();
}

// {jitter: 5%}
Status parse_jitter(const Source& source, const Fields& noise, const char* what, double& deviation) {
  const Yaml* node = noise.find(what);
  if (node == nullptr) return ok_status();
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, *node, fmt::format("{} of noise", what), {"jitter"}));
  ASSIGN_OR_RETURN(const Yaml* jitter, fields.need("jitter"));
  ASSIGN_OR_RETURN(deviation, read_percentage(source, *jitter, "jitter", max_jitter));
  return ok_status();
}

// `for` and `probability`, which stragglers and degradations have in common. `begin` is known by now.
Status parse_when(const Source& source, const Fields& fields, double begin, double& until, double& chance) {
  if (const Yaml* length = fields.find("for")) {
    ASSIGN_OR_RETURN(const double time, read_time(source, *length, "'for'"));
    if (!(time > 0)) return source.at(*length, "'for' 0s is never; leave it out for ever");
    until = begin + time;
  }
  if (const Yaml* probability = fields.find("probability")) {
    ASSIGN_OR_RETURN(chance, read_percentage(source, *probability, "probability", 1));
  }
  return ok_status();
}

Status parse_straggler(const Source& source, const Yaml& node, const Cluster& cluster, Noise& noise) {
  const std::string what = fmt::format("straggler {}", noise.stragglers.size() + 1);
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, what, {"device", "slowdown", "from", "for", "probability"}));
  Straggler straggler;
  if (const Yaml* device = fields.find("device")) {
    ASSIGN_OR_RETURN(const std::string name, read_text(source, *device, "a device"));
    straggler.device = cluster.find_device(name);
    if (!straggler.device.valid()) {
      std::vector<std::string> names;
      for (const Device& known : cluster.devices) names.push_back(known.name);
      const std::string near = nearest(name, names);
      return source.at(*device, fmt::format("unknown device '{}'{}", name,
                                            near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
    }
  }
  ASSIGN_OR_RETURN(const Yaml* slowdown, fields.need("slowdown"));
  ASSIGN_OR_RETURN(straggler.slowdown, read_number(source, *slowdown, "slowdown", 1, max_slowdown));
  if (straggler.slowdown == 1) return source.at(*slowdown, "a slowdown of 1 slows nothing down");
  if (const Yaml* from = fields.find("from")) {
    ASSIGN_OR_RETURN(straggler.from, read_time(source, *from, "'from'"));
  }
  RETURN_IF_ERROR(parse_when(source, fields, straggler.from, straggler.until, straggler.chance));
  if (!straggler.device.valid() && straggler.chance == 1) {
    return source.at(node, fmt::format("{} names no device, so each device is one by chance: it needs a 'probability' "
                                       "below 100%",
                                       what));
  }
  noise.stragglers.push_back(straggler);
  return ok_status();
}

Result<LinkId> read_link(const Source& source, const Fields& fields, const Cluster& cluster) {
  ASSIGN_OR_RETURN(const Yaml* node, fields.need("link"));
  ASSIGN_OR_RETURN(const std::string name, read_text(source, *node, "a link"));
  const auto known = std::ranges::find(cluster.links, name, &Link::name);
  if (known != cluster.links.end()) return LinkId(static_cast<size_t>(known - cluster.links.begin()));
  std::vector<std::string> names;
  for (const Link& link : cluster.links) names.push_back(link.name);
  const std::string near = nearest(name, names);
  return source.at(*node, fmt::format("unknown link '{}'{} x-y is the name of a link between x and y that has none",
                                      name, near.empty() ? ";" : fmt::format(": did you mean '{}'?", near)));
}

Status parse_background(const Source& source, const Yaml& node, const Cluster& cluster, Noise& noise) {
  const std::string what = fmt::format("background {}", noise.background.size() + 1);
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, what, {"link", "share", "on", "off"}));
  Background background;
  ASSIGN_OR_RETURN(background.link, read_link(source, fields, cluster));
  ASSIGN_OR_RETURN(const Yaml* share, fields.need("share"));
  ASSIGN_OR_RETURN(background.share, read_percentage(source, *share, "share", 1));
  double sum = background.share;
  for (const Background& other : noise.background) sum += other.link == background.link ? other.share : 0;
  if (!(sum < 1)) {
    return source.at(*share, fmt::format("{} would take {:g}% of link '{}': nothing would be left for messages", what,
                                         sum * 100, cluster.links[background.link.index()].name));
  }
  const Yaml *on = fields.find("on"), *off = fields.find("off");
  if ((on == nullptr) != (off == nullptr)) {
    return source.at(node, fmt::format("{} has '{}' without '{}': bursts need both; leave both out for traffic without "
                                       "a pause",
                                       what, on != nullptr ? "on" : "off", on != nullptr ? "off" : "on"));
  }
  if (on != nullptr) {
    ASSIGN_OR_RETURN(background.on, read_time(source, *on, "'on'", least_burst));
    ASSIGN_OR_RETURN(background.off, read_time(source, *off, "'off'", least_burst));
  }
  noise.background.push_back(background);
  return ok_status();
}

Status parse_degradation(const Source& source, const Yaml& node, const Cluster& cluster, Noise& noise) {
  const std::string what = fmt::format("degrade {}", noise.degradations.size() + 1);
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, what, {"link", "to", "at", "for", "probability"}));
  Degradation degradation;
  ASSIGN_OR_RETURN(degradation.link, read_link(source, fields, cluster));
  const Link& link = cluster.links[degradation.link.index()];
  ASSIGN_OR_RETURN(const Yaml* to, fields.need("to"));
  ASSIGN_OR_RETURN(degradation.to, read_quantity(source, *to, parse_bandwidth));
  if (degradation.to.value() < min_rate) return source.at(*to, fmt::format("a bandwidth of {} cannot be", to->text));
  if (!(degradation.to < link.bandwidth)) {
    return source.at(
        *to, fmt::format("link '{}' has {}: it cannot degrade to {}", link.name, to_string(link.bandwidth), to->text));
  }
  const Yaml* at = fields.find("at");
  if (at != nullptr) {
    ASSIGN_OR_RETURN(degradation.at, read_time(source, *at, "'at'"));
  }
  for (const Degradation& other : noise.degradations) {
    if (other.link != degradation.link || other.at != degradation.at) continue;
    if (other.chance < 1) continue;  // sometimes the one, sometimes both
    return source.at(at != nullptr ? *at : node,
                     fmt::format("link '{}' already degrades at {}", link.name, to_string(seconds(degradation.at))));
  }
  RETURN_IF_ERROR(parse_when(source, fields, degradation.at, degradation.until, degradation.chance));
  noise.degradations.push_back(degradation);
  return ok_status();
}

template <class Parse>
Status parse_list(const Source& source, const Fields& fields, const char* key, const Cluster& cluster, Noise& noise,
                  const Parse& parse) {
  const Yaml* node = fields.find(key);
  if (node == nullptr) return ok_status();
  RETURN_IF_ERROR(expect_list(source, *node, key));
  if (node->items.size() > max_devices) return source.at(*node, fmt::format("more than {} of them", max_devices));
  for (const Yaml& item : node->items) RETURN_IF_ERROR(parse(source, item, cluster, noise));
  return ok_status();
}

}  // namespace

Status parse_noise(const Source& source, const Yaml& node, Scenario& scenario) {
  ASSIGN_OR_RETURN(
      const Fields fields,
      Fields::open(source, node, "noise", {"seed", "runs", "compute", "links", "stragglers", "background", "degrade"}));
  Noise noise;
  const Cluster& cluster = scenario.cluster;
  if (const Yaml* seed = fields.find("seed")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *seed, "seed", 0, INT64_MAX));
    noise.seed = static_cast<uint64_t>(value);
  }
  RETURN_IF_ERROR(parse_jitter(source, fields, "compute", noise.compute_jitter));
  RETURN_IF_ERROR(parse_jitter(source, fields, "links", noise.link_jitter));
  RETURN_IF_ERROR(parse_list(source, fields, "stragglers", cluster, noise, parse_straggler));
  RETURN_IF_ERROR(parse_list(source, fields, "background", cluster, noise, parse_background));
  RETURN_IF_ERROR(parse_list(source, fields, "degrade", cluster, noise, parse_degradation));
  if (noise.compute_jitter == 0 && noise.link_jitter == 0 && noise.stragglers.empty() && noise.background.empty() &&
      noise.degradations.empty()) {
    return source.at(node, "this noise disturbs nothing: give it compute, links, stragglers, background or degrade");
  }
  if (!is_random(noise)) noise.runs = 1;
  if (const Yaml* runs = fields.find("runs")) {
    if (!is_random(noise))
      return source.at(*runs,
                       "nothing of this noise is left to chance, so all runs would be the same: leave 'runs' out");
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *runs, "runs", least_runs, max_runs));
    noise.runs = static_cast<int>(value);
  }
  scenario.noise = std::move(noise);
  return ok_status();
}

}  // namespace nlsplit::inline scenario
