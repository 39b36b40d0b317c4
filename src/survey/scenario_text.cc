#include "survey/scenario_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "base/name_range.h"
#include "survey/network_shape.h"

namespace nlsplit::inline survey {
namespace {

struct Unit {
  const char* name;
  double size;
};

// Four digits and the unit that leaves one to three before the point: what a scenario reads.
template <size_t N>
std::string quantity(double value, const std::array<Unit, N>& units) {
  const Unit* unit = &units.front();
  for (const Unit& larger : units)
    if (value >= larger.size) unit = &larger;
  const double number = value / unit->size;
  const int digits = number >= 100 ? 1 : number >= 10 ? 2 : 3;
  std::string text = fmt::format("{:.{}f}", number, digits);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + unit->name;
}

std::string bandwidth_text(BytesPerSecond rate) {
  constexpr std::array<Unit, 5> units = {Unit{"bps", 1}, {"kbps", 1e3}, {"Mbps", 1e6}, {"Gbps", 1e9}, {"Tbps", 1e12}};
  return quantity(rate.value() * 8, units);
}
std::string memory_rate_text(BytesPerSecond rate) {
  constexpr std::array<Unit, 5> units = {Unit{"Bps", 1}, {"kBps", 1e3}, {"MBps", 1e6}, {"GBps", 1e9}, {"TBps", 1e12}};
  return quantity(rate.value(), units);
}
std::string compute_text(FlopsPerSecond rate) {
  constexpr std::array<Unit, 5> units = {
      Unit{"FLOPS", 1}, {"kFLOPS", 1e3}, {"MFLOPS", 1e6}, {"GFLOPS", 1e9}, {"TFLOPS", 1e12}};
  return quantity(rate.value(), units);
}
std::string time_text(Seconds time) {
  constexpr std::array<Unit, 4> units = {Unit{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return quantity(time.value(), units);
}
// Whole MiB, rounded down.
std::string size_text(Bytes size) { return fmt::format("{}MiB", std::max<int64_t>(1, size.value() >> 20)); }

// Machines that are alike, with the mean of what was measured of them.
struct Kind {
  std::vector<size_t> machines;
  std::string about, costs;  // `costs` and the keys before it, of a flow map
};

std::string joined(const Survey& survey, const std::vector<size_t>& machines) {
  std::vector<std::string> names;
  for (const size_t m : machines) names.push_back(survey.machines[m].name);
  constexpr size_t most = 8;
  std::string all = join_names(names, ", ");
  if (names.size() <= most || all.size() <= 80) return all;
  names.resize(most);
  return fmt::format("{}, … ({} in all)", fmt::join(names, ", "), machines.size());
}

bool are_alike(const Machine& a, const Machine& b) {
  const auto near = [](double x, double y) { return std::abs(x - y) <= 2 * alike * std::max(x, y); };
  return a.about == b.about && a.measured_cores == b.measured_cores && a.levels == b.levels && a.gpus == b.gpus &&
         near(a.compute.value(), b.compute.value()) && near(a.memory_rate.value(), b.memory_rate.value());
}

std::string about_text(const Machine& machine) {
  std::string text = machine.about;
  for (const Cache& cache : machine.caches) {
    text += fmt::format("; L{} {}{}", cache.level, cache.count > 1 ? fmt::format("{} x ", cache.count) : "",
                        to_string(cache.size));
  }
  std::vector<std::string> levels;
  for (const Isa isa : machine.levels) levels.emplace_back(name_of(isa));
  return text + fmt::format("; kernels up to {}", levels.back());
}

// A name that plain YAML would take for something else stands in quotes.
std::string yaml_name(const std::string& name) {
  static const std::set<std::string_view> words = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool plain = std::isalnum(static_cast<unsigned char>(name.front())) != 0 && !words.contains(lower);
  return plain ? name : fmt::format("'{}'", name);
}

std::string off_by(const NetworkShape& shape) {
  return fmt::format("the worst path is off by {:.0f} % in latency and {:.0f} % in bandwidth",
                     shape.latency_error * 100, shape.bandwidth_error * 100);
}

std::string counted_twice(const Survey& survey, const std::vector<size_t>& machines) {
  std::vector<std::string> names;
  for (const size_t m : machines) names.push_back(survey.machines[m].name);
  constexpr size_t most = 8;
  std::string all;
  if (names.size() > most)
    all = joined(survey, machines);
  else
    all = fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
  return fmt::format("{} are one machine: its cores and memory are counted {}", all,
                     names.size() == 2 ? "twice" : fmt::format("{} times", names.size()));
}

class Text {
 public:
  Text(const Survey& survey, const Draft& draft)
      : survey_(survey), draft_(draft), shape_(network_shape(survey.machines.size(), survey.paths)) {
    for (size_t m = 0; m < survey.machines.size(); ++m) {
      const auto same = std::ranges::find_if(kinds_, [&](const Kind& kind) {
        return are_alike(survey.machines[kind.machines.front()], survey.machines[m]);
      });
      if (same == kinds_.end())
        kinds_.push_back({{m}, about_text(survey.machines[m]), ""});
      else
        same->machines.push_back(m);
      taken_.insert(survey.machines[m].name);
    }
    for (const std::vector<size_t>& shared : survey.one_machine)
      for (const size_t m : shared) shares_[m] = &shared;
  }

  std::string write() {
    head();
    devices();
    network();
    ends();
    return std::move(text_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  const Machine& machine(size_t m) const { return survey_.machines[m]; }

  void head() {
    std::string written_by = draft_.written_by;
    std::ranges::replace_if(
        written_by, [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
    line("# {} wrote this on {} from what it measured{}.", written_by, draft_.date,
         survey_.paths.empty() ? "" : fmt::format(", messages over {}", survey_.transport));
    line("#   nlsim rank THIS_FILE");
    line("# TODO marks what could not be found out: what stands there is a guess, and you know better.");
    line("");
    line("model: {}{}", draft_.model,
         draft_.model_is_given ? ""
                               : "      # TODO which network? Also a file (.onnx, .gguf), a folder of safetensors, or "
                                 "one of `nlsim zoo`");
    line("");
    line(
        "workload: {{mode: inference, batch: 32}}      # TODO how many samples at once? Training and generation: "
        "docs/scenario.md");
    line("");
  }

  void devices() {
    line(
        "# compute: a product of matrices; memory: element by element, beyond all caches; by all cores of a device at "
        "once.");
    line("# That is for a first look. Measured kernels know more: on one machine of each kind");
    line("#   nlbench profile THIS_FILE -o KIND.json");
    line("# and then  costs: KIND.json  instead of the roofline.");
    if (std::ranges::any_of(survey_.machines, [&](const Machine& one) { return one.levels != machine(0).levels; }))
      line(
          "# Kernels are the best that each machine has. Machines of unlike levels round differently (docs/plans.md).");
    line("devices:");
    std::vector<size_t> kind_of(survey_.machines.size());
    for (size_t k = 0; k < kinds_.size(); ++k)
      for (const size_t m : kinds_[k].machines) kind_of[m] = k;
    std::vector<std::string> own;
    for (const Kind& kind : kinds_) own.push_back(figures(kind));
    for (size_t m = 0; m < survey_.machines.size(); ++m) device(m, kind_of[m], own[kind_of[m]]);
  }

  // The keys that all machines of a kind share.
  std::string figures(const Kind& kind) const {
    const Machine& first = machine(kind.machines.front());
    double compute = 0, memory_rate = 0;
    for (const size_t m : kind.machines) {
      compute += machine(m).compute.value() / static_cast<double>(kind.machines.size());
      memory_rate += machine(m).memory_rate.value() / static_cast<double>(kind.machines.size());
    }
    return fmt::format("kind: cpu, cores: {}, isa: {}, costs: {{roofline: {{compute: {}, memory: {}}}}}",
                       first.measured_cores, name_of(first.levels.back()), compute_text(flops_per_second(compute)),
                       memory_rate_text(bytes_per_second(memory_rate)));
  }

  void device(size_t m, size_t k, const std::string& own) {
    const Kind& kind = kinds_[k];
    const Machine& one = machine(m);
    const std::string name = yaml_name(one.name);
    const bool first = m == kind.machines.front();
    if (first) line("  # {}: {}", joined(survey_, kind.machines), kind.about);
    std::string shares;
    if (const auto found = shares_.find(m); found != shares_.end()) {
      const std::vector<size_t>& together = *found->second;
      shares = fmt::format(", machine: {}", yaml_name(machine(together.front()).name));
      if (m == together.front())
        line("  # TODO {}. Leave all but one out, or give each its part", counted_twice(survey_, together));
    }
    const bool knows_free = one.free_memory.value() > 0;
    const std::string memory = size_text(knows_free ? one.free_memory : one.memory);
    const char* const why = knows_free ? "free when it was measured" : "all there is: TODO how much of it may be used?";
    if (kind.machines.size() == 1)
      line("  {0}: {{host: {0}, memory: {1}{4}, {2}}}      # memory: {3}", name, memory, own, why, shares);
    else if (first)
      line("  {0}: &kind{1} {{host: {0}, memory: {2}{5}, {3}}}      # memory: {4}", name, k + 1, memory, own, why,
           shares);
    else
      line("  {0}: {{<<: *kind{1}, host: {0}, memory: {2}{3}}}", name, k + 1, memory,
           !shares.empty() || !shares_.contains(kind.machines.front()) ? shares : ", machine: " + name);
    for (size_t g = 0; g < one.gpus.size(); ++g) gpu(one, g);
  }

  // A GPU whose figures are there is a device; another is asked for.
  void gpu(const Machine& host, size_t g) {
    const Gpu& gpu = host.gpus[g];
    std::string name = fmt::format("{}-gpu{}", host.name, g);
    constexpr size_t longest_name = 64;
    if (name.size() > longest_name) name = fmt::format("gpu{}", taken_.size());
    while (!taken_.insert(name).second) name += "_";
    const bool has_costs = gpu.compute.value() > 0 && gpu.memory_rate.value() > 0 && gpu.memory.value() > 0;
    line("  # {}{}", gpu.about, gpu.trouble.empty() ? "" : "; " + gpu.trouble);
    const std::string bus = gpu.bus_bandwidth.value() > 0
                                ? fmt::format("bus: {{bandwidth: {}, latency: {}}}", bandwidth_text(gpu.bus_bandwidth),
                                              time_text(gpu.bus_latency))
                                : "bus: {bandwidth: TODO, latency: TODO}";
    const std::string costs = has_costs ? fmt::format("costs: {{roofline: {{compute: {}, memory: {}}}}}",
                                                      compute_text(gpu.compute), memory_rate_text(gpu.memory_rate))
                                        : "costs: TODO.json";
    const bool whole = has_costs && gpu.bus_bandwidth.value() > 0;
    if (!whole) line("  # TODO it is left out until its figures are there: nlbench profile measures them");
    line("  {}{}: {{host: {}, kind: cuda, memory: {}, {}, {}}}", whole ? "" : "# ", yaml_name(name),
         yaml_name(host.name), gpu.memory.value() > 0 ? size_text(gpu.memory) : "TODO", bus, costs);
    if (host.gpus.size() > 1 && g + 1 == host.gpus.size())
      line("  # TODO are these GPUs joined by NVLink or the like? That is `peers` (docs/scenario.md)");
  }

  std::string free_name(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return name;
  }

  static std::string wire_text(const std::string& a, const std::string& b, const Wire& wire) {
    return fmt::format("  - {{between: [{}, {}], bandwidth: {}, latency: {}{}}}", yaml_name(a), yaml_name(b),
                       bandwidth_text(wire.bandwidth), time_text(wire.latency),
                       wire.half_duplex ? ", duplex: half" : "");
  }

  void network() {
    if (shape_.kind == NetworkShape::Kind::none) return;
    line("");
    line(
        "# Latency: half of the shortest time that the smallest message took there and back, so it has what both "
        "systems need.");
    line("# Bandwidth: what a large message takes more than a smaller one.");
    if (survey_.transport == "mpi")
      line(
          "# How messages wait for their receivers is not in here: nlbench network THIS_FILE -o network.json measures "
          "it, for  network: {{profile: network.json}}");
    const double skew = largest_skew();
    if (skew > 2 * alike)
      line("# TODO one path is {:.0f} % slower one way than back: is that so? A link has one figure for both",
           skew * 100);
    if (shape_.kind == NetworkShape::Kind::paths)
      paths();
    else
      switches();
  }

  double largest_skew() const {
    double skew = 0;
    for (const Path& path : survey_.paths) {
      const double out = path.bandwidth.value(), back = path.back.value();
      skew = std::max(skew, 1 - std::min(out, back) / std::max(out, back));
    }
    return skew;
  }

  void paths() {
    if (survey_.machines.size() > 2)
      line(
          "# TODO what do the paths share? No switch, and no racks, explain what was measured, so each two hosts have "
          "a "
          "link of their own here");
    line("links:");
    each_kind([&](size_t w) {
      const Path& path = survey_.paths[w];
      return wire_text(machine(path.a).name, machine(path.b).name, shape_.wires[w]);
    });
  }

  void switches() {
    const bool racks = shape_.kind == NetworkShape::Kind::racks;
    std::vector<std::string> names;  // of the switch that each rack has
    std::string root;
    if (racks) {
      root = free_name("core");
      for (size_t r = 0; r < shape_.uplinks.size(); ++r) names.push_back(free_name(fmt::format("rack{}", r)));
      line("# Racks: {} of {} paths measured, {}.", survey_.paths.size(),
           survey_.machines.size() * (survey_.machines.size() - 1) / 2, off_by(shape_));
      line("switches: [{}, {}]", root, fmt::join(names, ", "));
    } else {
      names = {free_name("sw")};
      line("# One switch: {} of {} paths measured, {}.", survey_.paths.size(),
           survey_.machines.size() * (survey_.machines.size() - 1) / 2, off_by(shape_));
      line("switches: [{}]      # TODO is it one? Nobody but you knows what hosts share", names.front());
    }
    if (!explains(shape_))
      line(
          "# TODO what lies between these hosts? Neither one switch nor racks explain what was measured, and not all "
          "pairs were: these links are the nearest guess");
    line("links:");
    line("  # TODO has one of {} a faster link? No other host could take more, so it would look the same",
         joined(survey_, fastest()));
    each_kind(
        [&](size_t host) { return wire_text(machine(host).name, names[shape_.rack_of[host]], shape_.wires[host]); });
    if (!racks) return;
    line("  # TODO what do these carry when many hosts of a rack send at once? Each was measured with one message");
    for (size_t r = 0; r < names.size(); ++r) text_ += wire_text(names[r], root, shape_.uplinks[r]) + "\n";
  }

  // Hosts whose links are about as fast as the fastest: two at least, since one alone looks like the next.
  std::vector<size_t> fastest() const {
    double most = 0;
    for (const Wire& wire : shape_.wires) most = std::max(most, wire.bandwidth.value());
    std::vector<size_t> hosts;
    for (size_t host = 0; host < shape_.wires.size(); ++host)
      if (shape_.wires[host].bandwidth.value() >= (1 - alike) * most) hosts.push_back(host);
    return hosts;
  }

  // Wires by their kinds, in the order of the first of each.
  template <class Line>
  void each_kind(const Line& of) {
    for (size_t kind = 0; kind < shape_.kinds; ++kind) {
      std::vector<size_t> members;
      for (size_t w = 0; w < shape_.wires.size(); ++w)
        if (shape_.wires[w].kind == kind) members.push_back(w);
      if (members.size() > 1) line("  # {} alike, each with the mean of what was measured", members.size());
      for (const size_t w : members) text_ += of(w) + "\n";
    }
  }

  void ends() {
    line("");
    line("source: {}      # TODO where do inputs come from?", yaml_name(machine(0).name));
    line("sink: {}        # TODO and where do results go?", yaml_name(machine(0).name));
  }

  const Survey& survey_;
  const Draft& draft_;
  const NetworkShape shape_;
  std::vector<Kind> kinds_;
  std::map<size_t, const std::vector<size_t>*> shares_;  // by machine: those that are the same one
  std::set<std::string> taken_;
  std::string text_;
};

}  // namespace

std::string scenario_text(const Survey& survey, const Draft& draft) { return Text(survey, draft).write(); }

std::vector<std::string> warnings_of(const Survey& survey) {
  std::vector<std::string> warnings;
  for (const std::vector<size_t>& machines : survey.one_machine) warnings.push_back(counted_twice(survey, machines));
  const NetworkShape shape = network_shape(survey.machines.size(), survey.paths);
  if (shape.kind != NetworkShape::Kind::none && !explains(shape))
    warnings.push_back("neither one switch nor racks explain the network: " + off_by(shape));
  return warnings;
}

}  // namespace nlsplit::inline survey
