#include "exec/prepare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "base/resident_memory.h"
#include "exec/backends/backends.h"
#include "exec/distribute.h"
#include "exec/identity.h"
#include "exec/native_collectives.h"
#include "kernels/without_kernel.h"
#include "program/scalars.h"
#include "program/text.h"
#include "program/trace.h"

namespace nlsplit::inline exec {
namespace {

// With whom this rank's messages may lie in a GPU's memory.
std::vector<bool> device_messages(const Program& program, const Transport& transport, const GpuOptions& options) {
  if (options.messages == GpuMessages::mirror) return {};
  std::vector<bool> with(program.devices.size(), transport.takes_device_memory());
  if (options.messages != GpuMessages::nccl) return with;
  for (size_t d = 0; d < with.size(); ++d) with[d] = with[d] || program.devices[d].kind == DeviceKind::cuda;
  return with;
}

}  // namespace

Result<std::unique_ptr<Backend>> prepare(const Program& program, const Job& job, Transport& transport,
                                         const RunOptions& options, std::vector<int> pins, Waiting& waiting) {
  waiting.what = "the groups of the transport's own collectives";
  RETURN_IF_ERROR(join_native_groups(program, transport, waiting));
  waiting.what = "the preparation of the devices";
  auto opened = open_backend({.program = program,
                              .device = transport.rank(),
                              .same_machine = transport.same_machine(),
                              .pins = std::move(pins),
                              .device_messages = device_messages(program, transport, options.gpu),
                              .kernels = options.kernels,
                              .gpu = options.gpu,
                              .notice = options.notice});
  RETURN_IF_ERROR(agree(transport, opened.ok() ? ok_status() : Status(opened.error()), waiting));
  std::unique_ptr<Backend> backend = std::move(*opened);
  RETURN_IF_ERROR(check_identity(backend->facts(), transport, waiting));
  waiting.what = "the distribution of the weights";
  const auto place = [&](const Buffer& buffer, std::string_view raw) { return backend->place(buffer, raw); };
  const Status placed = place_weights(program, job, place, transport, waiting);
  RETURN_IF_ERROR(agree(transport, placed, waiting));
  waiting.what = "the distribution of the inputs";
  RETURN_IF_ERROR(place_inputs(program, job, backend->host().data(), transport, waiting));
  return backend;
}

Status upload_prepared(Backend& backend, Transport& transport, const Waiting& waiting) {
  return agree(transport, backend.upload(of_kinds({BufferKind::weight, BufferKind::state, BufferKind::input})),
               waiting);
}

Result<RanOn> gather_ran_on(const Backend& own, Transport& transport, const Waiting& waiting) {
  const int64_t machine = transport.same_machine().front();
  const std::vector<int64_t> mine = {machine, own.stands_in() ? 1 : 0, machine << 32 | ::getpid(),
                                     peak_resident_bytes(), static_cast<int64_t>(own.host().size())};
  ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport, as_text(mine), waiting));
  RanOn ran_on;
  for (const std::string& text : all) {
    const std::vector<int64_t> of_rank = from_text<int64_t>(text);
    if (of_rank.size() != 5) return give_up(transport, "a rank sent a malformed report of where it ran");
    ran_on.machine.push_back(static_cast<int>(of_rank[0]));
    ran_on.stands_in.push_back(of_rank[1] != 0);
    ran_on.process.push_back(of_rank[2]);
    ran_on.peak_resident.push_back(of_rank[3]);
    ran_on.arena.push_back(of_rank[4]);
  }
  return ran_on;
}

WorkWatch::Options watch_options(Transport& transport, const RunOptions& options) {
  const auto on_stuck = options.on_stuck ? options.on_stuck : [](const Error& why) {
    std::fprintf(stderr, "error: %s\n", why.message.c_str());
    std::_Exit(exit_code(why));
  };
  return {options.deadlines, [&transport](const Error& why) { transport.abort(why); }, on_stuck};
}

Status check_runnable(const Program& program) {
  const bool trains = is_training(program);
  for (const DeviceProgram& device : program.devices) {
    if (trains && device.kind == DeviceKind::cuda) {
      return unsupported(
          fmt::format("device {} is a GPU, and nothing trains on a GPU: gradients have no kernels there. "
                      "nlsim can simulate this plan; run one whose devices are of kind cpu",
                      device.name));
    }
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute) continue;
        const ComputeDesc& desc = program.descs[static_cast<size_t>(instr.desc)];
        const bool unchecked = device.kind == DeviceKind::cuda && reads_scalars(desc);
        if (!has_no_kernel(desc) && !unchecked) continue;
        return unsupported(fmt::format("there is no kernel for device {} segment {} `{}`{}", device.name, segment.name,
                                       to_string(program, device, instr),
                                       unchecked ? ": a GPU checks no scalars" : ""));
      }
    }
  }
  return ok_status();
}

Result<ChosenCores> claim_cores(const Program& program, Transport& transport, const RunOptions& options,
                                const Waiting& waiting) {
  std::string number = as_text(std::vector<unsigned>{std::random_device()(), std::random_device()()});
  RETURN_IF_ERROR(broadcast(transport, &number, waiting));
  const std::vector<uint64_t> run = from_text<uint64_t>(number);
  if (run.size() != 1) return give_up(transport, "rank 0 gave the run no number");
  ChosenCores cores = choose_cores(program, transport.rank(), transport.same_machine(), run[0]);
  if (cores.shared && options.notice) {
    options.notice(
        fmt::format("device {} shares cores with another run on this machine, which has too few for both: "
                    "times are longer",
                    program.devices[static_cast<size_t>(transport.rank())].name));
  }
  return cores;
}

void poison(const DeviceProgram& device, std::byte* arena) {
  for (const Buffer& buffer : device.buffers) {
    switch (buffer.kind) {
      case BufferKind::output:
      case BufferKind::stash:
      case BufferKind::scratch:
      case BufferKind::comm:
        std::memset(arena + buffer.offset, 0xff, static_cast<size_t>(buffer.extent()));  // a NaN
        break;
      case BufferKind::input:
      case BufferKind::weight:
      case BufferKind::state:
      case BufferKind::view:
        break;
    }
  }
}

Error give_up(Transport& transport, const std::string& message) {
  Error why = failed(message);
  transport.abort(why);
  return why;
}

}  // namespace nlsplit::inline exec
