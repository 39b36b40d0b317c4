#include "gpu/emulator/memory.h"

#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "gpu/emulator/fault.h"

namespace nlsplit::emulator {
namespace {

constexpr size_t room = size_t{16} << 30;  // of addresses, of all GPUs; what is not touched takes no memory
constexpr size_t page = 4096;              // an allocation has its own
constexpr size_t alignment = 256;          // cudaMalloc's, and no more
constexpr size_t apart = page;             // between two allocations

// A byte's state: 0 where nothing is allocated.
constexpr uint8_t written = 1;
constexpr uint8_t owned_by(int gpu) { return static_cast<uint8_t>((gpu + 1) << 1); }

// Who touched a byte last: a phase (what lies between two barriers of one block; counted over all kernels) and a
// thread.
constexpr uint32_t thread_bits = 11, thread_mask = (1u << thread_bits) - 1;
constexpr uint32_t several_threads = thread_mask, several_blocks = thread_mask - 1;
constexpr uint32_t most_phases = (1u << (32 - thread_bits)) - 1, most_of_a_block = 100'000;
struct Stamp {
  uint32_t writer = 0, reader = 0;
};

template <class T>
T* map(size_t bytes, int protection) {
  void* at = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(at != MAP_FAILED, "no addresses for the emulated GPUs");
  return static_cast<T*>(at);
}

// What the module itself brings along: its shared memory is somewhere in its data.
struct Image {
  uintptr_t begin = 0, end = 0, data_begin = 0, data_end = 0;
};
Image own_image() {
  Image image;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        Image found{UINTPTR_MAX, 0, UINTPTR_MAX, 0};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD) continue;
          const uintptr_t begin = info->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
          found.begin = std::min(found.begin, begin);
          found.end = std::max(found.end, end);
          if ((part.p_flags & PF_W) == 0) continue;
          found.data_begin = std::min(found.data_begin, begin);
          found.data_end = std::max(found.data_end, end);
        }
        const auto here = reinterpret_cast<uintptr_t>(&own_image);
        if (here < found.begin || here >= found.end) return 0;
        *static_cast<Image*>(to) = found;
        return 1;
      },
      &image);
  CHECK(image.end != 0, "the loader does not know its own code");
  return image;
}

struct Memory {
  std::byte* bytes = map<std::byte>(room, PROT_NONE);
  uint8_t* states = map<uint8_t>(room, PROT_READ | PROT_WRITE);
  Stamp* stamps = map<Stamp>(room * sizeof(Stamp), PROT_READ | PROT_WRITE);
  Image image = own_image();
  std::vector<Stamp> shared = std::vector<Stamp>(image.data_end - image.data_begin);
  std::map<size_t, size_t> allocated;  // offset, bytes
  size_t next = 0;                     // where the next one is tried: what was freed is used again late
  int opened = 0;
  uint64_t times = 0;  // it was
  bool locked = true;
  // The kernel that runs.
  uint8_t owner = 0;
  uint32_t phase = 0, of_kernel = 0, of_block = 0;  // now, and the first ones
};

Memory& memory() {
  static Memory all;
  return all;
}

size_t offset_of(const void* at) { return static_cast<size_t>(static_cast<const std::byte*>(at) - memory().bytes); }

// Where `at` lies, in words.
std::string place_of(const void* at) {
  const Memory& m = memory();
  if (!is_device(at)) return fmt::format("{}, which is the host's", at);
  const size_t offset = offset_of(at);
  auto after = m.allocated.upper_bound(offset);
  if (after == m.allocated.begin()) return fmt::format("{}, where nothing is allocated", at);
  const auto [begin, bytes] = *--after;
  if (offset < begin + bytes) {
    const int gpu = (m.states[offset] >> 1) - 1;
    return fmt::format("byte {} of an allocation of {} B on GPU {}", offset - begin, bytes, gpu);
  }
  return fmt::format("{} B after an allocation of {} B", offset - begin - bytes, bytes);
}

size_t whole_pages(size_t bytes) { return (bytes + page - 1) / page * page; }

// Where the first gap of `bytes` begins, from `from` on.
size_t find_gap(size_t from, size_t bytes) {
  const Memory& m = memory();
  size_t at = from;
  for (auto i = m.allocated.lower_bound(from); i != m.allocated.end() && i->first < at + alignment + bytes + apart; ++i)
    at = whole_pages(i->first + i->second + apart);
  return at;
}

template <class T>
void give_back(T* all, size_t first, size_t last) {
  CHECK(madvise(all + first, (last - first) * sizeof(T), MADV_DONTNEED) == 0, "madvise");
}

}  // namespace

void* allocate(int gpu, size_t bytes) {
  Memory& m = memory();
  if (bytes > room / 2) return nullptr;
  const auto fits = [&](size_t at) { return at + alignment + bytes + apart <= room; };
  size_t at = find_gap(m.next, bytes);
  if (!fits(at)) at = find_gap(0, bytes);
  if (!fits(at)) return nullptr;
  at += alignment;
  m.allocated[at] = bytes;
  m.next = whole_pages(at + bytes + apart);
  std::fill_n(m.states + at, bytes, owned_by(gpu));
  poison(m.bytes + at, bytes);
  return m.bytes + at;
}

bool release(int gpu, void* at) {
  Memory& m = memory();
  const auto found = is_device(at) ? m.allocated.find(offset_of(at)) : m.allocated.end();
  if (found == m.allocated.end() || m.states[found->first] >> 1 != gpu + 1) return false;
  const size_t first = found->first - alignment, last = whole_pages(found->first + found->second);
  give_back(m.bytes, first, last);
  give_back(m.states, first, last);
  give_back(m.stamps, first, last);
  m.allocated.erase(found);
  return true;
}

size_t allocations() { return memory().allocated.size(); }

bool is_device(const void* at) {
  const auto* byte = static_cast<const std::byte*>(at);
  return byte >= memory().bytes && byte < memory().bytes + room;
}

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto *one = static_cast<const std::byte*>(a), *other = static_cast<const std::byte*>(b);
  return one < other + b_bytes && other < one + a_bytes;
}

// Locking costs time in proportion to what is in use, so it is done now and then.
Opened::Opened() {
  Memory& m = memory();
  if (m.opened++ == 0 && m.locked) CHECK(mprotect(m.bytes, room, PROT_READ | PROT_WRITE) == 0, "mprotect");
  m.locked = false;
}
Opened::~Opened() {
  constexpr uint64_t seldom = 64;
  Memory& m = memory();
  if (--m.opened == 0 && ++m.times % seldom == 0) lock_memory();
}
void lock_memory() {
  Memory& m = memory();
  CHECK(m.opened == 0 && mprotect(m.bytes, room, PROT_NONE) == 0, "mprotect");
  m.locked = true;
}

bool check_room(int gpu, const void* at, size_t bytes, const std::string& what) {
  if (bytes == 0) return true;
  const bool inside = is_device(at) && offset_of(at) + bytes <= room;
  const uint8_t* states = memory().states + (inside ? offset_of(at) : 0);
  for (size_t i = 0; i < bytes; ++i) {
    if (inside && (states[i] & ~written) == owned_by(gpu)) continue;
    report(fmt::format("{} {}", what, place_of(static_cast<const std::byte*>(at) + i)));
    return false;
  }
  return true;
}

bool check_read(int gpu, const void* at, size_t bytes, const std::string& what) {
  if (!check_room(gpu, at, bytes, what)) return false;
  if (bytes == 0) return true;
  const uint8_t* states = memory().states + offset_of(at);
  const uint8_t* bad = std::find_if(states, states + bytes, [](uint8_t state) { return (state & written) == 0; });
  if (bad == states + bytes) return true;
  const void* where = static_cast<const std::byte*>(at) + (bad - states);
  report(fmt::format("{} what was never written: {}", what, place_of(where)));
  return false;
}

void mark_written(void* at, size_t bytes) {
  uint8_t* states = memory().states + offset_of(at);
  for (size_t i = 0; i < bytes; ++i) states[i] |= written;
}

void mark_as(void* at, const void* like, size_t bytes) {
  uint8_t* states = memory().states + offset_of(at);
  const uint8_t* from = memory().states + offset_of(like);
  for (size_t i = 0; i < bytes; ++i) states[i] = static_cast<uint8_t>((states[i] & ~written) | (from[i] & written));
}

void poison(void* at, size_t bytes) {
  const Opened opened;
  std::fill_n(static_cast<std::byte*>(at), bytes, std::byte{0xff});
  uint8_t* states = memory().states + offset_of(at);
  for (size_t i = 0; i < bytes; ++i) states[i] = static_cast<uint8_t>(states[i] & ~written);
}

void begin_kernel(int gpu) {
  Memory& m = memory();
  m.owner = owned_by(gpu);
  m.of_kernel = m.of_block = ++m.phase;
}

void end_kernel() { memory().owner = 0; }

void begin_block() {
  Memory& m = memory();
  if (m.phase > most_phases - most_of_a_block) {
    // From here on this kernel's earlier blocks are forgotten.
    CHECK(madvise(m.stamps, room * sizeof(Stamp), MADV_DONTNEED) == 0, "madvise");
    std::ranges::fill(m.shared, Stamp{});
    m.phase = 0;
    m.of_kernel = 1;
  }
  m.of_block = ++m.phase;
}

void begin_phase() { CHECK(++memory().phase < most_phases, "more barriers in a block than the emulator counts"); }

namespace {

// What this kernel did before from `since` on and the access are in no order: ends the kernel. Else notes the access.
void touch(Stamp& stamp, uint32_t since, bool write, uint32_t thread, const void* at) {
  const Memory& m = memory();
  const uint32_t me = m.phase << thread_bits | thread;
  const auto race = [&](const char* other, uint32_t who) {
    const std::string whom = who == several_threads  ? "several threads"
                             : who == several_blocks ? "several blocks"
                                                     : fmt::format("thread {}", who);
    stop(fmt::format("{} what {} {}, with no barrier in between: {}", write ? "writes" : "reads", whom, other,
                     is_device(at) ? place_of(at) : "shared memory"));
  };
  const uint32_t write_phase = stamp.writer >> thread_bits, writer = stamp.writer & thread_mask;
  if (write_phase >= since && stamp.writer != me) {
    if (write_phase == m.phase) race("wrote", writer);
    if (write_phase < m.of_block) race("of another block wrote", writer);
  }
  const uint32_t read_phase = stamp.reader >> thread_bits, reader = stamp.reader & thread_mask;
  const bool by_others = read_phase >= since && (read_phase < m.of_block || reader == several_blocks);
  const bool now = read_phase == m.phase && stamp.reader != me;
  if (write) {
    if (by_others) race("of another block read", reader);
    if (now) race("read", reader);
    stamp.writer = me;
  } else {
    stamp.reader = m.phase << thread_bits | (by_others ? several_blocks : now ? several_threads : thread);
  }
}

}  // namespace

void access(const void* at, size_t bytes, bool write, int thread) {
  Memory& m = memory();
  const auto by = static_cast<uint32_t>(thread);
  const char* does = write ? "writes" : "reads";
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (is_device(at)) {
    const size_t offset = offset_of(at);
    for (size_t i = offset; i < offset + bytes; ++i) {
      uint8_t& state = m.states[i];
      const void* where = m.bytes + i;
      if ((state & ~written) != m.owner) stop(fmt::format("{} {}", does, place_of(where)));
      if (!write && (state & written) == 0) stop(fmt::format("reads what was never written: {}", place_of(where)));
      touch(m.stamps[i], m.of_kernel, write, by, where);
      if (write) state |= written;
    }
  } else if (address >= m.image.data_begin && address < m.image.data_end) {
    for (size_t i = 0; i < bytes; ++i) {
      Stamp& stamp = m.shared[address + i - m.image.data_begin];
      if (!write && stamp.writer >> thread_bits < m.of_block) stop("reads shared memory that its block did not write");
      touch(stamp, m.of_block, write, by, at);
    }
  } else if (write || address < m.image.begin || address >= m.image.end) {
    stop(fmt::format("{} {}", does, place_of(at)));
  }
}

}  // namespace nlsplit::emulator
