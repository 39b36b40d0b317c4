// Messages between GPUs over NCCL, as far as that needs no GPU: the library, who may ask for it, and which messages go
// when. What moves bytes is tested on the emulated GPU: tests/gpu/emulator/tests/nccl_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "exec/fake_nccl/fake_nccl.h"
#include "exec/nccl/library.h"
#include "exec/nccl/pairing.h"
#include "exec/on_fake_gpu.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string fake_nccl = library_folder + "libfake_nccl.so";

void fake_nccl_fail(const char* function, int nth) {
  void* handle = dlopen(fake_nccl.c_str(), RTLD_LOCAL | RTLD_NOW);
  ASSERT_NE(handle, nullptr) << dlerror();
  reinterpret_cast<FakeNcclFail>(dlsym(handle, "fake_nccl_fail"))(function, nth);
}

// ---- the library

TEST(NcclLibrary, ThatIsThere) {
  const auto library = load_nccl(fake_nccl);
  ASSERT_TRUE(library.ok()) << library.error().message;
  EXPECT_EQ(nccl_version_text(library->version), "2.32.3");
}

TEST(NcclLibrary, ThatIsMissing) {
  const auto library = load_nccl("/nowhere/libnccl.so.2");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(exit_code(library.error()), 2);
  EXPECT_THAT(library.error().message, AllOf(HasSubstr("cannot load NCCL: /nowhere/libnccl.so.2"),
                                             HasSubstr("nvidia-nccl-cu12"), HasSubstr("--nccl FILE")));
}

TEST(NcclLibrary, ThatIsNone) {
  const auto library = load_nccl(fake_path);
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().message, fake_path + " is no NCCL: it has no ncclGetVersion");
}

TEST(NcclLibrary, ThatIsTooOld) {
  fake_nccl_fail("version", 21005);
  const auto old = load_nccl(fake_nccl);
  fake_nccl_fail("version", 2708);
  const auto older = load_nccl(fake_nccl);
  fake_nccl_fail("", 0);
  ASSERT_FALSE(old.ok() || older.ok());
  EXPECT_EQ(old.error().message, fake_nccl + " is NCCL 2.10.5, and 2.18.0 or later is needed");
  EXPECT_THAT(older.error().message, HasSubstr("NCCL 2.7.8"));
}

// ---- who may ask for it

class Nccl : public FakeGpu {
 protected:
  static RunOptions over_nccl(const std::string& library) {
    RunOptions asked = options();
    asked.gpu.messages = GpuMessages::nccl;
    asked.gpu.nccl = library;
    return asked;
  }
  static Error error_of_run(const Program& program, const RunOptions& options) {
    const auto result = run_threads(program, seeded_job(program), options);
    EXPECT_FALSE(result.ok());
    return result.ok() ? failed("it ran") : result.error();
  }
};

TEST_F(Nccl, IsForPlansWithTwoGpus) {
  const Error none = error_of_run(program_of("interleaved"), over_nccl(fake_nccl));
  EXPECT_EQ(exit_code(none), 2);
  EXPECT_THAT(none.message, HasSubstr("none of this plan's devices is one"));
  Program mixed = on_gpus("instances");  // whose instructions any device has
  mixed.devices[0].kind = DeviceKind::cpu;
  mixed.devices[0].level = Isa::v2;
  const Error one = error_of_run(mixed, over_nccl(fake_nccl));
  EXPECT_EQ(exit_code(one), 2);
  EXPECT_THAT(one.message, HasSubstr("of this plan's devices only B is one"));
}

TEST_F(Nccl, SaysWhoLacksTheLibrary) {
  const Error missing = error_of_run(on_gpus("interleaved"), over_nccl("libno_nccl.so"));
  EXPECT_EQ(exit_code(missing), 2);
  EXPECT_THAT(missing.message, AllOf(HasSubstr("device A: cannot load NCCL"), HasSubstr("libno_nccl.so")));
}

TEST_F(Nccl, IsNotForACpuInAGpusPlace) {
  RunOptions options = over_nccl(fake_nccl);
  options.gpu.backend = "/nowhere/libbackend_cuda.so";
  options.gpu.missing = GpuMissing::cpu;
  const Error refused = error_of_run(on_gpus("interleaved"), options);
  EXPECT_EQ(exit_code(refused), 2);
  EXPECT_THAT(refused.message, AllOf(HasSubstr("device A: "), HasSubstr("the CPU computes in its place")));
}

// ---- which messages go when

// Ranks that talk, on a network that delivers as late as it likes, and GPUs on which a group ends some time after both
// halves of it have begun, and not before what was begun there earlier has ended.
class PairingWorld {
 public:
  PairingWorld(int ranks, uint64_t seed) : random_(seed) {
    for (int rank = 0; rank < ranks; ++rank) ranks_.push_back({Pairing(rank), std::nullopt, {}, 0, 0});
  }

  void post(int rank, int peer, bool sends, int tag, uint64_t bytes) {
    Rank& here = ranks_[static_cast<size_t>(rank)];
    const auto id = static_cast<uint32_t>(here.posted.size());
    here.posted.push_back({peer, sends, tag, bytes, here.begun_of[{peer, sends, tag}]++});
    check(here.pairing.post(peer, {sends, tag, bytes, id}));
    collect(rank);
  }

  // Something happens; false: nothing can any more.
  bool step() {
    std::vector<std::function<void()>> can;
    for (auto& [route, records] : network_) {
      if (records.empty()) continue;
      can.emplace_back([this, from = route.first, to = route.second, queue = &records] {
        const PairingRecord record = queue->front();
        queue->pop_front();
        check(ranks_[static_cast<size_t>(to)].pairing.hear(from, record));
        collect(to);
      });
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      // NCCL ends a half once the other one runs, or has ended.
      if (!ranks_[r].running) continue;
      const auto peer = static_cast<size_t>(ranks_[r].running->peer);
      const auto key = std::minmax({r, peer});
      if (begun_[key][r < peer ? 0 : 1] <= begun_[key][r < peer ? 1 : 0])
        can.emplace_back([this, r] { end(static_cast<int>(r)); });
    }
    if (can.empty()) return false;
    can[random_.below(can.size())]();
    return true;
  }

  bool is_idle(int rank) const { return !ranks_[static_cast<size_t>(rank)].running; }
  size_t ended() const {
    size_t all = 0;
    for (const Rank& rank : ranks_) all += rank.ended;
    return all;
  }
  size_t posted() const {
    size_t all = 0;
    for (const Rank& rank : ranks_) all += rank.posted.size();
    return all;
  }
  std::string waiting() const {
    std::string text;
    for (const Rank& rank : ranks_) text += rank.pairing.waits_for() + "\n";
    return text;
  }
  std::optional<Error> error;
  Random random_;

 private:
  struct Posted {
    int peer;
    bool sends;
    int tag;
    uint64_t bytes;
    int number;  // of its direction and tag
  };
  struct Rank {
    Pairing pairing;
    std::optional<PairingBatch> running;
    std::vector<Posted> posted;
    size_t ended, batches;
    std::map<std::tuple<int, bool, int>, int> begun_of = {};
  };

  void check(const Status& status) {
    if (!status.ok() && !error) error = status.error();
  }
  void collect(int rank) {
    Rank& here = ranks_[static_cast<size_t>(rank)];
    if (auto batch = here.pairing.take_batch()) {
      ASSERT_FALSE(here.running) << "a second group on rank " << rank;
      ASSERT_FALSE(batch->ids.empty());
      const auto peer = static_cast<size_t>(batch->peer);
      const auto key = std::minmax({static_cast<size_t>(rank), peer});
      const size_t own = static_cast<size_t>(rank) < peer ? 0 : 1;
      // What NCCL would match by order alone: the same messages at both ends.
      std::vector<std::string> texts;
      for (const uint32_t id : batch->ids) {
        const Posted& one = here.posted[id];
        const bool up = one.sends == (own == 0);
        texts.push_back(fmt::format("{} tag {} number {}: {} B", up ? "up" : "down", one.tag, one.number, one.bytes));
      }
      groups_[key][own].push_back(texts);
      const size_t both = std::min(groups_[key][0].size(), groups_[key][1].size());
      if (both > 0) {
        ASSERT_EQ(groups_[key][0][both - 1], groups_[key][1][both - 1]);
      }
      ++begun_[key][own];
      here.running = std::move(batch);
    }
    for (const auto& [peer, record] : here.pairing.take_said()) network_[{rank, peer}].push_back(record);
  }
  void end(int rank) {
    Rank& here = ranks_[static_cast<size_t>(rank)];
    here.ended += here.running->ids.size();
    here.running.reset();
    here.pairing.batch_ended();
    collect(rank);
  }

  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<PairingRecord>> network_;
  std::map<std::pair<size_t, size_t>, std::array<size_t, 2>> begun_;  // groups of a pair, by its end
  std::map<std::pair<size_t, size_t>, std::array<std::vector<std::vector<std::string>>, 2>> groups_;
};

// All to all, circles included, each end of a message at any time, tags in any order.
TEST(Pairing, EveryMessageWithTwoEndsIsMoved) {
  for (uint64_t seed = 0; seed < 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const int ranks = 2 + static_cast<int>(seed % 4);
    PairingWorld world(ranks, seed);
    struct End {
      int rank, peer;
      bool sends;
      int tag;
      int left;
    };
    std::vector<End> ends;
    for (int a = 0; a < ranks; ++a) {
      for (int b = 0; b < ranks; ++b) {
        if (a == b) continue;
        for (int tag = 0; tag < 2; ++tag) {
          const int messages = static_cast<int>(Random(seed * 100 + static_cast<uint64_t>(a * 10 + b)).below(5));
          ends.push_back({a, b, true, tag, messages});
          ends.push_back({b, a, false, tag, messages});
        }
      }
    }
    while (!HasFailure()) {
      std::erase_if(ends, [](const End& end) { return end.left == 0; });
      if (ends.empty() || world.random_.below(2) == 0) {
        if (!world.step() && ends.empty()) break;
        continue;
      }
      End& one = ends[world.random_.below(ends.size())];
      world.post(one.rank, one.peer, one.sends, one.tag,
                 static_cast<uint64_t>(one.left) * 8 + static_cast<uint64_t>(one.tag));
      --one.left;
    }
    EXPECT_FALSE(world.error) << world.error->message;
    EXPECT_EQ(world.ended(), world.posted()) << world.waiting();
  }
}

TEST(Pairing, DifferentSizesAreAnError) {
  for (const bool lower_sends : {true, false}) {
    PairingWorld world(2, 1);
    world.post(1, 0, !lower_sends, 5, 64);
    world.post(0, 1, lower_sends, 5, 96);
    while (world.step()) {
    }
    ASSERT_TRUE(world.error);
    EXPECT_EQ(world.error->message, lower_sends ? "rank 0 sends 96 B where rank 1 expects 64 B (tag 5)"
                                                : "rank 1 sends 64 B where rank 0 expects 96 B (tag 5)");
  }
}

TEST(Pairing, SaysWhatItWaitsFor) {
  PairingWorld world(2, 1);
  world.post(0, 1, true, 5, 64);
  world.post(1, 0, false, 6, 64);
  while (world.step()) {
  }
  EXPECT_EQ(world.waiting(),
            "rank 0 has 1 end of messages to rank 1 with tag 5 without the other end\n"
            "rank 1 waits for rank 0 to ask for 1 of its messages\n");
}

TEST(Pairing, RefusesWhatNobodySays) {
  Pairing pairing(1);
  EXPECT_FALSE(pairing.hear(0, {.what = PairingRecord::What::go}).ok());
  EXPECT_FALSE(pairing.hear(0, {.what = PairingRecord::What::last_ask}).ok());
  EXPECT_FALSE(pairing.hear(0, {.what = PairingRecord::What::end}).ok());
}

}  // namespace
}  // namespace nlsplit
