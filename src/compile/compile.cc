#include "compile/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/index.h"
#include "compile/lowering.h"
#include "compile/print.h"
#include "compile/split_training.h"
#include "cost/messages.h"
#include "graph/passes/precision.h"
#include "program/dependencies.h"
#include "program/scalars.h"
#include "program/verify.h"

namespace nlsplit::inline compiler {
namespace {

// Replicas that keep shares wait for each other in the middle of slots. A schedule may order these so that they do in a
// circle.
Status check_waits(const Lowering& lowering) {
  const auto gathers = [](const Gathers& of) { return !of.groups.empty(); };
  if (std::ranges::none_of(lowering.reductions, &Reduction::keeps_share) &&
      std::ranges::none_of(lowering.gathers, gathers))
    return ok_status();
  const auto refused = [&](const Error& why) {
    return unsupported(fmt::format("schedule {}: with zero: {} replicas wait for each other for ever: {}",
                                   lowering.plan->schedule, lowering.zero, why.message));
  };
  const auto deps = dependencies(lowering.program);
  if (!deps.ok()) return refused(deps.error());
  const auto order = dry_run(lowering.program, *deps);
  return order.ok() ? ok_status() : refused(order.error());
}

Result<SplitPlan> expanded(const KernelGraph& graph, const Plan& plan, const Cluster& cluster, const CostTable* costs) {
  ASSIGN_OR_RETURN(SplitPlan split,
                   expand_plan(graph, plan, cluster, costs == nullptr ? nullptr : costs->preference()));
  for (Stage& stage : split.plan.stages) stage.recompute = plan.stages[at(stage.part_of)].recompute;
  return split;
}

// The passes behind `split`. The Program is named after the graph and the plan that were asked for.
Result<Program> lower(Lowering& lowering, const KernelGraph& graph, const Plan& plan, const CompileOptions& options) {
  const auto report = [&](std::string_view pass, auto print) {
    if (options.after_pass) options.after_pass(pass, print(lowering));
  };
  RETURN_IF_ERROR(place(lowering));
  lowering.program.name =
      fmt::format("{} [{}]", graph.graph.name, fmt::join(stage_parts(plan, graph.graph, *lowering.cluster), ", "));
  report("place", print_placement);
  RETURN_IF_ERROR(schedule(lowering, options.table));
  report("schedule", print_schedule);
  RETURN_IF_ERROR(exchange(lowering));
  report("exchange", print_messages);
  allocate(lowering);
  report("allocate", print_program);
  RETURN_IF_ERROR(check_waits(lowering));
  return std::move(lowering.program);
}

// Of what is converted to be sent: it is rounded as a network of that type rounds all of its values.
Promise promise_of_messages(const Lowering& lowering) {
  Promise promise;
  if (lowering.cluster->messages == DType::f32) return promise;
  for (const std::vector<OrderedSlot>& slots : lowering.slots) {
    for (const OrderedSlot& slot : slots) {
      for (const Port& port : slot.sends) {
        if (at(port.flow) == lowering.flows.size()) continue;  // a credit
        const Flow& flow = lowering.flows[at(port.flow)];
        if (!lowering.is_converted(flow)) continue;
        const DType type = coarser(rounds_as(flow.travels_as), coarsest_type(lowering.graph->graph));
        if (rounding_tolerance(type) > promise.tolerance)
          promise = {rounding_tolerance(type),
                     fmt::format("values travel between devices as {}", name_of(flow.travels_as))};
      }
    }
  }
  const auto is_reduced = [](const Reduction& reduction) { return !reduction.buckets.empty(); };
  if (promise.tolerance == 0 && std::ranges::any_of(lowering.reductions, is_reduced)) {
    const DType type = coarser(lowering.cluster->messages, coarsest_type(lowering.graph->graph));
    promise = {rounding_tolerance(type),
               fmt::format("gradients travel between replicas as {}", name_of(lowering.cluster->messages))};
  }
  return promise;
}

}  // namespace

Result<Compiled> compile(const KernelGraph& graph, const Plan& plan, const Cluster& cluster, const Endpoints& endpoints,
                         const CostTable* costs, const CompileOptions& options) {
  if (options.after_pass) options.after_pass("choose_kernels", print_kernels(graph));
  Compiled compiled;
  Lowering lowering;
  lowering.network = &graph;
  lowering.plan = &plan;
  lowering.cluster = &cluster;
  lowering.costs = costs;
  lowering.endpoints = endpoints;
  lowering.idle = options.idle;
  lowering.row_major_messages = options.row_major_messages;
  lowering.convert_always = options.convert_always;
  lowering.all_reduce = options.all_reduce;
  lowering.buckets = options.buckets;
  lowering.zero = options.zero;
  lowering.holders = options.holders;
  CHECK(!options.exact || !options.all_reduce, "exact sums choose the algorithm");
  CHECK(!options.native || (!options.exact && !options.all_reduce), "the transport chooses its own algorithm");
  lowering.exact = options.exact;
  lowering.native = options.native;
  SplitPlan split;
  if (has_splits(plan)) {
    if (graph.training) {
      RETURN_IF_ERROR(
          check_split_training(graph.graph, graph.training->options.batch_norm, options.zero, options.exact));
      // A shard keeps its own part of a sum unrounded, so weights that all shards have would drift apart.
      if (cluster.messages != DType::f32)
        return unsupported(fmt::format("messages in {}: a training step that is split inside layers sends float32",
                                       name_of(cluster.messages)));
    }
    ASSIGN_OR_RETURN(split, expanded(graph, plan, cluster, costs));
    lowering.network = &split.kernels;
    lowering.plan = &split.plan;
    compiled.slices = std::move(split.slices);
    compiled.training = split.kernels.training;
    compiled.notes = std::move(split.notes);
    compiled.promise = std::move(split.promise);
    if (options.after_pass) options.after_pass("split", print_split(split.kernels, split.plan, cluster));
  }
  ASSIGN_OR_RETURN(compiled.program, lower(lowering, graph, plan, options));
  if (Promise promise = promise_of_messages(lowering); promise.tolerance > compiled.promise.tolerance)
    compiled.promise = std::move(promise);
  declare_maxima(compiled.program);
  compiled.online = std::move(lowering.online);
  return compiled;
}

Cluster cluster_of_one(const Device& device, const std::string& host) {
  Cluster cluster;
  cluster.hosts.push_back({host, false});
  cluster.devices.push_back(device);
  cluster.devices[0].host = HostId(0);
  return cluster;
}

Plan unsplit_plan(const KernelGraph& graph, int micro_batches) {
  Plan plan;
  plan.stages.push_back({graph.input_parts, graph.graph.nodes.size(), {DeviceId(0)}});
  plan.micro_batches = micro_batches;
  if (graph.training) plan.schedule = "1f1b";  // on one device the least memory
  return plan;
}

Result<Program> compile_unsplit(const KernelGraph& graph, int micro_batches, const Device& device,
                                const std::string& host) {
  ASSIGN_OR_RETURN(Compiled compiled, compile(graph, unsplit_plan(graph, micro_batches), cluster_of_one(device, host),
                                              {HostId(0), HostId(0)}, nullptr));
  return std::move(compiled.program);
}

Result<ScheduleInput> schedule_input(const KernelGraph& graph, const Plan& plan, const Cluster& cluster,
                                     const CostTable* costs) {
  Lowering lowering;
  lowering.network = &graph;
  lowering.plan = &plan;
  lowering.cluster = &cluster;
  lowering.costs = costs;
  lowering.endpoints = {HostId(0), HostId(0)};
  SplitPlan split;
  if (has_splits(plan)) {
    ASSIGN_OR_RETURN(split, expanded(graph, plan, cluster, costs));
    lowering.network = &split.kernels;
    lowering.plan = &split.plan;
  }
  RETURN_IF_ERROR(place(lowering));
  ASSIGN_OR_RETURN(ScheduleInput input, make_schedule_input(lowering, true));
  ASSIGN_OR_RETURN(std::optional<ScheduleInput> grouped, grouped_input(lowering, input));
  return grouped ? *std::move(grouped) : std::move(input);
}

}  // namespace nlsplit::inline compiler
