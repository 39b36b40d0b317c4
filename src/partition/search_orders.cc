#include "partition/search_orders.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "partition/device_orders.h"
#include "partition/repeats.h"

namespace nlsplit::inline partition {
namespace {

constexpr size_t most_coarse_cuts = 128;
constexpr size_t refined_plans = 24;  // of each order
constexpr int bisections = 12;        // to find the least `busiest` that a pipeline reaches
// Values of `busiest` to look at, times the least. Beyond the last: no limit.
constexpr std::array<double, 14> factors = {1, 1.003, 1.01, 1.02, 1.05, 1.1, 1.2, 1.4, 1.7, 2, 3, 4, 8, 16};
// A plan that may be this many times slower than the best pipeline needs about so many times fewer devices.
constexpr double spare_devices = 1.5;
constexpr size_t least_devices = 16;

enum class Aim : uint8_t { fill, memory };

// What a pipeline is judged by. Both: smaller is better.
struct Value {
  double fill = never;   // seconds of one micro-batch from the source to the end of the last stage
  double share = never;  // of its memory that the fullest device's weights take
};

bool less(const Value& a, const Value& b, Aim aim) {
  const double x = aim == Aim::fill ? a.fill : a.share, y = aim == Aim::fill ? b.fill : b.share;
  if (x != y) return x < y;
  return aim == Aim::fill ? a.share < b.share : a.fill < b.fill;
}

// Devices of a kind among the replicas of one stage.
struct GroupPart {
  DeviceId kind;
  double count = 1;
  const double* before = nullptr;  // Orders::seconds_before
};

// Replicas of one stage: how many of each kind of device.
struct Group {
  std::vector<GroupPart> kinds;
  double count = 0;
  double more_rounds = 0;  // micro-batches of the busiest beyond its first, where all are of one kind
  double memory = never;   // bytes, of the device that has least
  HostId first, last;
};

class Orders {
 public:
  explicit Orders(const SearchSpace& space)
      : in_(space),
        micro_batches_(space.costs->micro_batches),
        cuts_(coarse_cuts(space.cuts, find_repeats(*space.graph), space.costs->cut_bytes, most_coarse_cuts)),
        kind_of_(device_kinds(space.costs->node_seconds)) {
    replicas_ = replica_counts();
    for (size_t cut = 0; cut <= cuts_.size(); ++cut) weights_before_.push_back(in_.weight_bytes[node_at(cut)]);
    for (const DeviceId device : in_.devices) {
      std::vector<double>& before = seconds_before_[kind_of_[device.index()]];
      for (size_t cut = before.size(); cut <= cuts_.size(); ++cut)
        before.push_back(in_.scorer->seconds(device, 0, node_at(cut)));
    }
  }

  std::vector<std::vector<Stage>> run() {
    const size_t nodes = in_.graph->nodes.size();
    std::vector<double> seconds(in_.cluster->devices.size(), 0);
    for (const DeviceId device : in_.devices) seconds[device.index()] = in_.scorer->seconds(device, 0, nodes);
    std::vector<double> bytes = in_.costs->cut_bytes;
    std::ranges::nth_element(bytes, bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2));
    const auto orders =
        device_orders(*in_.cluster, *in_.network, in_.source, in_.devices, seconds, bytes[bytes.size() / 2]);
    for (std::vector<DeviceId> order : orders) {
      order.resize(std::min({order.size(), in_.max_devices, in_.max_stages}));
      search(order);
      if (in_.interrupted()) break;
    }
    std::vector<std::vector<Stage>> plans;
    for (const std::vector<Stage>& stages : found_) {
      if (stages.size() <= in_.max_stages) plans.push_back(stages);
    }
    return plans;
  }

 private:
  struct Cell {
    Value value;
    uint32_t devices = 0, cut = 0;  // of the cell before
    uint32_t replicas = 0;          // of the last stage
    uint32_t end = 0;               // of the last stage's devices in the order; less than the cell's: some are left out
  };

  // Of replicas that are equal only counts that leave the busiest fewer micro-batches than one less would.
  std::vector<size_t> replica_counts() const {
    std::vector<size_t> counts = {1};
    const auto m = static_cast<size_t>(micro_batches_);
    for (size_t r = 2; r <= std::min(in_.most_replicas, m); ++r) {
      if ((m + r - 1) / r < (m + r - 2) / (r - 1)) counts.push_back(r);
    }
    return counts;
  }

  Group group_of(const std::vector<DeviceId>& devices) const {
    Group group;
    for (const DeviceId device : devices) {
      const DeviceId kind = kind_of_[device.index()];
      const auto known = std::ranges::find(group.kinds, kind, &GroupPart::kind);
      if (known == group.kinds.end())
        group.kinds.push_back({kind, 1, seconds_before_.at(kind).data()});
      else
        ++known->count;
      group.memory = std::min(group.memory, static_cast<double>(in_.cluster->device(device).memory.value()));
    }
    group.count = static_cast<double>(devices.size());
    group.more_rounds = std::ceil(micro_batches_ / group.count) - 1;
    group.first = in_.cluster->device(devices.front()).host;
    group.last = in_.cluster->device(devices.back()).host;
    return group;
  }

  // Once for all tables of an order.
  void find_groups(const std::vector<DeviceId>& order) {
    groups_.assign(order.size(), {});
    for (size_t m = 1; m <= order.size(); ++m) {
      const auto end = order.begin() + static_cast<std::ptrdiff_t>(m);
      for (const size_t r : replicas_) {
        if (r <= m) groups_[m - 1].push_back(group_of({end - static_cast<std::ptrdiff_t>(r), end}));
      }
    }
  }

  struct Time {
    double first = 0;  // seconds of one micro-batch
    double more = 0;   // seconds of a batch beyond it
  };

  // seconds: of a stage on a part of its group.
  template <class Seconds>
  Time time_of(const Group& group, const Seconds& seconds) const {
    if (group.kinds.size() == 1) {
      const double first = seconds(group.kinds[0]);
      return {first, first * group.more_rounds};
    }
    double rate = 0, first = never;
    for (const GroupPart& part : group.kinds) {
      first = std::min(first, seconds(part));
      rate += part.count / seconds(part);  // no time at all: infinitely fast, which is right
    }
    return {first, std::max(0.0, micro_batches_ / rate - first)};
  }

  Time stage_time(const Group& group, size_t begin, size_t end) const {
    return time_of(group, [&](const GroupPart& part) { return in_.scorer->seconds(part.kind, begin, end); });
  }
  // Between two of node_at's.
  Time time_between(const Group& group, size_t before, size_t cut) const {
    return time_of(group, [&](const GroupPart& part) { return part.before[cut] - part.before[before]; });
  }

  // pairs: how many of them share the messages of a batch.
  Time transfer_time(HostId from, HostId to, double bytes, double pairs) const {
    const Path& path = in_.network->path(from, to);
    if (!path.exists) return {never, never};
    const double first = path.latency + bytes * path.seconds_per_byte;
    return {first, std::max(0.0, micro_batches_ / pairs * bytes * path.seconds_per_byte - first)};
  }

  // A device on the host of the source or sink is that endpoint.
  Time endpoint_time(HostId from, HostId to, double bytes) const {
    return from == to ? Time{} : transfer_time(from, to, bytes, 1);
  }

  // A stage of nodes [begin, end) on a group.
  struct Piece {
    size_t begin, end;
    Time time;
    double share;  // of its memory that the fullest device's weights take
    bool too_long(double most) const { return time.more > most || share > 1; }
  };

  // What a stage on a group reads. from: the last host of the stage before, and its replicas; invalid: the source.
  Time arrival(HostId from, double from_count, const Group& group, size_t begin) const {
    return from.valid()
               ? transfer_time(from, group.first, in_.costs->cut_bytes[begin], std::min(from_count, group.count))
               : endpoint_time(in_.source, group.first, in_.costs->input_bytes);
  }

  // What there is when a stage follows `before`; none if its messages are busier than `most`, or it is no better than
  // `best`. arrives: its arrival(), which most do not ask for.
  template <class Arrives>
  std::optional<Value> with_stage(const Value& before, const Arrives& arrives, const Group& group, const Piece& piece,
                                  double most, const Value& best, Aim aim) const {
    const auto& [begin, end, time, share] = piece;
    // Most are worse even if their messages took no time.
    if (!less({before.fill + time.first, std::max(before.share, share)}, best, aim)) return std::nullopt;
    const Time in = arrives();
    if (!(in.more <= most)) return std::nullopt;
    Value value{before.fill + in.first + time.first, std::max(before.share, share)};
    if (end == in_.cuts.back()) {
      const Time out = endpoint_time(group.last, in_.sink, in_.costs->output_bytes);
      if (!(out.more <= most)) return std::nullopt;
      value.fill += out.first;
    }
    if (!less(value, best, aim)) return std::nullopt;
    return value;
  }

  Piece piece_of(const Group& group, size_t begin, size_t end) const {
    const double weights = in_.weight_bytes[end] - in_.weight_bytes[begin];
    return {begin, end, stage_time(group, begin, end), weights / group.memory};
  }

  size_t node_at(size_t cut) const { return cut == 0 ? 0 : cuts_[cut - 1]; }

  // Fills table_ for the first `most_devices` of the order: pipelines none of whose stages and links is busier than
  // `most` beyond the first micro-batch. Returns whether one reaches the end. until_reached: nothing else is wanted.
  bool fill_table(size_t most_devices, double most, Aim aim, bool until_reached) {
    const size_t ends = cuts_.size() + 1;
    table_.resize(std::max(table_.size(), most_devices + 1));
    table_[0].assign(ends, Cell());
    table_[0][0].value = {0, 0};
    for (size_t m = 1; m <= most_devices; ++m) {
      std::vector<Cell>& row = table_[m];
      row = table_[m - 1];
      for (size_t k = 0; k < replicas_.size() && replicas_[k] <= m; ++k)
        add_stage(m, replicas_[k], groups_[m - 1][k], most, aim);
      if (until_reached && row.back().value.fill != never) return true;
    }
    return table_[most_devices].back().value.fill != never;
  }

  // Pipelines whose last stage has the devices [m - r, m) of the order.
  void add_stage(size_t m, size_t r, const Group& group, double most, Aim aim) {
    const std::vector<Cell>& from_row = table_[m - r];
    std::vector<Cell>& row = table_[m];
    arriving_.assign(row.size(), std::nullopt);
    for (size_t cut = 1; cut < row.size(); ++cut) {
      for (size_t before = cut; before-- > 0;) {
        const double share = (weights_before_[cut] - weights_before_[before]) / group.memory;
        const Piece piece{node_at(before), node_at(cut), time_between(group, before, cut), share};
        if (piece.too_long(most)) break;  // so are all that are longer
        const Cell& from = from_row[before];
        if (from.value.fill == never) continue;  // nothing gets there yet
        const auto arrives = [&] {
          const HostId host = before == 0 ? HostId() : last_host(from.end);
          std::optional<Time>& in = arriving_[before];
          if (!in) in = arrival(host, from.replicas, group, piece.begin);
          return *in;
        };
        const auto value = with_stage(from.value, arrives, group, piece, most, row[cut].value, aim);
        if (!value) continue;
        row[cut] = {*value, static_cast<uint32_t>(m - r), static_cast<uint32_t>(before), static_cast<uint32_t>(r),
                    static_cast<uint32_t>(m)};
      }
    }
  }

  // Of the first `end` devices of the order.
  HostId last_host(size_t end) const { return groups_[end - 1][0].last; }

  // The best of these pipelines. Empty: there is none.
  std::vector<Stage> best_within(const std::vector<DeviceId>& order, size_t most_devices, double most, Aim aim) {
    std::vector<Stage> stages;
    if (!fill_table(most_devices, most, aim, false)) return stages;
    for (size_t m = most_devices, cut = cuts_.size(); cut > 0;) {
      const Cell& cell = table_[m][cut];
      Stage stage{node_at(cell.cut), node_at(cut), {}};
      for (size_t d = cell.end - cell.replicas; d < cell.end; ++d) stage.devices.push_back(order[d]);
      stages.push_back(std::move(stage));
      m = cell.devices;
      cut = cell.cut;
    }
    std::ranges::reverse(stages);
    return stages;
  }

  void search(const std::vector<DeviceId>& order) {
    std::vector<double> alone;
    for (const DeviceId device : order) alone.push_back(in_.scorer->seconds(device, 0, in_.cuts.back()));
    const double together = std::max(micro_batches_ * shared_seconds(alone), 1e-9);
    // The slower a pipeline may be the fewer devices it needs.
    const auto devices_for = [&](double most) {
      const double needed = std::ceil(static_cast<double>(order.size()) * spare_devices * together / most);
      return std::clamp(static_cast<size_t>(std::min(needed, 1e6)), std::min(order.size(), least_devices),
                        order.size());
    };
    find_groups(order);
    const auto reached = [&](double most) { return fill_table(devices_for(most), most, Aim::fill, true); };
    if (!reached(never)) return;
    double low = 0, high = together;
    while (!reached(high)) {
      if (in_.interrupted()) return;
      low = high;
      high *= 2;
    }
    for (int i = 0; i < bisections && !in_.interrupted(); ++i) {
      const double middle = (low + high) / 2;
      (reached(middle) ? high : low) = middle;
    }
    std::vector<std::vector<Stage>> plans;
    const auto add = [&](double most) {
      for (const Aim aim : {Aim::fill, Aim::memory}) {
        if (in_.interrupted()) return;
        std::vector<Stage> stages = best_within(order, devices_for(most), most, aim);
        if (!stages.empty() && std::ranges::find(plans, stages) == plans.end()) plans.push_back(std::move(stages));
      }
    };
    for (const double factor : factors) add(factor * high);
    add(never);
    for (const std::vector<Stage>& stages : plans) keep(stages);
    if (cuts_.size() == in_.cuts.size()) return;
    std::ranges::stable_sort(plans, {}, [&](const std::vector<Stage>& stages) { return in_.scorer->bound(stages); });
    if (plans.size() > refined_plans) plans.resize(refined_plans);
    for (const std::vector<Stage>& stages : plans) {
      if (in_.interrupted()) return;
      refine(stages);
    }
  }

  // Replicas in ascending order, so that a plan that several orders find is kept once.
  void keep(std::vector<Stage> stages) {
    for (Stage& stage : stages) std::ranges::sort(stage.devices);
    found_.insert(std::move(stages));
  }

  // Each cut may move to any other between the coarse cuts beside it; the devices stay. Keeps the least busy plan, and
  // of those about as busy the ones with the least fill and the least memory.
  void refine(const std::vector<Stage>& stages) {
    std::vector<Group> groups;
    std::vector<std::vector<size_t>> ends;  // [stage]: nodes it may end at
    for (const Stage& stage : stages) {
      groups.push_back(group_of(stage.devices));
      if (stage.end == in_.cuts.back()) {
        ends.push_back({stage.end});
        continue;
      }
      const auto here = std::ranges::lower_bound(cuts_, stage.end);
      const size_t low = here == cuts_.begin() ? 0 : *(here - 1), high = *(here + 1);
      const auto begin = std::ranges::upper_bound(in_.cuts, low), end = std::ranges::lower_bound(in_.cuts, high);
      ends.emplace_back(begin, end);
    }
    const auto within = [&](double most, Aim aim) {
      std::vector<std::vector<Value>> best;
      std::vector<std::vector<size_t>> from;
      for (size_t s = 0; s < stages.size(); ++s) {
        best.emplace_back(ends[s].size());
        from.emplace_back(ends[s].size(), 0);
        const std::vector<size_t> start = {0};
        const std::vector<size_t>& begins = s == 0 ? start : ends[s - 1];
        for (size_t e = 0; e < ends[s].size(); ++e) {
          for (size_t b = 0; b < begins.size(); ++b) {
            const Value before = s == 0 ? Value{0, 0} : best[s - 1][b];
            if (begins[b] >= ends[s][e] || before.fill == never) continue;
            const Piece piece = piece_of(groups[s], begins[b], ends[s][e]);
            if (piece.too_long(most)) continue;
            const auto arrives = [&] {
              return s == 0 ? arrival(HostId(), 1, groups[s], begins[b])
                            : arrival(groups[s - 1].last, groups[s - 1].count, groups[s], begins[b]);
            };
            const auto value = with_stage(before, arrives, groups[s], piece, most, best[s][e], aim);
            if (!value) continue;
            best[s][e] = *value;
            from[s][e] = b;
          }
        }
      }
      std::vector<Stage> moved;
      if (best.back().back().fill == never) return moved;
      moved = stages;
      for (size_t s = stages.size(), e = 0; s-- > 0;) {
        moved[s].end = ends[s][e];
        if (s > 0) {
          e = from[s][e];
          moved[s].begin = ends[s - 1][e];
        }
      }
      return moved;
    };
    double high = busiest(stages, groups), low = 0;
    for (int i = 0; i < bisections; ++i) {
      const double middle = low == 0 ? high / 2 : (low + high) / 2;
      (within(middle, Aim::fill).empty() ? low : high) = middle;
    }
    for (const double factor : {1.0, 1.002, 1.01}) {
      for (const Aim aim : {Aim::fill, Aim::memory}) {
        std::vector<Stage> moved = within(high * factor, aim);
        if (!moved.empty()) keep(std::move(moved));
      }
    }
  }

  double busiest(const std::vector<Stage>& stages, const std::vector<Group>& groups) const {
    double most = endpoint_time(in_.source, groups[0].first, in_.costs->input_bytes).more;
    most = std::max(most, endpoint_time(groups.back().last, in_.sink, in_.costs->output_bytes).more);
    for (size_t s = 0; s < stages.size(); ++s) {
      most = std::max(most, stage_time(groups[s], stages[s].begin, stages[s].end).more);
      if (s == 0) continue;
      most = std::max(most, transfer_time(groups[s - 1].last, groups[s].first, in_.costs->cut_bytes[stages[s].begin],
                                          std::min(groups[s - 1].count, groups[s].count))
                                .more);
    }
    return most * (1 + 1e-9);
  }

  const SearchSpace& in_;
  int micro_batches_;
  std::vector<size_t> cuts_;                                // those of the tables
  std::vector<DeviceId> kind_of_;                           // device_kinds
  std::vector<size_t> replicas_;                            // counts to try
  std::vector<double> weights_before_;                      // [cut of node_at]: bytes
  std::map<DeviceId, std::vector<double>> seconds_before_;  // by kind: [cut of node_at]
  std::vector<std::vector<Group>> groups_;                  // [device of the order][of replicas_]: it is the last one
  std::vector<std::vector<Cell>> table_;                    // [devices of the order][cut]
  std::vector<std::optional<Time>> arriving_;               // [cut before the stage]
  std::set<std::vector<Stage>, bool (*)(const std::vector<Stage>&, const std::vector<Stage>&)> found_{
      [](const std::vector<Stage>& a, const std::vector<Stage>& b) {
        return std::ranges::lexicographical_compare(a, b, [](const Stage& x, const Stage& y) {
          return std::tie(x.end, x.devices) < std::tie(y.end, y.devices);
        });
      }};
};

}  // namespace

Result<FoundPlans> search_orders(const SearchSpace& space) {
  if (space.max_stages < 2 || space.devices.size() < 2) return FoundPlans{};
  return FoundPlans{Orders(space).run(), false};
}

}  // namespace nlsplit::inline partition
