// A Program saved with its weights: a folder that runs without ONNX, YAML or SimGrid.
//
//   program.nls     the Program
//   unsplit.nls     the same graph on one device, for --check
//   weights.idx     one line a content: id, offset, bytes
//   weights.bin     their bytes
//   clock.json      what computations take on devices with a clock (absent if there are none)
//   online.json     who decides, if the plan is run online, and what it may know (absent if it is not)
//   promise.json    how near to the unsplit results it comes (absent: bit for bit, between devices of one level)
//   predicted.json  what the simulator expects, for comparison (absent for a model without a cluster)
#pragma once

#include <map>
#include <optional>
#include <string>

#include "graph/weights.h"
#include "program/online.h"
#include "program/program.h"

namespace nlsplit {

struct Prediction {
  uint64_t fingerprint = 0;
  double makespan_s = 0;
  double latency_mean_s = 0;
  std::vector<double> device_compute_s;  // by device of the Program
};

// Of each device, the seconds each of the Program's computations (Program::descs) takes there; empty: as long as it
// takes.
using Clocks = std::vector<std::vector<double>>;

// How near to the unsplit network's its results are: what --check may ask of it.
struct Promise {
  double tolerance = 0;  // relative to the largest value; 0: bit for bit
  std::string why = {};  // there is one: "partial sums are added in the order of the shards"
  friend bool operator==(const Promise&, const Promise&) = default;
};

// Relative to the largest value: how far results may be from the unsplit network's where sums are rounded otherwise.
// `coarsest`: of the types of the network's values (graph/precision.h).
double rounding_tolerance(DType coarsest);

struct SavedProgram {
  Program program;
  Program unsplit;
  bool has_prediction = false;
  Prediction prediction;
  Clocks clocks = {};                 // by device of the Program; empty: no device has one
  std::optional<Online> online = {};  // none: in the order of the Program
  Promise promise = {};
};

// Writes into a new folder next to DIR and renames it; DIR must not exist or must be a folder this function wrote.
Status save_program(const std::string& dir, const SavedProgram& saved, const WeightStore& weights);
// The same where `like` is a folder saved for the same network: its files of weights are linked, not copied. Error also
// if they lack a weight of this Program.
Status save_program_like(const std::string& dir, const SavedProgram& saved, const std::string& like);
Result<SavedProgram> load_program(const std::string& dir);

// JSON {"format": "nlsplit-clocks", "version": 1, "seconds": [[…], …]}. Errors: not that, or not of this Program.
std::string clocks_text(const Clocks& clocks);
Result<Clocks> parse_clocks(const std::string& text, const Program& program, const std::string& file);

// Weights of a saved folder, mapped. Errors: missing or truncated files, ranges outside the file.
class WeightFile {
 public:
  static Result<WeightFile> open(const std::string& dir);
  WeightFile(WeightFile&&) noexcept;
  WeightFile& operator=(WeightFile&&) noexcept;
  ~WeightFile();
  Result<std::string_view> bytes(ContentId id) const;  // borrowed from the mapping

 private:
  WeightFile() = default;
  const char* data_ = nullptr;
  size_t size_ = 0;
  std::map<ContentId, std::pair<size_t, size_t>> index_;
};

}  // namespace nlsplit
