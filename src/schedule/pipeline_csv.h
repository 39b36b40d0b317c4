// A schedule as a file: PyTorch's pipeline CSV (torch.distributed.pipelining, _PipelineScheduleRuntime._dump_csv and
// _load_csv). One row a rank, one cell a slot; an empty cell is an idle slot.
//
//   0F0,0F1,,0B0,0B1
//   ,1F0,1B0,1F1,1B1
//
// A cell is STAGE ACTION MICRO-BATCH: F forward, I input gradient, W weight gradient, B both; SEND_F RECV_F SEND_B
// RECV_B messages, WAIT_SEND_F WAIT_SEND_B; UNSHARD RESHARD REDUCE_GRAD WAIT_REDUCE_GRAD, without micro-batch; or
// (0F7;7B3)OVERLAP_F_B, a forward beside a backward. What is read is written again byte for byte.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/evaluate.h"
#include "schedule/schedules.h"

namespace nlsplit::inline schedules {

struct PipelineAction {
  enum class Kind : uint8_t {
    forward,
    input_gradient,
    weight_gradient,
    backward,
    send_forward,
    receive_forward,
    send_gradient,
    receive_gradient,
    wait_send_forward,  // the send's memory is free from here on; not timed, like the collectives below
    wait_send_gradient,
    unshard,
    reshard,
    reduce_gradient,
    wait_reduce_gradient,
    overlap,
  };
  Kind kind = Kind::forward;
  int stage = -1;                           // overlap: none
  int micro_batch = -1;                     // -1: none
  std::vector<PipelineAction> beside = {};  // of overlap
  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

struct PipelineCsv {
  std::vector<std::vector<std::optional<PipelineAction>>> ranks;  // [rank][column], nothing: idle
  std::string line_end = "\r\n";                                  // as Python's csv writes it
  bool last_line_ended = true;
  std::string file;  // for messages
};

// Errors: a cell that is no action, at file:rank + 1:column, with the grid around it.
Result<PipelineCsv> parse_pipeline_csv(std::string_view text, std::string file);
std::string to_text(const PipelineCsv& csv);
std::string to_string(const PipelineAction& action);

// What a file says of the plan it is for.
struct PipelineShape {
  int stages = 0;
  int micro_batches = 0;
  bool training = false;
  std::vector<std::vector<int>> stage_devices;  // [stage]: its ranks, ascending
};
// Errors: no actions; a stage or a micro-batch below the largest that is nowhere.
Result<PipelineShape> shape_of(const PipelineCsv& csv);

// The table of the file: a step of every stage at the end of its devices' orders. Error: whatever find_fault says of it
// for this input, or messages that do not match; at its place, with the grid around it.
Result<SlotTable> table_of(const PipelineCsv& csv, const ScheduleInput& input);

// The table in columns of one slot each, idle where a slot waits; I and W that are a whole backward are B.
PipelineCsv csv_of(const SlotTable& table);

}  // namespace nlsplit::inline schedules
