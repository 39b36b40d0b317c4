#include "exec/run_threads.h"

#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "exec/transport_threads.h"

namespace nlsplit {

Result<RunResult> run_threads(const Program& program, const Job& job, const RunOptions& options) {
  const size_t devices = program.devices.size();
  if (devices == 0) return invalid_input("a program without devices");
  ThreadWorld world(static_cast<int>(devices), program.eager_limit, options.on_failure);
  std::vector<std::optional<Result<RunResult>>> results(devices);
  std::vector<std::thread> threads;
  const Job nothing;
  for (size_t d = 1; d < devices; ++d) {
    threads.emplace_back(
        [&, d] { results[d].emplace(run(program, nothing, world.endpoint(static_cast<int>(d)), options)); });
  }
  results[0].emplace(run(program, job, world.endpoint(0), options));
  for (std::thread& thread : threads) thread.join();
  if (results[0]->ok()) return std::move(**results[0]);
  // What happened first, whoever saw it.
  return world.failure().value_or(results[0]->error());
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

}  // namespace nlsplit
