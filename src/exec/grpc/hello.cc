#include "exec/grpc/hello.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "exec/heartbeat/greeting.h"

namespace nlsplit::inline exec {
namespace {

using nlohmann::json;

constexpr int version = 1;
constexpr int most_ranks = 4096;

json json_of(const AboutRank& about) { return {{"host", about.host}, {"machine", about.machine}}; }

AboutRank about_of(const json& value) {
  return {value.at("host").get<std::string>(), value.at("machine").get<std::string>()};
}

}  // namespace

AboutRank about_this_process() {
  const auto id = read_file("/proc/sys/kernel/random/boot_id");
  return {own_host(), id ? id->substr(0, id->find('\n')) : own_host()};
}

std::string to_string(const Hello& hello) {
  json facts = json::array();
  for (const Fact& fact : hello.facts) facts.push_back({fact.what, fact.value});
  return json{{"format", "nlsplit-hello"},
              {"version", version},
              {"secret", hello.secret},
              {"run", hello.run},
              {"from", hello.from},
              {"to", hello.to},
              {"about", json_of(hello.about)},
              {"facts", std::move(facts)},
              {"addresses", hello.addresses},
              {"heartbeat_s", hello.heartbeat_s},
              {"start_timeout_s", hello.start_timeout_s},
              {"job", hello.job}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_string(const AboutRank& about) {
  return json_of(about).dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Hello> parse_hello(const std::string& text) {
  Hello hello;
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-hello") return invalid_input("no hello of nlsplit");
    if (const int theirs = value.at("version").get<int>(); theirs != version)
      return invalid_input(fmt::format("a hello of version {}, and this build speaks version {}", theirs, version));
    hello.secret = value.at("secret").get<std::string>();
    hello.run = value.at("run").get<std::string>();
    hello.from = value.at("from").get<int>();
    hello.to = value.at("to").get<int>();
    hello.about = about_of(value.at("about"));
    for (const json& fact : value.at("facts"))
      hello.facts.push_back({fact.at(0).get<std::string>(), fact.at(1).get<std::string>()});
    hello.addresses = value.at("addresses").get<std::vector<std::string>>();
    hello.heartbeat_s = value.at("heartbeat_s").get<double>();
    hello.start_timeout_s = value.at("start_timeout_s").get<double>();
    hello.job = value.at("job").get<std::string>();
  } catch (const json::exception& wrong) {
    return invalid_input(fmt::format("a damaged hello: {}", wrong.what()));
  }
  const auto ranks = hello.from == 0 ? std::ssize(hello.addresses) : most_ranks;
  if (hello.from < 0 || hello.to <= hello.from || hello.to >= ranks || ranks > most_ranks)
    return invalid_input(fmt::format("a hello from rank {} to rank {} of {}", hello.from, hello.to, ranks));
  for (const double s : {hello.heartbeat_s, hello.start_timeout_s})
    if (!std::isfinite(s) || s < 0) return invalid_input("a hello with a time that cannot be");
  return hello;
}

Result<AboutRank> parse_welcome(const std::string& text) {
  try {
    return about_of(json::parse(text));
  } catch (const json::exception& wrong) {
    return invalid_input(fmt::format("a damaged welcome: {}", wrong.what()));
  }
}

}  // namespace nlsplit::inline exec
