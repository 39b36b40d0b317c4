#include "exec/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "exec/distribute.h"
#include "program/caches.h"

namespace nlsplit::inline exec {
namespace {

constexpr std::string_view of_prompts = "prefill", of_tokens = "decode";

const Buffer* find(const Program& program, std::string_view name, BufferKind kind) {
  const DeviceProgram& first = program.devices.front();
  const auto found = std::ranges::find_if(
      first.buffers, [&](const Buffer& buffer) { return buffer.name == name && buffer.kind == kind; });
  return found == first.buffers.end() ? nullptr : &*found;
}

// The computation that makes a value, on whichever device; nullptr: none does.
const ComputeDesc* maker_of(const Program& program, std::string_view name) {
  for (const DeviceProgram& device : program.devices) {
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        const bool makes = std::ranges::any_of(
            instr.writes, [&](const Operand& operand) { return device.buffer(operand.buffer).name == name; });
        if (makes && instr.opcode == Opcode::compute) return &program.descs[static_cast<size_t>(instr.desc)];
      }
    }
  }
  return nullptr;
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

// As ranking/session.h calls it.
std::string name_of_fewer(int64_t sequences) { return fmt::format("{}_{}", of_tokens, sequences); }

std::string name_in(const GenerationForm& form, int program) {
  for (const auto& [sequences, number] : form.fewer) {
    if (number == program) return name_of_fewer(sequences);
  }
  return std::string(program == form.prefill ? of_prompts : of_tokens);
}

// So many sequences an execution of it takes.
int64_t sequences_of(const GenerationForm& form, int program) {
  if (form.page > 0 && program == form.prefill) return 1;
  for (const auto& [sequences, number] : form.fewer) {
    if (number == program) return sequences;
  }
  return form.sequences;
}

std::span<const std::byte> bytes_of(const std::vector<int64_t>& values) { return std::as_bytes(std::span(values)); }

std::span<const float> floats(const SessionState& state, std::string_view program, std::string_view name,
                              int instance) {
  const std::span<const std::byte> bytes = state.bytes(fmt::format("{}/{}", program, name), instance);
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

bool has_state(const DeviceProgram& device, const std::string& name) {
  return std::ranges::any_of(
      device.buffers, [&](const Buffer& buffer) { return buffer.kind == BufferKind::state && buffer.name == name; });
}

// Whether prompts are computed on states that tokens have elsewhere.
bool hands_over(const Program& prompts, const Program& tokens) {
  for (size_t d = 0; d < prompts.devices.size(); ++d) {
    const bool other = std::ranges::any_of(prompts.devices[d].buffers, [&](const Buffer& buffer) {
      return buffer.kind == BufferKind::state && !has_state(tokens.devices[d], buffer.name);
    });
    if (other) return true;
  }
  return false;
}

}  // namespace

namespace {

// What the inputs and outputs of a Program say of it.
struct ProgramForm {
  int64_t sequences = 1, steps = 1, candidates = 1, context = 0, vocabulary = 0, page = 0, pages = 0;
};

// Error: why it is no Program that generates text.
Result<ProgramForm> form_of(const Program& program, bool prompts) {
  const auto wrong = [](std::string_view why) { return invalid_input(std::string(why)); };
  const Buffer *tokens = find(program, "input_ids", BufferKind::input),
               *scores = find(program, "scores", BufferKind::output),
               *pages = find(program, "pages", BufferKind::input);
  const ComputeDesc* const best = maker_of(program, "scores");
  const std::optional<int64_t> last_begin = largest_of(program, "begins");
  if (tokens == nullptr || tokens->type.shape.size() != 2) return wrong("it takes no input_ids");
  if (scores == nullptr || scores->type.shape.size() != 2) return wrong("it gives no scores");
  if (!last_begin || best == nullptr || best->op != Op::TopK) return wrong("it has no positions or no candidates");
  const int64_t side_by_side = tokens->type.shape[0], steps = tokens->type.shape[1], candidates = scores->type.shape[1];
  const TensorType of_each{DType::i64, {side_by_side}}, of_candidates{DType::f32, {side_by_side, candidates}};
  std::vector<std::tuple<std::string_view, BufferKind, TensorType>> expected = {
      {"input_ids", BufferKind::input, {DType::i64, {side_by_side, steps}}},
      {"begins", BufferKind::input, of_each},
      {"lengths", BufferKind::input, of_each},
      {"scores", BufferKind::output, of_candidates},
      {"candidates", BufferKind::output, of_candidates}};
  if (prompts) expected.emplace_back("last", BufferKind::input, TensorType{DType::i64, {side_by_side, 1}});
  if (pages != nullptr) expected.emplace_back("counts", BufferKind::input, of_each);
  for (const auto& [name, kind, type] : expected) {
    const Buffer* const buffer = find(program, name, kind);
    if (buffer == nullptr || buffer->type != type || buffer->instances != program.micro_batches)
      return wrong(fmt::format("its {} is not {} of each micro-batch", name, to_string(type)));
  }
  if (candidates < 1 || (prompts ? steps < 2 : steps != 1)) return wrong("its lengths make no sense");
  ProgramForm form{.sequences = side_by_side * program.micro_batches,
                   .steps = steps,
                   .candidates = candidates,
                   .context = *last_begin + steps,
                   .vocabulary = best->inputs[0].shape.back()};
  if (pages == nullptr) return form;
  const std::optional<int64_t> last_page = largest_of(program, "pages");
  const Shape& table = pages->type.shape;
  if (!last_page || pages->type.dtype != DType::i64 || table.size() != 2 || table[0] != side_by_side || table[1] < 1 ||
      form.context % table[1] != 0 || program.micro_batches != 1)
    return wrong("its pages make no sense");
  form.page = form.context / table[1];
  form.pages = *last_page + 1;
  return form;
}

// Caches in pages: prompts one after the other, tokens of fewer sequences.
Status check_paged(const GenerationForm& form, int64_t prompts_at_once, const std::string& session) {
  const bool fewer = std::ranges::all_of(form.fewer, [&](const auto& one) { return one.sequences < form.sequences; });
  if (form.page == 0) {
    if (form.fewer.empty()) return ok_status();
    return invalid_input(fmt::format("session {} has decodes of fewer sequences, and no pages", session));
  }
  if (form.prefill >= 0 && prompts_at_once == 1 && fewer && form.pages * form.page >= form.context) return ok_status();
  return invalid_input(fmt::format("session {}: its caches in pages make no sense", session));
}

}  // namespace

Result<GenerationForm> generation_form(const Session& session) {
  GenerationForm form;
  form.decode = -1;
  int64_t prompts_at_once = 0;
  std::optional<ProgramForm> first;
  for (size_t p = 0; p < session.programs.size(); ++p) {
    const Program& program = session.programs[p];
    const auto number = static_cast<int>(p);
    const auto wrong = [&](std::string_view why) {
      return invalid_input(
          fmt::format("program {} of session {} does not generate text, {}: a scenario with `workload: "
                      "{{mode: generation, …}}` makes those that do",
                      program.name, session.name, why));
    };
    const bool prompts = program.name == of_prompts, whole = program.name == of_tokens;
    const auto made = form_of(program, prompts);
    const bool fewer = made.ok() && program.name == name_of_fewer(made->sequences);
    if (!prompts && !whole && !fewer) return wrong("nor is it called prefill or decode");
    if (!made.ok()) return wrong(made.error().message);
    const auto alike = [&](const ProgramForm& of) {
      const int64_t sequences = of.page > 0 ? 0 : of.sequences;
      return std::tuple(sequences, of.candidates, of.context, of.vocabulary, of.page, of.pages);
    };
    if (!first) first = *made;
    if (alike(*made) != alike(*first) || program.micro_batches != session.programs[0].micro_batches)
      return wrong("it is of other sequences than the other program");
    if (prompts) {
      form.chunk = made->steps;
      form.prefill = number;
      prompts_at_once = made->sequences;
    } else if (whole) {
      form.sequences = made->sequences;
      form.decode = number;
    } else {
      form.fewer.push_back({made->sequences, number});
    }
  }
  if (form.decode < 0) return invalid_input(fmt::format("session {} has no program decode", session.name));
  form.micro_batches = session.programs[0].micro_batches;
  form.candidates = first->candidates;
  form.context = first->context;
  form.vocabulary = first->vocabulary;
  form.page = first->page;
  form.pages = first->pages;
  std::ranges::sort(form.fewer, {}, &GenerationForm::Decode::sequences);
  RETURN_IF_ERROR(check_paged(form, prompts_at_once, session.name));
  form.keeps_positions = keeps_positions(session);
  form.groups = cache_groups(session, form.sequences);
  const auto program = [&](int p) -> const Program& { return session.programs[static_cast<size_t>(p)]; };
  form.hands_over = form.prefill >= 0 && hands_over(program(form.prefill), program(form.decode));
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

int64_t GenerationBatch::common_prefix(size_t slot, std::span<const int32_t> prompt) const {
  return std::ranges::mismatch(tokens_[slot], prompt).in2 - prompt.begin();
}

GenerationBatch::Slots GenerationBatch::of_micro_batch(int micro_batch) const {
  const size_t each = tokens_.size() / static_cast<size_t>(form_.micro_batches), m = static_cast<size_t>(micro_batch);
  return {m * each, (m + 1) * each};
}

// [sample]: its slot. With caches in pages the slots that run; the samples after them have none.
std::vector<size_t> GenerationBatch::slots_of(int micro_batch) const {
  if (form_.page > 0) return placed_;
  const auto [begin, end] = of_micro_batch(micro_batch);
  std::vector<size_t> slots(end - begin);
  std::iota(slots.begin(), slots.end(), begin);
  return slots;
}

// With caches in pages it also places the sequences: in the smallest Program that has room for them.
int GenerationBatch::program_of(const BatchStep& step) {
  if (form_.page > 0) {
    placed_.clear();
    for (size_t s = 0; s < step.slots.size(); ++s) {
      if (step.slots[s].tokens > 0) placed_.push_back(s);
    }
  }
  if (step.execution == Execution::prefill) return form_.prefill;
  for (const auto& [sequences, program] : form_.fewer) {
    if (std::cmp_greater_equal(sequences, placed_.size())) return program;
  }
  return form_.decode;
}

void GenerationBatch::begin(const SlotChoice& taken, std::vector<int32_t> prompt) {
  tokens_[taken.slot] = std::move(prompt);
  if (taken.lender && form_.page == 0)
    copies_.push_back({static_cast<int64_t>(*taken.lender), static_cast<int64_t>(taken.slot), taken.reused});
}

Chosen GenerationBatch::run(const BatchStep& step, const SessionState& state) {
  ran_ = step;
  Chosen chosen = write(step, state);
  chosen.copies = std::exchange(copies_, {});
  return chosen;
}

// What they write lies behind the length of every sequence, and all executions have the same inputs.
std::optional<Chosen> GenerationBatch::warm_up(const SessionState& state, AtOnce at_once) {
  const int programs = static_cast<int>(form_.fewer.size()) + (form_.prefill >= 0 ? 2 : 1);
  if (warm_ == programs) return std::nullopt;
  program_ = warm_++;
  BatchStep idle;
  const bool prompts = program_ == form_.prefill;
  idle.execution = prompts ? Execution::prefill : Execution::decode;
  idle.slots.resize(tokens_.size());
  placed_.clear();
  for (int m = 0; m < form_.micro_batches; ++m) write(idle, m, state);
  const Choice choice{program_, prompts ? at_once.prefill : at_once.decode, prompts ? Refill::read : Refill::answered};
  if (choice.times == 1) return Choice{program_, 1};
  return Chosen(choice, [](int, int) {});
}

void GenerationBatch::write(const BatchStep& step, int micro_batch, const SessionState& state) const {
  const int64_t row = step.execution == Execution::prefill ? form_.chunk : 1;
  const std::vector<size_t> slots = slots_of(micro_batch);
  const auto count = static_cast<size_t>(sequences_of(form_, program_) / form_.micro_batches);
  const size_t table = form_.page > 0 ? static_cast<size_t>(form_.context / form_.page) : 0;
  // Who does nothing sees none of its positions. What it writes lies behind what its slot keeps, and means nothing.
  std::vector<int64_t> ids(count * static_cast<size_t>(row), 0), begins(count, 0), lengths(count, 0), last(count, 0),
      counts(count, 0), pages(count * table, 0);
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotStep& does = step.slots[slots[i]];
    begins[i] = does.begin;
    if (does.tokens == 0) continue;
    std::copy_n(tokens_[slots[i]].begin() + does.begin, does.tokens, ids.begin() + static_cast<int64_t>(i) * row);
    lengths[i] = does.begin + row;
    last[i] = does.tokens - 1;
    if (table == 0) continue;
    // Positions after the sequence's pages are read but not used; they must be finite: its own first page.
    counts[i] = std::min(row, std::ssize(does.pages) * form_.page - does.begin);
    for (size_t p = 0; p < table; ++p) pages[i * table + p] = does.pages[p < does.pages.size() ? p : 0];
  }
  const std::string program = name_in(form_, program_);
  const auto write = [&](std::string_view name, const std::vector<int64_t>& values) {
    state.write(fmt::format("{}/{}", program, name), micro_batch, bytes_of(values));
  };
  write("input_ids", ids);
  write("begins", begins);
  write("lengths", lengths);
  if (program_ == form_.prefill) write("last", last);
  if (table == 0) return;
  write("pages", pages);
  write("counts", counts);
}

Choice GenerationBatch::write(const BatchStep& step, const SessionState& state) {
  program_ = program_of(step);
  for (int m = 0; m < form_.micro_batches; ++m) write(step, m, state);
  return {program_, 1};
}

void GenerationBatch::take_of(int micro_batch, const SessionState& state, const Pick& pick, std::vector<Token>& made) {
  const std::string program = name_in(form_, program_);
  const auto scores = floats(state, program, "scores", micro_batch);
  const auto candidates = floats(state, program, "candidates", micro_batch);
  const auto count = static_cast<size_t>(form_.candidates);
  const std::vector<size_t> slots = slots_of(micro_batch);
  for (size_t i = 0; i < slots.size(); ++i) {
    const size_t s = slots[i];
    if (!std::exchange(ran_.slots[s].gives_token, false)) continue;
    const size_t picked = pick(s, scores.subspan(i * count, count), tokens_[s].size());
    made.push_back({s, static_cast<int32_t>(candidates[i * count + picked])});
    tokens_[s].push_back(made.back().token);
  }
}

std::vector<GenerationBatch::Token> GenerationBatch::take(const SessionState& state, const Pick& pick) {
  std::vector<Token> made;
  if (ran_.execution == Execution::none) return made;
  for (int m = 0; m < form_.micro_batches; ++m) take_of(m, state, pick, made);
  ran_ = {};
  return made;
}

void GenerationBatch::begin_next(Batch& batch, int micro_batch, const SessionState& state) {
  const auto [begin, end] = of_micro_batch(micro_batch);
  std::ranges::copy(batch.step(ran_.execution, begin, end), ran_.slots.begin() + static_cast<std::ptrdiff_t>(begin));
  write(ran_, micro_batch, state);
}

Chosen GenerationBatch::run_row(Batch& batch, const BatchRow& row, const SessionState& state, const Pick& pick,
                                const OnToken& on_token) {
  ran_ = {row.execution, std::vector<SlotStep>(tokens_.size())};
  program_ = program_of(ran_);
  for (int m = 0; m < form_.micro_batches; ++m) begin_next(batch, m, state);
  if (row.times == 1) return Choice{program_, 1};
  const auto next = [this, &batch, &state, pick, on_token](int /*execution*/, int micro_batch) {
    std::vector<Token> made;
    take_of(micro_batch, state, pick, made);
    for (const Token& token : made) on_token(token);
    begin_next(batch, micro_batch, state);
  };
  return {{program_, row.times, row.gives_tokens ? Refill::answered : Refill::read}, next};
}

double first_token_s(const std::vector<GeneratedSequence>& sequences) {
  double latest = 0;
  for (const GeneratedSequence& sequence : sequences) {
    if (!sequence.at_s.empty()) latest = std::max(latest, sequence.at_s.front());
  }
  return latest;
}

GenerationRun::GenerationRun(const GenerationForm& form, std::vector<std::vector<int32_t>> prompts, int64_t tokens,
                             GenerationHooks hooks)
    : hooks_(std::move(hooks)),
      at_once_(form.micro_batches > 1 ? executions_at_once : 1),
      executions_(form),
      batch_(form.batch()),
      made_(static_cast<size_t>(form.sequences)) {
  for (size_t s = 0; s < made_.size(); ++s) {
    made_[s].ended = s >= prompts.size();
    if (made_[s].ended) continue;
    batch_.join({.slot = s}, std::ssize(prompts[s]), tokens);
    executions_.begin({.slot = s}, std::move(prompts[s]));
  }
  // The first row of chunks, and of tokens.
  const BatchRow row = batch_.row(1);
  first_ = {row.execution == Execution::prefill ? row.times : 1,
            static_cast<int>(std::clamp<int64_t>(tokens - 1, 1, at_once_))};
}

void GenerationRun::add(const GenerationBatch::Token& made) {
  GeneratedSequence& sequence = made_[made.slot];
  sequence.tokens.push_back(made.token);
  sequence.at_s.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count());
  const bool last = batch_.made(made.slot);
  sequence.ended = hooks_.ends(made.slot, made.token) || last;
  if (sequence.ended) batch_.leave(made.slot);
}

Chosen GenerationRun::next(const SessionState& state) {
  if (auto warm = executions_.warm_up(state, first_)) return *std::move(warm);
  if (!std::exchange(runs_, true)) begun_ = std::chrono::steady_clock::now();
  for (const GenerationBatch::Token& made : executions_.take(state, hooks_.pick)) add(made);
  const BatchRow row = batch_.row(at_once_);
  if (row.execution == Execution::none) return Choice{0, 0};
  return executions_.run_row(batch_, row, state, hooks_.pick,
                             [this](const GenerationBatch::Token& made) { add(made); });
}

}  // namespace nlsplit::inline exec
