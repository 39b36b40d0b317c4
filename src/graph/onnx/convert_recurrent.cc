// LSTM, GRU and RNN in the one form of graph/operators/operators.def: batch-first, a bias there, no lengths of their
// own.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "graph/onnx/convert_tools.h"
#include "graph/onnx/transposes.h"

namespace nlsplit::inline graph {
namespace {

struct Form {
  Op op;
  int64_t gates;
  size_t states;  // tensors that go from step to step
  std::vector<std::string_view> activations;
};

const Form* form_of(std::string_view name) {
  static const Form forms[] = {
      {Op::LSTM, 4, 2, {"sigmoid", "tanh", "tanh"}}, {Op::GRU, 3, 1, {"sigmoid", "tanh"}}, {Op::RNN, 1, 1, {"tanh"}}};
  const auto* const found = std::ranges::find(forms, name, [](const Form& form) { return name_of(form.op); });
  return found == std::end(forms) ? nullptr : found;
}

// ONNX's inputs: X, W, R, B, sequence_lens, initial_h, then LSTM's initial_c and P.
constexpr size_t lengths_input = 4, state_input = 5, peephole_input = 7;

class Recurrent {
 public:
  Recurrent(const ConvertContext& context, const Form& form) : c_(context), form_(form) {}

  Result<std::vector<ValueId>> convert() {
    RETURN_IF_ERROR(check());
    const Shape x = c_.type(0).shape;
    batch_ = x[batch_first_ ? 0 : 1], steps_ = x[batch_first_ ? 1 : 0];
    directions_ = c_.type(1).shape[0], hidden_ = c_.type(2).shape[2];
    RETURN_IF_ERROR(check_lengths());

    std::vector<ValueId> inputs(4);
    ASSIGN_OR_RETURN(inputs[0], c_.value(0));
    if (!batch_first_) {
      ASSIGN_OR_RETURN(inputs[0], transposed(inputs[0], {1, 0, 2}, ".x", ""));
    }
    ASSIGN_OR_RETURN(inputs[1], c_.value(1));
    ASSIGN_OR_RETURN(inputs[2], c_.value(2));
    if (c_.given(3)) {
      ASSIGN_OR_RETURN(inputs[3], c_.value(3));
    } else {
      inputs[3] = zeros(".zero_bias", {directions_, 2 * form_.gates * hidden_});
    }
    RETURN_IF_ERROR(add_states(inputs));

    Attrs attrs;
    set_attr(attrs, "direction", string_attr(c_.node, "direction", "forward"));
    if (form_.op == Op::GRU)
      set_attr(attrs, "linear_before_reset", int_attr(c_.node, "linear_before_reset", 0) != 0 ? 1 : 0);
    return outputs(std::move(inputs), std::move(attrs));
  }

 private:
  Status check() {
    const OnnxNode& node = c_.node;
    if (c_.opset < 7) return unsupported("recurrent operators before opset 7");
    for (const size_t i : {0, 1, 2}) {
      if (!c_.given(i)) return invalid_input("an input is missing");
      if (c_.type(i).shape.size() != 3)
        return invalid_input(fmt::format("input {} is {}, not of three axes", i, to_string(c_.type(i))));
    }
    if (node.attrs.contains("clip")) return unsupported("clip");
    if (int_attr(node, "input_forget", 0) != 0) return unsupported("input_forget");
    batch_first_ = int_attr(node, "layout", 0) != 0;
    const int64_t hidden = c_.type(2).shape[2];
    if (const int64_t said = int_attr(node, "hidden_size", hidden); said != hidden)
      return invalid_input(fmt::format("hidden_size is {}, the recurrent weights are for {}", said, hidden));
    auto given = strings_attr(node, "activations");
    for (size_t i = 0; given && i < given->size(); ++i) {
      std::string name = (*given)[i];
      std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
      if (name != form_.activations[i % form_.activations.size()])
        return unsupported(fmt::format("the activation {} as number {} of {}", (*given)[i], i + 1, node.op));
    }
    return ok_status();
  }

  // Only one length is known here: the sequence's.
  Status check_lengths() const {
    if (!c_.given(lengths_input)) return ok_status();
    if (c_.inputs[lengths_input].constant == nullptr) return unsupported("sequence_lens that is not constant");
    ASSIGN_OR_RETURN(const auto lengths, integers_of(*c_.inputs[lengths_input].constant, c_.weights));
    for (const int64_t length : lengths) {
      if (length != steps_)
        return unsupported(fmt::format("a sequence_lens of {} where there are {} steps", length, steps_));
    }
    return ok_status();
  }

  ValueId zeros(const std::string& suffix, Shape shape) {
    const TensorType type{DType::f32, std::move(shape)};
    return c_.graph.weight(c_.name + suffix, type, c_.weights.add_fill(type, 0));
  }

  // Initial states and peepholes. One left out in front of one that is there is a zero.
  Status add_states(std::vector<ValueId>& inputs) {
    std::vector<ValueId> given;
    for (size_t i = 0; i < form_.states; ++i) {
      ASSIGN_OR_RETURN(given.emplace_back(), state(state_input + i, i == 0 ? ".h" : ".c"));
    }
    if (form_.op == Op::LSTM && c_.given(peephole_input)) {
      ASSIGN_OR_RETURN(given.emplace_back(), c_.value(peephole_input));
    }
    while (!given.empty() && !given.back().valid()) given.pop_back();
    for (size_t i = 0; i < given.size(); ++i) {
      if (!given[i].valid()) given[i] = zeros(i == 0 ? ".zero_h" : ".zero_c", {1, directions_, hidden_});
    }
    inputs.insert(inputs.end(), given.begin(), given.end());
    return ok_status();
  }

  // Batch-first; none: left out, or a constant of zeros. A constant that is the same for all samples becomes that of
  // one, so that it fits any batch.
  Result<ValueId> state(size_t i, const std::string& suffix) {
    if (!c_.given(i)) return ValueId();
    const Shape shape = c_.type(i).shape;
    const Shape wanted = batch_first_ ? Shape{batch_, directions_, hidden_} : Shape{directions_, batch_, hidden_};
    if (shape != wanted) {
      return invalid_input(
          fmt::format("input {} is {}, not {}", i, to_string(c_.type(i)), to_string(TensorType{DType::f32, wanted})));
    }
    // Looked at only where it is as small as states are.
    const TensorType& type = c_.type(i);
    if (c_.inputs[i].constant == nullptr || type.dtype != DType::f32 || element_count(shape) > int64_t{1} << 24) {
      ASSIGN_OR_RETURN(const ValueId value, c_.value(i));
      return batch_first_ ? value : transposed(value, {1, 0, 2}, suffix, "");
    }
    ASSIGN_OR_RETURN(const std::string raw, c_.weights.materialise(c_.inputs[i].constant->content));
    if (raw.find_first_not_of('\0') == std::string::npos) return ValueId();
    const size_t row = static_cast<size_t>(hidden_) * sizeof(float);
    std::vector<std::string> samples(static_cast<size_t>(batch_));
    for (size_t s = 0; s < samples.size(); ++s) {
      for (size_t d = 0; d < static_cast<size_t>(directions_); ++d) {
        const size_t at = batch_first_ ? s * static_cast<size_t>(directions_) + d : d * samples.size() + s;
        samples[s] += raw.substr(at * row, row);
      }
    }
    if (std::ranges::all_of(samples, [&](const std::string& sample) { return sample == samples[0]; }))
      samples.resize(1);
    std::string bytes;
    for (const std::string& sample : samples) bytes += sample;
    const TensorType made{DType::f32, {static_cast<int64_t>(samples.size()), directions_, hidden_}};
    return c_.graph.weight(c_.name + suffix, made, c_.weights.add_bytes(made, std::move(bytes)));
  }

  Result<ValueId> transposed(ValueId x, std::vector<int64_t> perm, const std::string& suffix, std::string made) {
    Transposed whole = seen_through(c_.graph, {x, std::move(perm)});
    if (changes_nothing(whole.perm)) return whole.of;
    Attrs attrs;
    set_attr(attrs, "perm", std::move(whole.perm));
    return c_.graph.add(Op::Transpose, c_.name + suffix, {whole.of}, std::move(attrs), std::move(made));
  }

  Result<std::vector<ValueId>> outputs(std::vector<ValueId> inputs, Attrs attrs) {
    const std::string suffixes[] = {".y", ".y_h", ".y_c"};
    const auto said = [&](size_t i) { return i < c_.node.outputs.size() ? c_.node.outputs[i] : std::string(); };
    std::vector<std::string> names;
    for (size_t i = 0; i < 1 + form_.states; ++i)
      names.push_back(batch_first_ && !said(i).empty() ? said(i) : c_.name + suffixes[i]);
    ASSIGN_OR_RETURN(auto made, c_.graph.add_all(form_.op, c_.name, std::move(inputs), std::move(attrs), names));
    for (size_t i = 0; i < made.size(); ++i) {
      if (batch_first_ || said(i).empty()) continue;
      std::vector<int64_t> steps_first = i == 0 ? std::vector<int64_t>{1, 2, 0, 3} : std::vector<int64_t>{1, 0, 2};
      ASSIGN_OR_RETURN(made[i], transposed(made[i], std::move(steps_first), suffixes[i], said(i)));
    }
    return made;
  }

  const ConvertContext& c_;
  const Form& form_;
  bool batch_first_ = false;
  int64_t batch_ = 0, steps_ = 0, directions_ = 0, hidden_ = 0;
};

}  // namespace

// The one batch-first form, with Transposes around it where the file's layout is the other one. A later Transpose, or a
// view in between, sees through those (transposes.h), so that in a batch-first network none is left.
MaybeConverted convert_recurrent(const ConvertContext& c) {
  const Form* form = form_of(c.node.op);
  if (form == nullptr) return std::optional<std::vector<ValueId>>();
  return all(Recurrent(c, *form).convert());
}

}  // namespace nlsplit::inline graph
