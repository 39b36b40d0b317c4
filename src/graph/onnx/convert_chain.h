// For operators that become several of ours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/onnx/convert_tools.h"

namespace nlsplit::inline graph {

// Nodes in a row, each called like the ONNX node with a suffix; last() is the ONNX node itself.
class Chain {
 public:
  explicit Chain(const ConvertContext& c) : c_(c) {}

  ValueId step(const std::string& suffix, Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    if (failed_) return {};
    return taken(emit_helper(c_, op, suffix, std::move(inputs), std::move(attrs)));
  }
  // The node's output number i.
  ValueId output(size_t i, const std::string& suffix, Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    if (failed_) return {};
    return taken(c_.graph.add(op, c_.name + suffix, std::move(inputs), std::move(attrs), output_name(c_, i)));
  }
  ValueId last(Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return output(0, "", op, std::move(inputs), std::move(attrs));
  }
  ValueId scalar(const std::string& suffix, DType type, double value) { return filled(c_, suffix, {type, {}}, value); }
  Converted result(ValueId value) const { return failed_ ? Converted(*failed_) : Converted(value); }
  Result<std::vector<ValueId>> results(std::vector<ValueId> values) const {
    if (failed_) return *failed_;
    return values;
  }

 private:
  ValueId taken(Converted made) {
    if (made) return *made;
    failed_ = made.error();
    return {};
  }

  const ConvertContext& c_;
  std::optional<Error> failed_;
};

}  // namespace nlsplit::inline graph
