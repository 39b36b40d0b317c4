// Do copies run beside computing? Each alone, both at once.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "exec/run.h"
#include "gpu/gpu_check.h"
#include "gpu/prepared.h"
#include "kernels/catalogue.h"

namespace nlsplit::testing {
namespace {

using cuda::Stream;
using Clock = std::chrono::steady_clock;

// Pages of the host.
class HostPages {
 public:
  explicit HostPages(uint64_t size) : at_(std::aligned_alloc(page(), size / page() * page())), size_(size) {
    if (at_ != nullptr) std::memset(at_, 0, size_);
  }
  ~HostPages() { std::free(at_); }
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;
  void* at() const { return at_; }

 private:
  static uint64_t page() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }
  void* at_;
  uint64_t size_;
};

// Works in turn, so that what else the machine does disturbs all alike; the median of each, by the host's clock.
Result<std::vector<double>> seconds_of(const std::vector<std::function<Status()>>& works) {
  constexpr int warm_up = 2, repeats = 11;
  std::vector<std::vector<double>> all(works.size());
  for (int r = -warm_up; r < repeats; ++r) {
    for (size_t w = 0; w < works.size(); ++w) {
      const Clock::time_point start = Clock::now();
      RETURN_IF_ERROR(works[w]());
      if (r >= 0) all[w].push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& one : all) medians.push_back(median(std::move(one)));
  return medians;
}

}  // namespace

Status Bench::print_overlap(bool small) {
  const uint64_t size = uint64_t{small ? 1u : 16u} << 20;
  const int64_t n = small ? 128 : 1024;
  ComputeDesc desc;
  desc.op = Op::MatMul;
  desc.inputs = {{DType::f32, {n, n}}, {DType::f32, {n, n}}};
  desc.outputs = {{DType::f32, {n, n}}};
  ASSIGN_OR_RETURN(desc.kernel, choose_kernel(desc, Isa::cuda));
  Prepared p(*backend_, device_);
  RETURN_IF_ERROR(
      p.prepare(desc, std::vector<std::string>(2, std::string(static_cast<size_t>(n * n) * sizeof(float), '\0'))));
  const KernelCall call{&desc, p.inputs.data(), p.outputs.data(), p.workspace, {}};
  const std::string zeros(size, '\0');  // holds until the copies are done
  ASSIGN_OR_RETURN(void* memory_in, p.take(size, zeros));
  ASSIGN_OR_RETURN(void* memory_out, p.take(size, zeros));
  RETURN_IF_ERROR(p.wait());
  const HostPages host_in(size), host_out(size);
  if (host_in.at() == nullptr || host_out.at() == nullptr) return failed("out of memory");

  const auto begin_copies = [&](bool in, bool out) -> Status {
    if (in) RETURN_IF_REFUSED(backend_->copy_in(device_, Stream::copy_in, memory_in, host_in.at(), size));
    if (out) RETURN_IF_REFUSED(backend_->copy_out(device_, Stream::copy_out, host_out.at(), memory_out, size));
    return ok_status();
  };
  const auto compute = [&](int64_t times) -> Status {
    for (int64_t i = 0; i < times; ++i) RETURN_IF_REFUSED(backend_->launch(device_, p.kernel, &call));
    return ok_status();
  };
  const auto wait_for_all = [&]() -> Status {
    for (const Stream stream : {Stream::copy_in, Stream::copy_out, Stream::compute}) RETURN_IF_ERROR(p.wait(stream));
    return ok_status();
  };
  const auto measured = [&](bool in, bool out, int64_t times) {
    return seconds_of({[&, in, out]() -> Status {
                         RETURN_IF_ERROR(begin_copies(in, out));
                         return wait_for_all();
                       },
                       [&, times]() -> Status {
                         RETURN_IF_ERROR(compute(times));
                         return wait_for_all();
                       },
                       [&, in, out, times]() -> Status {
                         RETURN_IF_ERROR(compute(times));
                         RETURN_IF_ERROR(begin_copies(in, out));
                         return wait_for_all();
                       }});
  };
  fmt::print("copies of {} MiB and products of {} x {}; hidden: of the shorter of the two, when both run at once\n",
             size >> 20, n, n);
  fmt::print("{:>10} {:>9} {:>12} {:>12} {:>12} {:>9} {:>8}\n", "memory", "direction", "copies ms", "computing ms",
             "both ms", "both/max", "hidden");
  for (const bool pinned : {false, true}) {
    if (pinned) {
      for (const HostPages* pages : {&host_in, &host_out}) RETURN_IF_REFUSED(backend_->pin(device_, pages->at(), size));
    }
    for (const auto& [in, out, direction] :
         {std::tuple(true, false, "in"), {false, true, "out"}, {true, true, "in, out"}}) {
      ASSIGN_OR_RETURN(const std::vector<double> once, measured(in, out, 1));
      const auto times = static_cast<int64_t>(once[0] / once[1] + 0.5);  // that take about as long as the copies
      ASSIGN_OR_RETURN(const std::vector<double> took, measured(in, out, std::max<int64_t>(1, times)));
      fmt::print("{:>10} {:>9} {:12.3f} {:12.3f} {:12.3f} {:9.2f} {:6.0f} %\n", pinned ? "pinned" : "pageable",
                 direction, took[0] * 1e3, took[1] * 1e3, took[2] * 1e3, took[2] / std::max(took[0], took[1]),
                 100 * (took[0] + took[1] - took[2]) / std::min(took[0], took[1]));
    }
  }
  for (const HostPages* pages : {&host_in, &host_out}) RETURN_IF_REFUSED(backend_->unpin(device_, pages->at()));
  return ok_status();
}

}  // namespace nlsplit::testing
