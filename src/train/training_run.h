// A training as executions of a session (ranking/session.h, training_session): what runs next, with which samples, when
// the weights are tried on validation data, and when they are saved.
//
//   ASSIGN_OR_RETURN(const TrainingForm form, training_form(session, saved));
//   TrainingRun training(form, data, options, hooks);
//   run_session(&session, job, training.choices(), transport, options);
//   RETURN_IF_ERROR(training.status());
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "exec/run_session.h"
#include "program/saved.h"
#include "train/data_set.h"
#include "train/evaluation.h"
#include "train/sample_order.h"

namespace nlsplit::inline train {

// What the session's Programs say of it.
struct TrainingForm {
  static constexpr int train = 0, evaluate = 1;  // Programs
  struct Input {
    Feature feature;
    std::string of_train, of_evaluate;  // buffers of device 0; of_evaluate is empty of the labels
    int64_t rows = 0;                   // samples of a micro-batch
  };
  std::vector<Input> inputs;  // the last: labels, or targets
  std::string numbers;        // buffer of `train` on device 0, of samples' numbers in the step; empty: nothing drops
  int64_t batch = 0;          // samples of an execution, of both Programs
  int micro_batches = 1;
  std::string output;  // of `evaluate`, on device 0
  Loss loss{};
  bool probabilities = false;

  std::vector<Feature> features() const;
  const Feature& labels() const { return inputs.back().feature; }
};
// Error: it is no session that `nlbench train` runs.
Result<TrainingForm> training_form(const Session& session, const SavedTraining& saved);

struct TrainingPlan {
  int64_t first_step = 0;      // done before
  int64_t steps = 0;           // to be done when it ends, those before counted
  int64_t first_sample = 0;    // taken before, over all epochs
  int64_t evaluate_every = 0;  // steps; 0: at the end only
  int64_t save_every = 0;      // steps; 0: at the end only
  bool shuffled = true;
  uint64_t seed = 0;
};

struct TrainingHooks {
  // Of each step, in their order; counted from 1. No norm: not a number.
  std::function<void(int64_t step, double loss, double gradient_norm)> on_loss;
  std::function<void(int64_t step, const Evaluation&)> on_evaluation;
  // All states after so many steps, by which so many samples were taken. An error ends the training.
  std::function<Status(int64_t step, int64_t samples, std::vector<StateTensor>)> on_states;  // empty: nobody asks
  std::function<bool()> stopped = {};  // the user has had enough: the states are asked for, and it ends
};

class TrainingRun {
 public:
  // Borrowed: data, and validation (nullptr: there is none), both of which the form's features fit.
  TrainingRun(TrainingForm form, const DataSet& data, const DataSet* validation, TrainingPlan plan,
              TrainingHooks hooks);

  ChooseNext choices() {
    return [this](const SessionState& state) { return next(state); };
  }
  // After the session: why it ended before its last step, if it was not stopped.
  const Status& status() const { return status_; }
  int64_t steps_done() const { return done_; }
  // Of steps in a row, without what lay between them and without the first ones; 0: there were too few to tell.
  double step_seconds() const { return timed_steps_ == 0 ? 0 : timed_s_ / static_cast<double>(timed_steps_); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Ran : uint8_t { nothing, steps, evaluation, states };

  Chosen next(const SessionState& state);
  void take(const SessionState& state);
  void take_losses(const SessionState& state);
  void take_evaluation(const SessionState& state);
  Chosen choose(const SessionState& state);
  Chosen steps(const SessionState& state);
  Chosen evaluate(const SessionState& state);
  Chosen save();
  int64_t until_event() const;
  void write(const SessionState& state, int64_t step, int micro_batch);

  TrainingForm form_;
  const DataSet& data_;
  const DataSet* validation_;
  TrainingPlan plan_;
  TrainingHooks hooks_;
  SampleOrder order_;
  std::vector<int64_t> samples_;  // of step sampled_
  int64_t sampled_ = -1;
  Status status_;
  Ran ran_ = Ran::nothing;
  int64_t done_;         // steps
  int64_t running_ = 0;  // steps of the choice under way
  size_t losses_ = 0;    // that were told
  bool evaluate_due_ = false, save_due_ = false, stopped_ = false;
  int64_t evaluated_ = 0;  // samples of the validation data
  std::optional<Evaluation> evaluation_;
  Clock::time_point begun_;
  double timed_s_ = 0;
  int64_t timed_steps_ = 0;
};

}  // namespace nlsplit::inline train
