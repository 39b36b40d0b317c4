#include "train/checkpoint.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/folder_writer.h"
#include "base/hash.h"
#include "base/json_number.h"
#include "base/json_place.h"
#include "graph/safetensors/safetensors_file.h"
#include "graph/safetensors/safetensors_write.h"

namespace nlsplit::inline train {
namespace {

constexpr const char *place_file = "/checkpoint.json", *weights_file = "/weights.safetensors",
                     *optimizer_file = "/optimizer.safetensors";

std::vector<int64_t> whole_numbers(const StateTensor& state) {
  std::vector<int64_t> numbers(state.bytes.size() / sizeof(int64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), state.bytes.data(), state.bytes.size());
  return numbers;
}

// As hex16 writes it.
Result<uint64_t> read_hash(const std::string& text, const std::string& path) {
  uint64_t hash = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (failure != std::errc() || end != text.data() + text.size() || text.size() != hex16(0).size())
    return invalid_input(fmt::format("{}: data '{}' are no 16 hexadecimal digits", path, text.substr(0, 40)));
  return hash;
}

Status add_tensors(const std::string& path, std::vector<StateTensor>& states) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, read_safetensors(path));
  const std::string_view bytes = file.mapped->bytes();
  for (const auto& [name, tensor] : file.tensors) {
    if (tensor.type != GgmlType::F32)
      return invalid_input(fmt::format("{}: tensor {} is not of f32, as a checkpoint's are", path, name));
    if (tensor.offset + tensor.bytes > bytes.size())
      return invalid_input(fmt::format("{}: it is cut off in tensor {}", path, name));
    states.push_back({name, {DType::f32, tensor.shape}, std::string(bytes.substr(tensor.offset, tensor.bytes))});
  }
  return ok_status();
}

}  // namespace

Status write_checkpoint(const std::string& dir, const Checkpoint& checkpoint, const std::set<std::string>& weights) {
  std::vector<NamedBytes> of_model, of_optimizer;
  nlohmann::json numbers = nlohmann::json::object();
  for (const StateTensor& state : checkpoint.states) {
    if (state.type.dtype == DType::i64)
      numbers[state.name] = {{"shape", state.type.shape}, {"values", whole_numbers(state)}};
    else
      (weights.contains(state.name) ? of_model : of_optimizer).push_back({state.name, state.type, state.bytes});
  }
  const nlohmann::json place = {{"format", "nlsplit-checkpoint"},     {"version", 1},
                                {"model", checkpoint.model},          {"steps", checkpoint.steps},
                                {"samples", checkpoint.samples},      {"seed", checkpoint.seed},
                                {"shuffled", checkpoint.shuffled},    {"data", hex16(checkpoint.data)},
                                {"whole_numbers", std::move(numbers)}};
  ASSIGN_OR_RETURN(FolderWriter folder, FolderWriter::open(dir));
  RETURN_IF_ERROR(write_safetensors(folder.path() + weights_file, of_model));
  if (!of_optimizer.empty()) RETURN_IF_ERROR(write_safetensors(folder.path() + optimizer_file, of_optimizer));
  RETURN_IF_ERROR(write_file(folder.path() + place_file,
                             place.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  return folder.commit();
}

Result<Checkpoint> read_checkpoint(const std::string& dir) {
  const std::string path = dir + place_file;
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  ASSIGN_OR_RETURN(const nlohmann::json value, parse_json(text, path, KeyTwice::is_wrong));
  Checkpoint checkpoint;
  if (!value.is_object()) return invalid_input(fmt::format("{}: not a checkpoint", path));
  try {
    if (value.at("format") != "nlsplit-checkpoint" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not a checkpoint of version 1", path));
    checkpoint.model = value.at("model").get<std::string>();
    checkpoint.steps = whole_number<int64_t>(value.at("steps"));
    checkpoint.samples = whole_number<int64_t>(value.at("samples"));
    constexpr int64_t most = int64_t{1} << 53;
    if (checkpoint.steps < 0 || checkpoint.samples < 0 || checkpoint.steps > most || checkpoint.samples > most)
      return invalid_input(
          fmt::format("{}: {} steps and {} samples are impossible", path, checkpoint.steps, checkpoint.samples));
    checkpoint.seed = whole_number<uint64_t>(value.at("seed"));
    checkpoint.shuffled = value.at("shuffled").get<bool>();
    ASSIGN_OR_RETURN(checkpoint.data, read_hash(value.at("data").get<std::string>(), path));
    for (const auto& [name, state] : value.at("whole_numbers").items()) {
      StateTensor& made = checkpoint.states.emplace_back();
      made.name = name;
      made.type.dtype = DType::i64;
      for (const auto& extent : state.at("shape")) made.type.shape.push_back(whole_number<int64_t>(extent));
      if (const Status sound = check_type(made.type); !sound.ok())
        return invalid_input(fmt::format("{}: {}: {}", path, name, sound.error().message));
      std::vector<int64_t> numbers;
      for (const auto& number : state.at("values")) numbers.push_back(whole_number<int64_t>(number));
      made.bytes.resize(numbers.size() * sizeof(int64_t));
      if (!numbers.empty()) std::memcpy(made.bytes.data(), numbers.data(), made.bytes.size());
    }
  } catch (const std::exception& e) {
    return invalid_input(fmt::format("{}: {}", path, e.what()));
  }
  RETURN_IF_ERROR(add_tensors(dir + weights_file, checkpoint.states));
  std::error_code failure;
  if (std::filesystem::exists(dir + optimizer_file, failure))
    RETURN_IF_ERROR(add_tensors(dir + optimizer_file, checkpoint.states));
  return checkpoint;
}

}  // namespace nlsplit::inline train
