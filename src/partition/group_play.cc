#include "partition/group_play.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "cost/messages.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline partition {
namespace {

class GroupPlay {
 public:
  GroupPlay(const Graph& graph, const SplitParts& parts, const Stage& stage, DType messages,
            const std::vector<const Path*>& links, const std::vector<ShardSeconds>& seconds)
      : graph_(graph),
        parts_(parts),
        stage_(stage),
        messages_(messages),
        links_(links),
        seconds_(seconds),
        shards_(seconds.size()),
        clock_(shards_, 0),
        ready_((stage.end - stage.begin) * shards_, 0) {
    load_.compute.assign(shards_, 0);
    load_.weight_bytes.assign(shards_, 0);
    load_.message_bytes.assign(shards_ * shards_, 0);
  }

  SplitLoad run() {
    for (size_t n = stage_.begin; n < stage_.end; ++n) go_forward(n);
    for (const double time : ready_) load_.seconds = std::max(load_.seconds, time);
    if (seconds_.front().inputs == nullptr) return std::move(load_);
    load_.update_seconds.assign(shards_, 0);
    load_.sum_bytes.assign(shards_ * shards_, 0);
    for (const auto& [number, arrived] : arrived_)
      exchanges_of_[static_cast<size_t>(maker(parts_.exchanges[number].value))].push_back(number);
    ready_.assign(ready_.size(), 0);  // from here on gradients
    for (size_t n = stage_.end; n-- > stage_.begin;) go_back(n);
    for (const double time : clock_) load_.seconds = std::max(load_.seconds, time);
    return std::move(load_);
  }

 private:
  void go_forward(size_t n) {
    const SplitParts::OfNode& node = parts_.nodes[n];
    std::vector<double> start = clock_;
    for (const ValueId read : reads_of(graph_.nodes[n])) wait_for(read, start);
    for (const size_t exchange : node.exchanges) wait_for_exchange(exchange, start);
    for (size_t k = 0; k < shards_; ++k) {
      const double takes = work(n, k, *seconds_[k].forward);
      if (!is_view(graph_.nodes[n].op)) ++load_.parts;
      load_.compute[k] += takes;
      if (takes > 0) clock_[k] = start[k] + takes;
      ready(n)[k] = start[k] + takes;
      if (!node.weight_bytes.empty()) load_.weight_bytes[k] += node.weight_bytes[k];
    }
    if (const Layout& layout = layout_of(n); layout.sums())
      wait_until(ready(n), exchange(ready_times(n), [&](size_t, size_t to) { return bytes_of_sum(n, layout, to); }));
  }

  void go_back(size_t n) {
    const SplitParts::OfNode& node = parts_.nodes[n];
    // Of each partial sum the gradient is that of the sum: from whom it was sent to. Of pieces that others have taken
    // they send it back.
    if (const Layout& layout = layout_of(n); layout.sums())
      wait_until(ready(n),
                 exchange(ready_times(n), [&](size_t from, size_t) { return bytes_of_sum(n, layout, from); }));
    for (const size_t number : exchanges_of_[n])
      wait_until(ready(n),
                 exchange(gradient_sent_[number], [&](size_t from, size_t to) { return bytes_of(number, to, from); }));
    std::vector<double> made(shards_);
    for (size_t k = 0; k < shards_; ++k) {
      const double by_inputs = work(n, k, *seconds_[k].inputs), by_weights = work(n, k, *seconds_[k].weights);
      const double start = std::max(clock_[k], ready(n)[k]);
      made[k] = start + by_inputs;
      if (by_inputs + by_weights > 0) clock_[k] = made[k] + by_weights;
      load_.compute[k] += by_inputs + by_weights;
      if (!is_view(graph_.nodes[n].op)) load_.parts += 2;
      load_.update_seconds[k] += (*seconds_[k].updates)[n] * part_of_weights(node, k);
    }
    for (size_t i = 0; i < shards_ * shards_; ++i) {
      if (i / shards_ != i % shards_) load_.sum_bytes[i] += node.shared_bytes;
    }
    for (const ValueId read : reads_of(graph_.nodes[n])) {
      if (const int64_t made_by = maker(read); made_by >= 0) wait_until(ready(static_cast<size_t>(made_by)), made);
    }
    for (const size_t number : node.exchanges) {
      std::vector<double>& sent = gradient_sent_[number];
      sent.resize(shards_, 0);
      wait_until(sent.data(), made);
    }
  }

  double work(size_t n, size_t k, const std::vector<double>& seconds) const {
    const SplitParts::OfNode& node = parts_.nodes[n];
    return seconds[n] * (node.work.empty() ? 1 : node.work[k]);
  }

  static double part_of_weights(const SplitParts::OfNode& node, size_t k) {
    return node.whole_bytes > 0 ? node.weight_bytes[k] / node.whole_bytes : 1;
  }

  const Layout& layout_of(size_t n) const { return parts_.layouts[graph_.nodes[n].outputs[0].index()]; }

  double* ready(size_t node) { return ready_.data() + (node - stage_.begin) * shards_; }

  // -1: it is not made in this stage.
  int64_t maker(ValueId value) const {
    const auto& of = graph_.value(value);
    if (of.kind != ValueKind::node) return -1;
    const size_t n = of.producer.index();
    return n < stage_.begin || n >= stage_.end ? -1 : static_cast<int64_t>(n);
  }

  void wait_until(double* times, const std::vector<double>& until) const {
    for (size_t k = 0; k < shards_; ++k) times[k] = std::max(times[k], until[k]);
  }

  void wait_for(ValueId value, std::vector<double>& start) {
    const int64_t made = maker(value);
    if (made >= 0) wait_until(start.data(), ready_times(static_cast<size_t>(made)));
  }

  // [shard]: when it has what it takes of others. The messages of one exchange share the links at their ends.
  // sent_at: [shard]; bytes_of(from, to): 0: no message.
  template <class BytesOf>
  std::vector<double> exchange(const std::vector<double>& sent_at, const BytesOf& bytes_of) {
    std::vector<double> arrived(shards_, 0), sending(shards_, 0), receiving(shards_, 0), slowest_sender(shards_, 0);
    const auto for_each_message = [&](const auto& message) {
      for (size_t to = 0; to < shards_; ++to) {
        for (size_t from = 0; from < shards_; ++from) {
          if (const double bytes = from == to ? 0 : bytes_of(from, to); bytes > 0)
            message(from, to, bytes, *links_[from * shards_ + to]);
        }
      }
    };
    for_each_message([&](size_t from, size_t to, double bytes, const Path& path) {
      load_.message_bytes[from * shards_ + to] += bytes;
      ++load_.messages;
      sending[from] += bytes * path.seconds_per_byte;
      receiving[to] += bytes * path.seconds_per_byte;
      arrived[to] = std::max(arrived[to], sent_at[from] + path.latency);
    });
    for_each_message([&](size_t from, size_t to, double, const Path&) {
      slowest_sender[to] = std::max(slowest_sender[to], sending[from]);
    });
    for (size_t k = 0; k < shards_; ++k) arrived[k] += std::max(receiving[k], slowest_sender[k]);
    return arrived;
  }

  std::vector<double> ready_times(size_t node) { return {ready(node), ready(node) + shards_}; }

  // Forward.
  double bytes_of(size_t number, size_t from, size_t to) const {
    const PieceExchange& taken = parts_.exchanges[number];
    const std::vector<int64_t>& bounds = parts_.layouts[taken.value.index()].bounds;
    const Region& wanted = taken.wanted[to];
    const int64_t count = std::min(wanted.end, bounds[from + 1]) - std::max(wanted.begin, bounds[from]);
    return static_cast<double>(std::max<int64_t>(count, 0)) * taken.bytes[to];
  }

  void wait_for_exchange(size_t number, std::vector<double>& start) {
    const int64_t made = maker(parts_.exchanges[number].value);
    if (made < 0) return;  // it comes whole from another stage
    const auto [at, added] = arrived_.try_emplace(number);
    if (added)
      at->second = exchange(ready_times(static_cast<size_t>(made)),
                            [&](size_t from, size_t to) { return bytes_of(number, from, to); });
    wait_until(start.data(), at->second);
  }

  // Each shard takes the partial sums of all shards, or its slice of them, and adds them up.
  double bytes_of_sum(size_t n, const Layout& layout, size_t to) const {
    const double bytes = least_message_bytes(graph_.value(graph_.nodes[n].outputs[0]).type, messages_);
    if (layout.axis < 0) return bytes;
    return bytes * static_cast<double>(layout.bounds[to + 1] - layout.bounds[to]) /
           static_cast<double>(layout.bounds.back());
  }

  const Graph& graph_;
  const SplitParts& parts_;
  const Stage& stage_;
  DType messages_;
  const std::vector<const Path*>& links_;
  const std::vector<ShardSeconds>& seconds_;
  size_t shards_;
  std::vector<double> clock_;  // [shard]: until when it computes
  std::vector<double> ready_;  // [node of the stage * shards + shard]: when its result, or its gradient, is there
  std::map<size_t, std::vector<double>> arrived_;        // by exchange: [shard]
  std::map<size_t, std::vector<double>> gradient_sent_;  // by exchange: [shard]
  std::map<size_t, std::vector<size_t>> exchanges_of_;   // by the node that makes the value
  SplitLoad load_;
};

}  // namespace

SplitLoad play_group(const Graph& graph, const SplitParts& parts, const Stage& stage, DType messages,
                     const std::vector<const Path*>& links, const std::vector<ShardSeconds>& seconds) {
  return GroupPlay(graph, parts, stage, messages, links, seconds).run();
}

}  // namespace nlsplit::inline partition
