#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace nlsplit::inline text {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopStrings::next(std::string_view text) {
  if (found_) return {};
  held_back_ += text;
  size_t certain = held_back_.size();  // from here on a stop string may have begun
  for (const std::string& stop : stops_) {
    size_t at = held_back_.find(stop);
    if (at != std::string::npos) {
      found_ = true;
    } else {
      const size_t longest = std::min(stop.size() - 1, held_back_.size());
      at = held_back_.size() - longest;
      while (at < held_back_.size() && !stop.starts_with(std::string_view(held_back_).substr(at))) ++at;
    }
    certain = std::min(certain, at);
  }
  // One that has ended may begin behind another that is not complete: that other one can still come first.
  if (found_) {
    size_t first = std::string::npos;
    for (const std::string& stop : stops_) first = std::min(first, held_back_.find(stop));
    if (certain < first) found_ = false;
  }
  std::string shown = held_back_.substr(0, certain);
  held_back_.erase(0, found_ ? std::string::npos : certain);
  return shown;
}

std::string StopStrings::finish() {
  std::string rest = std::exchange(held_back_, {});
  if (found_) return {};
  size_t first = rest.size();
  for (const std::string& stop : stops_) first = std::min(first, rest.find(stop));
  found_ = first < rest.size();
  return rest.substr(0, first);
}

}  // namespace nlsplit::inline text
