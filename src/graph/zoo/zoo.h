// Networks the program builds itself, with seeded weights, so that nothing needs downloading. Layer names are
// torchvision's, and Hugging Face's for language models. Weights are recipes: a network of any size takes kilobytes
// until somebody asks for values.
//
//   ASSIGN_OR_RETURN(Model model, zoo_model("resnet50"));
//   ASSIGN_OR_RETURN(Model large, zoo_model("llama?layers=80&hidden=8192&heads=64&ffn=28672"));
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "graph/weights.h"

namespace nlsplit::inline graph {

struct ZooParameter {
  std::string_view name;
  int64_t standard;
  std::string_view what;
};

using ZooValues = std::map<std::string, int64_t, std::less<>>;  // of all parameters of an entry

struct ZooEntry {
  std::string_view name;
  std::string_view what;  // one line: paper, input
  std::span<const ZooParameter> parameters;
  Result<Model> (*make)(uint64_t seed, const ZooValues& values);  // error: values that make no sense together

  Result<Model> build(uint64_t seed) const;  // with the standard values
};

ZooValues standard_values(std::span<const ZooParameter> parameters);
// "layers=32&hidden=4096" and the standard values of what is left out. Error: an unknown parameter, a value that is no
// positive integer, all in one message with the parameters there are.
Result<ZooValues> parse_parameters(std::span<const ZooParameter> parameters, std::string_view text);

std::span<const ZooEntry> zoo();
// NAME or NAME?PARAMETER=VALUE&…; batch 1. Error: an unknown name (with the nearest and the list); an unknown
// parameter, a value that is no positive integer or makes no sense, all in one message with the parameters there are.
Result<Model> zoo_model(std::string_view name, uint64_t seed = 1);

// How many numbers training would change: not running statistics, nor constants of formulas, and a tied weight once.
int64_t parameter_count(const Model& model);

}  // namespace nlsplit::inline graph
