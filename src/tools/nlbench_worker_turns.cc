#include "tools/nlbench_worker_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/interrupts.h"
#include "base/temporary_folder.h"
#include "exec/collectives.h"
#include "exec/transport_part.h"
#include "program/saved.h"
#include "program/text.h"
#include "program/verify.h"
#include "report/chrome_trace.h"
#include "tools/nlbench_report.h"
#include "tools/nlbench_turns.h"

namespace nlsplit::inline tools {
namespace {

using nlohmann::json;

// A turn's contents in the order of its buffers, each once, with their sizes.
std::vector<std::pair<ContentId, size_t>> contents_of(const Program& program) {
  std::vector<std::pair<ContentId, size_t>> contents;
  std::set<uint64_t> known;
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      const bool has = buffer.has_content && (buffer.kind == BufferKind::weight || buffer.kind == BufferKind::state);
      if (has && known.insert(buffer.content.value).second)
        contents.emplace_back(buffer.content, static_cast<size_t>(size_of(buffer.type).value()));
    }
  }
  return contents;
}

Waiting waiting_for(const std::string& what) { return {0, interrupted, what}; }

std::string told(const Error& error) {
  return json{{"kind", static_cast<int>(error.kind)}, {"error", error.message}}.dump(-1, ' ', false,
                                                                                     json::error_handler_t::replace);
}

// The error that an answer tells; none: it went well.
Status error_in(const json& answer) {
  if (!answer.contains("error")) return ok_status();
  Error error = failed(answer.at("error").get<std::string>());
  const int kind = answer.at("kind").get<int>();
  if (kind >= 0 && kind <= static_cast<int>(ErrorKind::lost)) error.kind = static_cast<ErrorKind>(kind);
  return error;
}

// ---- rank 0

// What the turn's first rank needs beside the weights.
std::string job_text(const LoadedJob& job, bool traces) {
  json text = {{"program", to_string(job.saved.program)}, {"traces", traces}};
  if (!job.saved.clocks.empty()) text["clocks"] = clocks_text(job.saved.clocks);
  if (job.saved.online) text["online"] = online_text(*job.saved.online);
  if (job.saved.has_prediction) text["predicted_compute_s"] = job.saved.prediction.device_compute_s;
  return text.dump();
}

// Error: a turn that cannot be; nothing is sent then but that.
Status ship(const RunArguments& of_turn, int first, Transport& transport) {
  const Waiting waiting = waiting_for("a plan on its way to its first rank");
  std::optional<TemporaryFolder> folder;
  const Result<LoadedJob> job = load_job(of_turn.job, folder);
  RETURN_IF_ERROR(
      send_text(transport, first, job.ok() ? job_text(*job, !of_turn.trace.empty()) : told(job.error()), waiting));
  ASSIGN_OR_RETURN(const std::string accepted, recv_text(transport, first, waiting));
  if (!job.ok()) return job.error();
  if (!accepted.empty()) return ok_status();  // its answer says why
  std::vector<Checksum> checksums;
  const auto contents = contents_of(job->saved.program);
  // What the others wait for must come: the files have been looked at before.
  const auto or_end = [&transport](auto result) {
    if (!result.ok()) transport.abort(result.error());
    return result;
  };
  for (const auto& [id, size] : contents) {
    ASSIGN_OR_RETURN(checksums.emplace_back(), or_end(job->weights.checksum(id)));
  }
  RETURN_IF_ERROR(send_text(transport, first, as_text(checksums), waiting));
  for (const auto& [id, size] : contents) {
    ASSIGN_OR_RETURN(const std::string_view bytes, or_end(job->weights.bytes(id)));
    RETURN_IF_ERROR(send_bytes(transport, first, std::as_bytes(std::span(bytes)), waiting));
  }
  return ok_status();
}

Status follow(const RunOptions& options, Transport& part) {
  RETURN_IF_ERROR(agree(part, ok_status(), waiting_for("the turn's first rank")));
  RETURN_IF_ERROR(run(nullptr, Job{}, part, options));
  return agree(part, ok_status(), waiting_for("the end of the run"));
}

Status lead_one(const RunArguments& of_turn, const RunOptions& options, const Turn& turn, Transport& transport) {
  const int first = turn.ranks.front();
  const Status shipped = ship(of_turn, first, transport);
  if (std::ranges::find(turn.ranks, transport.rank()) != turn.ranks.end()) {
    TransportPart part(transport, turn.ranks);
    static_cast<void>(follow(options, part));  // the answer says the same
  }
  ASSIGN_OR_RETURN(const std::string text, recv_text(transport, first, waiting_for("the turn's figures")));
  RETURN_IF_ERROR(shipped);
  try {
    const json answer = json::parse(text);
    RETURN_IF_ERROR(error_in(answer));
    if (!of_turn.trace.empty()) RETURN_IF_ERROR(write_file(of_turn.trace, answer.at("trace").get<std::string>()));
    return write_file(of_turn.json, answer.at("figures").get<std::string>());
  } catch (const json::exception& e) {
    return failed(fmt::format("rank {} gave a damaged answer: {}", first, e.what()));
  }
}

// ---- a worker

struct Shipped {
  SavedProgram saved;
  bool traces = false;
};

// Error: no such text, a Program that does not verify, another number of ranks.
Result<Shipped> parse_job(const std::string& text, int ranks) {
  try {
    const json value = json::parse(text);
    RETURN_IF_ERROR(error_in(value));
    Shipped shipped;
    Program& program = shipped.saved.program;
    ASSIGN_OR_RETURN(program, parse_program(value.at("program").get<std::string>(), "rank 0's program"));
    RETURN_IF_ERROR(verify(program));
    RETURN_IF_ERROR(check_ranks(program, ranks));
    value.at("traces").get_to(shipped.traces);
    if (value.contains("clocks")) {
      ASSIGN_OR_RETURN(shipped.saved.clocks,
                       parse_clocks(value.at("clocks").get<std::string>(), program, "rank 0's clocks"));
    }
    if (value.contains("online")) {
      ASSIGN_OR_RETURN(shipped.saved.online,
                       parse_online(value.at("online").get<std::string>(), program, "rank 0's online run"));
    }
    if (value.contains("predicted_compute_s"))
      value.at("predicted_compute_s").get_to(shipped.saved.prediction.device_compute_s);
    return shipped;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("rank 0 sent a damaged plan: {}", e.what()));
  }
}

struct Contents {
  std::map<uint64_t, std::string> bytes;
  std::map<uint64_t, Checksum> checksums;
};

Result<Contents> receive_contents(const Program& program, Transport& transport) {
  const Waiting waiting = waiting_for("the weights");
  const auto wanted = contents_of(program);
  ASSIGN_OR_RETURN(const std::string text, recv_text(transport, 0, waiting));
  const std::vector<Checksum> checksums = from_text<Checksum>(text);
  Contents contents;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [id, size] = wanted[i];
    std::string& room = contents.bytes[id.value];
    room.resize(size);
    RETURN_IF_ERROR(recv_bytes(transport, 0, std::as_writable_bytes(std::span(room)), waiting));
    if (i < checksums.size()) contents.checksums[id.value] = checksums[i];
  }
  if (checksums.size() != wanted.size()) return failed("rank 0 sent weights without their checksums");
  return contents;
}

// What rank 0 of a run does, and what it would have written.
Result<std::string> run_shipped(const Result<Shipped>& shipped, const Contents& contents, const RunOptions& options,
                                Transport& part) {
  Job job;
  Status mine;
  if (shipped.ok()) {
    auto inputs = make_inputs(shipped->saved.program, {}, 1);
    if (inputs)
      job.inputs = std::move(*inputs);
    else
      mine = inputs.error();
  } else {
    mine = shipped.error();
  }
  RETURN_IF_ERROR(agree(part, mine, waiting_for("the turn's first rank")));
  const SavedProgram& saved = shipped->saved;
  const auto find = [](const auto& map, ContentId id, auto answer) -> decltype(answer(map.begin()->second)) {
    const auto found = map.find(id.value);
    if (found == map.end()) return failed("a weight that rank 0 has not sent");
    return answer(found->second);
  };
  job.contents = [&](ContentId id) {
    return find(contents.bytes, id, [](const std::string& bytes) { return Result<std::string_view>(bytes); });
  };
  job.checksums = [&](ContentId id) {
    return find(contents.checksums, id, [](const Checksum& checksum) { return Result<Checksum>(checksum); });
  };
  job.clocks = saved.clocks;
  job.online = saved.online;
  job.predicted_compute_s = saved.prediction.device_compute_s;
  ASSIGN_OR_RETURN(const RunResult result, run(&saved.program, job, part, options));
  RETURN_IF_ERROR(agree(part, ok_status(), waiting_for("the end of the run")));
  json answer = {{"figures", report_json(RunReport{&saved, &result, "grpc", {}})}};
  if (shipped->traces) answer["trace"] = chrome_trace(saved.program, result.trace);
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

Status lead_shipped(const RunOptions& options, Transport& transport, Transport& part) {
  const Waiting waiting = waiting_for("a plan from rank 0");
  ASSIGN_OR_RETURN(const std::string text, recv_text(transport, 0, waiting));
  const Result<Shipped> shipped = parse_job(text, part.size());
  RETURN_IF_ERROR(send_text(transport, 0, shipped.ok() ? "" : "no", waiting));
  Contents contents;
  if (shipped.ok()) {
    auto received = receive_contents(shipped->saved.program, transport);
    if (!received) transport.abort(received.error());
    contents = std::move(*received);
  }
  const Result<std::string> answer = run_shipped(shipped, contents, options, part);
  return send_text(transport, 0, answer.ok() ? *answer : told(answer.error()), waiting);
}

bool are_ranks(const std::vector<int>& ranks, int size) {
  const std::set<int> distinct(ranks.begin(), ranks.end());
  return !ranks.empty() && distinct.size() == ranks.size() && *distinct.begin() >= 0 && *distinct.rbegin() < size;
}

}  // namespace

Status lead_turns(const RunArguments& arguments, const RunOptions& options, Transport& transport,
                  const std::function<Status(const RunArguments&, Transport&)>& run_here) {
  const Waiting waiting = waiting_for("the next plan's turn");
  auto turns = read_turns(arguments);
  Status mine = turns.ok() ? ok_status() : Status(turns.error());
  if (turns.ok()) {
    for (const Turn& turn : *turns) {
      if (mine.ok()) mine = check_members(turn, transport.size(), arguments.turns);
      if (mine.ok() && turn.generates) mine = unsupported("plans that generate text over workers");
    }
  }
  RETURN_IF_ERROR(agree(transport, mine, waiting));
  for (const Turn& turn : *turns) {
    std::string ranks = as_text(turn.ranks);
    RETURN_IF_ERROR(broadcast(transport, &ranks, waiting));
    const RunArguments one = of_turn(arguments, turn);
    Status status;
    if (turn.ranks.front() == transport.rank()) {
      TransportPart part(transport, turn.ranks);
      status = run_here(one, part);
    } else {
      status = lead_one(one, options, turn, transport);
    }
    const Status kept = note_failure(arguments, turn, status);
    transport.liveness().begin(waiting.what);
    RETURN_IF_ERROR(agree(transport, kept, waiting));
    if (interrupted()) return failed("interrupted");
  }
  std::string end;
  RETURN_IF_ERROR(broadcast(transport, &end, waiting));
  return agree(transport, ok_status(), waiting);
}

Status follow_turns(const RunOptions& options, Transport& transport) {
  const Waiting waiting{0, interrupted, "the next plan's turn", true};
  for (;;) {
    std::string text;
    RETURN_IF_ERROR(broadcast(transport, &text, waiting));
    if (text.empty()) return ok_status();
    const std::vector<int> ranks = from_text<int>(text);
    if (!are_ranks(ranks, transport.size())) {
      const Error why = failed("rank 0 gave a turn to ranks that are not there");
      transport.abort(why);
      return why;
    }
    if (std::ranges::find(ranks, transport.rank()) != ranks.end()) {
      TransportPart part(transport, ranks);
      if (part.rank() == 0)
        RETURN_IF_ERROR(lead_shipped(options, transport, part));
      else
        static_cast<void>(follow(options, part));  // the first rank tells rank 0
    }
    transport.liveness().begin(waiting.what);
    RETURN_IF_ERROR(agree(transport, ok_status(), waiting));
  }
}

}  // namespace nlsplit::inline tools
