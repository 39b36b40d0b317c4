#include "program/saved.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/folder_writer.h"
#include "base/hash.h"
#include "base/text_reader.h"
#include "program/text.h"
#include "program/verify.h"

namespace nlsplit::inline program {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* program_file = "program.nls";
constexpr const char* session_file = "session.nls";
constexpr const char* generation_file = "generation.json";
constexpr const char* training_file = "training.json";
constexpr const char* unsplit_file = "unsplit.nls";
constexpr const char* index_file = "weights.idx";
constexpr const char* weights_file = "weights.bin";
constexpr const char* clock_file = "clock.json";
constexpr const char* online_file = "online.json";
constexpr const char* promise_file = "promise.json";
constexpr const char* prediction_file = "predicted.json";
constexpr size_t content_alignment = 64;
constexpr std::string_view index_header = "nlsplit-weights";
constexpr int64_t index_version = 2;

void add_contents(const Program& program, std::set<ContentId>& contents) {
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.has_content) contents.insert(buffer.content);
    }
  }
}

std::set<ContentId> contents_of(const SavedProgram& saved) {
  std::set<ContentId> contents;
  add_contents(saved.program, contents);
  add_contents(saved.unsplit, contents);
  return contents;
}

// One content after the other, so that a network larger than the memory that is left can still be saved.
Status write_weights(const std::string& dir, const std::set<ContentId>& contents, const WeightStore& weights) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(dir + "/" + weights_file));
  std::string index = fmt::format("{} {}\n", index_header, index_version);
  size_t at = 0;
  for (const ContentId id : contents) {
    ASSIGN_OR_RETURN(std::string raw, weights.materialise(id));
    index += fmt::format("{} {} {} {}\n", hex16(id.value), at, raw.size(), to_string(checksum_of(raw)));
    raw.resize((raw.size() + content_alignment - 1) / content_alignment * content_alignment, '\0');
    at += raw.size();
    RETURN_IF_ERROR(file.write(raw));
  }
  RETURN_IF_ERROR(file.commit());
  return write_file(dir + "/" + index_file, index);
}

// Hard links: a folder remains whole when the other is removed.
Status link_weights(const std::string& dir, const std::set<ContentId>& contents, const std::string& like) {
  ASSIGN_OR_RETURN(const WeightFile file, WeightFile::open(like));
  for (const ContentId id : contents) RETURN_IF_ERROR(file.find(id));
  for (const char* name : {index_file, weights_file}) {
    std::error_code failure;
    fs::create_hard_link(fs::path(like) / name, fs::path(dir) / name, failure);
    if (failure) return io_error(fmt::format("cannot link {}/{} to {}: {}", dir, name, like, failure.message()));
  }
  return ok_status();
}

Status write_promise(const std::string& dir, const Promise& promise) {
  if (promise == Promise{}) return ok_status();
  const json text = {
      {"format", "nlsplit-promise"}, {"version", 1}, {"tolerance", promise.tolerance}, {"why", promise.why}};
  return write_file(dir + "/" + promise_file, text.dump(2) + "\n");
}

Status write_programs(const std::string& dir, const SavedProgram& saved) {
  RETURN_IF_ERROR(write_file(dir + "/" + program_file, to_string(saved.program)));
  RETURN_IF_ERROR(write_file(dir + "/" + unsplit_file, to_string(saved.unsplit)));
  if (!saved.clocks.empty()) RETURN_IF_ERROR(write_file(dir + "/" + clock_file, clocks_text(saved.clocks)));
  if (saved.online) RETURN_IF_ERROR(write_file(dir + "/" + online_file, online_text(*saved.online)));
  RETURN_IF_ERROR(write_promise(dir, saved.promise));
  if (!saved.has_prediction) return ok_status();
  const Prediction& p = saved.prediction;
  const json text = {{"format", "nlsplit-prediction"},      {"version", 1},
                     {"fingerprint", hex16(p.fingerprint)}, {"makespan_s", p.makespan_s},
                     {"latency_mean_s", p.latency_mean_s},  {"device_compute_s", p.device_compute_s}};
  return write_file(dir + "/" + prediction_file, text.dump(2) + "\n");
}

Result<Prediction> read_prediction(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-prediction" || value.at("version") != 1) {
      return invalid_input(fmt::format("{}: not a prediction of version 1", path));
    }
    Prediction p;
    p.fingerprint = std::stoull(value.at("fingerprint").get<std::string>(), nullptr, 16);
    p.makespan_s = value.at("makespan_s").get<double>();
    p.latency_mean_s = value.at("latency_mean_s").get<double>();
    p.device_compute_s = value.at("device_compute_s").get<std::vector<double>>();
    const bool times = p.makespan_s >= 0 && p.latency_mean_s >= 0 &&
                       std::ranges::all_of(p.device_compute_s, [](double s) { return s >= 0; });
    if (!times) return invalid_input(fmt::format("{}: a negative time", path));
    return p;
  } catch (const std::exception& e) {
    return invalid_input(fmt::format("{}: {}", path, e.what()));
  }
}

std::string generation_text(const SavedGeneration& of) {
  const json text = {{"format", "nlsplit-generation"},
                     {"version", 1},
                     {"tokenizer", of.tokenizer},
                     {"prompt", of.prompt},
                     {"tokens", of.tokens},
                     {"first_token_s", of.first_token_s},
                     {"next_token_s", of.next_token_s}};
  return text.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<SavedGeneration> read_generation(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-generation" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not the description of a generation session, version 1", path));
    return SavedGeneration{value.at("tokenizer").get<std::string>(), value.at("prompt").get<int64_t>(),
                           value.at("tokens").get<int64_t>(), value.at("first_token_s").get<double>(),
                           value.at("next_token_s").get<double>()};
  } catch (const std::exception& e) {
    return invalid_input(fmt::format("{}: {}", path, e.what()));
  }
}

std::string training_text(const SavedTraining& of) {
  const json text = {{"format", "nlsplit-training"},
                     {"version", 1},
                     {"model", of.model},
                     {"loss", loss_names()[static_cast<size_t>(of.loss)]},
                     {"probabilities", of.probabilities},
                     {"weights", of.weights},
                     {"step_s", of.step_s}};
  return text.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<SavedTraining> read_training(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-training" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not the description of a training session, version 1", path));
    SavedTraining of;
    of.model = value.at("model").get<std::string>();
    const Result<Loss> loss = parse_loss(value.at("loss").get<std::string>());
    if (!loss) return invalid_input(fmt::format("{}: {}", path, loss.error().message));
    of.loss = *loss;
    of.probabilities = value.at("probabilities").get<bool>();
    of.weights = value.at("weights").get<std::vector<std::string>>();
    of.step_s = value.at("step_s").get<double>();
    return of;
  } catch (const std::exception& e) {
    return invalid_input(fmt::format("{}: {}", path, e.what()));
  }
}

Result<Promise> read_promise(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-promise" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not a promise of version 1", path));
    Promise promise{value.at("tolerance").get<double>(), value.at("why").get<std::string>()};
    if (!(promise.tolerance >= 0 && promise.tolerance <= rounding_tolerance(DType::bf16)))
      return invalid_input(fmt::format("{}: a tolerance of {}; no plan promises more than {:g}", path,
                                       promise.tolerance, rounding_tolerance(DType::bf16)));
    return promise;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", path, e.what()));
  }
}

// fill(folder) writes all that it holds.
template <class Fill>
Status save(const std::string& dir, const Fill& fill) {
  std::error_code failure;
  if (fs::exists(dir, failure) && !fs::exists(dir + "/" + program_file, failure) && !is_saved_session(dir)) {
    return invalid_input(fmt::format("{} exists and is not a saved program; it is left alone", dir));
  }
  ASSIGN_OR_RETURN(FolderWriter folder, FolderWriter::open(dir));
  RETURN_IF_ERROR(fill(folder.path()));
  return folder.commit();
}

// 32 digits.
Result<Checksum> read_checksum(TextReader& in) {
  const std::string_view text = in.peek();
  Checksum checksum;
  const auto half = [&](size_t at, uint64_t& value) {
    const char* begin = text.data() + at;
    const auto [end, failure] = std::from_chars(begin, begin + 16, value, 16);
    return failure == std::errc() && end == begin + 16;
  };
  if (text.size() != 32 || !half(0, checksum.high) || !half(16, checksum.low))
    return in.error("expected a checksum (32 hexadecimal digits)");
  RETURN_IF_ERROR(in.expect(text));
  return checksum;
}

}  // namespace

double rounding_tolerance(DType coarsest) {
  switch (coarsest) {
    case DType::f16:
      return 1e-2;
    case DType::bf16:
      return 8e-2;
    default:
      return 1e-4;
  }
}

Status save_program(const std::string& dir, const SavedProgram& saved, const WeightStore& weights) {
  return save(dir, [&](const std::string& folder) -> Status {
    RETURN_IF_ERROR(write_weights(folder, contents_of(saved), weights));
    return write_programs(folder, saved);
  });
}

Status save_program_like(const std::string& dir, const SavedProgram& saved, const std::string& like) {
  return save(dir, [&](const std::string& folder) -> Status {
    RETURN_IF_ERROR(link_weights(folder, contents_of(saved), like));
    return write_programs(folder, saved);
  });
}

namespace {

std::set<ContentId> contents_of(const SavedSession& saved) {
  std::set<ContentId> contents;
  for (const Program& program : saved.session.programs) add_contents(program, contents);
  if (saved.unsplit) {
    for (const Program& program : saved.unsplit->programs) add_contents(program, contents);
  }
  return contents;
}

Status write_session(const std::string& folder, const SavedSession& saved) {
  if (saved.generation) RETURN_IF_ERROR(write_file(folder + "/" + generation_file, generation_text(*saved.generation)));
  if (saved.training) RETURN_IF_ERROR(write_file(folder + "/" + training_file, training_text(*saved.training)));
  if (!saved.clocks.empty()) RETURN_IF_ERROR(write_file(folder + "/" + clock_file, clocks_text(saved.clocks)));
  if (saved.unsplit) RETURN_IF_ERROR(write_file(folder + "/" + unsplit_file, to_string(*saved.unsplit)));
  RETURN_IF_ERROR(write_promise(folder, saved.promise));
  return write_file(folder + "/" + session_file, to_string(saved.session));
}

}  // namespace

Status save_session(const std::string& dir, const SavedSession& saved, const WeightStore& weights) {
  return save(dir, [&](const std::string& folder) -> Status {
    RETURN_IF_ERROR(write_weights(folder, contents_of(saved), weights));
    return write_session(folder, saved);
  });
}

Status save_session_like(const std::string& dir, const SavedSession& saved, const std::string& like) {
  return save(dir, [&](const std::string& folder) -> Status {
    RETURN_IF_ERROR(link_weights(folder, contents_of(saved), like));
    return write_session(folder, saved);
  });
}

Result<SavedSession> load_session(const std::string& dir) {
  SavedSession saved;
  const std::string path = dir + "/" + session_file, of_generation = dir + "/" + generation_file,
                    of_training = dir + "/" + training_file, of_clocks = dir + "/" + clock_file;
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  ASSIGN_OR_RETURN(saved.session, parse_session(text, path));
  std::error_code failure;
  if (fs::exists(of_generation, failure)) {
    ASSIGN_OR_RETURN(saved.generation, read_generation(of_generation));
  }
  if (fs::exists(of_training, failure)) {
    ASSIGN_OR_RETURN(saved.training, read_training(of_training));
  }
  if (fs::exists(of_clocks, failure)) {
    ASSIGN_OR_RETURN(const std::string clocks, read_file(of_clocks));
    ASSIGN_OR_RETURN(const Program joined, join(saved.session));
    ASSIGN_OR_RETURN(saved.clocks, parse_clocks(clocks, joined, of_clocks));
  }
  if (const std::string unsplit = dir + "/" + unsplit_file; fs::exists(unsplit, failure)) {
    ASSIGN_OR_RETURN(const std::string programs, read_file(unsplit));
    ASSIGN_OR_RETURN(saved.unsplit, parse_session(programs, unsplit));
    if (const Status sound = verify_session(*saved.unsplit); !sound.ok()) {
      Error error = sound.error();
      error.where.file = unsplit;
      return error;
    }
  }
  if (fs::exists(dir + "/" + promise_file, failure)) {
    ASSIGN_OR_RETURN(saved.promise, read_promise(dir + "/" + promise_file));
  }
  return saved;
}

bool is_saved_session(const std::string& dir) {
  std::error_code failure;
  return fs::exists(dir + "/" + session_file, failure);
}

std::string clocks_text(const Clocks& clocks) {
  return json{{"format", "nlsplit-clocks"}, {"version", 1}, {"seconds", clocks}}.dump() + "\n";
}

Status check_clocks(const Clocks& clocks, const Program& program, const std::string& where) {
  bool fits = clocks.size() == program.devices.size();
  for (const std::vector<double>& clock : clocks) {
    fits = fits && (clock.empty() || clock.size() == program.descs.size()) &&
           std::ranges::all_of(clock, [](double s) { return std::isfinite(s) && s >= 0; });
  }
  return fits ? ok_status() : invalid_input(fmt::format("{}: these are clocks of another program", where));
}

Result<Clocks> parse_clocks(const std::string& text, const Program& program, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-clocks" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not clocks of version 1", file));
    auto clocks = value.at("seconds").get<Clocks>();
    RETURN_IF_ERROR(check_clocks(clocks, program, file));
    return clocks;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
}

Result<SavedProgram> load_program(const std::string& dir) {
  SavedProgram saved;
  for (const auto& [name, program] :
       {std::pair(program_file, &saved.program), std::pair(unsplit_file, &saved.unsplit)}) {
    const std::string path = dir + "/" + name;
    ASSIGN_OR_RETURN(const std::string text, read_file(path));
    ASSIGN_OR_RETURN(*program, parse_program(text, path));
    if (const Status sound = verify(*program); !sound.ok()) {
      Error error = sound.error();
      error.where.file = path;
      return error;
    }
  }
  std::error_code failure;
  if (fs::exists(dir + "/" + clock_file, failure)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(dir + "/" + clock_file));
    ASSIGN_OR_RETURN(saved.clocks, parse_clocks(text, saved.program, dir + "/" + clock_file));
  }
  if (fs::exists(dir + "/" + online_file, failure)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(dir + "/" + online_file));
    ASSIGN_OR_RETURN(saved.online, parse_online(text, saved.program, dir + "/" + online_file));
  }
  if (fs::exists(dir + "/" + promise_file, failure)) {
    ASSIGN_OR_RETURN(saved.promise, read_promise(dir + "/" + promise_file));
  }
  if (fs::exists(dir + "/" + prediction_file, failure)) {
    ASSIGN_OR_RETURN(saved.prediction, read_prediction(dir + "/" + prediction_file));
    saved.has_prediction = saved.prediction.fingerprint == fingerprint(saved.program);
    if (!saved.has_prediction) return invalid_input(fmt::format("{}/{} is of another program", dir, prediction_file));
  }
  return saved;
}

Result<std::map<ContentId, SavedContent>> parse_weight_index(const std::string& text, const std::string& file,
                                                             size_t weight_bytes) {
  TextReader in(text, file);
  if (!in.next_line() || !in.accept(index_header)) {
    return invalid_input(
        fmt::format("{}: a saved program of an older version, whose weights have no checksums; save it again: nlsim "
                    "lower … --save DIR",
                    file));
  }
  ASSIGN_OR_RETURN(const int64_t version, in.integer("a version"));
  if (version != index_version)
    return in.error(fmt::format("version {}; this program reads {}", version, index_version));
  RETURN_IF_ERROR(in.end_of_line());
  std::map<ContentId, SavedContent> index;
  const auto total = static_cast<int64_t>(weight_bytes);
  while (in.next_line()) {
    ASSIGN_OR_RETURN(const uint64_t id, in.hex("a content id"));
    ASSIGN_OR_RETURN(const int64_t at, in.integer("an offset"));
    ASSIGN_OR_RETURN(const int64_t size, in.integer("a size"));
    if (at < 0 || size < 0 || at > total || size > total - at)
      return in.error(fmt::format("{} is truncated: it has {} B", weights_file, total));
    ASSIGN_OR_RETURN(const Checksum checksum, read_checksum(in));
    RETURN_IF_ERROR(in.end_of_line());
    const SavedContent content{static_cast<size_t>(at), static_cast<size_t>(size), checksum};
    if (!index.emplace(ContentId{id}, content).second) return in.error(fmt::format("{} stands twice", hex16(id)));
  }
  return index;
}

Result<WeightFile> WeightFile::open(const std::string& dir) {
  WeightFile weights;
  weights.dir_ = dir;
  ASSIGN_OR_RETURN(weights.file_, MappedFile::open(dir + "/" + weights_file));
  const std::string path = dir + "/" + index_file;
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  ASSIGN_OR_RETURN(weights.index_, parse_weight_index(text, path, weights.file_->bytes().size()));
  return weights;
}

Result<SavedContent> WeightFile::find(ContentId id) const {
  const auto found = index_.find(id);
  if (found == index_.end())
    return invalid_input(fmt::format("{}/{} has no content {}", dir_, index_file, hex16(id.value)));
  return found->second;
}

Result<std::string_view> WeightFile::bytes(ContentId id) const {
  ASSIGN_OR_RETURN(const SavedContent content, find(id));
  return file_->bytes().substr(content.offset, content.size);
}

Result<Checksum> WeightFile::checksum(ContentId id) const {
  ASSIGN_OR_RETURN(const SavedContent content, find(id));
  return content.checksum;
}

}  // namespace nlsplit::inline program
