// One computation at a time on a backend: its results, its time, and the bandwidth and arithmetic to hold that against.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <span>
#include <utility>

#include "base/random.h"
#include "exec/run.h"
#include "gpu/gpu_check.h"
#include "gpu/prepared.h"
#include "graph/elements.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "kernels/assign.h"
#include "kernels/cuda/gpu.h"

namespace nlsplit::testing {
Result<Bench> Bench::open(const cuda::Backend& backend) {
  Bench bench(backend);
  RETURN_IF_REFUSED(backend.open(0, &bench.device_));
  const char* text = "";
  RETURN_IF_REFUSED(backend.describe(bench.device_, &text));
  bench.text_ = text;
  return bench;
}

Bench::Bench(Bench&& other) noexcept
    : backend_(other.backend_), device_(std::exchange(other.device_, nullptr)), text_(std::move(other.text_)) {}

Bench::~Bench() {
  if (device_ != nullptr) backend_->close(device_);
}

Result<std::vector<std::string>> Bench::results_of(Prepared& p, const ComputeDesc& desc) {
  const KernelCall call{&desc, p.inputs.data(), p.outputs.data(), p.workspace, {}};
  RETURN_IF_REFUSED(backend_->launch(device_, p.kernel, &call));
  std::vector<std::string> results;
  for (const TensorType& type : desc.outputs) results.emplace_back(static_cast<size_t>(size_of(type).value()), '\0');
  for (size_t o = 0; o < results.size(); ++o) {
    RETURN_IF_REFUSED(
        backend_->copy_out(device_, cuda::Stream::compute, results[o].data(), p.outputs[o], results[o].size()));
  }
  RETURN_IF_ERROR(p.wait());
  return results;
}

Result<std::vector<std::string>> Bench::run(const ComputeDesc& desc, const std::vector<std::string>& inputs) {
  Prepared p(*backend_, device_);
  RETURN_IF_ERROR(p.prepare(desc, inputs));
  return results_of(p, desc);
}

Result<std::vector<std::vector<std::string>>> Bench::run(std::span<const Computation> all) {
  const auto of = [](const Computation& one, const Error& error) {
    return failed(fmt::format("{}: {}", signature(one.desc), error.message));
  };
  std::deque<Prepared> prepared;
  for (const Computation& one : all) {
    if (const Status ready = prepared.emplace_back(*backend_, device_).prepare(one.desc, one.inputs); !ready.ok())
      return of(one, ready.error());
  }
  std::vector<std::vector<std::string>> results;
  for (size_t i = 0; i < all.size(); ++i) {
    auto made = results_of(prepared[i], all[i].desc);
    if (!made) return of(all[i], made.error());
    results.push_back(std::move(*made));
  }
  return results;
}

// The median of 20 after 3 that warm up.
Result<double> Bench::timed(const std::function<cuda::Answer()>& begin) {
  constexpr int warm_up = 3, repeats = 20;
  cuda::Event *first = nullptr, *last = nullptr;
  RETURN_IF_REFUSED(backend_->create_event(device_, &first));
  RETURN_IF_REFUSED(backend_->create_event(device_, &last));
  std::vector<double> all;
  for (int r = 0; r < warm_up + repeats; ++r) {
    RETURN_IF_REFUSED(backend_->record(device_, cuda::Stream::compute, first));
    RETURN_IF_REFUSED(begin());
    RETURN_IF_REFUSED(backend_->record(device_, cuda::Stream::compute, last));
    RETURN_IF_REFUSED(backend_->wait(device_, last));
    double took = 0;
    RETURN_IF_REFUSED(backend_->elapsed(device_, first, last, &took));
    if (r >= warm_up) all.push_back(took);
  }
  backend_->destroy_event(device_, first);
  backend_->destroy_event(device_, last);
  return median(all);
}

namespace {

// Not zeros: on those a GPU takes less power and may run faster. Integers are zeros all the same: they are indices.
std::vector<std::string> random_inputs(const ComputeDesc& desc) {
  Random random(1);
  std::vector<double> drawn(10007);  // again and again: a prime number, so that rows differ
  std::ranges::generate(drawn, [&] { return random.normal(); });
  std::vector<std::string> inputs;
  for (const TensorType& type : desc.inputs) {
    const auto size = static_cast<size_t>(size_of(type).value());
    std::string raw(size, '\0');
    if (is_real(type.dtype)) {
      const std::string some = raw_of(type.dtype, std::span<const double>(drawn));
      for (size_t at = 0; at < size; at += some.size())
        raw.replace(at, std::min(some.size(), size - at), some, 0, size - at);
    }
    inputs.push_back(std::move(raw));
  }
  return inputs;
}

}  // namespace

Result<double> Bench::seconds(const ComputeDesc& desc) {
  Prepared p(*backend_, device_);
  RETURN_IF_ERROR(p.prepare(desc, random_inputs(desc)));
  const KernelCall call{&desc, p.inputs.data(), p.outputs.data(), p.workspace, {}};
  return timed([&] { return backend_->launch(device_, p.kernel, &call); });
}

Result<double> Bench::bandwidth() {
  constexpr size_t size = size_t{256} << 20;  // above any cache of a GPU
  Prepared p(*backend_, device_);
  const std::string zeros(size, '\0');
  ASSIGN_OR_RETURN(void* from, p.take(size, zeros));
  ASSIGN_OR_RETURN(void* to, p.take(size, zeros));
  RETURN_IF_ERROR(p.wait());
  ASSIGN_OR_RETURN(const double took, timed([&] {
                     return backend_->move(device_, cuda::Stream::compute, to, size, from, size, size, 1);
                   }));
  return 2 * static_cast<double>(size) / took;
}

namespace {

// The square product that a GPU does best, as the level does it.
Result<double> arithmetic(Bench& bench, Level level) {
  constexpr int64_t n = 4096;
  ComputeDesc desc;
  desc.op = Op::MatMul;
  desc.inputs = desc.outputs = {{DType::f32, {n, n}}};
  desc.inputs.push_back(desc.inputs[0]);
  ASSIGN_OR_RETURN(desc.kernel, choose_kernel(desc, level));
  ASSIGN_OR_RETURN(const double took, bench.seconds(desc));
  return 2.0 * n * n * n / took;
}

}  // namespace

Status print_table(Bench& bench, const std::string& network, int64_t batch) {
  ASSIGN_OR_RETURN(Model model, zoo_model(network));
  ASSIGN_OR_RETURN(const Graph one, optimize(model.graph, model.weights));
  ASSIGN_OR_RETURN(const Graph graph, with_batch(one, batch));
  ASSIGN_OR_RETURN(const double bytes_a_second, bench.bandwidth());
  for (const Level level : gpu_levels()) {
    ASSIGN_OR_RETURN(const double flops_a_second, arithmetic(bench, level));
    ASSIGN_OR_RETURN(const Assignment chosen, assign_kernels(graph, level));
    fmt::print("\n{} batch {} {}: measured ceilings {:.1f} GB/s, {:.2f} TFLOP/s\n", network, batch, name_of(level),
               bytes_a_second * 1e-9, flops_a_second * 1e-12);
    fmt::print("{:>10} {:>9} {:>9}  {}\n", "us", "% memory", "% flops", "computation");
    std::set<std::string> seen;
    double sum = 0;
    for (const ComputeDesc& desc : chosen.descs) {
      if (desc.kernel.empty() || desc.kernel.name == KernelName::gpu_host) continue;
      ASSIGN_OR_RETURN(const double took, bench.seconds(desc));
      sum += took;
      if (!seen.insert(signature(desc)).second) continue;
      const Work work = work_of(desc);
      const auto moved = static_cast<double>((work.bytes_read + work.bytes_written).value());
      fmt::print("{:10.1f} {:9.1f} {:9.1f}  {}\n", took * 1e6, 100 * moved / took / bytes_a_second,
                 100 * static_cast<double>(work.flops.value()) / took / flops_a_second, signature(desc));
    }
    fmt::print("{:10.1f} us all computations, one after the other\n", sum * 1e6);
  }
  return ok_status();
}

}  // namespace nlsplit::testing
