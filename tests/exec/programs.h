// Programs written by hand (tests/programs) and the values they run on.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/random.h"
#include "exec/run_threads.h"
#include "program/text.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit::testing {

inline Program program_of(const std::string& name) {
  const std::string path = std::string(NLS_SOURCE_DIR) + "/tests/programs/" + name + ".nls";
  return value_of(parse_program(value_of(read_file(path)), path));
}

inline std::vector<float> normals(uint64_t seed, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  fill_normal(seed, values.data(), count);
  return values;
}

inline std::vector<float> content_values(uint64_t id, int64_t count) { return normals(id * 1000, count); }

// Each content is normal values seeded by its id.
inline ContentLookup seeded_contents(const Program& program) {
  auto made = std::make_shared<std::map<ContentId, std::string>>();
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (!buffer.has_content) continue;
      const std::vector<float> values = content_values(buffer.content.value, element_count(buffer.type.shape));
      (*made)[buffer.content] = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
    }
  }
  return [made](ContentId id) -> Result<std::string_view> {
    const auto found = made->find(id);
    if (found == made->end()) return invalid_input("no such content");
    return std::string_view(found->second);
  };
}

inline Job seeded_job(const Program& program) {
  Job job;
  job.contents = seeded_contents(program);
  job.inputs = *wanted_inputs(program);
  for (size_t i = 0; i < job.inputs.size(); ++i)
    job.inputs[i].values = normals(77 + i, element_count(job.inputs[i].type.shape));
  return job;
}

inline Job job_of(const Program& program, const WeightStore& weights) {
  Job job = seeded_job(program);
  job.contents = contents_of(weights);
  return job;
}

inline const std::vector<float>& input_of(const Job& job, const std::string& name) {
  for (const NamedTensor& input : job.inputs) {
    if (input.name == name) return input.values;
  }
  ADD_FAILURE() << "no input " << name;
  return job.inputs[0].values;
}

inline const std::vector<float>& output_of(const RunResult& result, const std::string& name) {
  for (const OutputTensor& output : result.outputs) {
    if (output.tensor.name == name) return output.tensor.values;
  }
  ADD_FAILURE() << "no output " << name;
  static const std::vector<float> none;
  return none;
}

template <class T>
std::string error_of(const Result<T>& result) {
  return result.ok() ? "no error" : result.error().to_string();
}

// Poisoned memory, so that a value nobody wrote is seen.
inline RunOptions test_options() {
  RunOptions options;
  options.poison = true;
  options.repeats = 3;
  return options;
}

// Plain arithmetic, sums in double: matrices of rows x columns.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> v;
  Matrix(int64_t rows, int64_t columns) : rows(rows), columns(columns), v(static_cast<size_t>(rows * columns)) {}
  template <class Values>
  Matrix(int64_t rows, int64_t columns, const Values& from, int64_t first_row = 0) : Matrix(rows, columns) {
    for (size_t i = 0; i < v.size(); ++i) v[i] = from[static_cast<size_t>(first_row * columns) + i];
  }
  double& at(int64_t i, int64_t j) { return v[static_cast<size_t>(i * columns + j)]; }
  double at(int64_t i, int64_t j) const { return v[static_cast<size_t>(i * columns + j)]; }
};

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      for (int64_t k = 0; k < a.columns; ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

inline Matrix transpose(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

inline Matrix relu(Matrix a) {
  for (double& x : a.v) x = x > 0 ? x : 0;
  return a;
}

inline void expect_near(const std::vector<float>& got, const Matrix& want) {
  ASSERT_EQ(got.size(), want.v.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want.v[i], 1e-5 * (1 + std::abs(want.v[i]))) << "at " << i;
}

}  // namespace nlsplit::testing
