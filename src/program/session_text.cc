#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/text_reader.h"
#include "program/session.h"
#include "program/text.h"
#include "program/text_fields.h"
#include "program/text_words.h"

namespace nlsplit::inline program {
namespace {

constexpr std::string_view session_word = "session";

std::string body_of(const Session& session) {
  std::string body = fmt::format("{} {}\n", session_word, name_word(session.name));
  for (const Program& program : session.programs) body += "\n" + to_string(program);
  return body;
}

// Where lines begin that begin a Program.
std::vector<size_t> programs_in(std::string_view text) {
  const std::string head = fmt::format("{} {} ", format_word, kind_word);
  std::vector<size_t> found;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(head)) found.push_back(at);
    const size_t end = text.find('\n', at);
    at = end == std::string_view::npos ? text.size() : end + 1;
  }
  return found;
}

}  // namespace

std::string to_string(const Session& session) {
  const std::string body = body_of(session);
  return fmt::format("{} {} {} fingerprint {}\n{}", format_word, session_word, format_version, hex16(hash_text(body)),
                     body);
}

std::string fingerprint_of(const Session& session) { return hex16(hash_text(body_of(session))); }

Result<Session> parse_session(std::string_view text, const std::string& file) {
  const std::vector<size_t> begins = programs_in(text);
  TextReader in(text.substr(0, begins.empty() ? text.size() : begins.front()), file);
  if (!in.next_line() || !in.accept(format_word) || !in.accept(session_word)) {
    Error error = invalid_input("not a session: its first line must be `nlsplit session 1`");
    error.where = {file, 1, 1};
    return error;
  }
  ASSIGN_OR_RETURN(const int64_t version, in.integer("the format's version"));
  if (version != format_version)
    return in.error(fmt::format("format version {}; this build reads version {}", version, format_version));
  uint64_t said = 0;
  const bool has_fingerprint = in.accept("fingerprint");
  if (has_fingerprint) {
    ASSIGN_OR_RETURN(said, in.hex("a fingerprint"));
  }
  RETURN_IF_ERROR(in.end_of_line());
  if (!in.next_line()) return in.error("the line `session …` is missing");
  RETURN_IF_ERROR(in.expect(session_word));
  Session session;
  ASSIGN_OR_RETURN(session.name, read_name(in, "the session's name"));
  RETURN_IF_ERROR(in.end_of_line());
  if (in.next_line()) return in.error("a program begins with `nlsplit program 1`");
  if (begins.empty()) return in.error("a session without programs");
  for (size_t p = 0; p < begins.size(); ++p) {
    const size_t end = p + 1 < begins.size() ? begins[p + 1] : text.size();
    // Blank lines before it, so that errors have the lines of the whole text.
    std::string one(static_cast<size_t>(std::ranges::count(text.substr(0, begins[p]), '\n')), '\n');
    one += text.substr(begins[p], end - begins[p]);
    ASSIGN_OR_RETURN(Program program, parse_program(one, file));
    session.programs.push_back(std::move(program));
  }
  if (has_fingerprint && hash_text(body_of(session)) != said) {
    Error error = invalid_input(
        "the fingerprint does not fit: this text was changed after it was made; remove `fingerprint …` from its first "
        "line if that was on purpose");
    error.where = {file, 1, 1};
    return error;
  }
  return session;
}

}  // namespace nlsplit::inline program
