#include "graph/onnx/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>

#include "graph/onnx/convert.h"
#include "graph/onnx/subgraph.h"
#include "graph/passes/pass_list.h"
#include "graph/reference/evaluate.h"

namespace nlsplit::inline graph {
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
    effort_ = options_.effort;
    take_initializers(model_.initializers);
    for (const OnnxNode& node : model_.nodes) {
      for (const std::string& output : node.outputs) made_.insert(output);
    }
    RETURN_IF_ERROR(add_inputs());
    RETURN_IF_ERROR(add_nodes(model_.nodes, model_.outputs));
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
  void take_initializers(std::map<std::string, OnnxTensor>& initializers) {
    for (auto& [name, tensor] : initializers) {
      const TensorType type = tensor.type;
      effort_ += 16 * static_cast<double>(element_count(type.shape));
      constants_[name] = {type, tensor.mapped.file != nullptr ? weights_.add_mapped(type, std::move(tensor.mapped))
                                                              : weights_.add_bytes(type, std::move(tensor.raw))};
    }
  }

  // Those the outputs need, in order.
  Status add_nodes(const std::vector<OnnxNode>& nodes, const std::vector<std::string>& outputs) {
    ASSIGN_OR_RETURN(const std::vector<size_t> order, sorted(nodes, outputs));
    for (const size_t index : order) {
      const OnnxNode& node = nodes[index];
      if (const Status status = add_node(node); !status.ok()) {
        Error error = status.error();
        // The builder has named it, perhaps with our operator of another name.
        constexpr std::string_view behind = "): ";
        const size_t named = error.message.find(behind);
        if (error.message.starts_with(fmt::format("node {} (", display_name(node))) && named != std::string::npos)
          error.message.erase(0, named + behind.size());
        error.message =
            fmt::format("node {} ({}, opset {}): {}", display_name(node), node.op, model_.opset, error.message);
        return error;
      }
    }
    return ok_status();
  }

  Status spend(double effort) {
    effort_ -= effort;
    if (effort_ >= 0) return ok_status();
    return unsupported("computing its constants takes more than a file of that size may ask for");
  }

  // An input that is a constant of this network.
  Status add_constant(const OnnxInput& input, const ImportedConstant& constant) {
    const TensorType& type = constant.type;
    bool fits = type.dtype == input.dtype && (!input.ranked || type.shape.size() == input.shape.size());
    for (size_t i = 0; fits && input.ranked && i < type.shape.size(); ++i)
      fits = input.shape[i] < 0 || input.shape[i] == type.shape[i];
    if (!fits || static_cast<int64_t>(constant.raw.size()) != size_of(type).value())
      return invalid_input(fmt::format("input {} cannot be a constant {}", input.name, to_string(type)));
    constants_[input.name] = {type, weights_.add_bytes(type, constant.raw)};
    return ok_status();
  }

  Status add_inputs() {
    std::string unbound;
    std::set<std::string> used, used_dims, symbols;
    for (const OnnxInput& input : model_.inputs) {
      if (made_.contains(input.name)) continue;  // some files list values of nodes as inputs
      if (const auto known = options_.constants.find(input.name); known != options_.constants.end()) {
        RETURN_IF_ERROR(add_constant(input, known->second));
        continue;
      }
      std::ranges::copy_if(input.symbols, std::inserter(symbols, symbols.end()),
                           [](const std::string& symbol) { return !symbol.empty(); });
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
      for (size_t i = 0; i < std::min(shape.size(), input.symbols.size()); ++i) {
        const auto bound = options_.dims.find(input.symbols[i]);
        if (input.symbols[i].empty() || bound == options_.dims.end()) continue;
        used_dims.insert(bound->first);
        if (shape[i] < 0) shape[i] = bound->second;
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
    for (const auto& [name, extent] : options_.dims) {
      if (!used_dims.contains(name))
        return invalid_input(fmt::format(
            "the model has no extent called {}; {}", name,
            symbols.empty() ? "its extents have no names" : fmt::format("it has {}", fmt::join(symbols, ", "))));
      if (extent < 1) return invalid_input(fmt::format("an extent {} of {}", extent, name));
    }
    for (const auto& [name, shape] : options_.input_shapes) {
      if (!used.contains(name)) return invalid_input(fmt::format("the model has no input called {}", name));
    }
    if (!unbound.empty())
      return invalid_input(
          fmt::format("the model leaves extents open: {}; a scenario's model says them by `dims: {{NAME: 8}}` or "
                      "`inputs: {{INPUT: [8, 3]}}`, a command by --dim NAME=8 or --input-shape INPUT=8,3",
                      unbound));
    if (graph_.graph().inputs.empty() && options_.constants.empty()) return invalid_input("the model has no inputs");
    return ok_status();
  }

  // Topological order of the nodes an output needs; it keeps the file's wherever that is one (Kahn, smallest index
  // first).
  Result<std::vector<size_t>> sorted(const std::vector<OnnxNode>& nodes,
                                     const std::vector<std::string>& outputs) const {
    std::unordered_map<std::string, size_t> producer;
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const std::string& output : nodes[i].outputs) {
        if (!output.empty() && !producer.emplace(output, i).second)
          return invalid_input(fmt::format("value {} is made twice", output));
      }
    }
    std::vector<bool> needed(nodes.size(), false);
    std::vector<std::string> wanted = outputs;
    while (!wanted.empty()) {
      const auto from = producer.find(wanted.back());
      wanted.pop_back();
      if (from == producer.end() || needed[from->second]) continue;
      needed[from->second] = true;
      const std::vector<std::string> reads = names_read(nodes[from->second]);
      wanted.insert(wanted.end(), reads.begin(), reads.end());
    }
    std::vector<size_t> missing(nodes.size(), 0);
    std::vector<std::vector<size_t>> readers(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      const OnnxNode& node = nodes[i];
      if (!needed[i]) continue;
      for (const std::string& input : names_read(node)) {
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
      return invalid_input(fmt::format("the graph has a cycle through node {}", display_name(nodes[at])));
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
    const std::string plain = display_name(node);
    std::string name = plain;
    int& n = next_number_.try_emplace(plain, 2).first->second;  // not from 2 again each time: that would be quadratic
    for (; !names_.insert(name).second; ++n) name = fmt::format("{}_{}", plain, n);
    return name;
  }

  std::vector<OnnxOperand> operands(const OnnxNode& node) const {
    std::vector<OnnxOperand> list;
    for (const std::string& input : node.inputs) {
      OnnxOperand& operand = list.emplace_back();
      operand.name = input;
      if (input.empty()) continue;
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
    if (node.op == "If") return add_branch(node, inputs);
    if (!node.graphs.empty()) return unsupported("the operator is not supported");
    if (node.op == "Shape") return add_shape(node, inputs);
    if (node.op == "Size") return add_size(node, inputs);
    const bool known = std::all_of(inputs.begin(), inputs.end(), [](const OnnxOperand& operand) {
      return operand.constant != nullptr || operand.name.empty();
    });
    if (known) {
      std::vector<const Constant*> constants;
      double looked_at = 0;  // by the folding below, which stops at constants that are larger
      for (const OnnxOperand& operand : inputs) {
        constants.push_back(operand.constant);
        if (operand.constant != nullptr)
          looked_at += static_cast<double>(std::min(element_count(operand.constant->type.shape), int64_t{1} << 16));
      }
      const double stored = static_cast<double>(weights_.stored_bytes().value());
      ASSIGN_OR_RETURN(const auto folded, fold_constant(node, model_.opset, constants, weights_));
      if (node.op == "Constant")  // as good as an initializer
        effort_ += 16 * static_cast<double>(element_count(folded->type.shape));
      else
        RETURN_IF_ERROR(spend(looked_at + static_cast<double>(weights_.stored_bytes().value()) - stored));
      if (folded) {
        constants_[node.outputs[0]] = *folded;
        return ok_status();
      }
      ASSIGN_OR_RETURN(const bool evaluated, fold_by_evaluation(node, inputs));
      if (evaluated) return ok_status();
    }
    const ConvertContext context{node,
                                 model_.opset,
                                 unique_name(node),
                                 inputs,
                                 graph_,
                                 weights_,
                                 [this](const OnnxOperand& operand) { return add_weight(operand); },
                                 [this](double effort) { return spend(effort); }};
    ASSIGN_OR_RETURN(const std::vector<ValueId> made, convert_node(context));
    for (size_t i = 0; i < std::min(made.size(), node.outputs.size()); ++i) {
      if (!node.outputs[i].empty() && made[i].valid()) values_[node.outputs[i]] = made[i];
    }
    return ok_status();
  }

  // What evaluating a graph takes. Memory in elements: its values, and the borders that windows add.
  struct Effort {
    double elements = 0, operations = 0;
    bool known = true;
  };
  static Effort effort_of(const Graph& graph) {
    Effort effort;
    for (const Value& value : graph.values) effort.elements += static_cast<double>(element_count(value.type.shape));
    for (const Node& node : graph.nodes) {
      if (node.op == Op::RoiAlign) effort.known = false;  // as many samples as the regions' values say
      std::vector<TensorType> outputs;
      for (const ValueId output : node.outputs) outputs.push_back(graph.value(output).type);
      effort.operations += info(node.op).flops(input_types(graph, node), outputs, node.attrs).value();
      if (find_attr(node.attrs, "kernel_shape") == nullptr) continue;
      const Shape& x = graph.value(node.inputs[0]).type.shape;
      const std::vector<int64_t>& pads = attr_ints(node.attrs, "pads");
      double padded = static_cast<double>(x[0]) * static_cast<double>(x[1]);
      for (size_t axis = 2; axis < x.size(); ++axis)
        padded *= static_cast<double>(x[axis] + pads[axis - 2] + pads[axis - 2 + pads.size() / 2]);
      effort.elements += padded;
    }
    return effort;
  }

  // A node of constants as a graph of its own, which the reference evaluator computes. false: its result is too large
  // to be kept twice, or all constants together take too much, so it stays a node.
  Result<bool> fold_by_evaluation(const OnnxNode& node, const std::vector<OnnxOperand>& inputs) {
    GraphBuilder scratch("constants");
    std::unordered_map<std::string, ValueId> taken;
    const ConvertContext context{node,
                                 model_.opset,
                                 display_name(node),
                                 inputs,
                                 scratch,
                                 weights_,
                                 [&](const OnnxOperand& operand) {
                                   const auto [at, added] = taken.try_emplace(operand.name);
                                   // Constants of the file have names of their own, which a helper of the conversion
                                   // might have, too.
                                   if (added)
                                     at->second = scratch.weight("given " + operand.name, operand.constant->type,
                                                                 operand.constant->content);
                                   return at->second;
                                 },
                                 [this](double effort) { return spend(effort); }};
    ASSIGN_OR_RETURN(const std::vector<ValueId> made, convert_node(context));
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min(made.size(), node.outputs.size()); ++i) {
      if (node.outputs[i].empty() || !made[i].valid()) continue;
      scratch.output(made[i]);
      names.push_back(node.outputs[i]);
    }
    for (const ValueId output : scratch.graph().outputs) RETURN_IF_ERROR(check_constant(scratch.type(output)));
    constexpr double most_elements = 1 << 26;
    const Effort effort = effort_of(scratch.graph());
    if (!effort.known || effort.elements > most_elements || effort.elements + effort.operations > effort_) return false;
    RETURN_IF_ERROR(spend(effort.elements + effort.operations));
    const Graph graph = std::move(scratch).finish();
    ASSIGN_OR_RETURN(const std::vector<Tensor> results, evaluate(graph, weights_, {}));
    for (size_t i = 0; i < names.size(); ++i)
      constants_[names[i]] = {results[i].type, weights_.add_bytes(results[i].type, std::string(bytes_of(results[i])))};
    return true;
  }

  // The branch that a constant condition chooses, in place of the If.
  Status add_branch(const OnnxNode& node, const std::vector<OnnxOperand>& inputs) {
    if (inputs.empty() || !inputs[0].given()) return invalid_input("an input is missing");
    if (inputs[0].constant == nullptr) return unsupported("a condition that is not constant");
    ASSIGN_OR_RETURN(const std::vector<double> condition, numbers_of(*inputs[0].constant, weights_));
    if (condition.size() != 1) return invalid_input("a condition must be one truth value");
    const std::string wanted = condition[0] != 0 ? "then_branch" : "else_branch";
    const auto chosen = std::ranges::find(node.graphs, wanted, &OnnxSubgraph::attr);
    if (chosen == node.graphs.end()) return invalid_input(wanted + " is missing");
    OnnxSubgraph branch = renamed(*chosen, unique_name(node) + "/", node.outputs);
    if (branch.outputs.size() != node.outputs.size())
      return invalid_input(
          fmt::format("{} has {} outputs, the node {}", wanted, branch.outputs.size(), node.outputs.size()));
    take_initializers(branch.initializers);
    RETURN_IF_ERROR(add_nodes(branch.nodes, branch.outputs));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const std::string& from = branch.outputs[i];
      if (node.outputs[i].empty()) continue;
      if (const auto known = constants_.find(from); known != constants_.end()) {
        const Constant constant = known->second;  // the map may move it when it grows
        constants_[node.outputs[i]] = constant;
      } else if (const auto value = values_.find(from); value != values_.end()) {
        const ValueId id = value->second;
        values_[node.outputs[i]] = id;
      } else {
        return invalid_input(fmt::format("output {} of {} is made by no node", chosen->outputs[i], wanted));
      }
    }
    return ok_status();
  }

  Status add_size(const OnnxNode& node, const std::vector<OnnxOperand>& inputs) {
    if (inputs.empty() || !inputs[0].given()) return invalid_input("an input is missing");
    constants_[node.outputs[0]] = integer_constant({element_count(shape_of(inputs[0]))}, {}, DType::i64, weights_);
    return ok_status();
  }

  Shape shape_of(const OnnxOperand& operand) const {
    return operand.constant != nullptr ? operand.constant->type.shape : graph_.type(operand.value).shape;
  }

  // Extents are known, so a Shape is a constant.
  Status add_shape(const OnnxNode& node, const std::vector<OnnxOperand>& inputs) {
    if (inputs.empty() || !inputs[0].given()) return invalid_input("an input is missing");
    const Shape shape = shape_of(inputs[0]);
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
      if (const auto constant = constants_.find(name); value == values_.end() && constant != constants_.end()) {
        graph_.output(add_weight({&constant->second, ValueId(), name}));
        continue;
      }
      if (value == values_.end()) {
        return made_.contains(name)
                   ? unsupported(fmt::format("output {} is a further output of a node that is not supported", name))
                   : invalid_input(fmt::format("output {} is made by no node", name));
      }
      graph_.output(value->second);
    }
    return ok_status();
  }

  OnnxModel model_;
  const ImportOptions& options_;
  double effort_ = 0;  // that is left
  int64_t batch_ = 0;  // asked for instead of the file's own; 0: none
  GraphBuilder graph_;
  WeightStore weights_;
  std::unordered_map<std::string, Constant> constants_;
  std::unordered_map<std::string, ValueId> values_;
  std::unordered_map<std::string, ValueId> weight_values_;  // constants that became weights of the graph
  std::set<std::string> names_, made_;
  std::unordered_map<std::string, int> next_number_;  // for names that several nodes have
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

}  // namespace nlsplit::inline graph
