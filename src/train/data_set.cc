#include "train/data_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/random.h"
#include "graph/elements.h"
#include "graph/half.h"
#include "train/npz.h"

namespace nlsplit::inline train {

struct DataSet::Array {
  std::string name, where;  // where: file, and member
  NpyHeader header;
  std::unique_ptr<NpzArray> member;        // of an archive
  std::shared_ptr<const MappedFile> file;  // of an .npy file
  std::string drawn;                       // of neither

  int64_t samples() const { return header.shape[0]; }
  size_t sample_bytes() const { return header.shape[0] == 0 ? 0 : header.size / static_cast<size_t>(header.shape[0]); }
  Shape sample_shape() const { return {header.shape.begin() + 1, header.shape.end()}; }

  Status read(size_t offset, std::span<std::byte> bytes) const {
    if (member) return member->read(offset, bytes);
    const std::string_view all = file ? file->bytes().substr(header.begin) : std::string_view(drawn);
    if (!bytes.empty()) std::memcpy(bytes.data(), all.data() + offset, bytes.size());
    return ok_status();
  }
};

namespace {

// NumPy's name of a type, by what an element of it is.
enum class Elements : uint8_t { real, integer, unsigned_integer, boolean };

Elements elements_of(const NpyHeader& header) {
  switch (header.type[1]) {
    case 'f':
      return Elements::real;
    case 'u':
      return Elements::unsigned_integer;
    case 'b':
      return Elements::boolean;
    default:
      return Elements::integer;
  }
}

template <class T>
T value_at(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

double real_at(const NpyHeader& header, const std::byte* at) {
  if (header.element == 8) return value_at<double>(at);
  if (header.element == 4) return static_cast<double>(value_at<float>(at));
  return static_cast<double>(f16_value(value_at<uint16_t>(at)));
}

int64_t whole_at(const NpyHeader& header, const std::byte* at) {
  const bool negative = elements_of(header) == Elements::integer;
  switch (header.element) {
    case 8:
      return value_at<int64_t>(at);
    case 4:
      return negative ? value_at<int32_t>(at) : static_cast<int64_t>(value_at<uint32_t>(at));
    case 2:
      return negative ? value_at<int16_t>(at) : static_cast<int64_t>(value_at<uint16_t>(at));
    default:
      return negative ? value_at<int8_t>(at) : static_cast<int64_t>(value_at<uint8_t>(at));
  }
}

// An i32 takes what it surely holds; of i64 the end of the feature is checked.
bool converts(const NpyHeader& header, DType to) {
  const Elements from = elements_of(header);
  if (header.type == numpy_type(to)) return true;
  if (to == DType::f32) return true;
  if (from == Elements::real) return false;
  return to == DType::i64 || (to == DType::i32 && header.element < 4);
}

float float_at(const NpyHeader& header, const std::byte* at) {
  if (elements_of(header) == Elements::real) return static_cast<float>(real_at(header, at));
  if (header.type == "<u8") return static_cast<float>(value_at<uint64_t>(at));
  return static_cast<float>(whole_at(header, at));
}

void convert(const NpyHeader& header, DType to, std::span<const std::byte> from, std::span<std::byte> made) {
  const size_t count = from.size() / header.element, size = made.size() / std::max<size_t>(count, 1);
  for (size_t i = 0; i < count; ++i) {
    const std::byte* const at = from.data() + i * header.element;
    std::byte* const out = made.data() + i * size;
    if (to == DType::f32) {
      const float value = float_at(header, at);
      std::memcpy(out, &value, sizeof(value));
    } else if (to == DType::i64) {
      const int64_t value = whole_at(header, at);
      std::memcpy(out, &value, sizeof(value));
    } else {
      const auto value = static_cast<int32_t>(whole_at(header, at));
      std::memcpy(out, &value, sizeof(value));
    }
  }
}

// By name, so that the order of files plays no part.
Result<uint64_t> fingerprint_of(const std::vector<std::unique_ptr<DataSet::Array>>& arrays) {
  constexpr size_t pieces = 64, most = 1 << 12;
  std::map<std::string_view, const DataSet::Array*> by_name;
  for (const auto& array : arrays) by_name.emplace(array->name, array.get());
  uint64_t hash = 0;
  for (const auto& [name, array] : by_name) {
    const NpyHeader& header = array->header;
    hash = hash_text(fmt::format("{} {} {}", name, header.type, fmt::join(header.shape, ",")), hash);
    std::string bytes(std::min(most, header.size), '\0');
    const size_t last = header.size - bytes.size();  // where a piece may begin
    for (size_t p = 0; p < (last == 0 ? 1 : pieces); ++p) {
      RETURN_IF_ERROR(array->read(last / (pieces - 1) * p + last % (pieces - 1) * p / (pieces - 1),
                                  std::as_writable_bytes(std::span(bytes))));
      hash = hash_text(bytes, hash);
    }
  }
  return hash;
}

Error no_array(const Feature& feature, const std::vector<std::string>& there) {
  return invalid_input(fmt::format("the data have no array '{}', of which each sample is {}; there are {}",
                                   feature.name, to_string(feature.sample), fmt::join(there, ", ")));
}

Status fits(const DataSet::Array& array, const Feature& feature) {
  if (array.header.shape.empty())
    return invalid_input(fmt::format("{}: a number by itself: axis 0 are the samples", array.where));
  if (array.sample_shape() != feature.sample.shape)
    return invalid_input(fmt::format("{}: a sample is of shape [{}], but input {} is {}", array.where,
                                     fmt::join(array.sample_shape(), ","), feature.name, to_string(feature.sample)));
  if (!converts(array.header, feature.sample.dtype))
    return invalid_input(fmt::format("{}: values of type '{}' do not fit input {}, {}", array.where, array.header.type,
                                     feature.name, to_string(feature.sample)));
  return ok_status();
}

Result<std::unique_ptr<DataSet::Array>> open_npy(std::string name, const std::string& path) {
  auto array = std::make_unique<DataSet::Array>();
  array->name = std::move(name);
  array->where = path;
  ASSIGN_OR_RETURN(array->file, MappedFile::open(path));
  ASSIGN_OR_RETURN(array->header, read_npy_header(array->file->bytes(), path));
  const size_t there = array->file->bytes().size() - array->header.begin;
  if (array->header.size != there)
    return invalid_input(fmt::format("{}: its shape needs {} bytes of values, but {} follow its header", path,
                                     array->header.size, there));
  return array;
}

}  // namespace

DataSet::DataSet(DataSet&&) noexcept = default;
DataSet& DataSet::operator=(DataSet&&) noexcept = default;
DataSet::~DataSet() = default;

// The arrays are those of the features, in any order.
Result<DataSet> DataSet::of(std::vector<std::unique_ptr<Array>> arrays, const std::vector<Feature>& features) {
  std::set<std::string_view> names;
  for (const auto& array : arrays) {
    if (!names.insert(array->name).second)
      return invalid_input(fmt::format("{}: there is an array '{}' already", array->where, array->name));
    RETURN_IF_ERROR(fits(*array, *std::ranges::find(features, array->name, &Feature::name)));
    if (array->samples() != arrays[0]->samples())
      return invalid_input(fmt::format("{}: {} samples, and {} in {}", array->where, array->samples(),
                                       arrays[0]->samples(), arrays[0]->where));
  }
  if (arrays.empty() || arrays[0]->samples() == 0) return invalid_input("a data set without samples");
  DataSet data;
  data.samples_ = arrays[0]->samples();
  ASSIGN_OR_RETURN(data.fingerprint_, fingerprint_of(arrays));
  data.arrays_ = std::move(arrays);
  for (const Feature& feature : features) {
    if (feature.end > 0) RETURN_IF_ERROR(data.check_below(feature));
  }
  return data;
}

Result<DataSet> DataSet::open(const std::vector<std::string>& files, const std::vector<Feature>& features) {
  std::set<std::string> wanted;
  for (const Feature& feature : features) wanted.insert(feature.name);
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<std::string> there;
  for (const std::string& file : files) {
    const size_t equals = file.find('=');
    if (file.ends_with(".npz")) {
      ASSIGN_OR_RETURN(std::vector<std::unique_ptr<NpzArray>> members, open_npz(file, wanted, there));
      for (auto& member : members) {
        auto array = std::make_unique<Array>();
        array->name = member->name();
        array->where = fmt::format("{}:{}.npy", file, member->name());
        array->header = member->header();
        array->member = std::move(member);
        arrays.push_back(std::move(array));
      }
    } else if (equals != std::string::npos) {
      there.push_back(file.substr(0, equals));
      if (!wanted.contains(there.back())) continue;
      ASSIGN_OR_RETURN(arrays.emplace_back(), open_npy(there.back(), file.substr(equals + 1)));
    } else {
      return invalid_input(fmt::format("'{}': data are FILE.npz, NAME=FILE.npy for each input, or one FILE.txt", file));
    }
  }
  for (const Feature& feature : features) {
    if (std::ranges::none_of(arrays, [&](const auto& array) { return array->name == feature.name; }))
      return no_array(feature, there);
  }
  return of(std::move(arrays), features);
}

Result<DataSet> DataSet::of_text(const std::string& path, const std::vector<Feature>& features) {
  const auto is_of_bytes = [&](const Feature& feature) {
    return feature.sample.shape.size() == 1 && feature.sample.shape == features[0].sample.shape &&
           converts({"|u1", {}, 0, 1, 0}, feature.sample.dtype) && feature.sample.dtype != DType::f32;
  };
  if (features.size() != 2 || !std::ranges::all_of(features, is_of_bytes))
    return invalid_input(
        fmt::format("{}: a text is for a network of one input of whole numbers, one label for each of "
                    "those, and nothing else; other data are FILE.npz",
                    path));
  const int64_t length = features[0].sample.shape[0];
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  const int64_t samples = (std::ssize(file->bytes()) - 1) / length;  // a byte follows the last one
  std::vector<std::unique_ptr<Array>> arrays;
  for (size_t f = 0; f < features.size(); ++f) {
    auto& array = *arrays.emplace_back(std::make_unique<Array>());
    array.name = features[f].name;
    array.where = path;
    array.header = {"|u1", {samples, length}, f, 1, static_cast<size_t>(std::max<int64_t>(samples, 0) * length)};
    array.file = file;
  }
  if (samples < 1)
    return invalid_input(fmt::format("{}: {} bytes do not hold a sample of {} and the byte after it", path,
                                     file->bytes().size(), length));
  return of(std::move(arrays), features);
}

Result<DataSet> DataSet::drawn(const std::vector<Feature>& features, int64_t samples, uint64_t seed) {
  std::vector<std::unique_ptr<Array>> arrays;
  for (const Feature& feature : features) {
    auto array = std::make_unique<Array>();
    array->name = array->where = feature.name;
    const DType type = feature.sample.dtype;
    if (type != DType::f32 && type != DType::i64 && type != DType::i32)
      return unsupported(fmt::format("input {} is {}: values of it are not drawn, give them with --data", feature.name,
                                     to_string(feature.sample)));
    Shape shape = {samples};
    std::ranges::copy(feature.sample.shape, std::back_inserter(shape));
    const auto count = static_cast<size_t>(element_count(shape));
    const size_t element = static_cast<size_t>(size_of({type, {1}}).value());
    array->header = {std::string(numpy_type(type)), std::move(shape), 0, element, count * element};
    array->drawn.resize(count * element);
    if (type == DType::f32) {
      fill_normal(hash_text(feature.name, seed), reinterpret_cast<float*>(array->drawn.data()),
                  static_cast<int64_t>(count));
    } else {
      constexpr int64_t of_nothing = 2;  // masks and flags
      const int64_t end = feature.end > 0 ? feature.end : of_nothing;
      Random random(hash_text(feature.name, seed));
      for (size_t i = 0; i < count; ++i) {
        const auto value = static_cast<int64_t>(random.below(static_cast<uint64_t>(end)));
        std::memcpy(array->drawn.data() + i * element, &value, element);  // little-endian
      }
    }
    arrays.push_back(std::move(array));
  }
  return of(std::move(arrays), features);
}

const DataSet::Array* DataSet::find(std::string_view name) const {
  const auto found = std::ranges::find_if(arrays_, [&](const auto& array) { return array->name == name; });
  return found == arrays_.end() ? nullptr : found->get();
}

Status DataSet::check_below(const Feature& feature) const {
  const Array& array = *find(feature.name);
  constexpr size_t piece = size_t{1} << 20;
  const size_t element = array.header.element, most = piece / element * element;
  std::string bytes;
  for (size_t begin = 0; begin < array.header.size; begin += bytes.size()) {
    bytes.resize(std::min(most, array.header.size - begin));
    RETURN_IF_ERROR(array.read(begin, std::as_writable_bytes(std::span(bytes))));
    for (size_t i = 0; i < bytes.size(); i += element) {
      const int64_t value = whole_at(array.header, reinterpret_cast<const std::byte*>(bytes.data()) + i);
      if (value >= 0 && value < feature.end) continue;
      return invalid_input(fmt::format("{}: sample {} has {} {}, and the network knows {}, from 0", array.where,
                                       (begin + i) / std::max<size_t>(array.sample_bytes(), 1), feature.name, value,
                                       feature.end));
    }
  }
  return ok_status();
}

Status DataSet::read(const Feature& feature, std::span<const int64_t> samples, std::span<std::byte> bytes) const {
  const Array& array = *find(feature.name);
  const size_t size = array.sample_bytes(), made = bytes.size() / std::max<size_t>(samples.size(), 1);
  const bool as_it_is = array.header.type == numpy_type(feature.sample.dtype);
  std::string own(as_it_is ? 0 : size, '\0');
  for (size_t i = 0; i < samples.size(); ++i) {
    CHECK(samples[i] >= 0 && samples[i] < samples_, "there is such a sample");
    const auto out = bytes.subspan(i * made, made);
    const auto raw = as_it_is ? out : std::as_writable_bytes(std::span(own));
    RETURN_IF_ERROR(array.read(static_cast<size_t>(samples[i]) * size, raw));
    if (!as_it_is) convert(array.header, feature.sample.dtype, raw, out);
    if (feature.sample.dtype != DType::f32) continue;
    for (size_t at = 0; at < out.size(); at += sizeof(float)) {
      const auto value = value_at<float>(out.data() + at);
      if (!std::isfinite(value))
        return invalid_input(
            fmt::format("{}: sample {} has {}, which is not a number", array.where, samples[i], value));
    }
  }
  return ok_status();
}

}  // namespace nlsplit::inline train
