// What strangers and other ranks send to rank 2 of 4, and when. A line is an event, its first letter says which:
//   a             somebody connects                 c0  its own call, connection 0, is connected
//   r0 TEXT       a line comes on connection 0      x0  connection 0 is closed
//   t5            2^5 ms later (tE: 2^21 ms)        e, l  the rank ends, or leaves
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "exec/heartbeat/peer_watch.h"
#include "fuzz/expect.h"
#include "fuzz/files.h"

namespace {

using namespace nlsplit;
using namespace nlsplit::fuzz;

// The driver's side of the connections: which are open.
class Driver {
 public:
  Driver() : watch_(2, greetings(), {}, {[] { return 0.0; }, [](int) { return std::string(); }}, now_) { tick(0); }

  void take(std::string_view line) {
    const char what = line.empty() ? ' ' : line[0];
    const int number = line.size() < 2 ? 0 : line[1] - '0';
    if (what == 'a') open_.push_back(watch_.accepted(now_));
    if (what == 'c' && is_open(number)) watch_.connected(number, now_);
    if (what == 'r' && is_open(number)) receive(number, line.substr(std::min<size_t>(2, line.size())));
    if (what == 'x' && std::erase(open_, number) > 0) watch_.closed(number, now_);
    if (what == 't') tick(std::clamp(number, 0, 21));
    if (what == 'e') (void)watch_.end(lost("the fuzzer ends it"));
    if (what == 'l') watch_.leave();
    perform();
  }

 private:
  static std::vector<Greeting> greetings() {
    std::vector<Greeting> all;
    for (int r = 0; r < 4; ++r) all.push_back({{}, "h", 1, "t" + std::to_string(r), {"10.0.0.1", "10.0.0.2"}});
    return all;
  }

  bool is_open(int number) const { return std::ranges::find(open_, number) != open_.end(); }

  void receive(int number, std::string_view line) {
    said_hello_ = said_hello_ || line == "hello t2 3";
    if (watch_.is_peer(number) || line.size() <= longest_greeting_line) return watch_.received(number, line, now_);
    std::erase(open_, number);
    watch_.closed(number, now_);
  }

  void tick(int exponent) {
    now_ += std::chrono::milliseconds(int64_t{1} << exponent);
    watch_.tick(now_);
    perform();
    expect(watch_.next() > now_, "a tick leaves nothing that is due");
  }

  void perform() {
    for (const Action& action : watch_.take_actions()) {
      if (action.kind == Action::Kind::connect) open_.push_back(action.connection);
      if (action.kind == Action::Kind::close) std::erase(open_, action.connection);
    }
    // Rank 3 knows the token, and may call again and again.
    if (said_hello_) return;
    expect(std::ranges::count_if(open_, [&](int number) { return !watch_.is_peer(number); }) <=
               static_cast<ptrdiff_t>(most_visitors) + 2,
           "few visitors are kept");
  }

  Moment now_ = Moment() + std::chrono::hours(1);
  std::vector<int> open_;
  bool said_hello_ = false;
  PeerWatch watch_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Driver driver;
  for (std::string_view rest = text_of(data, size); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    driver.take(line);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return 0;
}
