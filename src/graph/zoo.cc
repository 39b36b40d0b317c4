#include "graph/zoo.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "base/text_reader.h"
#include "graph/zoo_families.h"

namespace nlsplit {
namespace {

constexpr std::array entries = {
    ZooEntry{"simple_cnn", "two convolutions and two fully connected layers, 3x8x8; small enough to follow by hand",
             [](uint64_t seed) -> Result<Model> { return build_simple_cnn(seed); }},
    ZooEntry{"alexnet", "Krizhevsky 2014, 3x224x224, 61.1 M parameters",
             [](uint64_t seed) -> Result<Model> { return build_alexnet(seed); }},
    ZooEntry{"vgg16", "Simonyan and Zisserman 2015, 3x224x224, 138.4 M parameters",
             [](uint64_t seed) -> Result<Model> { return build_vgg16(seed); }},
    ZooEntry{"resnet18", "He et al. 2016, 3x224x224, 11.7 M parameters",
             [](uint64_t seed) -> Result<Model> { return build_resnet(18, seed); }},
    ZooEntry{"resnet50", "He et al. 2016 (v1.5: stride in the 3x3), 3x224x224, 25.6 M parameters",
             [](uint64_t seed) -> Result<Model> { return build_resnet(50, seed); }},
    ZooEntry{"mobilenet_v2", "Sandler et al. 2018, 3x224x224, 3.5 M parameters",
             [](uint64_t seed) -> Result<Model> { return build_mobilenet_v2(seed); }},
};

}  // namespace

std::span<const ZooEntry> zoo() { return entries; }

Result<Model> zoo_model(std::string_view name, uint64_t seed) {
  std::vector<std::string_view> names;
  for (const ZooEntry& entry : entries) {
    if (entry.name == name) return entry.build(seed);
    names.push_back(entry.name);
  }
  const std::string near = nearest(name, names);
  return invalid_input(fmt::format("the zoo has no model \"{}\"{}; it has {}", name,
                                   near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near),
                                   fmt::join(names, ", ")));
}

}  // namespace nlsplit
