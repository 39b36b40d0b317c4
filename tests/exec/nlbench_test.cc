// nlbench as its users see it: over MPI and in threads, with its exit codes and messages.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "base/file.h"
#include "base/npy.h"
#include "exec/comparison.h"
#include "exec/programs.h"
#include "program/saved.h"
#include "testing/paths.h"
#include "testing/read_npy.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string text;  // stdout and stderr
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.text.append(buffer, n);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return outcome;
}

class Nlbench : public ::testing::Test {
 protected:
  void SetUp() override {
    program_ = std::string(NLS_BIN_DIR) + "/nlbench";
    std::string name = "/tmp/nlbench-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    // The contents of the texts are placeholders: a store names them by what they are.
    SavedProgram saved{program_of("interleaved"), program_of("interleaved_unsplit"), false, {}};
    for (Program* program : {&saved.program, &saved.unsplit}) {
      for (Buffer& buffer : buffers_with_content(*program))
        buffer.content = store_.add_random(buffer.type, buffer.content.value, 1.0f);
    }
    const Status status = save_program(dir_ + "/saved", saved, store_);
    ASSERT_TRUE(status.ok()) << status.error().to_string();
    // Another network to be compared with.
    for (Buffer& buffer : buffers_with_content(saved.unsplit))
      buffer.content = store_.add_random(buffer.type, 4711, 1.0f);
    ASSERT_TRUE(save_program(dir_ + "/lying", saved, store_).ok());
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::vector<std::reference_wrapper<Buffer>> buffers_with_content(Program& program) {
    std::vector<std::reference_wrapper<Buffer>> found;
    for (DeviceProgram& device : program.devices) {
      for (Buffer& buffer : device.buffers) {
        if (buffer.has_content) found.push_back(buffer);
      }
    }
    return found;
  }

  Outcome nlbench(const std::string& arguments) const {
    return shell("cd " + dir_ + " && " + program_ + " " + arguments);
  }

  // Leak detection off: Open MPI keeps what it has at the end of a process.
  std::string mpirun() const {
    return std::string("cd ") + dir_ +
           " && ASAN_OPTIONS=detect_leaks=0 mpirun --oversubscribe --mca btl_vader_single_copy_mechanism none " +
           (::geteuid() == 0 ? "--allow-run-as-root " : "");
  }
  Outcome nlbench_on(int ranks, const std::string& arguments) const {
    return shell(mpirun() + "-np " + std::to_string(ranks) + " " + program_ + " " + arguments);
  }

  std::string program_, dir_;
  WeightStore store_;
};

TEST_F(Nlbench, SplitOverMpiEqualsUnsplit) {
  const Outcome outcome = nlbench_on(2, "run saved --check --output y.npy --json r.json --trace t.json --repeats 3");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("interleaved · batch 8 in 4 micro-batches · 2 devices (mpi)"),
                    HasSubstr("median of 3 repeats"), HasSubstr("equal to the unsplit run, bit for bit (16 values)")));
  const auto json = read_file(dir_ + "/r.json");
  ASSERT_TRUE(json.ok());
  EXPECT_THAT(*json, AllOf(HasSubstr("\"format\": \"nlsplit-run\""), HasSubstr("\"equal\": true"),
                           HasSubstr("\"throughput_per_s\"")));
  const auto trace = read_file(dir_ + "/t.json");
  ASSERT_TRUE(trace.ok());
  EXPECT_THAT(*trace, HasSubstr("layer 3"));

  ASSERT_EQ(nlbench("run saved --transport threads --output y2.npy").code, 0);
  const auto over_mpi = read_npy(dir_ + "/y.npy"), in_threads = read_npy(dir_ + "/y2.npy");
  ASSERT_TRUE(over_mpi.ok() && in_threads.ok());
  EXPECT_EQ(over_mpi->shape, (Shape{8, 2}));
  EXPECT_EQ(over_mpi->values, in_threads->values);
}

TEST_F(Nlbench, ASessionOverMpiEqualsThreads) {
  const std::string session = "session " NLS_SOURCE_DIR "/scenarios/counter.session --sequence ";
  std::string one_by_one = "init";
  for (int i = 0; i < 1000; ++i) one_by_one += " push";
  const std::string results = "\"results\"";
  std::vector<std::string> found;
  for (const std::string& sequence : {std::string("init push*1000 read"), one_by_one + " read"}) {
    const Outcome over_mpi = nlbench_on(3, session + "\"" + sequence + "\" --json mpi.json");
    EXPECT_EQ(over_mpi.code, 0) << over_mpi.text;
    EXPECT_THAT(over_mpi.text, HasSubstr("session counter · 1,002 executions on 3 devices"));
    const Outcome in_threads = nlbench(session + "\"" + sequence + "\" --transport threads --json threads.json");
    EXPECT_EQ(in_threads.code, 0) << in_threads.text;
    for (const char* file : {"/mpi.json", "/threads.json"}) {
      const std::string text = value_of(read_file(dir_ + file));
      found.push_back(text.substr(text.find(results), text.rfind("\"session\"") - text.find(results)));
    }
  }
  EXPECT_THAT(found.front(), HasSubstr("1000.0"));
  for (const std::string& one : found) EXPECT_EQ(one, found.front());
  const Outcome few = nlbench_on(2, session + "init");
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.text, HasSubstr("this plan runs on 3 devices (A, B, C), and 2 ranks were started. Run it in one "
                                  "process with `--transport threads`"));
  const Outcome unknown = nlbench_on(3, session + "nothing");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.text, HasSubstr("session counter has no program nothing; there are init, push, read"));
}

TEST_F(Nlbench, SequencesThatGrowOverMpiEqualThreads) {
  const std::string session =
      "session " NLS_SOURCE_DIR "/scenarios/decoder.session --input append/count=4,2 --sequence ";
  const std::string sequence = "\"load append step*5 leave append step*3\"", results = "\"results\"";
  std::vector<std::string> found;
  const Outcome over_mpi = nlbench_on(2, session + sequence + " --json mpi.json");
  EXPECT_EQ(over_mpi.code, 0) << over_mpi.text;
  const Outcome in_threads = nlbench(session + sequence + " --transport threads --json threads.json");
  EXPECT_EQ(in_threads.code, 0) << in_threads.text;
  for (const char* file : {"/mpi.json", "/threads.json"}) {
    const std::string text = value_of(read_file(dir_ + file));
    found.push_back(text.substr(text.find(results), text.rfind("\"session\"") - text.find(results)));
  }
  EXPECT_EQ(found[0], found[1]);
  const Outcome too_long = nlbench_on(2, session + "\"load append step*13\"");
  EXPECT_EQ(too_long.code, 2) << too_long.text;
  EXPECT_THAT(too_long.text, HasSubstr("step/begin[0] is 16, outside 0 … 15"));
  const Outcome many = nlbench(session + "\"load\" --input append/count=4,2,1 --transport threads");
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.text, HasSubstr("`4,2,1`: 3 values where there must be 2"));
}

TEST_F(Nlbench, ChecksWhatTheSavedProgramPromises) {
  const std::string run = "run lying --transport threads --check --repeats 1 --warmup 0";
  const std::string file = dir_ + "/lying/promise.json";
  EXPECT_EQ(nlbench(run).code, 1);
  const std::string promise =
      R"({"format": "nlsplit-promise", "version": 1, "tolerance": 0.08, "why": "its weights are others"})";
  ASSERT_TRUE(write_file(file, promise).ok());
  const Outcome kept = nlbench(run);
  EXPECT_EQ(kept.code, 1) << kept.text;
  EXPECT_THAT(kept.text, HasSubstr("; beyond the tolerance of 0.08 of its largest value (its weights are others)"));
  const Outcome strict = nlbench(run + " --tolerance 0");  // the user's word counts more
  EXPECT_EQ(strict.code, 1);
  EXPECT_THAT(strict.text, HasSubstr("equal bits were expected"));
  for (const char* wrong : {"{}", R"({"format": "nlsplit-promise", "version": 1, "tolerance": -1, "why": ""})",
                            R"({"format": "nlsplit-promise", "version": 1, "tolerance": 0.5, "why": ""})"}) {
    ASSERT_TRUE(write_file(file, wrong).ok());
    const Outcome refused = nlbench(run);
    EXPECT_EQ(refused.code, 2) << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("lying/promise.json: "));
  }
}

TEST_F(Nlbench, RefusesATolerancesThatChecksNothing) {
  const Outcome outcome = nlbench("run saved --transport threads --check --tolerance 0.2");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("--tolerance 0.2: at most 0.1 of an output's largest value; within more than"));
}

TEST_F(Nlbench, JudgesEachOutputByItself) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const OutputComparison large = compare({1000.5f, 1}, {1000, 1}, "large"),
                         small = compare({0.5f, 0}, {0.1f, 0}, "small");
  EXPECT_TRUE(large.equal(1e-3));
  EXPECT_FALSE(small.equal(1e-3)) << "0.4 of 1000 were little, of 0.1 they are not";
  EXPECT_FALSE((Comparison{{large, small}, 1e-3}.equal()));
  EXPECT_FALSE(compare({0, 0}, {0, 1e-30f}).equal(0));
  // Not finite in one run only is a difference that no tolerance allows.
  for (const auto& [got, want] : {std::pair(nan, 1.f), {1.f, nan}, {inf, 1.f}, {1.f, inf}, {inf, -inf}, {nan, inf}}) {
    const OutputComparison c = compare({1, 2, got}, {1, 2, want});
    EXPECT_FALSE(c.equal(0.1)) << got << " " << want;
    EXPECT_EQ(c.not_finite, 1);
    EXPECT_EQ(c.first_not_finite, 2);
  }
  EXPECT_TRUE(compare({nan, inf, 1}, {nan, inf, 1}).equal(0));
  EXPECT_TRUE(compare({nan, 1}, {-nan, 1}).equal(1e-4)) << "NaN in both, with other bits";
  EXPECT_EQ(to_string(Comparison{{compare({nan, 2.5f, 3}, {1, 2, 3}, "y"), compare({1}, {1}, "z")}, 1e-3, "why"}),
            "y: 2 of 3 values differ from the unsplit run; 1 of them is NaN or infinite in one run only, the first at "
            "place 0, the largest difference is 0.5 (largest value 3); beyond the tolerance of 0.001 of its largest "
            "value (why)\n            1 of 2 outputs are equal bit for bit");
}

// One bit of one weight that rank 1 reads, in the copy of that folder.
TEST_F(Nlbench, AFlippedBitNamesWeightAndRank) {
  fs::create_directory(dir_ + "/copy");
  fs::copy(dir_ + "/saved", dir_ + "/copy/saved");
  const auto program = parse_program(*read_file(dir_ + "/saved/program.nls"), "program.nls");
  const auto index = parse_weight_index(*read_file(dir_ + "/saved/weights.idx"), "weights.idx", 1 << 30);
  ASSERT_TRUE(program.ok() && index.ok());
  const auto& buffers = program->devices[1].buffers;
  const auto weight = std::ranges::find(buffers, true, &Buffer::has_content);
  ASSERT_NE(weight, buffers.end());
  const auto flip = [&](const std::string& folder) {
    std::string bytes = *read_file(folder + "/weights.bin");
    char& byte = bytes[index->at(weight->content).offset + 5];
    byte = static_cast<char>(byte ^ 4);
    ASSERT_TRUE(write_file(folder + "/weights.bin", bytes).ok());
  };
  const std::string run = program_ + " run saved --repeats 1 --warmup 0";
  const std::string ranks = mpirun() + "-np 1 -wdir " + dir_ + " " + run + " : -np 1 -wdir " + dir_ + "/copy " + run;
  const Outcome before = shell(ranks);
  EXPECT_EQ(before.code, 0) << before.text;
  flip(dir_ + "/copy/saved");
  const Outcome theirs = shell(ranks);
  EXPECT_EQ(theirs.code, 2) << theirs.text;
  EXPECT_THAT(theirs.text, AllOf(HasSubstr("error: weight " + weight->name + " (layer "),
                                 HasSubstr(") of device B: rank 1 on host b reads other bytes than were saved")));
  // Rank 0 looks at what it sends, too.
  fs::remove_all(dir_ + "/copy/saved");
  flip(dir_ + "/saved");
  const Outcome ours = shell(ranks);
  EXPECT_EQ(ours.code, 2) << ours.text;
  EXPECT_THAT(ours.text, HasSubstr(" of device B: rank 0 on host a reads other bytes than were saved (checksum "));
}

TEST_F(Nlbench, SaysHowToRenewAnOldFolder) {
  ASSERT_TRUE(write_file(dir_ + "/saved/weights.idx", "1234 0 64\n").ok());
  const Outcome outcome = nlbench("run saved --transport threads");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("error: saved/weights.idx: a saved program of an older version, whose weights "
                                      "have no checksums; save it again: nlsim lower … --save DIR"));
}

TEST_F(Nlbench, OnlyRankZeroNeedsFiles) {
  fs::create_directory(dir_ + "/elsewhere");
  const std::string arguments = program_ + " run saved --check --output y.npy";
  const Outcome outcome =
      shell(mpirun() + "-np 1 -wdir " + dir_ + " " + arguments + " : -np 1 -wdir " + dir_ + "/elsewhere " + arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_TRUE(fs::exists(dir_ + "/y.npy"));
  EXPECT_TRUE(fs::is_empty(dir_ + "/elsewhere"));
}

TEST_F(Nlbench, CheckFindsADifference) {
  const Outcome outcome = nlbench_on(2, "run lying --check");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("values differ from the unsplit run"), HasSubstr("equal bits were expected")));
}

TEST_F(Nlbench, TooManyAndTooFewRanks) {
  for (const int ranks : {1, 3}) {
    const Outcome outcome = nlbench_on(ranks, "run saved");
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.text, HasSubstr("this plan runs on 2 devices (A, B), and "));
  }
}

// What ranks must have in common is found before anything moves.
TEST_F(Nlbench, RanksThatDoNotFitTogether) {
  for (const auto& [first, second, message] :
       {std::tuple("--warmup 1", "--warmup 2", "with 2 warm-up and 64 kept repeats, rank 0 has "),
        std::tuple("--heartbeat 20", "--heartbeat 30", "ranks differ in their --heartbeat: rank 1 on host ")}) {
    const std::string run = "-np 1 " + program_ + " run saved ";
    const Outcome outcome = shell(mpirun() + run + first + " : " + run + second);
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(message));
    const size_t at = outcome.text.find("error: ");
    EXPECT_EQ(outcome.text.find("error: ", at + 1), std::string::npos) << outcome.text;
  }
}

// A build like that of `file`, but not the same: one byte of the linker's note is another.
void change_build_id(const std::string& file) {
  auto text = read_file(file);
  ASSERT_TRUE(text.ok()) << file;
  const std::string note("\x14\0\0\0\3\0\0\0GNU\0", 12);
  const size_t at = text->find(note);
  ASSERT_NE(at, std::string::npos) << file << " has no build id";
  (*text)[at + note.size()] ^= 1;
  ASSERT_TRUE(write_file(file, *text).ok());
  fs::permissions(file, fs::perms::owner_all);
}

// Rank 1 has a program, or kernels, of another build.
TEST_F(Nlbench, RanksOfOtherBuilds) {
  const fs::path built = fs::path(NLS_BIN_DIR).parent_path();
  for (const auto& [other, message] :
       {std::pair("bin/nlbench", "ranks differ in their build for "),
        std::pair("lib/libnlsplit_kernels_v2.so", "ranks differ in their kernels of level v2: rank 1 on host ")}) {
    fs::remove_all(dir_ + "/own");
    for (const char* file : {"bin/nlbench", "lib/libnlsplit_kernels_v2.so"}) {
      fs::create_directories(fs::path(dir_ + "/own/" + file).parent_path());
      fs::copy_file(built / file, dir_ + "/own/" + file);
    }
    change_build_id(dir_ + "/own/" + other);
    const Outcome outcome =
        shell(mpirun() + "-np 1 " + program_ + " run saved : -np 1 " + dir_ + "/own/bin/nlbench run saved");
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr(message), HasSubstr("rank 0 on host ")));
    const size_t at = outcome.text.find("error: ");
    EXPECT_EQ(outcome.text.find("error: ", at + 1), std::string::npos) << outcome.text;
  }
}

TEST_F(Nlbench, BadUsageIsSaidOnce) {
  const Outcome outcome = nlbench_on(2, "run saved --repeats none");
  EXPECT_EQ(outcome.code, 2);
  const size_t first = outcome.text.find("--repeats");
  ASSERT_NE(first, std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find("--repeats", first + 1), std::string::npos) << outcome.text;
}

TEST_F(Nlbench, BadInputsAreExitCodeTwo) {
  ASSERT_TRUE(write_npy(dir_ + "/x.npy", {{3, 4}, std::vector<float>(12)}).ok());
  fs::create_directory(dir_ + "/empty");
  const std::pair<const char*, const char*> cases[] = {
      {"run saved --input x.npy", "x.npy is f32[3,4], but input x is f32[8,4]"},
      {"run saved --input z=x.npy", "there is no such input; the program has x"},
      {"run saved --input missing.npy", "missing.npy"},
      {"run saved --plan 2", "holds one plan already"},
      {"run empty", "program.nls"},
      {"run saved --output nowhere/y.npy", "there is no folder nowhere"},
      {"run saved --duration 5", "--duration: '5' has no unit"},
      {"run saved --repeats 0", "--repeats: '0' is not a number > 0"},
      {"run saved --watchdog -1", "--watchdog: '-1' is not a number >= 0"},
      {"run zoo:simple_cnn --nlsim ./missing", "cannot start ./missing"},
      {"profile x.yaml -o nowhere/p.json", "there is no folder nowhere"},
      {"run", "WHAT"},
      {"", "subcommand"},
  };
  for (const auto& [arguments, message] : cases) {
    const bool runs = std::string_view(arguments).starts_with("run ");
    const Outcome outcome = nlbench(std::string(arguments) + (runs ? " --transport threads" : ""));
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr(message)) << arguments;
  }
  EXPECT_FALSE(fs::exists(dir_ + "/y.npy"));
}

TEST_F(Nlbench, TruncatedWeightsAreAnErrorOnAllRanks) {
  fs::resize_file(dir_ + "/saved/weights.bin", 100);
  const Outcome outcome = nlbench_on(2, "run saved");
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("truncated"));
}

TEST_F(Nlbench, HelpTeachesAndNamesExitCodes) {
  const Outcome outcome = nlbench("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("mpirun -np 3 nlbench run"), HasSubstr("Exit codes: 0"),
                                  HasSubstr("3 a\nrank died"), HasSubstr("130")));
}

}  // namespace
}  // namespace nlsplit
