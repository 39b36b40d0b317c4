#include "train/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "exec/fill_inputs.h"
#include "graph/differentiate/step_graph.h"

namespace nlsplit::inline train {
namespace {

constexpr std::string_view of_steps = "train", of_validation = "evaluate";

// Steps that are chosen at once: so many follow each other without waiting for a choice, and tell their losses
// together.
constexpr int64_t steps_at_once = 8;
constexpr double at_once_s = 1;  // but no more than take about so long: an interrupt waits for them

std::vector<const Buffer*> buffers_of(const Program& program, BufferKind kind) {
  std::vector<const Buffer*> found;
  for (const Buffer& buffer : program.devices.front().buffers) {
    if (buffer.kind == kind) found.push_back(&buffer);
  }
  return found;
}

std::string in_session(std::string_view program, const Buffer& buffer) {
  return fmt::format("{}/{}", program, buffer.name);
}

// Of what a micro-batch has: without its samples.
TensorType without_samples(TensorType type) {
  type.shape.erase(type.shape.begin());
  return type;
}

}  // namespace

std::vector<Feature> TrainingForm::features() const {
  std::vector<Feature> all;
  for (const Input& input : inputs) all.push_back(input.feature);
  return all;
}

Result<TrainingForm> training_form(const Session& session, const SavedTraining& saved) {
  const auto wrong = [&](std::string_view why) {
    return invalid_input(
        fmt::format("session {} does not train, {}: `nlsim lower S.yaml --train --save DIR` makes those "
                    "that do",
                    session.name, why));
  };
  if (session.programs.size() != 2 || session.programs[0].name != of_steps || session.programs[1].name != of_validation)
    return wrong("it has not the programs train and evaluate");
  const Program &steps = session.programs[0], &validation = session.programs[1];
  TrainingForm form;
  form.loss = saved.loss;
  form.probabilities = saved.probabilities;
  form.batch = steps.batch;
  form.micro_batches = steps.micro_batches;
  const auto evaluated = buffers_of(validation, BufferKind::input);
  const auto outputs = buffers_of(validation, BufferKind::output);
  if (outputs.empty() || validation.batch != steps.batch || validation.micro_batches != steps.micro_batches)
    return wrong("its evaluation is not of a step's batch");
  const std::map<std::string, int64_t> ends = extents_pointed_into(steps);
  std::optional<TrainingForm::Input> labels;
  for (const Buffer* const buffer : buffers_of(steps, BufferKind::input)) {
    if (buffer->type.shape.empty() || buffer->instances != steps.micro_batches) return wrong("an input has no samples");
    if (buffer->name == samples_name && numbers_samples(steps)) {
      form.numbers = in_session(of_steps, *buffer);
      continue;
    }
    TrainingForm::Input input{{buffer->name, without_samples(buffer->type)}, in_session(of_steps, *buffer), {}, 0};
    if (const auto end = ends.find(buffer->name); end != ends.end()) input.feature.end = end->second;
    input.rows = buffer->type.shape[0];
    const auto same = std::ranges::find(evaluated, buffer->name, &Buffer::name);
    if (same == evaluated.end()) {
      if (labels) return wrong("it has two kinds of labels");
      labels = std::move(input);
      continue;
    }
    if ((*same)->type != buffer->type || (*same)->instances != buffer->instances) return wrong("its inputs differ");
    input.of_evaluate = in_session(of_validation, **same);
    form.inputs.push_back(std::move(input));
  }
  if (!labels) return wrong("it has no labels");
  form.inputs.push_back(std::move(*labels));
  for (const TrainingForm::Input& input : form.inputs) {
    if (input.rows * form.micro_batches != form.batch) return wrong("its inputs are of other batches");
  }
  const Buffer& output = *outputs.front();
  const TensorType& of_labels = form.labels().sample;
  form.output = in_session(of_validation, output);
  if (output.type.dtype != DType::f32 || output.type.shape.size() < 2) return wrong("its output has no classes");
  const int64_t rows = element_count(output.type.shape) / std::max<int64_t>(output.type.shape.back(), 1);
  const bool fits =
      form.loss == Loss::softmax_cross_entropy
          ? of_labels.dtype == DType::i64 && element_count(of_labels.shape) * form.inputs.back().rows == rows
          : of_labels == without_samples(output.type);
  if (!fits) return wrong("its labels do not fit its output");
  return form;
}

TrainingRun::TrainingRun(TrainingForm form, const DataSet& data, const DataSet* validation, TrainingPlan plan,
                         TrainingHooks hooks)
    : form_(std::move(form)),
      data_(data),
      validation_(validation),
      plan_(plan),
      hooks_(std::move(hooks)),
      order_(data.samples(), plan.shuffled, plan.seed),
      samples_(static_cast<size_t>(form_.batch)),
      done_(plan.first_step) {
  if (done_ >= plan_.steps) {
    evaluate_due_ = validation_ != nullptr;
    save_due_ = static_cast<bool>(hooks_.on_states);
  }
}

Chosen TrainingRun::next(const SessionState& state) {
  take(state);
  return choose(state);
}

// What came of the choice before.
void TrainingRun::take(const SessionState& state) {
  switch (std::exchange(ran_, Ran::nothing)) {
    case Ran::nothing:
    case Ran::states:
      return;
    case Ran::steps: {
      if (done_ > plan_.first_step) {  // the first steps touch memory for the first time
        timed_s_ += std::chrono::duration<double>(Clock::now() - begun_).count();
        timed_steps_ += running_;
      }
      done_ += running_;
      take_losses(state);
      const bool last = done_ == plan_.steps;
      evaluate_due_ =
          validation_ != nullptr && (last || (plan_.evaluate_every > 0 && done_ % plan_.evaluate_every == 0));
      save_due_ = hooks_.on_states && (last || (plan_.save_every > 0 && done_ % plan_.save_every == 0));
      return;
    }
    case Ran::evaluation:
      take_evaluation(state);
      return;
  }
}

void TrainingRun::take_losses(const SessionState& state) {
  for (; losses_ < state.losses.size(); ++losses_) {
    const int64_t step = plan_.first_step + static_cast<int64_t>(losses_) + 1;
    const double loss = state.losses[losses_].mean;
    if (!std::isfinite(loss) && status_.ok())
      status_ = invalid_input(
          fmt::format("the loss of step {} is {}: is the learning rate too high? --check-numbers says where it begins",
                      step, loss));
    if (hooks_.on_loss) hooks_.on_loss(step, loss, state.losses[losses_].gradient_norm);
  }
}

Chosen TrainingRun::choose(const SessionState& state) {
  const Choice end{0, 0};
  if (!status_.ok()) return end;
  if (hooks_.stopped && hooks_.stopped() && !stopped_) {
    stopped_ = true;
    evaluate_due_ = false;
    save_due_ = static_cast<bool>(hooks_.on_states);
  }
  if (evaluate_due_) return evaluate(state);
  if (save_due_) return save();
  if (stopped_ || done_ >= plan_.steps) return end;
  return steps(state);
}

// Steps until something else is due.
int64_t TrainingRun::until_event() const {
  int64_t until = plan_.steps - done_;
  for (const int64_t every :
       {validation_ != nullptr ? plan_.evaluate_every : 0, hooks_.on_states ? plan_.save_every : 0})
    if (every > 0) until = std::min(until, every - done_ % every);
  return until;
}

Chosen TrainingRun::steps(const SessionState& state) {
  const bool first = done_ == plan_.first_step;
  const double step_s = step_seconds();
  const int64_t in_time = step_s > 0 ? std::max<int64_t>(1, std::llround(at_once_s / step_s)) : 1;
  running_ = first ? 1 : std::min({until_event(), steps_at_once, in_time});
  ran_ = Ran::steps;
  begun_ = Clock::now();
  for (int m = 0; m < form_.micro_batches; ++m) write(state, done_, m);
  const auto times = static_cast<int>(running_);
  if (times == 1) return Choice{TrainingForm::train, 1};
  return {{TrainingForm::train, times, Refill::read},
          [this, &state](int execution, int micro_batch) { write(state, done_ + execution, micro_batch); }};
}

// The inputs of a micro-batch of a step, counted from 0.
void TrainingRun::write(const SessionState& state, int64_t step, int micro_batch) {
  if (sampled_ != step) {
    order_.read(plan_.first_sample + (step - plan_.first_step) * form_.batch, samples_);
    sampled_ = step;
  }
  if (!form_.numbers.empty()) {
    state.fill(form_.numbers, micro_batch, [&](std::span<std::byte> bytes) {
      std::vector<int64_t> numbers(bytes.size() / sizeof(int64_t));
      std::iota(numbers.begin(), numbers.end(), micro_batch * static_cast<int64_t>(numbers.size()));
      std::memcpy(bytes.data(), numbers.data(), bytes.size());
    });
  }
  for (const TrainingForm::Input& input : form_.inputs) {
    const auto rows = static_cast<size_t>(input.rows);
    const auto samples = std::span(samples_).subspan(static_cast<size_t>(micro_batch) * rows, rows);
    state.fill(input.of_train, micro_batch, [&](std::span<std::byte> bytes) {
      if (const Status read = data_.read(input.feature, samples, bytes); !read.ok() && status_.ok()) status_ = read;
    });
  }
}

// Another batch of the validation data; the last one may have samples again, which do not count.
Chosen TrainingRun::evaluate(const SessionState& state) {
  if (!evaluation_) {
    evaluation_.emplace(form_.loss, form_.probabilities);
    evaluated_ = 0;
  }
  ran_ = Ran::evaluation;
  for (const TrainingForm::Input& input : form_.inputs) {
    if (input.of_evaluate.empty()) continue;
    for (int m = 0; m < form_.micro_batches; ++m) {
      std::vector<int64_t> samples(static_cast<size_t>(input.rows));
      std::iota(samples.begin(), samples.end(), evaluated_ + m * input.rows);
      for (int64_t& sample : samples) sample %= validation_->samples();
      state.fill(input.of_evaluate, m, [&](std::span<std::byte> bytes) {
        if (const Status read = validation_->read(input.feature, samples, bytes); !read.ok() && status_.ok())
          status_ = read;
      });
    }
  }
  return Choice{TrainingForm::evaluate, 1};
}

void TrainingRun::take_evaluation(const SessionState& state) {
  const Feature& labels = form_.labels();
  const int64_t rows = form_.inputs.back().rows;
  const auto size = static_cast<size_t>(size_of(labels.sample).value());
  for (int m = 0; m < form_.micro_batches; ++m) {
    const int64_t count = std::clamp<int64_t>(validation_->samples() - evaluated_, 0, rows);
    if (count == 0) break;
    std::vector<int64_t> samples(static_cast<size_t>(count));
    std::iota(samples.begin(), samples.end(), evaluated_);
    evaluated_ += count;
    std::vector<std::byte> wanted(samples.size() * size);
    if (const Status read = validation_->read(labels, samples, wanted); !read.ok()) {
      if (status_.ok()) status_ = read;
      return;
    }
    const std::span<const std::byte> made = state.bytes(form_.output, m);
    const size_t floats = made.size() / sizeof(float) / static_cast<size_t>(rows) * static_cast<size_t>(count);
    const std::span<const float> outputs(reinterpret_cast<const float*>(made.data()), floats);
    if (form_.loss == Loss::softmax_cross_entropy)
      evaluation_->add(outputs, {reinterpret_cast<const int64_t*>(wanted.data()), wanted.size() / sizeof(int64_t)});
    else
      evaluation_->add(outputs, {reinterpret_cast<const float*>(wanted.data()), wanted.size() / sizeof(float)});
  }
  if (evaluated_ < validation_->samples()) return;
  evaluate_due_ = false;
  if (hooks_.on_evaluation) hooks_.on_evaluation(done_, *evaluation_);
  evaluation_.reset();
}

Chosen TrainingRun::save() {
  save_due_ = false;
  ran_ = Ran::states;
  return states_to([this](std::vector<StateTensor> states) {
    const int64_t samples = plan_.first_sample + (done_ - plan_.first_step) * form_.batch;
    if (const Status taken = hooks_.on_states(done_, samples, std::move(states)); !taken.ok() && status_.ok())
      status_ = taken;
  });
}

}  // namespace nlsplit::inline train
