// How the ranks of a run come to their communicator of NCCL.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "exec/cuda/backend.h"
#include "exec/cuda/library.h"
#include "exec/nccl/transport_nccl.h"

namespace nlsplit::inline exec {
namespace {

std::vector<int> gpu_ranks(const Program& program) {
  std::vector<int> ranks;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    if (program.devices[d].kind == DeviceKind::cuda) ranks.push_back(static_cast<int>(d));
  }
  return ranks;
}

// Each rank's message to all others. Zeros from a rank without a GPU.
struct NcclFacts {
  int32_t version = 0;
  int32_t machine = 0;  // the lowest rank on it
  char bus_id[32] = {};
};

Result<NcclFacts> own_facts(const DeviceProgram& device, const std::optional<NcclLibrary>& library,
                            const Backend& backend, Transport& control) {
  NcclFacts facts;
  if (!library) return facts;
  if (backend.gpu() == nullptr || backend.stands_in()) {
    return unsupported(
        fmt::format("device {}: --gpu-messages nccl needs a GPU, and the CPU computes in its place (--gpu-missing cpu)",
                    device.name));
  }
  const OpenGpu& gpu = *backend.gpu();
  const char* bus_id = "";
  if (const char* why = gpu.module.bus_id(gpu.device, &bus_id); why != nullptr)
    return unsupported(fmt::format("device {}: {}", device.name, why));
  std::strncpy(facts.bus_id, bus_id, sizeof facts.bus_id - 1);
  facts.version = library->version;
  facts.machine = control.same_machine().front();
  return facts;
}

// What the first member makes, which waits for the others from then on.
Result<nccl::UniqueId> make_id(const DeviceProgram& device, const NcclLibrary& library) {
  nccl::UniqueId id;
  const nccl::Outcome outcome = library.api.get_unique_id(&id);
  if (outcome == nccl::Outcome::success) return id;
  const char* last = library.api.get_last_error(nullptr);
  return failed(fmt::format("device {}: ncclGetUniqueId: {}: {}", device.name, library.api.get_error_string(outcome),
                            last == nullptr ? "" : last));
}

// All ranks' values, those that have one, on all ranks, in their order.
template <class T>
Result<std::vector<T>> share(const Result<std::vector<T>>& mine, Transport& control, const Waiting& waiting) {
  RETURN_IF_ERROR(agree(control, mine.ok() ? ok_status() : Status(mine.error()), waiting));
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, gather(control, as_text(*mine), waiting));
  std::string text;
  for (const std::string& of_rank : texts) text += of_rank;
  RETURN_IF_ERROR(broadcast(control, &text, waiting));
  return from_text<T>(text);
}

Status check_nccl_facts(const Program& program, const std::vector<int>& members, const std::vector<NcclFacts>& all) {
  const auto name = [&](int rank) {
    return fmt::format("rank {} ({})", rank, program.devices[static_cast<size_t>(rank)].name);
  };
  for (auto a = members.begin(); a != members.end(); ++a) {
    for (auto b = a + 1; b != members.end(); ++b) {
      const NcclFacts &first = all[static_cast<size_t>(*a)], &second = all[static_cast<size_t>(*b)];
      if (first.version != second.version) {
        return invalid_input(fmt::format("ranks differ in their NCCL: {} has {}, {} has {}: all ranks must agree",
                                         name(*b), nccl_version_text(second.version), name(*a),
                                         nccl_version_text(first.version)));
      }
      if (first.machine != second.machine || std::strcmp(first.bus_id, second.bus_id) != 0) continue;
      return unsupported(
          fmt::format("NCCL takes one rank a GPU, and {} and {} both compute on GPU {} of one machine: without "
                      "--gpu-messages nccl they can share it",
                      name(*a), name(*b), first.bus_id));
    }
  }
  return ok_status();
}

}  // namespace

Result<std::optional<NcclLibrary>> find_nccl(const Program& program, const GpuOptions& options, Transport& control,
                                             const Waiting& waiting) {
  std::optional<NcclLibrary> library;
  if (options.messages != GpuMessages::nccl) return library;
  const std::vector<int> gpus = gpu_ranks(program);
  if (gpus.size() < 2) {  // on all ranks
    const std::string found = gpus.empty() ? "none of this plan's devices is one"
                                           : fmt::format("of this plan's devices only {} is one",
                                                         program.devices[static_cast<size_t>(gpus[0])].name);
    return unsupported(
        fmt::format("--gpu-messages nccl: NCCL carries messages between GPUs (kind: cuda), and {}", found));
  }
  Status found;
  if (const int rank = control.rank(); std::ranges::find(gpus, rank) != gpus.end()) {
    auto loaded = load_nccl(options.nccl);
    if (loaded) {
      library = std::move(*loaded);
    } else {
      loaded.error().message =
          fmt::format("device {}: {}", program.devices[static_cast<size_t>(rank)].name, loaded.error().message);
      found = loaded.error();
    }
  }
  RETURN_IF_ERROR(agree(control, found, waiting));
  return library;
}

Result<std::unique_ptr<NcclTransport>> open_nccl(const Program& program, const std::optional<NcclLibrary>& library,
                                                 const Backend& backend, Transport& control, const Waiting& waiting) {
  const std::vector<int> members = gpu_ranks(program);
  const DeviceProgram& device = program.devices[static_cast<size_t>(control.rank())];
  Result<std::vector<NcclFacts>> mine = std::vector<NcclFacts>(1);
  if (auto own = own_facts(device, library, backend, control); own.ok())
    mine->front() = *own;
  else
    mine = own.error();
  ASSIGN_OR_RETURN(const std::vector<NcclFacts> all, share(mine, control, waiting));
  // All have the same facts, and come to the same end.
  if (all.size() != program.devices.size()) return failed("a rank answered with other facts of its NCCL");
  RETURN_IF_ERROR(check_nccl_facts(program, members, all));

  Result<std::vector<nccl::UniqueId>> id = std::vector<nccl::UniqueId>();
  if (control.rank() == members.front()) {
    if (auto made = make_id(device, *library); made.ok())
      id->push_back(*made);
    else
      id = made.error();
  }
  ASSIGN_OR_RETURN(const std::vector<nccl::UniqueId> ids, share(id, control, waiting));
  if (ids.size() != 1) return failed("ranks do not know who begins with NCCL");

  std::unique_ptr<NcclTransport> made;
  if (library) {
    std::vector<std::string> devices;
    for (const DeviceProgram& one : program.devices) devices.push_back(one.name);
    made = std::make_unique<NcclTransport>(*library, *backend.gpu(), control, std::move(devices), members);
    if (const Status connected = made->connect(ids.front(), waiting); !connected.ok()) {
      control.abort(connected.error());
      return connected.error();
    }
  }
  RETURN_IF_ERROR(agree(control, ok_status(), waiting));
  return {std::move(made)};
}

}  // namespace nlsplit::inline exec
