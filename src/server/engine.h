// The engine of a server: requests become sequences of a running session, which join the batch and leave it while it
// goes on. Which execution comes next is decided in serving/admission.h.
//
//   Engine engine(form, 16, PrefixReuse::on);                       // 16 may wait
//   const auto id = engine.submit({prompt, 64, sampling, told});    // any thread; nothing: not taken
//   run_session(&session, job, engine.choices(cancelled), …);                // until `cancelled` says so
//
// What is told of a request, is told on the thread of the session, between two executions: it takes no time to speak
// of.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "exec/generation.h"
#include "server/metrics.h"
#include "serving/admission.h"
#include "text/sample.h"

namespace nlsplit::inline server {

enum class Finish : uint8_t {
  stop,      // the request's own end: on_token said so
  length,    // as many tokens as were asked for
  shutdown,  // the server ends
  failed,    // the session broke off
};

struct EngineRequest {
  std::vector<TokenId> prompt;  // check_prompt accepts it
  int64_t tokens = 1;           // at most
  Sampling sampling;
  std::function<bool(TokenId token)> on_token;  // true: the sequence ends with it
  // Once, the last that is told. cached: so many tokens of the prompt were in a slot already.
  std::function<void(Finish how, int64_t cached)> on_finish;
};

class Engine {
 public:
  // most_waiting: requests, beside those that run. Nothing is reused where the model's states cannot be cut to a
  // prefix.
  Engine(const GenerationForm& form, int64_t most_waiting, PrefixReuse reuse);

  // Any thread. Nothing: as many as may run and wait; or the engine stops.
  std::optional<uint64_t> submit(EngineRequest request);
  // Any thread. Nothing is told of it once this has returned; its slot is free for the next execution.
  void cancel(uint64_t id);
  // Any thread: no request is taken any more.
  bool ended() const;
  // After the session: it broke off.
  void fail() { finish_all(Finish::failed); }

  // Whether the user has had enough, asked between executions and while nobody asks for anything.
  ChooseNext choices(bool (*cancelled)() = nullptr) {
    return [this, cancelled](const SessionState& state) { return next(state, cancelled); };
  }

  ServingCounts counts() const;
  // How long somebody who is turned away now had better wait, by how long requests ran so far.
  double retry_after_s() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Active {
    EngineRequest request;
    Clock::time_point arrived, first, latest;
    int64_t made = 0, cached = 0;
    bool preempted = false;
  };

  Chosen next(const SessionState& state, bool (*cancelled)());
  void take_tokens(const SessionState& state);
  void finish(uint64_t id, Finish how);
  void finish_all(Finish how);
  void admit();
  BatchStep step();

  const GenerationForm form_;
  const bool reuses_;
  GenerationBatch executions_;  // the session's thread alone
  Execution ran_ = Execution::none;
  Clock::time_point began_;

  mutable std::mutex mutex_;  // for all below
  std::condition_variable condition_;
  Admission admission_;
  std::map<uint64_t, Active> active_;             // waiting or running, by number
  std::vector<std::optional<uint64_t>> in_slot_;  // nothing: nobody's
  uint64_t next_id_ = 1;
  bool stops_ = false;
  ServingCounts counts_;
};

}  // namespace nlsplit::inline server
