#include "exec/fake_nccl/fake_nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exec/nccl/nccl_api.h"
#include "gpu/emulator/control.h"

namespace fs = std::filesystem;
using namespace nlsplit::nccl;
using namespace nlsplit::testing;

namespace nlsplit::nccl {

struct Communicator {
  std::string folder;
  int ranks = 0, rank = 0, gpu = 0;
  bool ready = false, finalized = false;
  Outcome failed = Outcome::success;  // of something that goes on by itself
  std::string why;
  std::map<std::pair<int, int>, uint64_t> numbers;  // the next message from one rank to another
  bool under_way = false;                           // a group
};

}  // namespace nlsplit::nccl

namespace {

constexpr int own_version = 23203;
constexpr const char* id_begin = "fake NCCL ";

// Of the emulated GPU beside this library, which the test has loaded.
struct Emulator {
  EmulatedCurrent current = nullptr;
  EmulatedBegin begin = nullptr;
  EmulatedRead read = nullptr;
  EmulatedWrite write = nullptr;
};

const Emulator* emulator() {
  static Emulator found;
  if (found.write != nullptr) return &found;
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&emulator), &here) == 0) return nullptr;
  const fs::path path = fs::path(here.dli_fname).parent_path() / "libbackend_cuda_emulated.so";
  void* handle = dlopen(path.c_str(), RTLD_LOCAL | RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  found.current = reinterpret_cast<EmulatedCurrent>(dlsym(handle, "emulated_gpu_current"));
  found.begin = reinterpret_cast<EmulatedBegin>(dlsym(handle, "emulated_gpu_begin"));
  found.read = reinterpret_cast<EmulatedRead>(dlsym(handle, "emulated_gpu_read"));
  found.write = reinterpret_cast<EmulatedWrite>(dlsym(handle, "emulated_gpu_write"));
  return found.write == nullptr ? nullptr : &found;
}

// One operation of a group.
struct Operation {
  bool sends = false;
  std::byte* at = nullptr;
  uint64_t bytes = 0;
  int32_t type = 0;
  int peer = 0;
  std::string file = {};
  bool offered = false, done = false;
};

struct Group {
  Communicator* communicator = nullptr;
  void* stream = nullptr;
  std::vector<Operation> operations;
};

struct Fake {
  std::mutex mutex;  // for all below, and what communicators hold
  std::set<Communicator*> alive;
  std::map<std::string, int> calls;
  std::string failing;
  int nth = 0;
};

Fake& fake() {
  static Fake all;
  return all;
}

thread_local std::string said;
thread_local int depth = 0;
thread_local Group group;

Outcome refuse(Outcome outcome, std::string why) {
  said = std::move(why);
  return outcome;
}
Outcome misused(std::string why) { return refuse(Outcome::invalid_usage, std::move(why)); }

bool told_to_fail(const char* function) {
  Fake& f = fake();
  const int times = ++f.calls[function];
  return f.failing == function && times == f.nth;
}

// Under the mutex, as all below.
#define RETURN_IF_TOLD_TO_FAIL(function)    \
  const std::lock_guard lock(fake().mutex); \
  if (told_to_fail(function)) return refuse(Outcome::system_error, "the stand-in was told to fail")

#define RETURN_IF_NOT_ALIVE(communicator, function) \
  if (!fake().alive.contains(communicator))         \
  return misused(fmt::format("{} of a communicator that is not there: it was destroyed or aborted", function))

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Whole or not at all.
void write_whole(const std::string& path, const std::string& text) {
  const std::string aside = fmt::format("{}.{}.{}", path, ::getpid(), reinterpret_cast<uintptr_t>(&said));
  std::ofstream(aside, std::ios::binary) << text;
  std::error_code error;
  fs::rename(aside, path, error);
}

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string rank_file(const Communicator& c, int rank) { return fmt::format("{}/rank.{}", c.folder, rank); }
std::string left_file(const Communicator& c, int rank) { return fmt::format("{}/left.{}", c.folder, rank); }
std::string abort_file(const Communicator& c) { return c.folder + "/aborted"; }

void fail(Communicator& c, Outcome outcome, std::string why) {
  if (c.failed != Outcome::success) return;
  c.failed = outcome;
  c.why = std::move(why);
}

// Whether all ranks have come; a GPU that two of them have is an error, as in NCCL.
void look_for_others(Communicator& c) {
  std::map<std::string, int> gpus;
  for (int r = 0; r < c.ranks; ++r) {
    if (!exists(rank_file(c, r))) return;
    const auto [known, is_new] = gpus.try_emplace(read_whole(rank_file(c, r)), r);
    if (!is_new) {
      return fail(
          c, Outcome::invalid_usage,
          fmt::format("Duplicate GPU detected: rank {} and rank {} both on {}", known->second, r, known->first));
    }
  }
  c.ready = true;
}

std::string header_of(const Operation& one) { return fmt::format("{} of type {}\n", one.bytes, one.type); }

// Tries one operation. The emulator calls this, under its own mutex.
void attempt(Communicator& c, Operation& one) {
  if (one.sends) {
    if (!one.offered) {
      std::string data(one.bytes, '\0');
      if (!emulator()->read(c.gpu, one.at, one.bytes, data.data())) {
        one.done = true;
        return;
      }
      write_whole(one.file, header_of(one) + data);
      one.offered = true;
    }
    one.done = !exists(one.file);  // its receiver has taken it
    return;
  }
  if (!exists(one.file)) return;
  const std::string text = read_whole(one.file), header = header_of(one);
  one.done = true;
  if (!text.starts_with(header)) {
    fail(c, Outcome::invalid_usage,
         fmt::format("rank {} sends {} where rank {} receives {}", one.peer, text.substr(0, text.find('\n')), c.rank,
                     header.substr(0, header.size() - 1)));
    return;
  }
  emulator()->write(c.gpu, one.at, one.bytes, text.data() + header.size());
  std::error_code error;
  fs::remove(one.file, error);
}

bool attempt_group(void* work) {
  Group& all = *static_cast<Group*>(work);
  const std::lock_guard lock(fake().mutex);
  if (!fake().alive.contains(all.communicator)) return true;  // aborted: nothing waits any more
  Communicator& c = *all.communicator;
  if (c.failed != Outcome::success || exists(abort_file(c))) return true;
  bool done = true;
  for (Operation& one : all.operations) {
    if (!one.done) attempt(c, one);
    done = done && one.done;
  }
  return done;
}

void end_group(void* work) {
  auto* all = static_cast<Group*>(work);
  const std::lock_guard lock(fake().mutex);
  if (fake().alive.contains(all->communicator)) all->communicator->under_way = false;
  delete all;
}

// Without the mutex: the emulator may try at once.
Outcome begin_group(Group all) {
  void* stream = all.stream;
  auto* work = new Group(std::move(all));
  Communicator* const c = work->communicator;
  if (const char* why = emulator()->begin(stream, attempt_group, end_group, work); why != nullptr) {
    delete work;
    const std::lock_guard lock(fake().mutex);
    c->under_way = false;
    return misused(fmt::format("the stream is not one of the communicator's GPU: {}", why));
  }
  return Outcome::in_progress;
}

Outcome add(const char* function, bool sends, const void* at, size_t count, DataType type, int peer, Communicator* c,
            void* stream) {
  {
    RETURN_IF_TOLD_TO_FAIL(function);
    RETURN_IF_NOT_ALIVE(c, function);
    if (!c->ready) return misused(fmt::format("{} before the communicator is ready", function));
    if (c->finalized) return misused(fmt::format("{} after ncclCommFinalize", function));
    if (peer < 0 || peer >= c->ranks || peer == c->rank)
      return refuse(Outcome::invalid_argument, fmt::format("{} with rank {} of {}", function, peer, c->ranks));
    if (type != DataType::int8) return refuse(Outcome::invalid_argument, "another type than int8");
    if (emulator()->current() != c->gpu)
      return misused(fmt::format("{} by a thread whose GPU is not the communicator's", function));
    if (!group.operations.empty() && (group.communicator != c || group.stream != stream))
      return misused("a group of several communicators or streams");
    const auto from_to = sends ? std::pair(c->rank, peer) : std::pair(peer, c->rank);
    const uint64_t number = c->numbers[from_to]++;
    group.communicator = c;
    group.stream = stream;
    group.operations.push_back({sends, static_cast<std::byte*>(const_cast<void*>(at)), count,
                                static_cast<int32_t>(type), peer,
                                fmt::format("{}/{}.{}.{}", c->folder, from_to.first, from_to.second, number)});
    if (depth > 0) return Outcome::success;
    if (c->under_way) {
      group = {};
      return misused("an operation begins while others of its GPU are under way");
    }
    c->under_way = true;
  }
  return begin_group(std::exchange(group, {}));
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Outcome ncclGetVersion(int* version) {
  RETURN_IF_TOLD_TO_FAIL("ncclGetVersion");
  *version = fake().failing == "version" ? fake().nth : own_version;
  return Outcome::success;
}

EXPORT const char* ncclGetErrorString(Outcome outcome) {
  switch (outcome) {
    case Outcome::system_error:
      return "unhandled system error";
    case Outcome::invalid_argument:
      return "invalid argument";
    case Outcome::invalid_usage:
      return "invalid usage";
    case Outcome::remote_error:
      return "remote process exited or there was a network error";
    default:
      return "an outcome that the stand-in never has";
  }
}

EXPORT const char* ncclGetLastError(Communicator* c) {
  const std::lock_guard lock(fake().mutex);
  if (fake().alive.contains(c) && c->failed != Outcome::success) said = c->why;
  return said.c_str();
}

EXPORT Outcome ncclGetUniqueId(UniqueId* id) {
  RETURN_IF_TOLD_TO_FAIL("ncclGetUniqueId");
  const char* folder = std::getenv(fake_nccl_folder);
  std::string path = fmt::format("{}/nlsplit-fake-nccl-XXXXXX", folder == nullptr ? "/tmp" : folder);
  if (::mkdtemp(path.data()) == nullptr) return refuse(Outcome::system_error, "no folder " + path);
  *id = {};
  std::strncpy(id->internal, (id_begin + path).c_str(), sizeof id->internal - 1);
  return Outcome::success;
}

EXPORT Outcome ncclCommInitRankConfig(Communicator** made, int ranks, UniqueId id, int rank, Config* config) {
  RETURN_IF_TOLD_TO_FAIL("ncclCommInitRankConfig");
  *made = nullptr;
  if (emulator() == nullptr) return refuse(Outcome::system_error, "the emulated GPU is not loaded");
  if (!std::string_view(id.internal).starts_with(id_begin))
    return refuse(Outcome::invalid_argument, "an id that ncclGetUniqueId did not give");
  if (rank < 0 || rank >= ranks) return refuse(Outcome::invalid_argument, fmt::format("rank {} of {}", rank, ranks));
  const Config wanted;
  if (config == nullptr || config->size != wanted.size || config->magic != wanted.magic ||
      config->version > static_cast<unsigned>(own_version))
    return refuse(Outcome::invalid_argument, "a config that was not initialized");
  if (config->blocking != 0) return refuse(Outcome::invalid_argument, "the stand-in never blocks");
  auto* c = new Communicator;
  c->folder = id.internal + std::strlen(id_begin);
  c->ranks = ranks;
  c->rank = rank;
  c->gpu = emulator()->current();
  if (exists(rank_file(*c, rank))) {
    delete c;
    return misused(fmt::format("there is a rank {} already", rank));
  }
  write_whole(rank_file(*c, rank), fmt::format("CUDA device {}", c->gpu));
  fake().alive.insert(c);
  *made = c;
  return Outcome::in_progress;
}

EXPORT Outcome ncclCommGetAsyncError(Communicator* c, Outcome* error) {
  const std::lock_guard lock(fake().mutex);
  RETURN_IF_NOT_ALIVE(c, "ncclCommGetAsyncError");
  if (told_to_fail("async")) fail(*c, Outcome::remote_error, "the stand-in was told to fail");
  if (exists(abort_file(*c))) fail(*c, Outcome::remote_error, read_whole(abort_file(*c)));
  if (c->failed == Outcome::success && !c->ready) look_for_others(*c);
  *error = c->failed != Outcome::success ? c->failed : c->ready ? Outcome::success : Outcome::in_progress;
  return Outcome::success;
}

EXPORT Outcome ncclCommFinalize(Communicator* c) {
  RETURN_IF_TOLD_TO_FAIL("ncclCommFinalize");
  RETURN_IF_NOT_ALIVE(c, "ncclCommFinalize");
  if (depth > 0) return misused("ncclCommFinalize within a group");
  if (c->under_way) return misused("ncclCommFinalize while operations are under way");
  c->finalized = true;
  return Outcome::success;
}

EXPORT Outcome ncclCommDestroy(Communicator* c) {
  RETURN_IF_TOLD_TO_FAIL("ncclCommDestroy");
  RETURN_IF_NOT_ALIVE(c, "ncclCommDestroy");
  if (!c->finalized) return misused("ncclCommDestroy without ncclCommFinalize");
  write_whole(left_file(*c, c->rank), "");
  bool all_left = true;
  for (int r = 0; r < c->ranks; ++r) all_left = all_left && exists(left_file(*c, r));
  std::error_code error;
  if (all_left) fs::remove_all(c->folder, error);
  fake().alive.erase(c);
  delete c;
  return Outcome::success;
}

EXPORT Outcome ncclCommAbort(Communicator* c) {
  RETURN_IF_TOLD_TO_FAIL("ncclCommAbort");
  RETURN_IF_NOT_ALIVE(c, "ncclCommAbort");
  write_whole(abort_file(*c), fmt::format("rank {} has aborted", c->rank));
  bool all_left = true;
  write_whole(left_file(*c, c->rank), "");
  for (int r = 0; r < c->ranks; ++r) all_left = all_left && exists(left_file(*c, r));
  std::error_code error;
  if (all_left) fs::remove_all(c->folder, error);
  fake().alive.erase(c);
  delete c;
  return Outcome::success;
}

EXPORT Outcome ncclGroupStart() {
  RETURN_IF_TOLD_TO_FAIL("ncclGroupStart");
  ++depth;
  return Outcome::success;
}

EXPORT Outcome ncclGroupEnd() {
  {
    const std::lock_guard lock(fake().mutex);
    if (depth == 0) return misused("ncclGroupEnd without ncclGroupStart");
    --depth;
    if (told_to_fail("ncclGroupEnd")) {
      group = {};
      return refuse(Outcome::system_error, "the stand-in was told to fail");
    }
    if (depth > 0 || group.operations.empty()) return Outcome::success;
    if (group.communicator->under_way) {
      group = {};
      return misused("a group begins while another one of its GPU is under way");
    }
    group.communicator->under_way = true;
  }
  return begin_group(std::exchange(group, {}));
}

EXPORT Outcome ncclSend(const void* data, size_t count, DataType type, int peer, Communicator* c, void* stream) {
  return add("ncclSend", true, data, count, type, peer, c, stream);
}

EXPORT Outcome ncclRecv(void* room, size_t count, DataType type, int peer, Communicator* c, void* stream) {
  return add("ncclRecv", false, room, count, type, peer, c, stream);
}

EXPORT void fake_nccl_fail(const char* function, int nth) {
  const std::lock_guard lock(fake().mutex);
  fake().calls.clear();
  fake().failing = function;
  fake().nth = nth;
}

EXPORT int fake_nccl_calls(const char* function) {
  const std::lock_guard lock(fake().mutex);
  return fake().calls[function];
}

EXPORT int fake_nccl_left() {
  const std::lock_guard lock(fake().mutex);
  return static_cast<int>(fake().alive.size());
}
