#include "base/npy.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/file.h"

namespace nlsplit::inline base {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie in memory");

namespace {

constexpr std::string_view magic("\x93NUMPY", 6);
constexpr size_t alignment = 64;  // of the first value in the file, as NumPy writes it

// The header is a Python dict literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
struct Header {
  std::optional<std::string> type;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// Reads just the Python that NumPy writes. Each function returns false and may leave any position if it does not match.
struct Cursor {
  std::string_view rest;

  void skip_space() {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\n' || rest[0] == '\t')) rest.remove_prefix(1);
  }

  bool take(std::string_view token) {
    skip_space();
    if (!rest.starts_with(token)) return false;
    rest.remove_prefix(token.size());
    return true;
  }

  bool string(std::string& out) {
    skip_space();
    if (rest.empty() || (rest[0] != '\'' && rest[0] != '"')) return false;
    const size_t end = rest.find(rest[0], 1);
    if (end == std::string_view::npos) return false;
    out = std::string(rest.substr(1, end - 1));
    rest.remove_prefix(end + 1);
    return true;
  }

  bool dimension(int64_t& out) {
    skip_space();
    const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), out);
    if (code != std::errc() || out < 0) return false;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    return true;
  }

  bool tuple(std::vector<int64_t>& out) {
    if (!take("(")) return false;
    while (!take(")")) {
      int64_t size = 0;
      if (!dimension(size)) return false;
      out.push_back(size);
      if (take(",")) continue;
      return take(")");
    }
    return true;
  }
};

// A type that is not a plain string (a record type is a list) is given as its source text.
bool parse_type(Cursor& in, Header& header) {
  std::string type;
  if (!in.string(type)) {
    in.skip_space();
    const size_t end = in.rest.find(']');
    if (!in.rest.starts_with("[") || end == std::string_view::npos) return false;
    type = std::string(in.rest.substr(0, end + 1));
    // What follows a record type need not be understood: the type alone is refused.
    in.rest = "}";
    header.fortran_order = false;
    header.shape.emplace();
  }
  header.type = type;
  return true;
}

bool parse_header(std::string_view text, Header& header) {
  Cursor in{text};
  if (!in.take("{")) return false;
  while (!in.take("}")) {
    std::string key;
    if (!in.string(key) || !in.take(":")) return false;
    if (key == "descr") {
      if (!parse_type(in, header)) return false;
    } else if (key == "fortran_order") {
      header.fortran_order = in.take("True");
      if (!*header.fortran_order && !in.take("False")) return false;
    } else if (key == "shape") {
      if (!in.tuple(header.shape.emplace())) return false;
    } else {
      return false;
    }
    if (!in.take(",") && !in.rest.starts_with("}")) return false;
  }
  return header.type && header.fortran_order && header.shape;
}

// Of an element of a plain little-endian type; 0: it is none ("<f4", "|b1", but not ">f4", "<U8", "[('x', …)]").
size_t element_size(std::string_view type) {
  if (type.size() != 3) return 0;
  const auto size = static_cast<size_t>(type[2] - '0');
  if (type[0] != '<' && !(type[0] == '|' && size == 1)) return 0;
  const bool known = type[1] == 'f' ? size == 2 || size == 4 || size == 8
                     : type[1] == 'b'
                         ? size == 1
                         : (type[1] == 'i' || type[1] == 'u') && (size == 1 || size == 2 || size == 4 || size == 8);
  return known ? size : 0;
}

// Bytes of all values; nullopt if that overflows.
std::optional<size_t> byte_count(const std::vector<int64_t>& shape, size_t element = sizeof(float)) {
  size_t count = element;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(count, static_cast<size_t>(size), &count)) return std::nullopt;
  }
  return count;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

Result<NpyHeader> read_npy_header(std::string_view beginning, const std::string& path) {
  std::string_view rest = beginning;
  const auto bad = [&](std::string_view why) { return invalid_input(fmt::format("'{}' {}", path, why)); };

  if (!rest.starts_with(magic)) return bad("is not an .npy file");
  if (rest.size() < magic.size() + 2) return bad("ends within its .npy header");
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(rest[at]); };
  const int major = byte(6);
  const int minor = byte(7);
  if ((major != 1 && major != 2) || minor != 0) {
    return unsupported(fmt::format("'{}' has .npy format {}.{}; we read 1.0 and 2.0", path, major, minor));
  }
  const size_t length_size = major == 1 ? 2 : 4;
  rest.remove_prefix(8);
  if (rest.size() < length_size) return bad("ends within its .npy header");
  size_t length = 0;
  for (size_t i = 0; i < length_size; ++i) length |= static_cast<size_t>(byte(i)) << (8 * i);
  rest.remove_prefix(length_size);
  if (rest.size() < length) return bad("ends within its .npy header");

  const std::string_view text = rest.substr(0, length);
  rest.remove_prefix(length);
  Header header;
  if (!parse_header(text, header)) {
    Error error = bad("has an .npy header that we do not understand");
    error.fragment = std::string(text.substr(0, text.find_last_not_of(" \n") + 1).substr(0, 200));
    return error;
  }
  const size_t element = element_size(*header.type);
  if (element == 0) {
    return unsupported(fmt::format("'{}' holds values of type '{}'; we read little-endian numbers and truth values",
                                   path, *header.type));
  }
  if (*header.fortran_order) {
    return unsupported(fmt::format("'{}' is in Fortran order; save it with numpy.ascontiguousarray", path));
  }
  const std::optional<size_t> size = byte_count(*header.shape, element);
  if (!size) {
    return bad(fmt::format("says its shape is {}, which needs more than 2^64 bytes of values, but {} follow its header",
                           shape_text(*header.shape), rest.size()));
  }
  return NpyHeader{std::move(*header.type), std::move(*header.shape), beginning.size() - rest.size(), element, *size};
}

Result<NpyRaw> read_npy_raw(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, read_file(path));
  ASSIGN_OR_RETURN(NpyHeader header, read_npy_header(content, path));
  const size_t there = content.size() - header.begin;
  if (header.size != there) {
    return invalid_input(
        fmt::format("'{}' says its shape is {}, which needs {} bytes of values, but {} follow its header", path,
                    shape_text(header.shape), header.size, there));
  }
  return NpyRaw{std::move(header.type), std::move(header.shape), content.substr(header.begin)};
}

Status write_npy(const std::string& path, const NpyArray& array) {
  for (const int64_t size : array.shape) CHECK(size >= 0, "a dimension is not negative");
  const size_t size = array.values.size() * sizeof(float);
  CHECK(byte_count(array.shape) == size, "the shape fits the values");

  std::string dict = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", shape_text(array.shape));
  // magic, version, a length of 2 bytes, dict, spaces, newline: a multiple of 64. Format 2.0 is for dicts over 64 KiB.
  const size_t before = magic.size() + 2 + 2;
  const size_t unpadded = before + dict.size() + 1;
  dict.append((alignment - unpadded % alignment) % alignment, ' ');
  dict += '\n';
  CHECK(dict.size() <= 0xffff, "a shape has few dimensions");

  std::string content;
  content.reserve(before + dict.size() + size);
  content += magic;
  content += '\x01';
  content += '\x00';
  content += static_cast<char>(dict.size() & 0xff);
  content += static_cast<char>(dict.size() >> 8);
  content += dict;
  content.append(reinterpret_cast<const char*>(array.values.data()), size);
  return write_file(path, content);
}

}  // namespace nlsplit::inline base
