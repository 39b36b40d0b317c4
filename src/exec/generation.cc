#include "exec/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

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

Status check_prompt(const GenerationForm& form, std::span<const int32_t> prompt, int64_t tokens) {
  if (prompt.empty()) return invalid_input("an empty prompt: there is nothing to go on from");
  const auto wrong = std::ranges::find_if(prompt, [&](int32_t token) { return token < 0 || token >= form.vocabulary; });
  if (wrong != prompt.end())
    return invalid_input(fmt::format("token {}, and the vocabulary has {} (from 0)", *wrong, form.vocabulary));
  const int64_t most = std::min(tokens, form.context + 1);  // more would not fit either
  if (const int64_t needed = positions_of(std::ssize(prompt), most); needed > form.context)
    return invalid_input(
        fmt::format("a prompt of {} tokens and {} more need {} positions, and the plan keeps {}: "
                    "`context` of the workload",
                    prompt.size(), tokens, needed, form.context));
  return ok_status();
}

Status check_prompts(const GenerationForm& form, std::span<const std::vector<int32_t>> prompts, int64_t tokens) {
  if (std::ssize(prompts) > form.sequences)
    return invalid_input(fmt::format("{} prompts, and the plan has {} at once: `sequences` of the workload",
                                     prompts.size(), form.sequences));
  for (const std::vector<int32_t>& prompt : prompts) RETURN_IF_ERROR(check_prompt(form, prompt, tokens));
  return ok_status();
}

GenerationBatch::GenerationBatch(const GenerationForm& form)
    : form_(form), tokens_(static_cast<size_t>(form.sequences)) {}

Choice GenerationBatch::run(const BatchStep& step, const SessionState& state) {
  ran_ = step;
  return write(step, state);
}

// What they write lies behind the length of every sequence.
std::optional<Choice> GenerationBatch::warm_up(const SessionState& state) {
  const size_t programs = form_.prefill >= 0 ? 2 : 1;
  if (warm_ == programs) return std::nullopt;
  BatchStep idle;
  idle.execution = ++warm_ < programs ? Execution::prefill : Execution::decode;
  idle.slots.resize(tokens_.size());
  return write(idle, state);
}

Choice GenerationBatch::write(const BatchStep& step, const SessionState& state) const {
  const int program = step.execution == Execution::prefill ? form_.prefill : form_.decode;
  const int64_t row = step.execution == Execution::prefill ? form_.chunk : 1;
  const size_t count = tokens_.size();
  // A slot that does nothing sees none of its positions; what is written behind a length means nothing.
  std::vector<int64_t> ids(count * static_cast<size_t>(row), 0), begins(count, 0), lengths(count, 0), last(count, 0);
  for (size_t s = 0; s < count; ++s) {
    const SlotStep& does = step.slots[s];
    if (does.tokens == 0) continue;
    std::copy_n(tokens_[s].begin() + does.begin, does.tokens, ids.begin() + static_cast<int64_t>(s) * row);
    begins[s] = does.begin;
    lengths[s] = does.begin + row;
    last[s] = does.tokens - 1;
  }
  const auto write = [&](std::string_view name, const std::vector<int64_t>& values) {
    state.write(fmt::format("{}/{}", name_in(form_, program), name), bytes_of(values));
  };
  write("input_ids", ids);
  write("begins", begins);
  write("lengths", lengths);
  if (program == form_.prefill) write("last", last);
  return {program, 1};
}

std::vector<GenerationBatch::Token> GenerationBatch::take(const SessionState& state, const Pick& pick) {
  std::vector<Token> made;
  const BatchStep ran = std::exchange(ran_, {});
  if (ran.execution == Execution::none) return made;
  const int program = ran.execution == Execution::prefill ? form_.prefill : form_.decode;
  const auto scores = floats(state, name_in(form_, program), "scores");
  const auto candidates = floats(state, name_in(form_, program), "candidates");
  const auto count = static_cast<size_t>(form_.candidates);
  for (size_t s = 0; s < ran.slots.size(); ++s) {
    if (!ran.slots[s].gives_token) continue;
    const size_t picked = pick(s, scores.subspan(s * count, count), tokens_[s].size());
    made.push_back({s, static_cast<int32_t>(candidates[s * count + picked])});
    tokens_[s].push_back(made.back().token);
  }
  return made;
}

GenerationRun::GenerationRun(const GenerationForm& form, std::vector<std::vector<int32_t>> prompts, int64_t tokens,
                             GenerationHooks hooks)
    : hooks_(std::move(hooks)), executions_(form), batch_(form.batch()), made_(static_cast<size_t>(form.sequences)) {
  for (size_t s = 0; s < made_.size(); ++s) {
    made_[s].ended = s >= prompts.size();
    if (made_[s].ended) continue;
    batch_.join(s, std::ssize(prompts[s]), tokens);
    executions_.begin(s, std::move(prompts[s]));
  }
}

Choice GenerationRun::next(const SessionState& state) {
  if (const auto warm = executions_.warm_up(state)) return *warm;
  if (!std::exchange(runs_, true)) begun_ = std::chrono::steady_clock::now();
  const auto made = executions_.take(state, hooks_.pick);
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  for (const auto& [slot, token] : made) {
    made_[slot].tokens.push_back(token);
    made_[slot].at_s.push_back(now);
    const bool last = batch_.made(slot);
    made_[slot].ended = hooks_.ends(slot, token) || last;
    if (made_[slot].ended) batch_.leave(slot);
  }
  const BatchStep step = batch_.step();
  return step.execution == Execution::none ? Choice{0, 0} : executions_.run(step, state);
}

}  // namespace nlsplit::inline exec
