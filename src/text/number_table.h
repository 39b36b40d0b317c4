// A table from pairs of numbers to small values: merges by their two tokens, nodes of a trie by their byte. It is
// filled once and then only read; open addressing, because it is asked several times for each word of a text.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace nlsplit::inline text {

template <typename Value>
class NumberTable {
 public:
  // Keeps what was there: false if the pair is known already.
  bool insert(uint32_t first, uint32_t second, Value value) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(key_of(first, second))];
    if (slot.key != none) return false;
    slot = {key_of(first, second), value};
    ++count_;
    return true;
  }

  const Value* find(uint32_t first, uint32_t second) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[slot_of(key_of(first, second))];
    return slot.key == none ? nullptr : &slot.value;
  }

 private:
  static constexpr uint64_t none = ~uint64_t{0};  // neither a token nor a node has number 2^32 - 1
  struct Slot {
    uint64_t key = none;
    Value value{};
  };

  static uint64_t key_of(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

  size_t slot_of(uint64_t key) const {
    const int bits = std::countr_zero(slots_.size());
    size_t at = static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> (64 - bits));
    while (slots_[at].key != none && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != none) slots_[slot_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;  // as many as a power of two, at most half of them used
  size_t count_ = 0;
};

}  // namespace nlsplit::inline text
