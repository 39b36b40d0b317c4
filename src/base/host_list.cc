#include "base/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/limits.h"

namespace nlsplit::inline base {
namespace {

constexpr size_t longest_name = 64;  // of a host in a scenario

// As in scenarios, and no "-" in front, which a program would take for an option.
bool is_host_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !name.empty() && name.size() <= longest_name && name.front() != '-' && std::ranges::all_of(name, fits);
}

std::string shown(std::string_view text) {
  return std::string(text.size() <= 80 ? text : text.substr(0, 80)) + (text.size() > 80 ? "…" : "");
}

std::string no_name(std::string_view text) {
  return fmt::format("'{}' cannot be the name of a host: letters, digits, '_', '-' and '.', at most {}", shown(text),
                     longest_name);
}

// All of it a whole number from `least` to `most`.
std::optional<int> number_of(std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty() || value < least || value > most)
    return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Error too_many() { return invalid_input(fmt::format("more than {} hosts", most_listed_hosts)); }

// One line of a hostfile without its comment; cores: 0 where it says none.
Result<ListedHost> host_of_line(std::string_view line) {
  const std::vector<std::string_view> words = split(line, " \t\r\v\f");
  ListedHost host;
  std::string_view name = words.front();
  if (const size_t colon = name.find(':'); colon != std::string_view::npos) {
    const auto count = number_of(name.substr(colon + 1), 1, most_cores);
    if (!count) return invalid_input(fmt::format("'{}': after ':' comes the number of cores to use", shown(name)));
    host.cores = *count;
    name = name.substr(0, colon);
  }
  if (name.find('@') != std::string_view::npos)
    return invalid_input(fmt::format("'{}': a user's name belongs into ~/.ssh/config", shown(name)));
  if (!is_host_name(name)) return invalid_input(no_name(name));
  host.name = name;
  for (size_t w = 1; w < words.size(); ++w) {
    const std::string_view word = words[w];
    const size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const bool is_most = key == "max_slots" || key == "max-slots";
    if (equals == std::string_view::npos || (key != "slots" && !is_most))
      return invalid_input(fmt::format("'{}' is neither slots=N nor max_slots=N", shown(word)));
    const auto count = number_of(word.substr(equals + 1), 1, most_cores);
    if (!count)
      return invalid_input(fmt::format("'{}': '{}' is not a number from 1 to {}", shown(word),
                                       shown(word.substr(equals + 1)), most_cores));
    if (!is_most) host.cores = *count;
  }
  return host;
}

}  // namespace

Result<std::vector<ListedHost>> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<ListedHost> hosts;
  std::map<std::string, size_t, std::less<>> known;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    const std::string_view content = line.substr(0, line.find('#'));
    if (content.find_first_not_of(" \t\r\v\f") == std::string_view::npos) continue;
    Result<ListedHost> host = host_of_line(content);
    if (host.ok() && hosts.size() == most_listed_hosts && !known.contains(host->name)) host = too_many();
    if (!host.ok()) {
      Error error = host.error();
      error.where = {file, number, 0};
      error.fragment = shown(line);
      return error;
    }
    const auto [place, is_new] = known.try_emplace(host->name, hosts.size());
    if (is_new) {
      hosts.push_back(std::move(*host));
      continue;
    }
    ListedHost& before = hosts[place->second];
    before.cores = before.cores > 0 && host->cores > 0 ? std::min(before.cores + host->cores, most_cores) : 0;
  }
  if (hosts.empty()) return invalid_input(fmt::format("{}: no host in it", file));
  return hosts;
}

Result<std::vector<ListedHost>> parse_hosts(std::string_view text, const std::string& said_by) {
  std::vector<ListedHost> hosts;
  std::set<std::string_view> known;
  for (const std::string_view name : split(text, ",")) {
    if (!is_host_name(name)) return invalid_input(fmt::format("{}: {}", said_by, no_name(name)));
    if (!known.insert(name).second) return invalid_input(fmt::format("{}: '{}' twice", said_by, name));
    if (hosts.size() == most_listed_hosts) return invalid_input(fmt::format("{}: {}", said_by, too_many().message));
    hosts.push_back({std::string(name)});
  }
  if (hosts.empty()) return invalid_input(fmt::format("{}: no host in it", said_by));
  return hosts;
}

namespace {

// Reads a node list from left to right.
class SlurmNodes {
 public:
  explicit SlurmNodes(std::string_view text) : text_(text) {}

  Result<std::vector<std::string>> read() {
    for (;;) {
      ASSIGN_OR_RETURN(std::vector<std::string> names, read_name());
      for (std::string& name : names) {
        if (!is_host_name(name)) return invalid_input(no_name(name));
        if (nodes_.size() == most_listed_hosts) return too_many();
        nodes_.push_back(std::move(name));
      }
      if (at_ == text_.size()) return std::move(nodes_);
      ++at_;  // the comma
    }
  }

 private:
  // Up to a comma outside of brackets: each bracket multiplies the names so far.
  Result<std::vector<std::string>> read_name() {
    std::vector<std::string> names = {""};
    while (at_ < text_.size() && text_[at_] != ',') {
      const size_t end = std::min(text_.find_first_of(",[]", at_), text_.size());
      if (end > at_) {
        for (std::string& name : names) {
          if (name.size() + (end - at_) > longest_name) return invalid_input(no_name(text_.substr(at_, end - at_)));
          name += text_.substr(at_, end - at_);
        }
        at_ = end;
        continue;
      }
      if (text_[at_] == ']') return invalid_input(fmt::format("']' without '[' before it at character {}", at_ + 1));
      ASSIGN_OR_RETURN(const std::vector<std::string> numbers, read_brackets());
      if (names.size() * numbers.size() > most_listed_hosts) return too_many();
      std::vector<std::string> more;
      for (const std::string& name : names) {
        for (const std::string& number : numbers) more.push_back(name + number);
      }
      names = std::move(more);
    }
    return names;
  }

  // "[01-03,7]"
  Result<std::vector<std::string>> read_brackets() {
    const size_t close = text_.find(']', at_);
    if (close == std::string_view::npos) return invalid_input(fmt::format("no ']' for '[' at character {}", at_ + 1));
    const std::string_view inside = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    std::vector<std::string> numbers;
    for (const std::string_view part : split(inside, ",")) {
      const size_t dash = part.find('-');
      const std::string_view first = part.substr(0, dash);
      const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
      constexpr int most = 999'999'999;
      const auto from = number_of(first, 0, most), to = number_of(last, 0, most);
      if (!from || !to || *from > *to)
        return invalid_input(
            fmt::format("'{}' in brackets is neither a number nor a range of them, as 01-03", shown(part)));
      if (static_cast<size_t>(*to - *from) >= most_listed_hosts - numbers.size()) return too_many();
      for (int number = *from; number <= *to; ++number)
        numbers.push_back(fmt::format("{:0{}}", number, std::min(first.size(), longest_name)));
    }
    if (numbers.empty()) return invalid_input("nothing in brackets");
    return numbers;
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::vector<std::string> nodes_;
};

}  // namespace

Result<std::vector<std::string>> parse_slurm_nodes(std::string_view text, const std::string& said_by) {
  auto nodes = SlurmNodes(text).read();
  if (!nodes) return invalid_input(fmt::format("{} '{}': {}", said_by, shown(text), nodes.error().message));
  std::set<std::string_view> known;
  for (const std::string& node : *nodes) {
    if (!known.insert(node).second)
      return invalid_input(fmt::format("{} '{}': '{}' twice", said_by, shown(text), node));
  }
  return nodes;
}

Result<std::vector<int>> parse_slurm_counts(std::string_view text, const std::string& said_by) {
  std::vector<int> counts;
  for (const std::string_view part : split(text, ",")) {
    const size_t open = part.find("(x");
    const auto count = number_of(part.substr(0, open), 1, most_cores);
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      const std::string_view rest = part.substr(open + 2);
      times = rest.ends_with(')') ? number_of(rest.substr(0, rest.size() - 1), 1, most_listed_hosts) : std::nullopt;
    }
    if (!count || !times || counts.size() + static_cast<size_t>(*times) > most_listed_hosts)
      return invalid_input(fmt::format("{} '{}': '{}' is not a count of processors such as 4 or 4(x3)", said_by,
                                       shown(text), shown(part)));
    counts.insert(counts.end(), static_cast<size_t>(*times), *count);
  }
  if (counts.empty()) return invalid_input(fmt::format("{}: no count of processors in it", said_by));
  return counts;
}

}  // namespace nlsplit::inline base
