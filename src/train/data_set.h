// DataSet: samples to train on, from NumPy's files. Nothing is read whole: a batch reads its own samples.
//
//   ASSIGN_OR_RETURN(const DataSet data, DataSet::open({"digits.npz"}));      // arrays `input` and `labels`
//   RETURN_IF_ERROR(data.check({{"input", {DType::f32, {1, 8, 8}}}, {"labels", {DType::i64, {}}}}));
//   RETURN_IF_ERROR(data.read("labels", {DType::i64, {}}, {17, 3, 5, 8}, bytes));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/npy.h"
#include "graph/graph.h"

namespace nlsplit::inline train {

// What a step wants of each sample: an input's name, and its type without the axis of samples.
struct Feature {
  std::string name;
  TensorType sample;
};

class DataSet {
 public:
  // FILE.npz, with an array for each feature; or NAME=FILE.npy, one for each. An array's axis 0 are the samples. Errors
  // name the file: as open_npz's and read_npy_header's; no axis; arrays of unlike numbers of samples; a name twice.
  static Result<DataSet> open(const std::vector<std::string>& files);
  // A text for a language model of bytes: features of whole numbers and of one length, of which the last is what
  // follows each byte of the first. Sample i has the bytes from i * length on. Errors: other features; a text too short
  // for one.
  static Result<DataSet> of_text(const std::string& path, const std::vector<Feature>& features);
  // So many samples of normal floats, labels below `classes`, drawn by a seed: to try how fast a step is.
  static Result<DataSet> drawn(const std::vector<Feature>& features, int64_t samples, int64_t classes, uint64_t seed);

  DataSet(DataSet&&) noexcept;
  DataSet& operator=(DataSet&&) noexcept;
  ~DataSet();

  int64_t samples() const { return samples_; }
  // Tells data sets apart: names, types and shapes of the arrays, and their first and last bytes.
  uint64_t fingerprint() const { return fingerprint_; }

  // Errors: no array of that name (says which there are), another shape of a sample, elements that do not become the
  // feature's: whole numbers may become floats, floats no whole numbers.
  Status check(const std::vector<Feature>& features) const;
  // Every element of a feature of whole numbers is from 0 to below `end`: the classes. Errors name the array and the
  // first sample that has another. Reads the array once.
  Status check_below(const Feature& feature, int64_t end) const;
  // The samples, one after the other, into as many bytes as they have. One thread at a time.
  Status read(const Feature& feature, std::span<const int64_t> samples, std::span<std::byte> bytes) const;

  struct Array;  // of one feature

 private:
  DataSet() = default;
  static Result<DataSet> of(std::vector<std::unique_ptr<Array>> arrays);
  const Array* find(std::string_view name) const;

  std::vector<std::unique_ptr<Array>> arrays_;
  int64_t samples_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace nlsplit::inline train
