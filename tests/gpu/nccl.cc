// Messages between the GPUs of this machine over NCCL, a thread a GPU.
#include <fmt/format.h>

#include <mutex>
#include <thread>

#include "exec/nccl/transport_nccl.h"
#include "exec/transport_threads.h"
#include "gpu/gpu_check.h"
#include "gpu/gpu_memory.h"

namespace nlsplit::testing {

Status over_nccl(const cuda::Backend& backend, const NcclLibrary& library, const NcclWorld& asked,
                 const std::function<Status(NcclTransport&, MessageMemory&)>& body) {
  nccl::UniqueId id;
  if (library.api.get_unique_id(&id) != nccl::Outcome::success)
    return failed(fmt::format("ncclGetUniqueId: {}", library.api.get_last_error(nullptr)));
  std::vector<int> members;
  std::vector<std::string> names;
  for (int rank = 0; rank < asked.gpus; ++rank) {
    members.push_back(rank);
    names.push_back(fmt::format("GPU {}", rank));
  }
  ThreadWorld world(asked.gpus, bytes(asked.eager_bytes));
  std::mutex mutex;
  Status first;
  const auto run_rank = [&](int rank) -> Status {
    Transport& control = world.endpoint(rank);
    OpenGpu gpu{backend};
    if (const char* why = backend.open(rank, &gpu.device); why != nullptr) return failed(why);
    Status ended;
    {
      GpuMemory memory(backend, gpu.device);
      NcclTransport transport(library, gpu, control, names, members);
      ended = transport.connect(id, {60, nullptr, "the start of NCCL"});
      if (ended.ok()) ended = barrier(control, false, {60, nullptr, "the start of NCCL"});
      if (ended.ok()) ended = body(transport, memory);
      if (ended.ok()) ended = transport.close({60, nullptr, "the end of NCCL"});
      if (!ended.ok()) control.abort(ended.error());
    }
    backend.close(gpu.device);
    return ended;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < asked.gpus; ++rank) {
    threads.emplace_back([&, rank] {
      const Status ended = run_rank(rank);
      const std::lock_guard lock(mutex);
      if (first.ok()) first = ended;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first.ok()) return world.failure().value_or(first.error());
  return first;
}

Status check_nccl_messages(const cuda::Backend& backend, const NcclLibrary& library, const NcclWorld& asked) {
  return over_nccl(backend, library, asked, [](NcclTransport& transport, MessageMemory& memory) {
    const std::string wrong = conform(transport, memory);
    return wrong.empty() ? ok_status() : Status(failed(wrong));
  });
}

}  // namespace nlsplit::testing
