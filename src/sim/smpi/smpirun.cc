#include "sim/smpi/smpirun.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/child_process.h"
#include "sim/smpi/replay_files.h"

namespace nlsplit::inline sim {
namespace {

constexpr std::string_view end_line = ":Simulation time ";

// The line is "3.141592653589793:Simulation time 3.141593". None where ranks wait for ever: then smpirun ends, too.
std::optional<double> makespan_in(std::string_view said) {
  const size_t at = said.find(end_line);
  if (at == std::string_view::npos) return std::nullopt;
  const size_t line = said.rfind('\n', at);
  const char* begin = said.data() + (line == std::string_view::npos ? 0 : line + 1);
  double seconds = 0;
  const auto [end, failure] = std::from_chars(begin, said.data() + at, seconds);
  return failure == std::errc() && end == said.data() + at ? std::optional(seconds) : std::nullopt;
}

std::string last_lines(std::string_view said) {
  constexpr size_t most = 1000;
  while (said.ends_with('\n')) said.remove_suffix(1);
  if (said.size() > most) {
    said.remove_prefix(said.size() - most);
    said.remove_prefix(std::min(said.size(), said.find('\n') + 1));
  }
  return std::string(said);
}

}  // namespace

Status check_smpirun() {
  if (is_in_path("smpirun")) return ok_status();
  return unsupported("there is no smpirun in PATH: it is SimGrid's, in Debian's package libsimgrid-dev");
}

Result<double> replay(const std::string& folder) {
  RETURN_IF_ERROR(check_smpirun());
  ASSIGN_OR_RETURN(const ChildOutput ended, output_of({"sh", folder + "/" + replay_script}, Heard::out_and_err));
  const std::optional<double> makespan = makespan_in(ended.text);
  if (ended.code == 0 && makespan) return *makespan;
  return failed(fmt::format("smpirun ended with exit code {}{}:\n{}", ended.code, makespan ? "" : " and no makespan",
                            last_lines(ended.text)));
}

}  // namespace nlsplit::inline sim
