// Chrome's trace format, as profilers write it: a list of events, or an object with the list as "traceEvents"
// ("Trace Event Format", Google, 2016). Files may be large: one event is in memory at a time.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit::inline traces {

inline constexpr double microsecond = 1e-6;

// Of one complete event ("ph": "X").
struct ChromeEvent {
  const nlohmann::json& object;
  std::string name, category;
  int64_t thread = 0;
  double start_us = 0, duration_us = 0;

  std::string text(std::string_view argument) const;  // "": it has no such text
  const nlohmann::json* argument(std::string_view name) const;
};

// Each complete event in the file's order. Errors name the file, and the byte or the event: no JSON, cut short, no list
// of events, a complete event without a name or a time, a negative duration, what `take` says.
Status read_chrome_events(const std::string& path, const std::function<Status(const ChromeEvent&)>& take);

}  // namespace nlsplit::inline traces
