#include "exec/session_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "exec/distribute.h"

namespace nlsplit::inline exec {
namespace {

// How many entries a tensor has for an input of this type; 0: none, it is the input itself.
uint64_t entries_of(const NamedTensor& tensor, const TensorType& wanted) {
  const Shape& shape = tensor.type.shape;
  const bool more =
      shape.size() == wanted.shape.size() + 1 && std::equal(shape.begin() + 1, shape.end(), wanted.shape.begin());
  return more ? static_cast<uint64_t>(shape[0]) : 0;
}

NamedTensor entry_of(const NamedTensor& all, const TensorType& wanted, uint64_t entry) {
  NamedTensor one{all.name, wanted, {}, {}};
  const auto elements = static_cast<size_t>(element_count(wanted.shape));
  const auto bytes = static_cast<size_t>(size_of(wanted).value());
  if (wanted.dtype == DType::f32) {
    const auto begin = all.values.begin() + static_cast<std::ptrdiff_t>(entry * elements);
    one.values.assign(begin, begin + static_cast<std::ptrdiff_t>(elements));
  } else {
    one.raw = all.raw.substr(entry * bytes, bytes);
  }
  return one;
}

bool is_of(const Session& session, size_t program, const std::string& name) {
  return name.starts_with(session.programs[program].name + "/");
}

// On rank 0: of each Program. Error: two of its inputs have unlike numbers.
Result<std::vector<uint64_t>> count_entries(const Session& session, const Program& joined, const Job& job) {
  std::vector<uint64_t> counts(session.programs.size(), 0);
  ASSIGN_OR_RETURN(const std::vector<NamedTensor> wanted, wanted_inputs(joined));
  for (const NamedTensor& want : wanted) {
    const auto given = std::ranges::find(job.inputs, want.name, &NamedTensor::name);
    const uint64_t entries = given == job.inputs.end() ? 0 : entries_of(*given, want.type);
    for (size_t p = 0; entries > 0 && p < counts.size(); ++p) {
      if (!is_of(session, p, want.name)) continue;
      if (counts[p] > 0 && entries != counts[p])
        return invalid_input(
            fmt::format("input {} has entries for {} executions, and another input of program {} for {}", want.name,
                        entries, session.programs[p].name, counts[p]));
      counts[p] = entries;
    }
  }
  for (uint64_t& count : counts) count = std::max<uint64_t>(count, 1);
  return counts;
}

}  // namespace

Result<Job> job_of_execution(const Program& joined, const Job& job, size_t execution) {
  Job one{job.contents, {}, job.clocks, job.online, job.predicted_compute_s, job.checksums};
  ASSIGN_OR_RETURN(const std::vector<NamedTensor> wanted, wanted_inputs(joined));
  for (const NamedTensor& input : job.inputs) {
    const auto want = std::ranges::find(wanted, input.name, &NamedTensor::name);
    const uint64_t entries = want == wanted.end() ? 0 : entries_of(input, want->type);
    one.inputs.push_back(entries == 0 ? input : entry_of(input, want->type, execution % entries));
  }
  return one;
}

Result<SessionInputs> SessionInputs::receive(const Session& session, const Program& joined, const Job& job,
                                             std::byte* arena, Transport& transport, const Waiting& waiting) {
  SessionInputs inputs;
  const auto counts = transport.rank() == 0 ? count_entries(session, joined, job) : std::vector<uint64_t>();
  RETURN_IF_ERROR(agree(transport, counts.ok() ? ok_status() : Status(counts.error()), waiting));
  std::string text = as_text(*counts);
  RETURN_IF_ERROR(broadcast(transport, &text, waiting));
  inputs.entries_ = from_text<uint64_t>(text);
  inputs.entries_.resize(session.programs.size(), 1);
  inputs.executions_.assign(session.programs.size(), 0);
  inputs.kept_.resize(session.programs.size());
  const DeviceProgram& device = joined.devices[static_cast<size_t>(transport.rank())];
  for (size_t p = 0; p < session.programs.size(); ++p) {
    for (const Buffer& buffer : device.buffers) {
      if (inputs.change(static_cast<int>(p)) && buffer.kind == BufferKind::input && is_of(session, p, buffer.name))
        inputs.kept_[p].push_back({&buffer, {}});
    }
  }
  const uint64_t most = inputs.entries_.empty() ? 1 : std::ranges::max(inputs.entries_);
  for (uint64_t e = 1; e <= most && most > 1; ++e) {  // in the end the first again
    Result<Job> one = transport.rank() == 0 ? job_of_execution(joined, job, e % most) : Job{};
    if (!one) return one.error();
    RETURN_IF_ERROR(place_inputs(joined, *one, arena, transport, waiting));
    for (size_t p = 0; p < session.programs.size(); ++p) {
      for (Kept& kept : inputs.kept_[p]) {
        if (e == 1) kept.entries.resize(inputs.entries_[p]);
        if (e % most < inputs.entries_[p]) kept.entries[e % most] = instances_of(*kept.buffer, arena);
      }
    }
  }
  return inputs;
}

void SessionInputs::next(int program, std::byte* arena) {
  const auto p = static_cast<size_t>(program);
  const uint64_t entry = executions_[p]++ % entries_[p];
  for (const Kept& kept : kept_[p]) fill_instances(*kept.buffer, std::as_bytes(std::span(kept.entries[entry])), arena);
}

}  // namespace nlsplit::inline exec
