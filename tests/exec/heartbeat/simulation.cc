#include "exec/heartbeat/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "exec/heartbeat/fault_scenario.h"
#include "exec/heartbeat/peer_watch.h"

namespace nlsplit {
namespace {

constexpr double last_begin_s = 2, leave_s = 90, last_s = 150;
constexpr uint16_t first_port = 1000;
constexpr int stranger = -1;

class World {
 public:
  World(uint64_t seed, const std::function<FaultScenario(Random&)>& choose)
      : random_(seed), scenario_(choose(random_)), processes_(static_cast<size_t>(scenario_.ranks)) {}
  SimulatedRun run();

 private:
  struct Wire {
    int from, to;  // processes, or `stranger`
    int number_from = -1, number_to = -1;
    double free_s[2] = {0, 0};  // until then what was sent before is under way, by direction
  };
  struct Process {
    std::optional<PeerWatch> watch;
    double begin_s = 0, met_s = for_ever_s, ended_s = for_ever_s, stopped_until_s = -1;
    bool dead = false, left = false, gone = false;  // gone: its process no longer exists, for whatever reason
    int steps = 0;
    double tick_s = for_ever_s;
    std::deque<std::function<void()>> inbox;                   // while it is stopped
    std::vector<std::pair<int, std::shared_ptr<Wire>>> wires;  // by the watch's number
    std::vector<bool> met;                                     // by rank
    Ending ending;
  };
  struct Event {
    double at_s;
    uint64_t order;
    std::function<void()> what;
    bool operator>(const Event& other) const { return std::tie(at_s, order) > std::tie(other.at_s, other.order); }
  };

  static Moment moment(double s) { return Moment() + std::chrono::hours(1) + of_seconds(s); }
  static double seconds(Moment moment) {
    return std::chrono::duration<double>(moment - Moment() - std::chrono::hours(1)).count();
  }
  Moment now() const { return moment(now_s_); }
  Process& at(int rank) { return processes_[static_cast<size_t>(rank)]; }

  void log(const std::string& text) { log_ += fmt::format("{:10.4f} {}\n", now_s_, text); }
  void fail(const std::string& text) {
    if (failure_.empty()) failure_ = text;
  }
  void after(double at_s, std::function<void()> what) {
    events_.push({std::max(at_s, now_s_), order_++, std::move(what)});
  }
  double arrival(int from, int to, double earliest_s);
  void travel(const std::shared_ptr<Wire>& wire, int direction, std::function<void()> what);
  void to_process(int rank, std::function<void()> what);
  void step(int rank, const std::function<void()>& what);
  void plan_tick(int rank);
  void begin(int rank);
  void perform(int rank);
  void connect(int rank, const Action& action);
  void accept(const std::shared_ptr<Wire>& wire, std::function<void(bool)> answer);
  void lines(const std::shared_ptr<Wire>& wire, int direction, const std::string& line);
  void finish(const std::shared_ptr<Wire>& wire, int direction);
  void forget(int rank, int number);
  void vanish(int rank);
  void visit(bool flood);
  void set_up();
  void check();
  int groups() const;

  Random random_;
  FaultScenario scenario_;
  std::vector<Process> processes_;
  std::vector<Greeting> greetings_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_s_ = 0;
  uint64_t order_ = 0;
  std::string log_, failure_;
};

// for_ever_s: what is sent now never arrives. TCP sends again, so a cut only delays.
double World::arrival(int from, int to, double earliest_s) {
  double s = std::max(earliest_s, now_s_ + (scenario_.least_delay_s < scenario_.most_delay_s
                                                ? random_.uniform(scenario_.least_delay_s, scenario_.most_delay_s)
                                                : scenario_.least_delay_s));
  for (const Cut& cut : scenario_.cuts) {
    if (cut.from != from || cut.to != to || s < cut.begin_s || now_s_ >= cut.end_s) continue;
    s = cut.end_s >= for_ever_s ? for_ever_s : std::max(s, cut.end_s + scenario_.least_delay_s);
  }
  return s;
}

// direction 0: from the one that called.
void World::travel(const std::shared_ptr<Wire>& wire, int direction, std::function<void()> what) {
  const int from = direction == 0 ? wire->from : wire->to, to = direction == 0 ? wire->to : wire->from;
  double& free_s = wire->free_s[direction];
  free_s = arrival(from, to, free_s);
  if (free_s < for_ever_s) after(free_s, std::move(what));
}

void World::to_process(int rank, std::function<void()> what) {
  Process& process = at(rank);
  if (process.gone) return;
  if (now_s_ < process.stopped_until_s)
    process.inbox.push_back(std::move(what));
  else
    step(rank, what);
}

void World::step(int rank, const std::function<void()>& what) {
  Process& process = at(rank);
  if (rank == scenario_.victim && process.steps++ == scenario_.dies_after_steps) {
    log(fmt::format("rank {} dies at step {}", rank, process.steps - 1));
    process.dead = true;
    return vanish(rank);
  }
  what();
  if (!process.watch || process.gone) return;
  if (now() >= process.watch->next()) process.watch->tick(now());
  perform(rank);
}

void World::plan_tick(int rank) {
  Process& process = at(rank);
  if (process.gone || process.watch->next() == Moment::max()) return;
  const double due_s = std::max(now_s_, seconds(process.watch->next()));
  if (process.tick_s <= due_s) return;
  process.tick_s = due_s;
  after(due_s + 1e-9 + random_.uniform(0, scenario_.lateness_s), [this, rank, due_s] {
    if (at(rank).tick_s != due_s) return;  // there is an earlier one
    at(rank).tick_s = for_ever_s;
    to_process(rank, [this, rank] { at(rank).watch->tick(now()); });
  });
}

void World::begin(int rank) {
  PeerWatchOptions options;
  options.limit_s = limit_s;
  options.start.patience_s = start_s;
  at(rank).watch.emplace(rank, greetings_, options,
                         OwnActivity{[] { return 0.0; }, [](int) { return std::string("waits in a simulation"); }},
                         now());
  at(rank).watch->tick(now());
}

void World::perform(int rank) {
  Process& process = at(rank);
  for (std::vector<Action> actions; !(actions = process.watch->take_actions()).empty();) {
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::connect) {
        connect(rank, action);
        continue;
      }
      const auto it =
          std::ranges::find(process.wires, action.connection, &std::pair<int, std::shared_ptr<Wire>>::first);
      if (it == process.wires.end()) continue;
      const std::shared_ptr<Wire> wire = it->second;
      const int direction = wire->from == rank && wire->number_from == action.connection ? 0 : 1;
      if (action.kind == Action::Kind::send) {
        lines(wire, direction, action.text);
      } else {
        process.wires.erase(it);
        finish(wire, direction);
      }
    }
  }
  if (process.wires.size() > most_visitors + 3 * processes_.size())
    fail(fmt::format("rank {} keeps {} connections", rank, process.wires.size()));
  for (const auto& [number, wire] : process.wires) {
    if (process.met_s < for_ever_s) break;
    if (process.watch->is_peer(number))
      process.met[static_cast<size_t>(wire->from == rank ? wire->to : wire->from)] = true;
  }
  if (process.watch->all_met() && process.met_s == for_ever_s) {
    process.met_s = now_s_;
    log(fmt::format("rank {} has met all", rank));
  }
  if (process.watch->ending() && process.ended_s == for_ever_s) {
    process.ended_s = now_s_;
    process.ending = *process.watch->ending();
    log(fmt::format("rank {} ends, {}: {}", rank, process.ending.speaks ? "speaks" : "silent",
                    process.ending.error.message.substr(0, 160)));
    return vanish(rank);
  }
  plan_tick(rank);
}

void World::connect(int rank, const Action& action) {
  Process& process = at(rank);
  const auto wire = std::make_shared<Wire>();
  wire->from = rank;
  wire->to = action.port - first_port;
  wire->number_from = action.connection;
  process.wires.emplace_back(action.connection, wire);
  const auto number = action.connection;
  if (action.text == "nowhere") return;
  if (action.text == "else") {  // somebody else listens there
    wire->to = stranger;
    after(now_s_ + scenario_.most_delay_s, [this, rank, number] {
      to_process(rank, [this, rank, number] {
        at(rank).watch->connected(number, now());
        at(rank).watch->received(number, "220 mail.example ESMTP", now());
      });
    });
    return;
  }
  if (action.text == "refused") {
    after(now_s_ + 1e-4, [this, rank, number] {
      to_process(rank, [this, rank, number] {
        forget(rank, number);
        at(rank).watch->closed(number, now());
      });
    });
    return;
  }
  travel(wire, 0, [this, rank, number, wire] {
    accept(wire, [this, rank, number, wire](bool accepted) {
      travel(wire, 1, [this, rank, number, accepted] {
        to_process(rank, [this, rank, number, accepted] {
          if (accepted) return at(rank).watch->connected(number, now());
          forget(rank, number);
          at(rank).watch->closed(number, now());
        });
      });
    });
  });
}

// The system accepts as long as the port is open, whether or not the process runs.
void World::accept(const std::shared_ptr<Wire>& wire, std::function<void(bool)> answer) {
  const int rank = wire->to;
  Process& process = at(rank);
  if (process.gone || (process.watch && process.watch->all_met())) {
    if (answer) answer(false);
    return;
  }
  if (answer) answer(true);
  // A process that has not begun its start yet reads it then.
  const double ready_s = std::max(now_s_, process.begin_s + 1e-6);
  wire->free_s[0] = std::max(wire->free_s[0], ready_s);
  after(ready_s, [this, rank, wire] {
    to_process(rank, [this, rank, wire] {
      if (at(rank).watch->all_met()) return;  // the listener is closed
      wire->number_to = at(rank).watch->accepted(now());
      at(rank).wires.emplace_back(wire->number_to, wire);
    });
  });
}

void World::lines(const std::shared_ptr<Wire>& wire, int direction, const std::string& line) {
  const int to = direction == 0 ? wire->to : wire->from;
  if (to == stranger) return;
  travel(wire, direction, [this, wire, direction, to, line] {
    to_process(to, [this, wire, direction, to, line] {
      const int number = direction == 0 ? wire->number_to : wire->number_from;
      if (std::ranges::find(at(to).wires, number, &std::pair<int, std::shared_ptr<Wire>>::first) == at(to).wires.end())
        return;
      if (line.size() > longest_greeting_line && !at(to).watch->is_peer(number)) {
        forget(to, number);
        at(to).watch->closed(number, now());
      } else {
        at(to).watch->received(number, line, now());
      }
    });
  });
}

// The end of the stream.
void World::finish(const std::shared_ptr<Wire>& wire, int direction) {
  const int to = direction == 0 ? wire->to : wire->from;
  if (to == stranger) return;
  travel(wire, direction, [this, wire, direction, to] {
    to_process(to, [this, wire, direction, to] {
      const int number = direction == 0 ? wire->number_to : wire->number_from;
      if (std::ranges::find(at(to).wires, number, &std::pair<int, std::shared_ptr<Wire>>::first) == at(to).wires.end())
        return;
      forget(to, number);
      at(to).watch->closed(number, now());
    });
  });
}

void World::forget(int rank, int number) {
  std::erase_if(at(rank).wires, [number](const auto& wire) { return wire.first == number; });
}

// The system closes what a process had open.
void World::vanish(int rank) {
  Process& process = at(rank);
  process.gone = true;
  process.inbox.clear();
  for (const auto& [number, wire] : std::exchange(process.wires, {}))
    finish(wire, wire->from == rank && wire->number_from == number ? 0 : 1);
}

void World::visit(bool flood) {
  const int rank = static_cast<int>(random_.below(static_cast<uint64_t>(scenario_.ranks)));
  for (int i = flood ? 300 : 1; i > 0; --i) {
    const auto wire = std::make_shared<Wire>();
    wire->from = stranger;
    wire->to = rank;
    accept(wire, nullptr);
    switch (random_.below(5)) {
      case 0:
        break;  // silent
      case 1:
        lines(wire, 0, std::string(random_.below(4000), 'x'));
        break;
      case 2:
        for (int line = 0; line < 20; ++line) lines(wire, 0, "GET / HTTP/1.1");
        break;
      case 3:
        lines(wire, 0, fmt::format("hello wrong {}", random_.below(100)));
        lines(wire, 0, "met");
        break;
      case 4:
        finish(wire, 0);
        break;
    }
  }
}

void World::set_up() {
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    Greeting greeting{
        {}, fmt::format("h{}", rank), static_cast<uint16_t>(first_port + rank), fmt::format("token{}", rank), {}};
    if (random_.uniform() < scenario_.odd_addresses) {
      const char* odd[] = {"nowhere", "refused", "else"};
      greeting.addresses.push_back(odd[random_.below(3)]);
    }
    greeting.addresses.push_back("here");
    greetings_.push_back(greeting);
  }
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    at(rank).met.resize(processes_.size());
    at(rank).begin_s = random_.uniform(0, last_begin_s);
    after(at(rank).begin_s, [this, rank] { to_process(rank, [this, rank] { begin(rank); }); });
  }
  if (scenario_.victim >= 0) {
    const int victim = scenario_.victim;
    if (scenario_.dies_s < for_ever_s) {
      after(scenario_.dies_s, [this, victim] {
        if (at(victim).gone) return;
        log(fmt::format("rank {} dies", victim));
        at(victim).dead = true;
        vanish(victim);
      });
    }
    if (scenario_.stops_s < for_ever_s) {
      after(scenario_.stops_s, [this, victim] {
        log(fmt::format("rank {} is stopped", victim));
        at(victim).stopped_until_s = scenario_.goes_on_s;
      });
      if (scenario_.goes_on_s < for_ever_s) {
        after(scenario_.goes_on_s, [this, victim] {
          log(fmt::format("rank {} goes on", victim));
          // It finds all that came meanwhile at once.
          while (!at(victim).inbox.empty()) {
            const auto what = std::move(at(victim).inbox.front());
            at(victim).inbox.pop_front();
            what();
          }
          if (at(victim).gone || !at(victim).watch) return;
          at(victim).watch->tick(now());
          perform(victim);
        });
      }
    }
  }
  for (int i = 0; i < scenario_.strangers; ++i) after(random_.uniform(0, 4), [this] { visit(false); });
  for (int i = 0; i < scenario_.floods; ++i) after(random_.uniform(0, 4), [this] { visit(true); });
  // All that is well comes to its end.
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    after(leave_s + random_.uniform(0, 0.3) * limit_s, [this, rank] {
      if (at(rank).gone || !at(rank).watch) return;
      if (now_s_ < at(rank).stopped_until_s) return;
      if (!at(rank).watch->all_met()) return;
      at(rank).watch->leave();
      perform(rank);
      at(rank).left = true;
      vanish(rank);
    });
  }
}

// Sets of ranks that can reach each other, also by way of others: they have met, and no link between them is cut.
int World::groups() const {
  const size_t n = processes_.size();
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n));
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b)
      reach[a][b] =
          a == b || (processes_[a].met[b] && processes_[b].met[a] && !processes_[a].dead && !processes_[b].dead);
  }
  for (const Cut& cut : scenario_.cuts) reach[static_cast<size_t>(cut.from)][static_cast<size_t>(cut.to)] = false;
  for (size_t k = 0; k < n; ++k) {
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) reach[a][b] = reach[a][b] || (reach[a][k] && reach[k][b]);
    }
  }
  int count = 0;
  std::vector<bool> known(n);
  for (size_t a = 0; a < n; ++a) {
    if (known[a] || processes_[a].dead) continue;
    ++count;
    for (size_t b = 0; b < n; ++b) known[b] = known[b] || (reach[a][b] && reach[b][a]);
  }
  return count;
}

void World::check() {
  int speakers = 0, ended = 0;
  // Of two faults the later one: the one that is stopped may have been the only one to notice the first.
  double fault_s = 0;
  if (scenario_.victim >= 0) fault_s = std::min(scenario_.dies_s, scenario_.stops_s);
  double first_s = fault_s > 0 ? fault_s : for_ever_s;
  for (const Cut& cut : scenario_.cuts) {
    fault_s = std::max(fault_s, cut.begin_s);
    first_s = std::min(first_s, cut.begin_s);
  }
  double all_met_s = 0;
  for (const Process& process : processes_) all_met_s = std::max(all_met_s, process.met_s);
  const bool in_start = scenario_.dies_after_steps >= 0 || first_s < all_met_s;
  // With large delays a line more may be under way.
  const double bound_s = (in_start ? last_begin_s + start_s + limit_s : fault_s + limit_s) + 3 * scenario_.most_delay_s;
  for (size_t r = 0; r < processes_.size(); ++r) {
    const Process& process = processes_[r];
    if (process.ended_s < for_ever_s) {
      ++ended;
      speakers += process.ending.speaks ? 1 : 0;
      if (scenario_.harmless) fail(fmt::format("rank {} ended without a fault", r));
      const bool stopped = static_cast<int>(r) == scenario_.victim && scenario_.stops_s < for_ever_s;
      const double by_s =
          stopped
              ? std::max(bound_s, scenario_.goes_on_s + (in_start ? start_s : 0) + limit_s + 3 * scenario_.most_delay_s)
              : bound_s;
      if (process.ended_s > by_s)
        fail(fmt::format("rank {} ended at {:.3f} s, later than {:.3f} s", r, process.ended_s, by_s));
      continue;
    }
    if (process.dead || process.left) continue;
    if (static_cast<int>(r) == scenario_.victim && scenario_.goes_on_s >= for_ever_s && scenario_.stops_s < for_ever_s)
      continue;
    fail(fmt::format("rank {} lives and has not ended", r));
  }
  if (scenario_.harmless && scenario_.most_delay_s < 0.02 * limit_s && scenario_.victim < 0 && scenario_.cuts.empty() &&
      all_met_s > last_begin_s + 6)
    fail(fmt::format("the start took until {:.3f} s", all_met_s));
  if (ended == 0) return;
  const bool some_speak = speakers > 0;
  if (!some_speak) fail("nobody speaks");
  if (scenario_.faults == 1 && scenario_.most_delay_s < 0.02 * limit_s && speakers > groups())
    fail(fmt::format("{} ranks speak for {} groups", speakers, groups()));
}

SimulatedRun World::run() {
  set_up();
  while (!events_.empty() && events_.top().at_s < last_s && failure_.empty()) {
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_s_ = event.at_s;
    event.what();
  }
  check();
  SimulatedRun result{scenario_.text, failure_, log_, scenario_.ranks, 0, 0, scenario_.harmless, 0};
  for (const Process& process : processes_) {
    if (process.ended_s < for_ever_s)
      result.ended_after_s = std::max(result.ended_after_s, process.ended_s - scenario_.dies_s);
    result.ended += process.ended_s < for_ever_s ? 1 : 0;
    result.speakers += process.ended_s < for_ever_s && process.ending.speaks ? 1 : 0;
  }
  return result;
}

}  // namespace

SimulatedRun simulate(uint64_t seed) { return World(seed, choose).run(); }

SimulatedRun simulate_death(uint64_t seed, int ranks, bool in_start) {
  return World(seed, [&](Random& random) { return choose_death(random, ranks, in_start); }).run();
}

}  // namespace nlsplit
