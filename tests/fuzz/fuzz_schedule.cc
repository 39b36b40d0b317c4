// Schedule files (PyTorch's pipeline CSV): what is read is written byte for byte, and its table is one or is refused.
#include <cstdint>

#include "fuzz/files.h"
#include "schedule/evaluate.h"
#include "schedule/pipeline_csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  const auto csv = parse_pipeline_csv(text_of(data, size), "fuzz.csv");
  if (!accepted(csv)) return 0;
  const std::string text = to_text(*csv);
  const auto again = parse_pipeline_csv(text, "again.csv");
  expect(again.ok() && again->ranks == csv->ranks, "what is written is read");
  const auto shape = shape_of(*csv);
  if (!accepted(shape)) return 0;
  ScheduleInput input;
  input.micro_batches = shape->micro_batches;
  input.devices = static_cast<int>(csv->ranks.size());
  input.stage_devices = shape->stage_devices;
  for (const std::vector<int>& on : input.stage_devices) {
    input.stage_seconds.emplace_back(on.size(), 1.0);
    input.message_seconds.push_back(0.1);
    if (!shape->training) continue;
    input.input_gradient_seconds.emplace_back(on.size(), 1.0);
    input.weight_gradient_seconds.emplace_back(on.size(), 1.0);
  }
  const auto table = table_of(*csv, input);
  if (!accepted(table)) return 0;
  const auto written = parse_pipeline_csv(to_text(csv_of(*table)), "table.csv");
  expect(written.ok(), "the table is written as a file that is read");
  return 0;
}
