#include "program/saved.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/text_reader.h"
#include "program/text.h"
#include "program/verify.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* program_file = "program.nls";
constexpr const char* unsplit_file = "unsplit.nls";
constexpr const char* index_file = "weights.idx";
constexpr const char* weights_file = "weights.bin";
constexpr const char* clock_file = "clock.json";
constexpr const char* online_file = "online.json";
constexpr const char* promise_file = "promise.json";
constexpr const char* prediction_file = "predicted.json";
constexpr size_t content_alignment = 64;

std::set<ContentId> contents_of(const SavedProgram& saved) {
  std::set<ContentId> contents;
  for (const Program* program : {&saved.program, &saved.unsplit}) {
    for (const DeviceProgram& device : program->devices) {
      for (const Buffer& buffer : device.buffers) {
        if (buffer.has_content) contents.insert(buffer.content);
      }
    }
  }
  return contents;
}

// One content after the other, so that a network larger than the memory that is left can still be saved.
Status write_weights(const std::string& dir, const std::set<ContentId>& contents, const WeightStore& weights) {
  const std::string path = dir + "/" + weights_file;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return io_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  std::string index;
  size_t at = 0;
  Status status;
  for (const ContentId id : contents) {
    auto raw = weights.materialise(id);
    if (!raw) {
      status = raw.error();
      break;
    }
    index += fmt::format("{} {} {}\n", hex16(id.value), at, raw->size());
    raw->resize((raw->size() + content_alignment - 1) / content_alignment * content_alignment, '\0');
    at += raw->size();
    if (std::fwrite(raw->data(), 1, raw->size(), file) != raw->size()) {
      status = io_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
      break;
    }
  }
  if (std::fclose(file) != 0 && status.ok())
    status = io_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  RETURN_IF_ERROR(status);
  return write_file(dir + "/" + index_file, index);
}

// Hard links: a folder remains whole when the other is removed.
Status link_weights(const std::string& dir, const std::set<ContentId>& contents, const std::string& like) {
  ASSIGN_OR_RETURN(const WeightFile file, WeightFile::open(like));
  for (const ContentId id : contents) RETURN_IF_ERROR(file.bytes(id));
  for (const char* name : {index_file, weights_file}) {
    std::error_code failure;
    fs::create_hard_link(fs::path(like) / name, fs::path(dir) / name, failure);
    if (failure) return io_error(fmt::format("cannot link {}/{} to {}: {}", dir, name, like, failure.message()));
  }
  return ok_status();
}

Status write_programs(const std::string& dir, const SavedProgram& saved) {
  RETURN_IF_ERROR(write_file(dir + "/" + program_file, to_string(saved.program)));
  RETURN_IF_ERROR(write_file(dir + "/" + unsplit_file, to_string(saved.unsplit)));
  if (!saved.clocks.empty()) RETURN_IF_ERROR(write_file(dir + "/" + clock_file, clocks_text(saved.clocks)));
  if (saved.online) RETURN_IF_ERROR(write_file(dir + "/" + online_file, online_text(*saved.online)));
  if (saved.promise != Promise{}) {
    const json promise = {{"format", "nlsplit-promise"},
                          {"version", 1},
                          {"tolerance", saved.promise.tolerance},
                          {"why", saved.promise.why}};
    RETURN_IF_ERROR(write_file(dir + "/" + promise_file, promise.dump(2) + "\n"));
  }
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
    return p;
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
    if (!std::isfinite(promise.tolerance) || promise.tolerance < 0)
      return invalid_input(fmt::format("{}: a tolerance of {}", path, promise.tolerance));
    return promise;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", path, e.what()));
  }
}

// fill(folder) puts the weights there.
template <class Fill>
Status save(const std::string& dir, const SavedProgram& saved, const Fill& fill) {
  std::error_code failure;
  if (fs::exists(dir, failure) && !fs::exists(dir + "/" + program_file, failure)) {
    return invalid_input(fmt::format("{} exists and is not a saved program; it is left alone", dir));
  }
  fs::path target = fs::path(dir).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "x/" is "x"
  const std::string temporary = fmt::format("{}.tmp.{}", target.string(), ::getpid());
  if (!fs::create_directories(temporary, failure)) {
    return io_error(fmt::format("cannot create {}: {}", temporary, failure ? failure.message() : "it exists"));
  }
  Status status = fill(temporary);
  if (status.ok()) status = write_programs(temporary, saved);
  if (status.ok()) {
    fs::remove_all(target, failure);
    fs::rename(temporary, target, failure);
    if (failure) status = io_error(fmt::format("cannot rename to {}: {}", dir, failure.message()));
  }
  if (!status.ok()) fs::remove_all(temporary, failure);
  return status;
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
  return save(dir, saved,
              [&](const std::string& folder) { return write_weights(folder, contents_of(saved), weights); });
}

Status save_program_like(const std::string& dir, const SavedProgram& saved, const std::string& like) {
  return save(dir, saved, [&](const std::string& folder) { return link_weights(folder, contents_of(saved), like); });
}

std::string clocks_text(const Clocks& clocks) {
  return json{{"format", "nlsplit-clocks"}, {"version", 1}, {"seconds", clocks}}.dump() + "\n";
}

Result<Clocks> parse_clocks(const std::string& text, const Program& program, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-clocks" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not clocks of version 1", file));
    auto clocks = value.at("seconds").get<Clocks>();
    bool fits = clocks.size() == program.devices.size();
    for (const std::vector<double>& clock : clocks) {
      fits = fits && (clock.empty() || clock.size() == program.descs.size()) &&
             std::ranges::all_of(clock, [](double s) { return s >= 0 && std::isfinite(s); });
    }
    if (!fits) return invalid_input(fmt::format("{}: these are clocks of another program", file));
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

Result<WeightFile> WeightFile::open(const std::string& dir) {
  WeightFile file;
  const std::string path = dir + "/" + weights_file;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return io_error(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  struct stat info {};
  const bool known = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  file.size_ = known ? static_cast<size_t>(info.st_size) : 0;
  if (file.size_ > 0) {
    void* mapped = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped != MAP_FAILED) file.data_ = static_cast<const char*>(mapped);
  }
  ::close(descriptor);
  if (!known || (file.size_ > 0 && file.data_ == nullptr)) return io_error(fmt::format("cannot map {}", path));

  const std::string index_path = dir + "/" + index_file;
  ASSIGN_OR_RETURN(const std::string index, read_file(index_path));
  TextReader in(index, index_path);
  while (in.next_line()) {
    ASSIGN_OR_RETURN(const uint64_t id, in.hex("a content id"));
    ASSIGN_OR_RETURN(const int64_t at, in.integer("an offset"));
    ASSIGN_OR_RETURN(const int64_t size, in.integer("a size"));
    RETURN_IF_ERROR(in.end_of_line());
    const auto total = static_cast<int64_t>(file.size_);
    if (at < 0 || size < 0 || at > total || size > total - at) {
      return in.error(fmt::format("{} is truncated: it has {} B", path, total));
    }
    file.index_[ContentId{id}] = {static_cast<size_t>(at), static_cast<size_t>(size)};
  }
  return file;
}

WeightFile::WeightFile(WeightFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      index_(std::move(other.index_)) {}

WeightFile& WeightFile::operator=(WeightFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(index_, other.index_);
  return *this;
}

WeightFile::~WeightFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

Result<std::string_view> WeightFile::bytes(ContentId id) const {
  const auto found = index_.find(id);
  if (found == index_.end()) return invalid_input(fmt::format("{} has no content {}", index_file, hex16(id.value)));
  return std::string_view(data_ + found->second.first, found->second.second);
}

}  // namespace nlsplit
