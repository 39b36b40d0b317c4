#include "exec/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "exec/distribute.h"

namespace nlsplit::inline exec {
namespace {

constexpr std::string_view of_prompts = "prefill", of_tokens = "decode";

const Buffer* find(const Program& program, std::string_view name, BufferKind kind) {
  const DeviceProgram& first = program.devices.front();
  const auto found = std::ranges::find_if(
      first.buffers, [&](const Buffer& buffer) { return buffer.name == name && buffer.kind == kind; });
  return found == first.buffers.end() ? nullptr : &*found;
}

// As those declare who read it: rank 0 may only send it on.
std::optional<int64_t> largest_of(const Program& program, std::string_view name) {
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.name == name && buffer.max) return buffer.max;
    }
  }
  return std::nullopt;
}

std::string_view name_in(const GenerationForm& form, int program) {
  return program == form.prefill ? of_prompts : of_tokens;
}

std::span<const std::byte> bytes_of(const std::vector<int64_t>& values) { return std::as_bytes(std::span(values)); }

std::span<const float> floats(const SessionState& state, std::string_view program, std::string_view name) {
  const std::span<const std::byte> bytes = state.bytes(fmt::format("{}/{}", program, name));
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

Result<GenerationForm> generation_form(const Session& session) {
  GenerationForm form;
  form.decode = -1;
  for (size_t p = 0; p < session.programs.size(); ++p) {
    const Program& program = session.programs[p];
    const bool prompts = program.name == of_prompts;
    const auto wrong = [&](std::string_view why) {
      return invalid_input(
          fmt::format("program {} of session {} does not generate text, {}: a scenario with `workload: "
                      "{{mode: generation, …}}` makes those that do",
                      program.name, session.name, why));
    };
    if (!prompts && program.name != of_tokens) return wrong("nor is it called prefill or decode");
    const Buffer *tokens = find(program, "input_ids", BufferKind::input),
                 *scores = find(program, "scores", BufferKind::output);
    const auto best = std::ranges::find(program.descs, Op::TopK, &ComputeDesc::op);
    const std::optional<int64_t> last_begin = largest_of(program, "begins");
    if (tokens == nullptr || tokens->type.shape.size() != 2) return wrong("it takes no input_ids");
    if (scores == nullptr || scores->type.shape.size() != 2) return wrong("it gives no scores");
    if (!last_begin || best == program.descs.end() || best->inputs[0].shape.empty())
      return wrong("it has no positions or no candidates");
    const int64_t sequences = tokens->type.shape[0], steps = tokens->type.shape[1], candidates = scores->type.shape[1];
    const TensorType of_each{DType::i64, {sequences}}, of_candidates{DType::f32, {sequences, candidates}};
    std::vector<std::tuple<std::string_view, BufferKind, TensorType>> expected = {
        {"input_ids", BufferKind::input, {DType::i64, {sequences, steps}}},
        {"begins", BufferKind::input, of_each},
        {"lengths", BufferKind::input, of_each},
        {"scores", BufferKind::output, of_candidates},
        {"candidates", BufferKind::output, of_candidates}};
    if (prompts) expected.emplace_back("last", BufferKind::input, TensorType{DType::i64, {sequences, 1}});
    for (const auto& [name, kind, type] : expected) {
      const Buffer* const buffer = find(program, name, kind);
      if (buffer == nullptr || buffer->type != type || buffer->banks != 1)
        return wrong(fmt::format("its {} is not {}", name, to_string(type)));
    }
    const int64_t context = *last_begin + steps, vocabulary = best->inputs[0].shape.back();
    if (p > 0 && std::tuple(sequences, candidates, context, vocabulary) !=
                     std::tuple(form.sequences, form.candidates, form.context, form.vocabulary))
      return wrong("it is of other sequences than the other program");
    if (candidates < 1 || (prompts ? steps < 2 : steps != 1)) return wrong("its lengths make no sense");
    form.sequences = sequences;
    form.candidates = candidates;
    form.context = context;
    form.vocabulary = vocabulary;
    if (prompts) form.chunk = steps;
    (prompts ? form.prefill : form.decode) = static_cast<int>(p);
  }
  if (form.decode < 0) return invalid_input(fmt::format("session {} has no program decode", session.name));
  return form;
}

Result<std::vector<NamedTensor>> generation_inputs(const Session& session) {
  ASSIGN_OR_RETURN(const Program joined, join(session));
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, wanted_inputs(joined));
  for (NamedTensor& input : inputs) input.raw.assign(static_cast<size_t>(size_of(input.type).value()), '\0');
  return inputs;
}

Status check_prompts(const GenerationForm& form, std::span<const std::vector<int32_t>> prompts, int64_t tokens) {
  if (std::ssize(prompts) > form.sequences)
    return invalid_input(fmt::format("{} prompts, and the plan has {} at once: `sequences` of the workload",
                                     prompts.size(), form.sequences));
  for (const std::vector<int32_t>& prompt : prompts) {
    if (prompt.empty()) return invalid_input("an empty prompt: there is nothing to go on from");
    const auto wrong =
        std::ranges::find_if(prompt, [&](int32_t token) { return token < 0 || token >= form.vocabulary; });
    if (wrong != prompt.end())
      return invalid_input(fmt::format("token {}, and the vocabulary has {} (from 0)", *wrong, form.vocabulary));
    const int64_t most = std::min(tokens, form.context + 1);  // more would not fit either; the last is never an input
    const int64_t length = std::ssize(prompt), chunks = (length + form.chunk - 1) / form.chunk * form.chunk;
    if (const int64_t needed = std::max(chunks, length + most - 1); needed > form.context)
      return invalid_input(
          fmt::format("a prompt of {} tokens and {} more need {} positions, and the plan keeps {}: "
                      "`context` of the workload",
                      length, tokens, needed, form.context));
  }
  return ok_status();
}

GenerationRun::GenerationRun(const GenerationForm& form, std::vector<std::vector<int32_t>> prompts, int64_t tokens,
                             GenerationHooks hooks)
    : form_(form),
      prompts_(std::move(prompts)),
      tokens_(tokens),
      hooks_(std::move(hooks)),
      made_(static_cast<size_t>(form.sequences)),
      length_(static_cast<size_t>(form.sequences), 0),
      due_(static_cast<size_t>(form.sequences), false) {
  for (size_t s = prompts_.size(); s < made_.size(); ++s) made_[s].ended = true;
  prompts_.resize(made_.size());
}

void GenerationRun::take_tokens(const SessionState& state) {
  const auto scores = floats(state, name_in(form_, ran_), "scores");
  const auto candidates = floats(state, name_in(form_, ran_), "candidates");
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  const auto count = static_cast<size_t>(form_.candidates);
  for (size_t s = 0; s < made_.size(); ++s) {
    if (!due_[s]) continue;
    GeneratedSequence& sequence = made_[s];
    const size_t picked = hooks_.pick(s, scores.subspan(s * count, count), static_cast<uint64_t>(length_[s]));
    const auto token = static_cast<int32_t>(candidates[s * count + picked]);
    sequence.tokens.push_back(token);
    sequence.at_s.push_back(now);
    const bool last = std::ssize(sequence.tokens) >= tokens_;
    sequence.ended = hooks_.ends(s, token) || last;
  }
}

// The inputs of an execution, and what it makes.
Choice GenerationRun::run(int program, const SessionState& state) {
  const int64_t steps = program == form_.prefill ? form_.chunk : 1;
  const size_t count = made_.size(), row = static_cast<size_t>(steps);
  // A sequence that does nothing sees none of its positions; what is written behind its length means nothing.
  std::vector<int64_t> ids(count * row, 0), begins(count, 0), lengths(count, 0), last(count, 0);
  for (size_t s = 0; s < count; ++s) {
    const std::vector<int32_t>& prompt = prompts_[s];
    const int64_t rest = std::ssize(prompt) - length_[s];
    const bool feeds = rest > 0, goes_on = !feeds && !made_[s].ended && program == form_.decode;
    begins[s] = std::min(length_[s], form_.context - steps);
    CHECK(begins[s] == length_[s] || made_[s].ended, "a sequence that has ended may be written over, no other one");
    due_[s] = false;
    if (!feeds && !goes_on) continue;
    const int64_t taken = feeds ? std::min(rest, steps) : 1;
    for (int64_t i = 0; i < taken; ++i) {
      ids[s * row + static_cast<size_t>(i)] =
          feeds ? prompt[static_cast<size_t>(length_[s] + i)] : made_[s].tokens.back();
    }
    lengths[s] = begins[s] + steps;
    last[s] = taken - 1;
    length_[s] += taken;
    due_[s] = !feeds || taken == rest;
  }
  write_inputs(program, state, ids, begins, lengths, last);
  ran_ = program;
  return {program, 1};
}

void GenerationRun::write_inputs(int program, const SessionState& state, const std::vector<int64_t>& ids,
                                 const std::vector<int64_t>& begins, const std::vector<int64_t>& lengths,
                                 const std::vector<int64_t>& last) const {
  const auto write = [&](std::string_view name, const std::vector<int64_t>& values) {
    state.write(fmt::format("{}/{}", name_in(form_, program), name), bytes_of(values));
  };
  write("input_ids", ids);
  write("begins", begins);
  write("lengths", lengths);
  if (program == form_.prefill) write("last", last);
}

// What it writes lies behind the length of every sequence.
Choice GenerationRun::warm_up(const SessionState& state) {
  const int program = warm_++ == 0 && form_.prefill >= 0 ? form_.prefill : form_.decode;
  const size_t count = made_.size(), row = static_cast<size_t>(program == form_.prefill ? form_.chunk : 1);
  const std::vector<int64_t> zeros(count, 0);
  write_inputs(program, state, std::vector<int64_t>(count * row, 0), zeros, zeros, zeros);
  return {program, 1};
}

Choice GenerationRun::next(const SessionState& state) {
  if (warm_ < (form_.prefill >= 0 ? 2 : 1)) return warm_up(state);
  if (ran_ < 0)
    begun_ = std::chrono::steady_clock::now();
  else
    take_tokens(state);
  bool feeds = false, goes_on = false;
  for (size_t s = 0; s < made_.size(); ++s) {
    feeds = feeds || length_[s] < std::ssize(prompts_[s]);
    goes_on = goes_on || !made_[s].ended;
  }
  if (feeds) return run(form_.prefill >= 0 ? form_.prefill : form_.decode, state);
  if (goes_on) return run(form_.decode, state);
  return {0, 0};
}

}  // namespace nlsplit::inline exec
