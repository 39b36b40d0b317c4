// A CPU whose arena lies within memory that nobody else may write: what a Backend must offer at least.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "exec/backend.h"
#include "exec/backends/instructions.h"

namespace nlsplit::testing {

class GuardedBackend final : public Backend {
 public:
  GuardedBackend(const Program& program, int device, KernelTable kernels)
      : program_(program),
        device_(program.devices[static_cast<size_t>(device)]),
        kernels_(std::move(kernels)),
        size_(static_cast<size_t>(device_.arena.value())),
        memory_(size_ + 2 * guard + 64, untouched),
        begin_(guard + (64 - std::bit_cast<uintptr_t>(memory_.data() + guard) % 64) % 64) {}

  // How many bytes beside the arena have been written.
  int64_t written_beside() const {
    int64_t count = 0;
    for (size_t i = 0; i < memory_.size(); ++i)
      count += (i < begin_ || i >= begin_ + size_) && memory_[i] != untouched ? 1 : 0;
    return count;
  }

  std::span<std::byte> host() const override { return {memory_.data() + begin_, size_}; }
  Status place(const Buffer& buffer, std::string_view raw) override {
    return place_content(program_, device_, kernels_, buffer, raw, host().data());
  }
  Status upload(const WhichBuffers& /*which*/) override { return ok_status(); }
  Status download(const WhichBuffers& /*which*/) override { return ok_status(); }
  void attach() override {}
  Status begin() override { return ok_status(); }
  Status execute(const Slot& slot, std::span<const Step> steps, TimePoint now) override {
    for (const Step& step : steps) {
      const Segment& segment = device_.segments[static_cast<size_t>(slot.segment)];
      RETURN_IF_ERROR(nlsplit::execute(program_, device_, kernels_, slot,
                                       segment.instrs[static_cast<size_t>(step.instr)], host().data(), {}));
      ran_ = {{step.tag, now, std::chrono::steady_clock::now()}};
    }
    return ok_status();
  }
  Result<std::span<const Ran>> finish() override { return std::span<const Ran>(ran_); }
  bool runs_ahead() const override { return false; }
  std::span<std::byte> message(const Slot& slot, const Operand& operand, int /*peer*/) const override {
    return host().subspan(static_cast<size_t>(address_of(device_, slot, operand)),
                          static_cast<size_t>(bytes_of(device_, operand).value()));
  }
  Result<Copy> begin_copy(const Slot& /*slot*/, const Operand& /*operand*/, int /*peer*/,
                          Direction /*direction*/) override {
    return Copy::none;
  }
  Result<bool> has_ended(Copy /*copy*/) override { return true; }

 private:
  static constexpr size_t guard = 1 << 16;
  static constexpr std::byte untouched{0xa5};

  const Program& program_;
  const DeviceProgram& device_;
  const KernelTable kernels_;
  const size_t size_;
  mutable std::vector<std::byte> memory_;
  const size_t begin_;
  std::vector<Ran> ran_;
};

}  // namespace nlsplit::testing
