#include "exec/run_threads.h"

#include <map>
#include <memory>
#include <optional>
#include <thread>

namespace nlsplit::inline exec {

namespace {

// `one(whole, job, transport)` on a thread for each device; rank 0's has the whole and the job, the others' have
// nothing.
template <class T, class Whole, class One>
Result<T> on_threads(size_t devices, Bytes eager_limit, const Whole& whole, const Job& job, const RunOptions& options,
                     MakeWorld make_world, const One& one) {
  if (devices == 0) return invalid_input("a program without devices");
  const std::unique_ptr<World> world = make_world(static_cast<int>(devices), eager_limit, options.on_failure);
  std::vector<std::optional<Result<T>>> results(devices);
  std::vector<std::thread> threads;
  const Job nothing;
  for (size_t d = 1; d < devices; ++d) {
    threads.emplace_back([&, d] { results[d].emplace(one(nullptr, nothing, world->endpoint(static_cast<int>(d)))); });
  }
  results[0].emplace(one(&whole, job, world->endpoint(0)));
  for (std::thread& thread : threads) thread.join();
  if (results[0]->ok()) return std::move(**results[0]);
  // The first failure of any rank.
  return world->failure().value_or(results[0]->error());
}

}  // namespace

Result<RunResult> run_threads(const Program& program, const Job& job, const RunOptions& options, MakeWorld make_world) {
  return on_threads<RunResult>(
      program.devices.size(), program.eager_limit, program, job, options, make_world,
      [&](const Program* whole, const Job& own, Transport& transport) { return run(whole, own, transport, options); });
}

Result<SessionResult> run_session_threads(const Session& session, const Job& job, const ChooseNext& choose,
                                          const RunOptions& options, MakeWorld make_world) {
  if (session.programs.empty()) return invalid_input("a session without programs");
  const Program& first = session.programs.front();
  return on_threads<SessionResult>(first.devices.size(), first.eager_limit, session, job, options, make_world,
                                   [&](const Session* whole, const Job& own, Transport& transport) {
                                     return run_session(whole, own, choose, transport, options);
                                   });
}

ContentLookup contents_of(const WeightStore& store) {
  // Shared, because std::function must be copyable; the copies mean the same cache.
  auto made = std::make_shared<std::map<ContentId, std::string>>();
  return [&store, made](ContentId id) -> Result<std::string_view> {
    const auto known = made->find(id);
    if (known != made->end()) return std::string_view(known->second);
    if (!store.contains(id)) return invalid_input("a weight of the program is not in the store");
    ASSIGN_OR_RETURN(std::string raw, store.materialise(id));
    return std::string_view(made->emplace(id, std::move(raw)).first->second);
  };
}

}  // namespace nlsplit::inline exec
