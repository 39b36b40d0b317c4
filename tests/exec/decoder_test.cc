// Sequences that grow, come and go: scenarios/decoder.session by threads, against a straight loop over positions.
// nlbench_test.cc runs it over MPI.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "exec/fill_inputs.h"
#include "exec/programs.h"
#include "exec/run_session.h"
#include "graph/elements.h"
#include "testing/decoder_session.h"

namespace nlsplit::testing {
namespace {

using ::testing::HasSubstr;

using Integers = std::map<std::string, std::array<int64_t, DecoderModel::slots>>;

Job job_of(const Session& session, uint64_t seed, const Integers& integers, DecoderModel::Floats& floats) {
  Job job;
  job.inputs = value_of(wanted_inputs(value_of(join(session))));
  fill_inputs(value_of(join(session)), seed, job.inputs);
  for (NamedTensor& input : job.inputs) {
    if (const auto given = integers.find(input.name); given != integers.end())
      input.raw = raw_of(DType::i64, std::span<const int64_t>(given->second));
    for (float& value : input.values) value /= 2;  // so that what a step rounds does not grow in those behind it
    floats[input.name] = input.values;
  }
  return job;
}

const std::vector<float>& result_of(const SessionResult& result, const std::string& name) {
  const auto found = std::ranges::find(result.outputs, name, [](const OutputTensor& o) { return o.tensor.name; });
  CHECK(found != result.outputs.end(), name);
  return found->tensor.values;
}

void expect_last(const SessionResult& result, const DecoderModel& model) {
  const std::vector<float>& last = result_of(result, "last");
  for (size_t i = 0; i < last.size(); ++i)
    EXPECT_NEAR(last[i], model.last[i / DecoderModel::wide][i % DecoderModel::wide], 2e-5) << i;
}

SessionResult run(const Session& session, const Job& job, const std::string& sequence) {
  const std::vector<Choice> choices = value_of(parse_choices(session, sequence));
  return value_of(run_session_threads(session, job, choose_from(choices), test_options()));
}

TEST(Decoder, IsAStraightLoop) {
  DecoderModel::Floats floats;
  const Job job = job_of(decoder_session(), 3, {{"append/count", {4, 2}}, {"leave/stay", {0, 1}}}, floats);
  DecoderModel model(floats);
  model.append("append/x", {4, 2});
  for (int i = 0; i < 5; ++i) model.step();
  model.leave({0, 1});
  for (int i = 0; i < 3; ++i) model.step();
  model.append("append/x", {4, 2});  // the first slot begins anew, the second goes on
  model.step();
  EXPECT_EQ(model.length(0), 5u);
  EXPECT_EQ(model.length(1), 13u);
  const SessionResult result = run(decoder_session(), job, "load append step*5 leave step*3 append step");
  expect_last(result, model);
  const std::vector<float>& y = result_of(result, "append/y");
  const std::array<size_t, 2> counts = {4, 2};
  for (size_t slot = 0; slot < 2; ++slot)
    for (size_t i = 0; i < counts[slot]; ++i)  // what stands behind the positions that count means nothing
      for (size_t c = 0; c < DecoderModel::wide; ++c)
        EXPECT_NEAR(y[(slot * DecoderModel::chunk + i) * DecoderModel::wide + c], model.y[slot][i][c], 2e-5);
}

// A Program may stand in a session several times, with inputs of its own each time.
Session with_copies(int appends, int leaves) {
  Session session = decoder_session();
  const auto add = [&](int program, const std::string& name) {
    session.programs.push_back(session.programs[static_cast<size_t>(program)]);
    session.programs.back().name = name;
    for (DeviceProgram& device : session.programs.back().devices) {  // apart from the others'
      for (Buffer& buffer : device.buffers) {
        if (buffer.kind == BufferKind::state || buffer.kind == BufferKind::view) continue;
        buffer.offset += static_cast<int64_t>(session.programs.size()) * (1 << 16);
      }
      device.arena = nlsplit::bytes(device.arena.value() + std::ssize(session.programs) * (1 << 16));
    }
  };
  for (int i = 0; i < appends; ++i) add(decoder_append, "append" + std::to_string(i));
  for (int i = 0; i < leaves; ++i) add(decoder_leave, "leave" + std::to_string(i));
  return session;
}

TEST(Decoder, RandomSequencesOfRandomLengths) {
  constexpr int appends = 4, leaves = 2;
  const Session session = with_copies(appends, leaves);
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Random random(seed);
    Integers integers = {{"leave/stay", {0, 0}}};
    const auto draw = [&](uint64_t bound) { return static_cast<int64_t>(random.below(bound)); };
    for (int i = 0; i < appends; ++i) integers["append" + std::to_string(i) + "/count"] = {draw(5), draw(5)};
    for (int i = 0; i < leaves; ++i) integers["leave" + std::to_string(i) + "/stay"] = {draw(2), draw(2)};
    DecoderModel::Floats floats;
    const Job job = job_of(session, seed, integers, floats);
    DecoderModel model(floats);
    std::string sequence = "load";
    for (int i = 0; i < 25; ++i) {
      const auto longest = [&](size_t s) { return model.active[s] ? model.length(s) : 0; };
      const size_t most = std::max(longest(0), longest(1));
      const std::string which = std::to_string(draw(2));
      if (most == DecoderModel::capacity || draw(4) == 0) {  // one that is full has to leave before anything else
        const std::string leave = most == DecoderModel::capacity ? "leave" : "leave" + which;
        model.leave(leave == "leave" ? std::array<int64_t, 2>{0, 0} : integers[leave + "/stay"]);
        sequence += " " + leave;
      } else if (most <= DecoderModel::capacity - DecoderModel::chunk && draw(2) == 0) {
        const std::string append = "append" + std::to_string(draw(appends));
        model.append(append + "/x", integers[append + "/count"]);
        sequence += " " + append;
      } else {
        model.step();
        sequence += " step";
      }
    }
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, sequence));
    expect_last(run(session, job, sequence), model);
  }
}

// The seventeenth position of a slot for sixteen: the run ends, and says where.
TEST(Decoder, ASequenceThatIsTooLongEndsTheRun) {
  DecoderModel::Floats floats;
  const Job job = job_of(decoder_session(), 3, {{"append/count", {2, 4}}}, floats);
  const auto refused = [&](const std::string& sequence) {
    const std::vector<Choice> choices = value_of(parse_choices(decoder_session(), sequence));
    const auto result = run_session_threads(decoder_session(), job, choose_from(choices), test_options());
    return result.ok() ? Error{} : result.error();
  };
  EXPECT_EQ(refused("load append step*12").message, "");
  const Error error = refused("load append step*13");
  EXPECT_THAT(error.message, HasSubstr("(step/S.-) `keys_"));
  EXPECT_THAT(error.message, HasSubstr("step/begin[1] is 16, outside 0 … 15"));
  EXPECT_EQ(exit_code(error), 2);
}

}  // namespace
}  // namespace nlsplit::testing
