// A Graph's text form: print and parse. docs/ir.md is its specification: one line a value, in the order they are made.
#include <fmt/format.h>

#include <unordered_map>

#include "base/hash.h"
#include "base/text_reader.h"
#include "graph/attr_text.h"
#include "graph/graph.h"
#include "graph/operators/attributes.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline graph {
namespace {

bool is_word(std::string_view name) {
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_./:+-@$").find(c) != std::string_view::npos;
    if (!plain) return false;
  }
  return !name.empty();
}

// "%name", or %"name" where it is more than a word.
std::string reference(const Graph& graph, ValueId id) {
  if (!id.valid()) return "%";
  const std::string& name = graph.value(id).name;
  return is_word(name) ? "%" + name : "%" + quote(name);
}

std::string costs(const Graph& graph, const Node& node) {
  if (is_view(node.op)) return "  # a view";
  const Work work = work_of(graph, node);
  return fmt::format("  # {}, reads {}, writes {}", to_string(work.flops), to_string(work.bytes_read),
                     to_string(work.bytes_written));
}

std::string print_node(const Graph& graph, const Node& node) {
  std::string out;
  for (const ValueId output : node.outputs) {
    if (!out.empty()) out += ", ";
    out += reference(graph, output) + " " + to_string(graph.value(output).type);
  }
  out += fmt::format(" = {}(", name_of(node.op));
  for (size_t i = 0; i < node.inputs.size(); ++i) out += (i > 0 ? ", " : "") + reference(graph, node.inputs[i]);
  out += ")";
  const auto add_attrs = [&](Op op, const Attrs& attrs, Types inputs) {
    if (const Attrs unusual = without_defaults(op, attrs, inputs); !unusual.empty()) out += " " + to_string(unusual);
  };
  add_attrs(node.op, node.attrs, input_types(graph, node));
  out += " as " + quote(node.name);
  for (const EpilogueStep& step : node.epilogue) {
    out += fmt::format(" + {}", name_of(step.op));
    if (step.operand.valid()) out += "(" + reference(graph, step.operand) + ")";
    add_attrs(step.op, step.attrs, Types(&graph.value(node.outputs[0]).type, 1));
    out += " as " + quote(step.name);
  }
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : in_(text, file), file_(file) {}

  Result<Graph> run() {
    if (!in_.next_line()) return invalid_input(fmt::format("{}: empty, no graph", file_));
    RETURN_IF_ERROR(in_.expect("graph"));
    ASSIGN_OR_RETURN(graph_.name, in_.quoted("the graph's name"));
    RETURN_IF_ERROR(in_.end_of_line());
    while (in_.next_line()) {
      if (in_.accept("input"))
        RETURN_IF_ERROR(input());
      else if (in_.accept("weight"))
        RETURN_IF_ERROR(weight());
      else if (in_.accept("state"))
        RETURN_IF_ERROR(state());
      else if (in_.accept("output"))
        RETURN_IF_ERROR(output());
      else
        RETURN_IF_ERROR(node());
    }
    if (const Status sound = verify(graph_); !sound.ok()) {
      Error error = sound.error();
      error.where.file = file_;
      return error;
    }
    return std::move(graph_);
  }

 private:
  // The name behind %; empty for an input left out.
  Result<std::string> name() {
    const std::string_view token = in_.peek();
    if (!token.starts_with('%')) return in_.error("a value begins with %");
    const std::string plain(token.substr(1));
    (void)in_.accept(token);
    if (plain.empty() && in_.peek().starts_with('"')) return in_.quoted("a value's name");
    return plain;
  }

  Result<TensorType> type() {
    ASSIGN_OR_RETURN(const std::string_view dtype, in_.word("a type"));
    std::string text(dtype);
    while (!in_.at_end_of_line()) {
      const std::string token(in_.peek());
      (void)in_.accept(token);
      text += token;
      if (token == "]") break;
    }
    auto parsed = parse_tensor_type(text);
    if (!parsed) return in_.error(parsed.error().message);
    return parsed;
  }

  Result<ValueId> define(ValueKind kind) {
    ASSIGN_OR_RETURN(std::string value_name, name());
    ASSIGN_OR_RETURN(TensorType value_type, type());
    const ValueId id(graph_.values.size());
    if (value_name.empty()) return in_.error("a value without a name");
    if (!values_.emplace(value_name, id).second) return in_.error(fmt::format("two values are called {}", value_name));
    graph_.values.push_back({std::move(value_name), std::move(value_type), kind, {}, {}});
    return id;
  }

  Result<ValueId> use(bool optional) {
    ASSIGN_OR_RETURN(const std::string value_name, name());
    if (value_name.empty() && optional) return ValueId();
    const auto found = values_.find(value_name);
    if (found == values_.end()) return in_.error(fmt::format("%{} is not made before this line", value_name));
    return found->second;
  }

  Status input() {
    ASSIGN_OR_RETURN(const ValueId id, define(ValueKind::input));
    graph_.inputs.push_back(id);
    return in_.end_of_line();
  }

  Status weight() {
    ASSIGN_OR_RETURN(const ValueId id, define(ValueKind::weight));
    RETURN_IF_ERROR(in_.expect("content"));
    ASSIGN_OR_RETURN(graph_.values[id.index()].content.value, in_.hex("a content id"));
    return in_.end_of_line();
  }

  Status state() {
    ASSIGN_OR_RETURN(const ValueId id, define(ValueKind::weight));
    graph_.values[id.index()].state = true;
    return in_.end_of_line();
  }

  Status output() {
    ASSIGN_OR_RETURN(const ValueId id, use(false));
    graph_.outputs.push_back(id);
    return in_.end_of_line();
  }

  Result<Op> op() {
    ASSIGN_OR_RETURN(const std::string_view word, in_.word("an operator"));
    auto parsed = parse_op(word);
    if (!parsed) return in_.error(parsed.error().message);
    return parsed;
  }

  Result<Attrs> attrs(Op op, Types inputs) {
    Attrs attrs;
    if (in_.peek() == "{") {
      ASSIGN_OR_RETURN(attrs, parse_attrs(in_));
    }
    add_defaults(op, inputs, attrs);
    return attrs;
  }

  Status node() {
    Node node;
    const NodeId self(graph_.nodes.size());
    while (true) {
      ASSIGN_OR_RETURN(const ValueId id, define(ValueKind::node));
      graph_.values[id.index()].producer = self;
      node.outputs.push_back(id);
      if (in_.accept("=")) break;
      RETURN_IF_ERROR(in_.expect(","));
    }
    ASSIGN_OR_RETURN(node.op, op());
    RETURN_IF_ERROR(in_.expect("("));
    while (!in_.accept(")")) {
      ASSIGN_OR_RETURN(node.inputs.emplace_back(), use(true));
      if (in_.peek() != ")") RETURN_IF_ERROR(in_.expect(","));
    }
    ASSIGN_OR_RETURN(node.attrs, attrs(node.op, input_types(graph_, node)));
    RETURN_IF_ERROR(in_.expect("as"));
    ASSIGN_OR_RETURN(node.name, in_.quoted("the node's name"));
    while (in_.accept("+")) {
      EpilogueStep step;
      ASSIGN_OR_RETURN(step.op, op());
      if (in_.accept("(")) {
        ASSIGN_OR_RETURN(step.operand, use(false));
        RETURN_IF_ERROR(in_.expect(")"));
      }
      const TensorType result = graph_.value(node.outputs[0]).type;
      ASSIGN_OR_RETURN(step.attrs, attrs(step.op, Types(&result, 1)));
      RETURN_IF_ERROR(in_.expect("as"));
      ASSIGN_OR_RETURN(step.name, in_.quoted("the step's name"));
      node.epilogue.push_back(std::move(step));
    }
    RETURN_IF_ERROR(in_.end_of_line());
    graph_.nodes.push_back(std::move(node));
    return ok_status();
  }

  TextReader in_;
  std::string file_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> values_;
};

}  // namespace

// Values are printed in the order of their ids, so that parsing gives the same ids; an output of a node brings its
// node.
std::string to_string(const Graph& graph, bool with_costs) {
  std::string out = fmt::format("graph {}\n", quote(graph.name));
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    const ValueId id(i);
    switch (value.kind) {
      case ValueKind::input:
        out += fmt::format("input {} {}\n", reference(graph, id), to_string(value.type));
        break;
      case ValueKind::weight:
        if (value.state) {
          out += fmt::format("state {} {}\n", reference(graph, id), to_string(value.type));
          break;
        }
        out += fmt::format("weight {} {} content {}\n", reference(graph, id), to_string(value.type),
                           hex16(value.content.value));
        break;
      case ValueKind::node: {
        const Node& node = graph.node(value.producer);
        if (node.outputs[0] == id) out += print_node(graph, node) + (with_costs ? costs(graph, node) : "") + "\n";
        break;
      }
    }
  }
  for (const ValueId id : graph.outputs) out += fmt::format("output {}\n", reference(graph, id));
  return out;
}

Result<Graph> parse_graph(std::string_view text, const std::string& file) { return Parser(text, file).run(); }

}  // namespace nlsplit::inline graph
