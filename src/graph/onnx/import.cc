#include "graph/onnx/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "graph/onnx/convert.h"
#include "graph/pass_list.h"

namespace nlsplit {
namespace {

std::string file_stem(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (name.ends_with(".onnx")) name.resize(name.size() - 5);
  return name;
}

class Importer {
 public:
  Importer(OnnxModel model, const std::string& path, const ImportOptions& options)
      : model_(std::move(model)), options_(options), graph_(file_stem(path)) {}

  Result<Model> run() {
    RETURN_IF_ERROR(take_initializers());
    for (const OnnxNode& node : model_.nodes) {
      for (const std::string& output : node.outputs) made_.insert(output);
    }
    RETURN_IF_ERROR(add_inputs());
    ASSIGN_OR_RETURN(const std::vector<size_t> order, sorted());
    for (const size_t index : order) {
      const OnnxNode& node = model_.nodes[index];
      if (const Status status = add_node(node); !status.ok()) {
        Error error = status.error();
        error.message =
            fmt::format("node {} ({}, opset {}): {}", display_name(node), node.op, model_.opset, error.message);
        return error;
      }
    }
    RETURN_IF_ERROR(add_outputs());
    Model out{std::move(graph_).finish(), std::move(weights_)};
    RETURN_IF_ERROR(verify(out.graph));
    // What only a shape was taken of is not needed any more.
    ASSIGN_OR_RETURN(out.graph, remove_dead(out.graph, out.weights));
    if (batch_ > 0) {
      ASSIGN_OR_RETURN(out.graph, with_batch(out.graph, batch_));
    }
    return out;
  }

 private:
  Status take_initializers() {
    for (auto& [name, tensor] : model_.initializers) {
      const TensorType type = tensor.type;
      constants_[name] = {type, weights_.add_bytes(type, std::move(tensor.raw))};
    }
    return ok_status();
  }

  Status add_inputs() {
    std::string unbound;
    std::set<std::string> used;
    for (const OnnxInput& input : model_.inputs) {
      if (made_.contains(input.name)) continue;  // some files list values of nodes as inputs
      Shape shape = input.shape;
      bool ranked = input.ranked;
      if (const auto given = options_.input_shapes.find(input.name); given != options_.input_shapes.end()) {
        used.insert(input.name);
        if (!ranked) shape.assign(given->second.size(), -1);
        ranked = true;
        const bool fits =
            given->second.size() == shape.size() &&
            std::all_of(given->second.begin(), given->second.end(), [](int64_t extent) { return extent > 0; });
        if (!fits)
          return invalid_input(
              fmt::format("input {} has {} axes, all extents must be positive", input.name, shape.size()));
        for (size_t i = 0; i < shape.size(); ++i) {
          if (shape[i] >= 0 && shape[i] != given->second[i] && i > 0) {
            return invalid_input(fmt::format("input {}: axis {} is {} in the file and {} is asked for", input.name, i,
                                             shape[i], given->second[i]));
          }
        }
        // A batch the file writes down may also stand in its Reshapes: with_batch changes both.
        const bool other_batch = !shape.empty() && shape[0] > 0 && shape[0] != given->second[0];
        if (other_batch && batch_ > 0 && batch_ != given->second[0])
          return invalid_input("the inputs' shapes disagree on the batch");
        if (other_batch) batch_ = given->second[0];
        for (size_t i = other_batch ? 1 : 0; i < shape.size(); ++i) shape[i] = given->second[i];
      }
      if (!ranked) unbound += fmt::format("{}all of {}", unbound.empty() ? "" : ", ", input.name);
      for (size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] >= 0) continue;
        const std::string symbol = i < input.symbols.size() ? input.symbols[i] : "";
        unbound += fmt::format("{}{} axis {}{}", unbound.empty() ? "" : ", ", input.name, i,
                               symbol.empty() ? "" : " (" + symbol + ")");
      }
      if (!unbound.empty()) continue;
      if (const Status sound = check_type({input.dtype, shape}); !sound.ok()) {
        return invalid_input(fmt::format("input {}: {}", input.name, sound.error().message));
      }
      values_[input.name] = graph_.input(input.name, {input.dtype, std::move(shape)});
    }
    if (!unbound.empty())
      return invalid_input(fmt::format("the model leaves extents open: {}; give the inputs' shapes", unbound));
    for (const auto& [name, shape] : options_.input_shapes) {
      if (!used.contains(name)) return invalid_input(fmt::format("the model has no input called {}", name));
    }
    if (graph_.graph().inputs.empty()) return invalid_input("the model has no inputs");
    return ok_status();
  }

  // Topological order of the nodes an output needs; it keeps the file's wherever that is one (Kahn, smallest index
  // first).
  Result<std::vector<size_t>> sorted() const {
    std::unordered_map<std::string, size_t> producer;
    for (size_t i = 0; i < model_.nodes.size(); ++i) {
      for (const std::string& output : model_.nodes[i].outputs) {
        if (!output.empty() && !producer.emplace(output, i).second)
          return invalid_input(fmt::format("value {} is made twice", output));
      }
    }
    std::vector<bool> needed(model_.nodes.size(), false);
    std::vector<std::string> wanted = model_.outputs;
    while (!wanted.empty()) {
      const auto from = producer.find(wanted.back());
      wanted.pop_back();
      if (from == producer.end() || needed[from->second]) continue;
      needed[from->second] = true;
      const std::vector<std::string>& reads = model_.nodes[from->second].inputs;
      wanted.insert(wanted.end(), reads.begin(), reads.end());
    }
    std::vector<size_t> missing(model_.nodes.size(), 0);
    std::vector<std::vector<size_t>> readers(model_.nodes.size());
    for (size_t i = 0; i < model_.nodes.size(); ++i) {
      const OnnxNode& node = model_.nodes[i];
      if (!needed[i]) continue;
      for (const std::string& input : node.inputs) {
        if (input.empty()) continue;
        if (const auto from = producer.find(input); from != producer.end()) {
          readers[from->second].push_back(i);
          ++missing[i];
        } else if (!values_.contains(input) && !constants_.contains(input)) {
          return invalid_input(
              fmt::format("node {} ({}) reads {}, which nothing makes", display_name(node), node.op, input));
        }
      }
    }
    std::set<size_t> ready;
    for (size_t i = 0; i < missing.size(); ++i) {
      if (needed[i] && missing[i] == 0) ready.insert(i);
    }
    std::vector<size_t> order;
    while (!ready.empty()) {
      const size_t next = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(next);
      for (const size_t reader : readers[next]) {
        if (--missing[reader] == 0) ready.insert(reader);
      }
    }
    if (order.size() != static_cast<size_t>(std::count(needed.begin(), needed.end(), true))) {
      const auto at = static_cast<size_t>(std::find_if(missing.begin(), missing.end(), [](size_t m) { return m > 0; }) -
                                          missing.begin());
      return invalid_input(fmt::format("the graph has a cycle through node {}", display_name(model_.nodes[at])));
    }
    return order;
  }

  static std::string display_name(const OnnxNode& node) {
    if (!node.name.empty()) return node.name;
    for (const std::string& output : node.outputs) {
      if (!output.empty()) return output;
    }
    return "without a name";
  }

  std::string unique_name(const OnnxNode& node) {
    std::string name = display_name(node);
    for (int n = 2; !names_.insert(name).second; ++n) name = fmt::format("{}_{}", display_name(node), n);
    return name;
  }

  std::vector<OnnxOperand> operands(const OnnxNode& node) const {
    std::vector<OnnxOperand> list;
    for (const std::string& input : node.inputs) {
      OnnxOperand& operand = list.emplace_back();
      operand.name = input;
      if (const auto known = constants_.find(input); known != constants_.end())
        operand.constant = &known->second;
      else if (const auto value = values_.find(input); value != values_.end())
        operand.value = value->second;
    }
    return list;
  }

  Status add_node(const OnnxNode& node) {
    const bool makes_something = std::ranges::any_of(node.outputs, [](const auto& name) { return !name.empty(); });
    if (!makes_something) return invalid_input("no output");
    if (!node.domain.empty())
      return unsupported(fmt::format("operators of the domain {} are not supported", node.domain));
    if (!node.unreadable.empty())
      return unsupported(fmt::format("attribute {} is of a kind that is not supported", node.unreadable[0]));
    const std::vector<OnnxOperand> inputs = operands(node);
    for (const OnnxOperand& operand : inputs) {
      if (!operand.given() && !operand.name.empty()) {
        return unsupported(fmt::format("it reads {}, a further output of a node that is not supported", operand.name));
      }
    }
    if (node.op == "Shape") return add_shape(node, inputs);
    const bool known = std::all_of(inputs.begin(), inputs.end(), [](const OnnxOperand& operand) {
      return operand.constant != nullptr || operand.name.empty();
    });
    if (known) {
      std::vector<const Constant*> constants;
      for (const OnnxOperand& operand : inputs) constants.push_back(operand.constant);
      ASSIGN_OR_RETURN(const auto folded, fold_constant(node, model_.opset, constants, weights_));
      if (folded) {
        constants_[node.outputs[0]] = *folded;
        return ok_status();
      }
    }
    const ConvertContext context{
        node, model_.opset, unique_name(node), inputs, graph_, weights_, [this](const OnnxOperand& operand) {
          return add_weight(operand);
        }};
    ASSIGN_OR_RETURN(const std::vector<ValueId> made, convert_node(context));
    for (size_t i = 0; i < std::min(made.size(), node.outputs.size()); ++i) {
      if (!node.outputs[i].empty()) values_[node.outputs[i]] = made[i];
    }
    return ok_status();
  }

  // Extents are known, so a Shape is a constant.
  Status add_shape(const OnnxNode& node, const std::vector<OnnxOperand>& inputs) {
    if (inputs.empty() || !inputs[0].given()) return invalid_input("an input is missing");
    const Shape& shape =
        inputs[0].constant != nullptr ? inputs[0].constant->type.shape : graph_.type(inputs[0].value).shape;
    const auto rank = static_cast<int64_t>(shape.size());
    const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
    const int64_t start = clamp(int_attr(node, "start", 0)), end = std::max(start, clamp(int_attr(node, "end", rank)));
    const std::vector<int64_t> part(shape.begin() + start, shape.begin() + end);
    constants_[node.outputs[0]] = integer_constant(part, {static_cast<int64_t>(part.size())}, DType::i64, weights_);
    return ok_status();
  }

  ValueId add_weight(const OnnxOperand& operand) {
    const auto [at, added] = weight_values_.try_emplace(operand.name);
    if (added) at->second = graph_.weight(operand.name, operand.constant->type, operand.constant->content);
    return at->second;
  }

  Status add_outputs() {
    if (model_.outputs.empty()) return invalid_input("the model has no outputs");
    for (const std::string& name : model_.outputs) {
      const auto value = values_.find(name);
      if (value == values_.end()) {
        if (made_.contains(name) && !constants_.contains(name))
          return unsupported(fmt::format("output {} is a further output of a node that is not supported", name));
        return invalid_input(constants_.contains(name) ? fmt::format("output {} does not depend on the input", name)
                                                       : fmt::format("output {} is made by no node", name));
      }
      graph_.output(value->second);
    }
    return ok_status();
  }

  OnnxModel model_;
  const ImportOptions& options_;
  int64_t batch_ = 0;  // asked for instead of the file's own; 0: none
  GraphBuilder graph_;
  WeightStore weights_;
  std::unordered_map<std::string, Constant> constants_;
  std::unordered_map<std::string, ValueId> values_;
  std::unordered_map<std::string, ValueId> weight_values_;  // constants that became weights of the graph
  std::set<std::string> names_, made_;
};

}  // namespace

Result<Model> import_onnx(const std::string& path, const ImportOptions& options) {
  ASSIGN_OR_RETURN(OnnxModel model, read_onnx(path));
  auto imported = Importer(std::move(model), path, options).run();
  if (!imported) {
    Error error = imported.error();
    error.where.file = path;
    return error;
  }
  return imported;
}

}  // namespace nlsplit
