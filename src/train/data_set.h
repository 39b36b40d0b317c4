// DataSet: samples to train on, from NumPy's files. Nothing is read whole: a batch reads its own samples.
//
//   const Feature x{"input", {DType::f32, {1, 8, 8}}}, labels{"labels", {DType::i64, {}}, 10};
//   ASSIGN_OR_RETURN(const DataSet data, DataSet::open({"digits.npz"}, {x, labels}));    // arrays of these names
//   RETURN_IF_ERROR(data.read(labels, {17, 3, 5, 8}, bytes));
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
  int64_t end = 0;  // whole numbers are from 0 to below it, classes or tokens; 0: they may be any
};

class DataSet {
 public:
  // FILE.npz, with an array for each feature; or NAME=FILE.npy, one for each. An array's axis 0 are the samples; arrays
  // that are no feature's are not looked at. Reads those of whole numbers that have an end once, to see that they keep
  // it. Errors name the file: as open_npz's and read_npy_header's; no array for a feature (says which there are), or
  // two; arrays of unlike numbers of samples; another shape of a sample; elements that do not become the feature's:
  // whole numbers may become floats, floats no whole numbers; a number that is not below the end, by its sample.
  static Result<DataSet> open(const std::vector<std::string>& files, const std::vector<Feature>& features);
  // A text for a language model of bytes: features of whole numbers and of one length, of which the last is what
  // follows each byte of the first. Sample i has the bytes from i * length on. Errors: other features; a text too short
  // for one; a byte that is not below an end.
  static Result<DataSet> of_text(const std::string& path, const std::vector<Feature>& features);
  // So many samples of normal floats, and of whole numbers below their ends, drawn by a seed: to try how fast a step
  // is.
  static Result<DataSet> drawn(const std::vector<Feature>& features, int64_t samples, uint64_t seed);

  DataSet(DataSet&&) noexcept;
  DataSet& operator=(DataSet&&) noexcept;
  ~DataSet();

  int64_t samples() const { return samples_; }
  // Tells data sets apart: names, types and shapes of the features' arrays, and some of their bytes, from the first to
  // the last.
  uint64_t fingerprint() const { return fingerprint_; }

  // The samples, one after the other, into as many bytes as they have. One thread at a time. Errors name the file: it
  // cannot be read; a float that is no number, by its sample.
  Status read(const Feature& feature, std::span<const int64_t> samples, std::span<std::byte> bytes) const;

  struct Array;  // of one feature

 private:
  DataSet() = default;
  static Result<DataSet> of(std::vector<std::unique_ptr<Array>> arrays, const std::vector<Feature>& features);
  Status check_below(const Feature& feature) const;
  const Array* find(std::string_view name) const;

  std::vector<std::unique_ptr<Array>> arrays_;
  int64_t samples_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace nlsplit::inline train
