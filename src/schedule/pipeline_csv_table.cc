// A pipeline CSV as a table of slots for a plan, and back.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/index.h"
#include "schedule/pipeline_csv_cells.h"
#include "schedule/placement.h"

namespace nlsplit::inline schedules {
namespace {

using Kind = PipelineAction::Kind;

struct Where {
  int rank = -1;
  int column = -1;
  int slot = -1;  // of the table
};

// Messages of a file that has any: one send after what it sends, one receive before what needs it, in the same order at
// both ends, none within a rank.
class Messages {
 public:
  Messages(const PipelineCsv& csv, const ScheduleInput& input) : csv_(csv), input_(input) {}

  Status check() {
    for (int r = 0; at(r) < csv_.ranks.size(); ++r) {
      for (int c = 0; at(c) < csv_.ranks[at(r)].size(); ++c) {
        for (const PipelineAction& action : actions_of(csv_.ranks[at(r)][at(c)])) RETURN_IF_ERROR(see(r, c, action));
      }
    }
    if (!any_) return ok_status();
    RETURN_IF_ERROR(check_way(true));
    RETURN_IF_ERROR(check_way(false));
    return check_order();
  }

 private:
  using Key = std::tuple<Kind, int, int>;

  Status see(int rank, int column, const PipelineAction& action) {
    switch (action.kind) {
      case Kind::backward:
        places_[{Kind::input_gradient, action.stage, action.micro_batch}] = {rank, column};
        return ok_status();
      case Kind::forward:
      case Kind::input_gradient:
      case Kind::weight_gradient:
        places_[{action.kind, action.stage, action.micro_batch}] = {rank, column};
        return ok_status();
      case Kind::send_forward:
      case Kind::receive_forward:
      case Kind::send_gradient:
      case Kind::receive_gradient:
        any_ = true;
        break;
      case Kind::wait_send_forward:
      case Kind::wait_send_gradient:
      case Kind::unshard:
      case Kind::reshard:
      case Kind::reduce_gradient:
      case Kind::wait_reduce_gradient:
      case Kind::overlap:
        break;
    }
    if (action.stage >= static_cast<int>(input_.stage_devices.size())) {
      return fault_at(csv_, rank, column,
                      fmt::format("no stage {}; there are {}", action.stage, input_.stage_devices.size()));
    }
    const std::vector<int>& hosts = input_.stage_devices[at(action.stage)];
    if (std::ranges::find(hosts, rank) == hosts.end()) {
      return fault_at(csv_, rank, column,
                      fmt::format("stage {} is not on this rank but on {}", action.stage, fmt::join(hosts, ", ")));
    }
    if (action.micro_batch < 0) return ok_status();
    const auto [before, added] =
        places_.emplace(Key{action.kind, action.stage, action.micro_batch}, Where{rank, column});
    if (!added) {
      return fault_at(
          csv_, rank, column,
          fmt::format("a second time; first in slot {} of rank {}", before->second.column + 1, before->second.rank));
    }
    const bool waits = action.kind == Kind::wait_send_forward || action.kind == Kind::wait_send_gradient;
    const bool sends = action.kind == Kind::send_forward || action.kind == Kind::send_gradient;
    if (!waits) (sends ? sent_ : received_).push_back({action, rank, column});
    return ok_status();
  }

  Status check_way(bool forward) {
    const Kind made = forward ? Kind::forward : Kind::input_gradient;
    const Kind send = forward ? Kind::send_forward : Kind::send_gradient;
    const Kind receive = forward ? Kind::receive_forward : Kind::receive_gradient;
    const auto stages = static_cast<int>(input_.stage_devices.size());
    for (const auto& [key, place] : places_) {
      const Kind kind = std::get<0>(key);
      const int stage = std::get<1>(key), micro_batch = std::get<2>(key);
      const int next = forward ? stage + 1 : stage - 1, previous = forward ? stage - 1 : stage + 1;
      if (kind == send || kind == receive) {
        const int other = kind == send ? next : previous;
        if (other < 0 || other >= stages) {
          return fault_at(csv_, place.rank, place.column,
                          fmt::format("there is no stage {} {}", kind == send ? "after" : "before",
                                      kind == send ? "to send to" : "to receive from"));
        }
        const auto mine = places_.find({made, stage, micro_batch}), there = places_.find({made, other, micro_batch});
        if (mine == places_.end() || there == places_.end()) continue;  // find_fault has said so
        if (mine->second.rank == there->second.rank)
          return fault_at(csv_, place.rank, place.column, fmt::format("stage {} is on this rank too", other));
      }
      if (kind != made || next < 0 || next >= stages) continue;
      const auto reader = places_.find({made, next, micro_batch});
      if (reader == places_.end() || reader->second.rank == place.rank) continue;
      const auto sent = places_.find({send, stage, micro_batch});
      const auto received = places_.find({receive, next, micro_batch});
      const auto name = [&](Kind which, int of) { return to_string(PipelineAction{which, of, micro_batch}); };
      if (sent == places_.end()) {
        return fault_at(csv_, place.rank, place.column,
                        fmt::format("{} is missing: rank {} waits for it", name(send, stage), reader->second.rank));
      }
      if (received == places_.end()) {
        return fault_at(csv_, sent->second.rank, sent->second.column,
                        fmt::format("{} on rank {} is missing", name(receive, next), reader->second.rank));
      }
      if (sent->second.rank != place.rank || sent->second.column < place.column) {
        return fault_at(csv_, sent->second.rank, sent->second.column,
                        fmt::format("{} comes later, in slot {}", name(made, stage), place.column + 1));
      }
      if (received->second.rank != reader->second.rank || received->second.column > reader->second.column) {
        return fault_at(csv_, received->second.rank, received->second.column,
                        fmt::format("{} came before, in slot {}", name(made, next), reader->second.column + 1));
      }
    }
    return ok_status();
  }

  struct Message {
    PipelineAction action;
    int rank = 0;
    int column = 0;
  };

  // Between two ranks messages are matched in the order of the calls.
  Status check_order() {
    std::map<std::pair<int, int>, std::vector<const Message*>> sends, receives;
    for (const Message& message : sent_) sends[{message.rank, partner(message)}].push_back(&message);
    for (const Message& message : received_) receives[{partner(message), message.rank}].push_back(&message);
    for (const auto& [ranks, messages] : receives) {
      const std::vector<const Message*>& there = sends[ranks];
      for (size_t i = 0; i < messages.size(); ++i) {
        const Message& message = *messages[i];
        const bool forward = message.action.kind == Kind::receive_forward;
        const PipelineAction wanted = {forward ? Kind::send_forward : Kind::send_gradient,
                                       message.action.stage + (forward ? -1 : 1), message.action.micro_batch};
        if (i < there.size() && there[i]->action == wanted) continue;
        return fault_at(
            csv_, message.rank, message.column,
            fmt::format("rank {} sends {} as message {} to this rank, not {}", ranks.first,
                        i < there.size() ? to_string(there[i]->action) : "nothing", i + 1, to_string(wanted)));
      }
    }
    return ok_status();
  }
  int partner(const Message& message) const {
    const Kind kind = message.action.kind;
    const bool forward = kind == Kind::send_forward || kind == Kind::receive_forward;
    const bool later = kind == Kind::send_forward || kind == Kind::receive_gradient;
    const auto there = places_.find({forward ? Kind::forward : Kind::input_gradient,
                                     message.action.stage + (later ? 1 : -1), message.action.micro_batch});
    return there == places_.end() ? -1 : there->second.rank;
  }

  const PipelineCsv& csv_;
  const ScheduleInput& input_;
  std::map<Key, Where> places_;
  std::vector<Message> sent_, received_;
  bool any_ = false;
};

}  // namespace

Result<PipelineShape> shape_of(const PipelineCsv& csv) {
  PipelineShape shape;
  std::map<int, std::set<int>> ranks;
  std::set<int> micro_batches;
  for (size_t r = 0; r < csv.ranks.size(); ++r) {
    for (const auto& cell : csv.ranks[r]) {
      for (const PipelineAction& action : actions_of(cell)) {
        if (!computes(action.kind)) continue;
        ranks[action.stage].insert(static_cast<int>(r));
        micro_batches.insert(action.micro_batch);
        shape.training = shape.training || action.kind != Kind::forward;
      }
    }
  }
  if (ranks.empty()) return fault_at(csv, -1, -1, "no rank computes anything in this schedule");
  shape.stages = ranks.rbegin()->first + 1;
  shape.micro_batches = *micro_batches.rbegin() + 1;
  for (int s = 0; s < shape.stages; ++s) {
    if (!ranks.contains(s))
      return fault_at(csv, -1, -1, fmt::format("stage {} is missing: the last one is {}", s, shape.stages - 1));
    shape.stage_devices.emplace_back(ranks[s].begin(), ranks[s].end());
  }
  for (int m = 0; m < shape.micro_batches; ++m) {
    if (!micro_batches.contains(m)) {
      return fault_at(csv, -1, -1,
                      fmt::format("micro-batch {} is missing: the last one is {}", m, shape.micro_batches - 1));
    }
  }
  return shape;
}

Result<SlotTable> table_of(const PipelineCsv& csv, const ScheduleInput& input) {
  SlotTable table;
  std::vector<std::vector<int>> columns;
  for (size_t r = 0; r < csv.ranks.size(); ++r) {
    std::vector<ScheduledSlot>& order = table.devices.emplace_back();
    std::vector<int>& column = columns.emplace_back();
    for (size_t c = 0; c < csv.ranks[r].size(); ++c) {
      for (const PipelineAction& action : actions_of(csv.ranks[r][c])) {
        const auto add = [&](Phase phase, bool whole) {
          order.push_back({action.stage, phase, action.micro_batch, whole});
          column.push_back(static_cast<int>(c));
        };
        if (action.kind == Kind::forward) add(Phase::forward, false);
        if (action.kind == Kind::input_gradient) add(Phase::input_gradient, false);
        if (action.kind == Kind::weight_gradient) add(Phase::weight_gradient, false);
        if (action.kind == Kind::backward) {
          add(Phase::input_gradient, true);
          add(Phase::weight_gradient, false);
        }
      }
    }
  }
  if (input.training()) {
    for (size_t s = 0; s < input.stage_devices.size(); ++s) {
      for (const int device : input.stage_devices[s]) {
        if (at(device) >= table.devices.size()) continue;  // find_fault says so
        table.devices[at(device)].push_back({static_cast<int>(s), Phase::step, 0});
        columns[at(device)].push_back(static_cast<int>(csv.ranks[at(device)].size()));
      }
    }
  }
  const SlotNames names = {"rank", &columns};
  if (const auto fault = find_fault(input, table, names)) {
    if (fault->device < 0 || fault->slot < 0) return fault_at(csv, fault->device, -1, fault->reason);
    return fault_at(csv, fault->device, columns[at(fault->device)][at(fault->slot)], fault->reason);
  }
  RETURN_IF_ERROR(Messages(csv, input).check());
  table.instances = instances_of(input, table);
  return table;
}

PipelineCsv csv_of(const SlotTable& table) {
  int stages = 0;
  for (const auto& order : table.devices) {
    for (const ScheduledSlot& slot : order) stages = std::max(stages, slot.stage + 1);
  }
  PipelineCsv csv;
  csv.ranks.resize(table.devices.size());
  std::map<std::tuple<Phase, int, int>, size_t> ends;  // the column after the one it is in
  std::vector<size_t> next(table.devices.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t d = 0; d < table.devices.size(); ++d) {
      const std::vector<ScheduledSlot>& order = table.devices[d];
      for (; next[d] < order.size(); ++next[d], moved = true) {
        const ScheduledSlot& slot = order[next[d]];
        if (slot.phase == Phase::step) continue;  // the format has none
        PipelineAction action = {Kind::forward, slot.stage, slot.micro_batch};
        std::optional<std::tuple<Phase, int, int>> needed;
        if (slot.phase == Phase::forward) {
          if (slot.stage > 0) needed = {Phase::forward, slot.stage - 1, slot.micro_batch};
        } else if (slot.phase == Phase::input_gradient) {
          action.kind = slot.whole ? Kind::backward : Kind::input_gradient;
          if (slot.stage + 1 < stages) needed = {Phase::input_gradient, slot.stage + 1, slot.micro_batch};
        } else {
          action.kind = Kind::weight_gradient;
        }
        if (needed && !ends.contains(*needed)) break;
        auto& rank = csv.ranks[d];
        if (needed && ends[*needed] > rank.size()) rank.resize(ends[*needed]);
        rank.emplace_back(action);
        ends[{slot.phase, slot.stage, slot.micro_batch}] = rank.size();
        if (slot.whole) ++next[d];  // its W is in this cell
      }
    }
  }
  return csv;
}

}  // namespace nlsplit::inline schedules
