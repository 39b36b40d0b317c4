#include "program/turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "schedule/evaluate.h"

namespace nlsplit::inline program {

void DeviceTurns::ready(int number, bool asked_about, const ReadySlot& slot) {
  if (asked_about) {
    size_t at = ready_.size();
    while (at > 0 && std::tie(ready_[at - 1].since, numbers_[at - 1]) > std::tie(slot.since, number)) --at;
    ready_.insert(ready_.begin() + static_cast<std::ptrdiff_t>(at), slot);
    numbers_.insert(numbers_.begin() + static_cast<std::ptrdiff_t>(at), number);
  } else {
    unasked_.push_back({number, slot.slot});
  }
}

void DeviceTurns::begin(const ScheduledSlot& slot) {
  if (is_work(slot)) done_.push_back(slot);
}

std::optional<int> DeviceTurns::next(double now) {
  if (!unasked_.empty()) {
    const auto first = std::ranges::min_element(unasked_, {}, &Unasked::number);
    const Unasked taken = *first;
    unasked_.erase(first);
    begin(taken.slot);
    return taken.number;
  }
  if (ready_.empty()) return std::nullopt;
  const std::optional<size_t> chosen = policy_->next(ready_, {device_, now, done_, 0, table_});
  if (!chosen) return std::nullopt;
  CHECK(*chosen < ready_.size(), "an online policy chose a slot that is not there");
  const auto place = static_cast<std::ptrdiff_t>(*chosen);
  const int number = numbers_[*chosen];
  begin(ready_[*chosen].slot);
  ready_.erase(ready_.begin() + place);
  numbers_.erase(numbers_.begin() + place);
  return number;
}

std::string DeviceTurns::waiting() const {
  if (ready_.empty()) return "";
  constexpr size_t most = 8;
  std::string text = "could run ";
  for (size_t i = 0; i < std::min(most, ready_.size()); ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", to_string(ready_[i].slot));
  if (ready_.size() > most) text += ", …";
  if (done_.size() < table_.size())
    text += fmt::format("; its table has {} next, which is not ready", to_string(table_[done_.size()]));
  return text;
}

}  // namespace nlsplit::inline program
