#include "sim/simgrid/platform_answer.h"

#include <algorithm>
#include <cstring>

namespace nlsplit::inline sim {
namespace {

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(const std::string& text) {
    put(text.size());
    bytes += text;
  }
  template <class T>
  void put_all(const std::vector<T>& values) {
    put(values.size());
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  std::string bytes;
};

// Reads zeros once there is nothing left, and says so in the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T get() {
    T value{};
    take(&value, 1);
    return value;
  }
  std::string get_text() {
    std::string text(count(1), '\0');
    take(text.data(), text.size());
    return text;
  }
  template <class T>
  std::vector<T> get_all() {
    std::vector<T> values(count(sizeof(T)));
    take(values.data(), values.size());
    return values;
  }
  // Of things that have at least so many bytes each.
  size_t count(size_t each) {
    const auto n = get<size_t>();
    if (n <= left_.size() / each) return n;
    short_ = true;
    return 0;
  }
  Status done() const {
    if (short_ || !left_.empty()) return failed("the process that read the platform gave no whole answer");
    return ok_status();
  }

 private:
  template <class T>
  void take(T* to, size_t n) {
    if (n * sizeof(T) > left_.size()) {
      short_ = true;
      left_ = {};
      return;
    }
    if (n == 0) return;  // an empty vector has no address
    std::memcpy(to, left_.data(), n * sizeof(T));
    left_.remove_prefix(n * sizeof(T));
  }

  std::string_view left_;
  bool short_ = false;
};

}  // namespace

std::string encode(const std::vector<std::string>& names) {
  Writer out;
  out.put(names.size());
  for (const std::string& name : names) out.put_text(name);
  return std::move(out.bytes);
}

std::string encode(const Platform& platform) {
  Writer out;
  out.put(platform.links.size());
  for (const Platform::Link& link : platform.links) {
    out.put_text(link.name);
    out.put(link.bandwidth.value());
    out.put(link.latency.value());
    out.put(link.shared);
  }
  out.put_all(platform.route_begin);
  out.put_all(platform.route_links);
  return std::move(out.bytes);
}

Result<std::vector<std::string>> decode_names(std::string_view bytes) {
  Reader in(bytes);
  std::vector<std::string> names(in.count(sizeof(size_t)));
  for (std::string& name : names) name = in.get_text();
  RETURN_IF_ERROR(in.done());
  return names;
}

Result<Platform> decode_platform(std::string_view bytes, size_t hosts) {
  Reader in(bytes);
  Platform platform;
  platform.links.resize(in.count(sizeof(size_t)));
  for (Platform::Link& link : platform.links) {
    link.name = in.get_text();
    link.bandwidth = bytes_per_second(in.get<double>());
    link.latency = seconds(in.get<double>());
    link.shared = in.get<bool>();
  }
  platform.route_begin = in.get_all<size_t>();
  platform.route_links = in.get_all<uint32_t>();
  RETURN_IF_ERROR(in.done());
  const bool whole = platform.route_begin.size() == hosts * hosts + 1 && std::ranges::is_sorted(platform.route_begin) &&
                     platform.route_begin.back() == platform.route_links.size() &&
                     std::ranges::all_of(platform.route_links, [&](uint32_t l) { return l < platform.links.size(); });
  if (!whole) return failed("the process that read the platform gave other routes than asked for");
  return platform;
}

}  // namespace nlsplit::inline sim
