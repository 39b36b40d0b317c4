#include "traces/chrome_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_place.h"
#include "base/mapped_file.h"

namespace nlsplit::inline traces {
namespace {

using nlohmann::json;
using Event = json::parse_event_t;

constexpr double most_us = 1e18;  // since 1970 there were less than 2e15

const json* find(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string text_of(const json& object, std::string_view key) {
  const json* value = find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// Takes the parser's events, keeps one trace event at a time and gives up everything else.
class EventList {
 public:
  EventList(const std::string& path, const std::function<Status(const ChromeEvent&)>& take)
      : path_(path), take_(take) {}

  bool operator()(int depth, Event event, json& value) {
    if (!status_.ok()) return false;
    if (depth >= most_json_levels) {
      status_ = wrong(fmt::format("more than {} lists and objects in each other", most_json_levels));
      return false;
    }
    if (depth == 0 && (event == Event::object_start || event == Event::array_start)) {
      in_object_ = event == Event::object_start;
      seen_ = !in_object_;
      return true;
    }
    if (in_object_ && depth == 1 && event == Event::key) {
      in_list_ = value == "traceEvents";
      seen_ = seen_ || in_list_;
      return in_list_;
    }
    if (event != Event::object_end || depth != (in_object_ ? 2 : 1)) return true;
    ++count_;
    status_ = look(value);
    return false;
  }

  Status status() const {
    if (!status_.ok() || seen_) return status_;
    return wrong("this is not a trace: neither a list of events nor an object with \"traceEvents\"");
  }

 private:
  Error wrong(std::string message) const { return in_file(path_, invalid_input(std::move(message))); }
  Error wrong_event(const std::string& why) const {
    return wrong(fmt::format("event {} of the list: {}", count_, why));
  }

  Status look(const json& value) const {
    if (text_of(value, "ph") != "X") return ok_status();
    ChromeEvent event{value, text_of(value, "name"), text_of(value, "cat")};
    const json *start = find(value, "ts"), *duration = find(value, "dur"), *thread = find(value, "tid");
    if (event.name.empty()) return wrong_event("it has no \"name\"");
    if (start == nullptr || !start->is_number()) return wrong_event("\"ts\" is not a number of microseconds");
    if (duration == nullptr || !duration->is_number()) return wrong_event("\"dur\" is not a number of microseconds");
    event.start_us = start->get<double>();
    event.duration_us = duration->get<double>();
    if (!(std::max(std::abs(event.start_us), std::abs(event.duration_us)) <= most_us))
      return wrong_event("\"ts\" or \"dur\" is more than any clock shows");
    if (event.duration_us < 0) return wrong_event(fmt::format("\"dur\" is negative: {}", event.duration_us));
    // Some threads of PyTorch's traces have names instead of numbers; they hold no operators.
    event.thread = thread != nullptr && thread->is_number_integer() ? thread->get<int64_t>() : -1;
    const Status taken = take_(event);
    return taken.ok() ? taken : Status(wrong_event(taken.error().message));
  }

  const std::string& path_;
  const std::function<Status(const ChromeEvent&)>& take_;
  Status status_;
  bool in_object_ = false, in_list_ = false, seen_ = false;
  size_t count_ = 0;
};

}  // namespace

const json* ChromeEvent::argument(std::string_view name) const {
  const json* arguments = find(object, "args");
  return arguments == nullptr ? nullptr : find(*arguments, name);
}

std::string ChromeEvent::text(std::string_view name) const {
  const json* value = argument(name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

Status read_chrome_events(const std::string& path, const std::function<Status(const ChromeEvent&)>& take) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const std::string_view content = file->bytes();
  EventList list(path, take);
  try {
    const json rest = json::parse(content.begin(), content.end(),
                                  [&](int depth, Event event, json& value) { return list(depth, event, value); });
    return list.status();
  } catch (const json::parse_error& e) {
    RETURN_IF_ERROR(list.status());
    return in_file(path, invalid_input(e.byte > content.size()
                                           ? "the file ends in the middle: it was cut short"
                                           : fmt::format("byte {}: this is not JSON, so it is not a trace", e.byte)));
  } catch (const json::exception& e) {  // a number no double can hold
    return in_file(path, invalid_input(fmt::format("this is not usable JSON: {}", e.what())));
  }
}

}  // namespace nlsplit::inline traces
