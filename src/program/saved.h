// A Program saved with its weights: a folder that runs without ONNX, YAML or SimGrid.
//
//   program.nls     the Program
//   unsplit.nls     the same graph on one device, for --check; of a session its Programs
//   weights.idx     "nlsplit-weights 2", then one line a content: id, offset, bytes, checksum (base/hash.h)
//   weights.bin     their bytes
//   clock.json      what computations take on devices with emulated compute (absent if there are none)
//   online.json     who decides, if the plan is run online, and what it may know (absent if it is not)
//   promise.json    how near to the unsplit results it comes (absent: bit for bit, between devices of one level)
//   generation.json what it was made for (of a session that generates text only)
//   training.json   the same of a session that trains
//   predicted.json  what the simulator expects, for comparison (absent for a model without a cluster)
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "graph/differentiate/loss.h"
#include "graph/weights.h"
#include "program/online.h"
#include "program/program.h"
#include "program/session.h"

namespace nlsplit::inline program {

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
// `coarsest`: of the types of the network's values (graph/passes/precision.h).
double rounding_tolerance(DType coarsest);

struct SavedProgram {
  Program program;
  Program unsplit;
  bool has_prediction = false;
  Prediction prediction;
  Clocks clocks = {};                 // by device of the Program; empty: no device emulates
  std::optional<Online> online = {};  // none: in the order of the Program
  Promise promise = {};
};

// Replaces DIR as a whole (base/folder_writer.h); DIR must not exist or must be a folder this function wrote. Error
// also if another run is saving there.
Status save_program(const std::string& dir, const SavedProgram& saved, const WeightStore& weights);
// The same where `like` is a folder saved for the same network: its files of weights are linked, not copied. Error also
// if they lack a weight of this Program.
Status save_program_like(const std::string& dir, const SavedProgram& saved, const std::string& like);
Result<SavedProgram> load_program(const std::string& dir);

// The workload that a session of text generation was made for (generation.json).
struct SavedGeneration {
  std::string tokenizer;  // the file that has the model's: an absolute path; empty: it has none
  int64_t prompt = 0, tokens = 0;
  double first_token_s = 0, next_token_s = 0;  // what the simulator expects: GenerationTimes (ranking/ranking.h)
};

// What a session that trains was made for (training.json): its Programs are `train` and `evaluate`.
struct SavedTraining {
  std::string model;                 // as the scenario names it
  Loss loss{};                       // labels (`labels`, `target`) are the last input of `train`
  bool probabilities = false;        // what `evaluate` gives is a Softmax, and not what one would be made of
  std::vector<std::string> weights;  // states that are weights of the model; the others are the optimizer's
  double step_s = 0;                 // what the simulator expects from the end of a step to that of the next
};

// A session in the same way: session.nls instead of the Programs, its weights and clocks, of one that generates text or
// trains what it was made for.
struct SavedSession {
  Session session;
  std::optional<SavedGeneration> generation = {};  // none: it generates no text
  std::optional<SavedTraining> training = {};      // none: it is not for `nlbench train`
  Clocks clocks = {};                              // of the joined Program; empty: no device emulates
  std::optional<Session> unsplit = {};             // the same Programs on one device, for --check
  Promise promise = {};
};
Status save_session(const std::string& dir, const SavedSession& saved, const WeightStore& weights);
// As save_program_like: the weights of a folder that has them all.
Status save_session_like(const std::string& dir, const SavedSession& saved, const std::string& like);
Result<SavedSession> load_session(const std::string& dir);
bool is_saved_session(const std::string& dir);

// JSON {"format": "nlsplit-clocks", "version": 1, "seconds": [[…], …]}. Errors: not that, or not of this Program.
std::string clocks_text(const Clocks& clocks);
Result<Clocks> parse_clocks(const std::string& text, const Program& program, const std::string& file);
// Error: they are not of this Program; names where they stand.
Status check_clocks(const Clocks& clocks, const Program& program, const std::string& where);

struct SavedContent {
  size_t offset = 0, size = 0;  // in weights.bin
  Checksum checksum;            // of its bytes
};
// Of weights.idx, beside a weights.bin of so many bytes. Errors name `file` and the line.
Result<std::map<ContentId, SavedContent>> parse_weight_index(const std::string& text, const std::string& file,
                                                             size_t weight_bytes);

// Weights of a saved folder, mapped. Errors: missing or truncated files, ranges outside the file. Who uses the bytes
// compares them with the checksum (exec/distribute.h): reading them all here would read what other devices need.
class WeightFile {
 public:
  static Result<WeightFile> open(const std::string& dir);
  // Errors of all: no such content.
  Result<SavedContent> find(ContentId id) const;
  Result<std::string_view> bytes(ContentId id) const;  // borrowed from the mapping
  Result<Checksum> checksum(ContentId id) const;

 private:
  WeightFile() = default;
  std::string dir_;
  std::shared_ptr<const MappedFile> file_;
  std::map<ContentId, SavedContent> index_;
};

}  // namespace nlsplit::inline program
