// Runs over gRPC as a user starts them: workers in processes of their own on this machine, rank 0 another one.
#ifdef NLS_GRPC
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "base/child_process.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  CHECK(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
            ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0,
        "a test needs a port");
  ::close(socket);
  return ntohs(address.sin_port);
}

class Worker {
 public:
  explicit Worker(std::vector<std::string> more = {}) : address_(fmt::format("127.0.0.1:{}", free_port())) {
    std::vector<std::string> words = {NLS_BIN_DIR "/nlbench", "worker", "--listen", address_};
    words.insert(words.end(), more.begin(), more.end());
    const int file = ::open((scratch_ / "err").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    child_ = value_of(start_child(words, {.err = file}));
    ::close(file);
    wait_for(1);
  }
  ~Worker() {
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
  }
  const std::string& address() const { return address_; }
  std::string said() const { return value_of(read_file(scratch_ / "err")); }
  void kill(int signal) const { ::kill(child_, signal); }
  // Until it has said so often that it waits for a run.
  void wait_for(int times) const { wait_for("waits at", times); }
  void wait_for(const std::string& what, int times = 1) const {
    for (int i = 0; i < 1500; ++i) {
      int found = 0;
      const std::string text = said();
      for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
      if (found >= times) return;
      std::this_thread::sleep_for(20ms);
    }
    FAIL() << said();
  }

 private:
  const Scratch scratch_;
  const std::string address_;
  pid_t child_ = 0;
};

std::string over(std::initializer_list<const Worker*> workers) {
  std::string addresses;
  for (const Worker* worker : workers) addresses += (addresses.empty() ? "" : ",") + worker->address();
  return " --transport grpc --workers " + addresses;
}

TEST(Worker, ComputesItsPartOfOneRunAfterTheOther) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", small_scenario());
  const Worker b, c;
  for (int i = 0; i < 2; ++i) {
    const Outcome run = nlbench("run " + scenario + " --plan mine --check" + over({&b, &c}));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("3 devices (grpc)"));
    EXPECT_THAT(run.out, HasSubstr("equal to the unsplit run, bit for bit"));
    b.wait_for(i + 2);
    c.wait_for(i + 2);
  }
}

TEST(Worker, TrainsAndRunsSessions) {
  const Scratch scratch;
  const std::string scenario = scratch.write(
      "s.yaml",
      with(with(with(small_scenario(), "mode: inference", "mode: training, optimizer: adam"), "sink: c", "sink: a"),
           "[streaming]", "[1f1b]") +
          "  two: [..relu1@A, rest@C]\n");
  const Worker b, c;
  const Outcome here = nlbench("train " + scenario + " --plan mine --steps 3 --json - --transport threads");
  const Outcome there = nlbench("train " + scenario + " --plan mine --steps 3 --json -" + over({&b, &c}));
  EXPECT_EQ(there.code, 0) << there.err;
  const auto losses = [](const Outcome& outcome) {
    const size_t at = outcome.out.find("\"losses\": [");
    return at == std::string::npos ? "" : outcome.out.substr(at, outcome.out.find(']', at) - at);
  };
  EXPECT_NE(losses(here), "") << here.out;
  EXPECT_EQ(losses(there), losses(here));
  b.wait_for(2);
  c.wait_for(2);
  // One worker too many, in a run that agrees in the end and in one that does not: nobody hangs.
  for (const char* command : {"train {} --plan two --steps 3", "run {} --plan two --steps 3"}) {
    const Outcome many = nlbench(with(command, "{}", scenario) + over({&b, &c}));
    EXPECT_EQ(many.code, 2) << command << many.err;
    EXPECT_THAT(many.err, HasSubstr("or as `--transport grpc` with 1 worker (--workers)"));
    b.wait_for(command[0] == 't' ? 3 : 4);
    c.wait_for(command[0] == 't' ? 3 : 4);
  }
  const Outcome session =
      nlbench("session " NLS_SOURCE_DIR "/scenarios/counter.session --sequence 'init push*100 read'" + over({&b, &c}));
  EXPECT_EQ(session.code, 0) << session.err;
  EXPECT_THAT(session.out, HasSubstr("on 3 devices"));
}

TEST(Worker, IsSurveyedForAScenario) {
  const Scratch scratch;
  const Worker b, c;
  const std::string command = "init --model zoo:mlp --workers " + b.address() + "," + c.address() + " -o ";
  const Outcome made = nlsim(command + scratch / "s.yaml");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("3 hosts, 3 paths measured"));
  const std::string text = value_of(read_file(scratch / "s.yaml"));
  EXPECT_THAT(text, HasSubstr("host: 127.0.0.1,"));
  EXPECT_THAT(text, HasSubstr("host: 127.0.0.1-" + c.address().substr(c.address().find(':') + 1)));
  EXPECT_THAT(text, HasSubstr("messages over grpc"));
  EXPECT_EQ(nlsim("rank " + scratch / "s.yaml").code, 0);
  b.wait_for(2);
  c.wait_for(2);
}

// Plans whose first device is a worker's get everything from rank 0, which then has no part in them.
TEST(Worker, TakesTurnsInPlansThatAreValidated) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", small_scenario());
  const Worker b, c;
  const std::string workers = " --transport grpc --workers b=" + b.address() + ",c=" + c.address();
  const Outcome outcome = nlbench(
      fmt::format("validate {} -o {} --top 8 --also 6 --rounds 2 --duration 10ms{}", scenario, scratch / "v", workers));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("15 of 15 plans measured"));
  EXPECT_EQ(nlbench(fmt::format("validate {} -o {}{}", scenario, scratch / "w", " --transport grpc")).code, 2);
  const Outcome one =
      nlbench(fmt::format("validate {} -o {} --transport grpc --workers b={}", scenario, scratch / "w", b.address()));
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("have no worker, and only one can be this machine"));
  const Outcome mpi = nlbench(fmt::format("validate {} -o {} --workers b={}", scenario, scratch / "w", b.address()));
  EXPECT_EQ(mpi.code, 2);
  EXPECT_THAT(mpi.err, HasSubstr("--workers are for --transport grpc, and this is mpi"));
}

TEST(Worker, TakesTurnsInMeasurementsBetweenOthers) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", small_scenario()), set = scratch / "set";
  ASSERT_EQ(nlsim("lower " + scenario + " --network-set " + set + " --eager-limit 64KiB").code, 0);
  const Worker b, c;
  // Both ways round, without rank 0 and with it; one folder is not there, which is no reason to stop.
  const std::string turns =
      scratch.write("turns", "run g1 x 1 2\nrun g1 y 2 1\nrun nothing z 1 2\nrun g1 v 1 0\nrun g1 w 0 2\n");
  const Outcome outcome =
      nlbench(fmt::format("run {} --turns {} --turn-traces --repeats 1{}", set, turns, over({&b, &c})));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* figures : {"x", "y", "v", "w"}) {
    EXPECT_THAT(value_of(read_file(set + "/" + figures + ".json")), HasSubstr("\"makespans_s\"")) << figures;
    EXPECT_THAT(value_of(read_file(set + "/" + figures + ".trace")), HasSubstr("traceEvents")) << figures;
  }
  EXPECT_THAT(value_of(read_file(set + "/z.error")), HasSubstr("nlsim lower failed with exit code 2"));
  // A worker's run may just be ending when the next one begins.
  for (int i = 0; i < 4; ++i) {
    const Outcome next = nlbench(fmt::format("run {} --turns {} --repeats 1{}", set, turns, over({&b, &c})));
    EXPECT_EQ(next.code, 0) << next.err;
  }
  const std::string bad = scratch.write("bad", "run g1 x 1 3\n");
  const Outcome refused = nlbench(fmt::format("run {} --turns {}{}", set, bad, over({&b, &c})));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("runs on ranks 1, 3, and there are 3"));
}

TEST(Worker, ADeadOneEndsTheRunAndTheOthersGoOn) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", small_scenario());
  const Worker b;
  Outcome run;
  {
    const Worker c({"--once"});
    std::thread runs([&] {
      run = nlbench("run " + scenario + " --plan mine --duration 60s --flight " + scratch / "flight" + over({&b, &c}));
    });
    c.wait_for("rank 2 of 3");
    std::this_thread::sleep_for(300ms);
    c.kill(SIGKILL);
    runs.join();
  }
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.err, HasSubstr("lost rank 2"));
  b.wait_for(2);
}

TEST(Worker, AStoppedOneIsLostInTime) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", small_scenario());
  const Worker b, c({"--once"});
  Outcome run;
  std::thread runs([&] {
    run = nlbench("run " + scenario + " --plan mine --duration 60s --heartbeat 3 --flight " + scratch / "flight" +
                  over({&b, &c}));
  });
  c.wait_for("rank 2 of 3");
  std::this_thread::sleep_for(300ms);
  c.kill(SIGSTOP);
  runs.join();
  c.kill(SIGCONT);
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.err, HasSubstr("lost rank 2"));
  EXPECT_THAT(run.err, HasSubstr("it was silent"));
  b.wait_for(2);
}

TEST(Worker, StrangersAreRefusedAndLoseNothing) {
  const Scratch scratch;
  const std::string scenario = scratch.write(
      "s.yaml", with(small_scenario(), "mine: [..relu1@A, ..relu2@B, rest@C]", "mine: [..relu1@A, rest@C]"));
  for (const char* folder : {"keys", "others"}) ASSERT_EQ(nlbench("certificates -o " + (scratch / folder)).code, 0);
  run_command("cp -rp " + scratch / "keys" + " " + scratch / "guessed");
  scratch.write("guessed/secret", "0123456789abcdef\n");
  run_command("chmod 600 " + scratch / "guessed/secret");
  const Worker worker({"--tls", scratch / "keys"});
  const std::string run = "run " + scenario + " --plan mine --start-timeout 2" + over({&worker});

  const Outcome plain = nlbench(run);
  EXPECT_EQ(plain.code, 3);
  EXPECT_THAT(plain.err, HasSubstr("or wants --tls"));
  const Outcome other_authority = nlbench(run + " --tls " + scratch / "others");
  EXPECT_EQ(other_authority.code, 3);
  EXPECT_THAT(other_authority.err, HasSubstr("has another folder for --tls"));
  const Outcome guessed = nlbench(run + " --tls " + scratch / "guessed");
  EXPECT_EQ(guessed.code, 3);
  EXPECT_THAT(guessed.err, HasSubstr("another secret than the worker's"));
  const Outcome friendly = nlbench(run + " --check --tls " + scratch / "keys");
  EXPECT_EQ(friendly.code, 0) << friendly.err << worker.said();
}

TEST(Worker, WrongUseIsSaid) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", small_scenario());
  const Worker one;
  struct Row {
    std::string arguments, says;
  };
  ASSERT_EQ(nlbench("certificates -o " + (scratch / "keys")).code, 0);
  run_command("chmod 644 " + scratch / "keys/node.key");
  for (const Row& row :
       {Row{"run " + scenario + " --plan mine --transport grpc", "needs --workers"},
        Row{"run " + scenario + " --plan mine" + over({&one}), "or as `--transport grpc` with 2 workers (--workers)"},
        Row{"run " + scenario + " --transport grpc --workers 10.1.2.3:7000", "--tls"},
        Row{"run " + scenario + " --tls nowhere" + over({&one}), "nowhere/ca.crt"},
        Row{"run " + scenario + " --tls " + scratch / "keys" + over({&one}), "chmod 600"},
        Row{"run " + scenario + " --plan mine --steps 3" + over({&one}), "--steps is for training"},
        Row{"validate " + scenario + " -o " + scratch / "v --transport grpc", "grpc"},
        Row{"worker --listen 0.0.0.0:7000", "other machines"},
        Row{"worker --listen 127.example.org:7000", "other machines"},
        Row{"worker --listen " + one.address(), "the port is taken"},
        Row{"worker --listen nowhere", "'nowhere' is no HOST:PORT"},
        Row{"worker --listen 127.0.0.1:99999", "'127.0.0.1:99999' is no HOST:PORT"},
        Row{"run " + scenario + " --transport grpc --workers b", "'b' is no HOST:PORT"},
        Row{"certificates -o " + scratch / "keys", "--renew"}}) {
    const Outcome outcome = nlbench(row.arguments);
    EXPECT_EQ(outcome.code, 2) << row.arguments << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(row.says)) << row.arguments;
    one.wait_for(1);
  }
}

}  // namespace
}  // namespace nlsplit
#endif
