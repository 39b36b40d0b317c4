#include "exec/backends/cpu.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/build_of.h"
#include "base/check.h"
#include "exec/backends/arena.h"
#include "exec/backends/instructions.h"
#include "exec/backends/workers.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit::inline exec {
namespace {

struct LoadedKernels {
  std::optional<KernelLibrary> library;  // none: the device computes nothing that needs one
  KernelTable table;
};

// The code of every computation this device runs.
Result<LoadedKernels> load_kernels(const BackendContext& context) {
  const Program& program = context.program;
  const DeviceProgram& device = context.own();
  LoadedKernels kernels{std::nullopt, KernelTable(program.descs.size(), nullptr)};
  for (const Segment& segment : device.segments) {
    for (const Instr& instr : segment.instrs) {
      if (instr.opcode != Opcode::compute) continue;
      const auto desc = static_cast<size_t>(instr.desc);
      if (kernels.table[desc] != nullptr) continue;
      if (context.kernels) {
        kernels.table[desc] = context.kernels(program.descs[desc].kernel);
        continue;
      }
      if (!kernels.library) {
        auto library = KernelLibrary::load(device.level.isa);
        if (!library) return library.error();
        kernels.library.emplace(std::move(*library));
      }
      ASSIGN_OR_RETURN(kernels.table[desc], kernels.library->find(program.descs[desc].kernel));
      if (kernels.table[desc]->prepare != nullptr) kernels.table[desc]->prepare(program.descs[desc]);
    }
  }
  return kernels;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const BackendContext& context, LoadedKernels kernels, Arena arena)
      : program_(context.program),
        device_(context.own()),
        kernels_(std::move(kernels)),
        arena_(std::move(arena)),
        workers_(device_.cores, context.pins) {}

  std::span<std::byte> host() const override { return arena_.bytes(); }
  Status place(const Buffer& buffer, std::string_view raw) override {
    return place_content(program_, device_, kernels_.table, buffer, raw, arena_.data());
  }
  Status upload(const WhichBuffers& /*which*/) override { return ok_status(); }
  Status download(const WhichBuffers& /*which*/) override { return ok_status(); }

  void attach() override { workers_.pin_caller(); }
  Status begin() override {
    ran_.clear();  // of an execution that was broken off
    return ok_status();
  }
  Status execute(const Slot& slot, std::span<const Step> steps, TimePoint now) override {
    const Segment& segment = device_.segments[static_cast<size_t>(slot.segment)];
    for (const Step& step : steps) {
      RETURN_IF_ERROR(nlsplit::execute(program_, device_, kernels_.table, slot,
                                       segment.instrs[static_cast<size_t>(step.instr)], arena_.data(),
                                       workers_.crew()));
      const TimePoint end = std::chrono::steady_clock::now();
      ran_.push_back({step.tag, now, end});
      now = end;
    }
    return ok_status();
  }
  Result<std::span<const Ran>> finish() override {
    last_.swap(ran_);
    ran_.clear();
    return std::span<const Ran>(last_);
  }
  bool runs_ahead() const override { return false; }

  std::span<std::byte> message(const Slot& slot, const Operand& operand, int /*peer*/) const override {
    return {arena_.data() + address_of(device_, slot, operand),
            static_cast<size_t>(bytes_of(device_, operand).value())};
  }
  Result<Copy> begin_copy(const Slot& /*slot*/, const Operand& /*operand*/, int /*peer*/,
                          Direction /*direction*/) override {
    return Copy::none;
  }
  Result<bool> has_ended(Copy /*copy*/) override { CHECK(false, "nothing is copied"); }

  std::vector<pid_t> threads() const override { return workers_.threads(); }
  std::vector<Fact> facts() const override {
    if (!kernels_.library) return {};
    const KernelLibrary& library = *kernels_.library;
    return {{fmt::format("kernels of level {}", name_of(library.isa())), build_of(library.code().data())}};
  }

 private:
  const Program& program_;
  const DeviceProgram& device_;
  const LoadedKernels kernels_;
  const Arena arena_;
  Workers workers_;
  std::vector<Ran> ran_, last_;  // since the last finish(), and what that one answered
};

}  // namespace

Result<std::unique_ptr<Backend>> open_cpu(const BackendContext& context) {
  ASSIGN_OR_RETURN(LoadedKernels kernels, load_kernels(context));
  ASSIGN_OR_RETURN(Arena arena, Arena::allocate(context.own().arena));
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(context, std::move(kernels), std::move(arena)));
}

}  // namespace nlsplit::inline exec
