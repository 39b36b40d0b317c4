#include "tools/nlbench_turns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/file.h"
#include "base/interrupts.h"
#include "exec/collectives.h"
#include "exec/transport_part.h"

namespace nlsplit::inline tools {
namespace {

std::string line_of(const Turn& turn) {
  return fmt::format("{} {} {} {}\n", turn.generates ? "generate" : "run", turn.folder, turn.figures,
                     fmt::join(turn.ranks, " "));
}

}  // namespace

RunArguments of_turn(const RunArguments& arguments, const Turn& turn) {
  RunArguments one = arguments;
  one.job.what = arguments.job.what + "/" + turn.folder;
  one.json = fmt::format("{}/{}.json", arguments.job.what, turn.figures);
  if (arguments.turn_traces) one.trace = fmt::format("{}/{}.trace", arguments.job.what, turn.figures);
  return one;
}

Status note_failure(const RunArguments& arguments, const Turn& turn, const Status& status) {
  if (status.ok() || interrupted()) return ok_status();
  return write_file(fmt::format("{}/{}.error", arguments.job.what, turn.figures), status.error().message + "\n");
}

Result<std::vector<Turn>> read_turns(const RunArguments& arguments) {
  ASSIGN_OR_RETURN(const std::string text, read_file(arguments.turns));
  return parse_turns(text, arguments.turns);
}

Status check_members(const Turn& turn, int ranks, const std::string& file) {
  if (std::ranges::all_of(turn.ranks, [ranks](int rank) { return rank < ranks; })) return ok_status();
  return invalid_input(
      fmt::format("{}: {} runs on ranks {}, and there are {}", file, turn.folder, fmt::join(turn.ranks, ", "), ranks));
}

std::string to_text(const std::vector<Turn>& turns) {
  std::string text;
  for (const Turn& turn : turns) text += line_of(turn);
  return text;
}

Result<std::vector<Turn>> parse_turns(const std::string& text, const std::string& file) {
  std::vector<Turn> turns;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Turn turn;
    std::string kind;
    words >> kind >> turn.folder >> turn.figures;
    turn.generates = kind == "generate";
    for (int rank = 0; words >> rank;) turn.ranks.push_back(rank);
    const std::set<int> distinct(turn.ranks.begin(), turn.ranks.end());
    if ((kind != "run" && kind != "generate") || !words.eof() || turn.ranks.empty() ||
        distinct.size() != turn.ranks.size() || *distinct.begin() < 0)
      return invalid_input(
          fmt::format("{}:{}: not `run FOLDER FIGURES RANK…` or `generate …`", file, turns.size() + 1));
    turns.push_back(std::move(turn));
  }
  return turns;
}

Status run_turns(const RunArguments& arguments, Transport& transport,
                 const std::function<Status(const Turn&, const RunArguments&, Transport&)>& run) {
  Waiting waiting{0, interrupted, "the next plan's turn"};
  transport.liveness().begin(waiting.what);
  std::vector<Turn> turns;
  Status mine;
  if (transport.rank() == 0) {
    auto read = read_turns(arguments);
    mine = read.ok() ? ok_status() : Status(read.error());
    if (read.ok()) turns = std::move(*read);
    for (const Turn& turn : turns) {
      if (mine.ok()) mine = check_members(turn, transport.size(), arguments.turns);
    }
  }
  RETURN_IF_ERROR(agree(transport, mine, waiting));
  for (size_t next = 0;; ++next) {
    std::string line = next < turns.size() ? line_of(turns[next]) : "";
    RETURN_IF_ERROR(broadcast(transport, &line, waiting));
    if (line.empty()) return ok_status();
    ASSIGN_OR_RETURN(const std::vector<Turn> told, parse_turns(line, "the turn of rank 0"));
    const Turn& turn = told.front();
    Status kept;
    if (std::ranges::find(turn.ranks, transport.rank()) != turn.ranks.end()) {
      TransportPart part(transport, turn.ranks);
      const Status status = run(turn, of_turn(arguments, turn), part);
      if (part.rank() == 0) kept = note_failure(arguments, turn, status);
    }
    // No turn begins before the last one's ranks have ended: they would compute and send beside each other.
    transport.liveness().begin(waiting.what);
    RETURN_IF_ERROR(agree(transport, kept, waiting));
    if (interrupted()) return failed("interrupted");
  }
}

Status run_turns_here(const RunArguments& arguments,
                      const std::function<Status(const Turn&, const RunArguments&)>& run) {
  ASSIGN_OR_RETURN(const std::vector<Turn> turns, read_turns(arguments));
  for (const Turn& turn : turns) {
    RETURN_IF_ERROR(note_failure(arguments, turn, run(turn, of_turn(arguments, turn))));
    if (interrupted()) return failed("interrupted");
  }
  return ok_status();
}

}  // namespace nlsplit::inline tools
