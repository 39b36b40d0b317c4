// Records of flight recorders: what is read is explained, alone and together with a copy that is another rank's.
#include <cstdint>
#include <string>

#include "fuzz/files.h"
#include "report/failure.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  const auto record = parse_flight_record(text_of(data, size), "rank-0.flight");
  if (!accepted(record)) return 0;
  expect(record->rank >= 0 && record->rank < record->ranks, "a rank is one of all");
  FlightRecord other = *record;
  other.rank = (record->rank + 1) % record->ranks;
  std::vector<FlightRecord> records = {*record};
  if (other.rank != record->rank) records.push_back(other);
  const Failure failure = explain_failure(records);
  expect(failure.ranks.size() == static_cast<size_t>(record->ranks), "every rank is explained");
  expect(!failure.causes.empty(), "there is a cause");
  expect(!failure_text(failure, 3).empty() && !failure_json(failure).empty(), "and it is said");
  return 0;
}
