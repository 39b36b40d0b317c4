#include "exec/mpi/mpi_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace nlsplit::inline exec {
namespace {

// From so many members on Open MPI 4.1 has a faster all-reduce, but not in place
// (ompi/mca/coll/libnbc/nbc_iallreduce.c).
constexpr int64_t least_apart = 4;

// What MPI adds up, as it knows it.
std::optional<MPI_Datatype> number_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    default:
      return std::nullopt;
  }
}

// Of an element, in MPI's types: what it does not add up is moved as bytes.
int64_t units_of(DType dtype) { return number_type(dtype) ? 1 : size_of(dtype, 1); }

MemberCounts counts_of(std::span<const int64_t> elements, int64_t factor) {
  MemberCounts all;
  int64_t begin = 0;
  for (const int64_t count : elements) {
    all.counts.push_back(static_cast<int>(count * factor));
    all.begins.push_back(static_cast<int>(begin * factor));
    begin += count;
  }
  return all;
}

const void* copy_aside(MpiRequest& it, std::span<const std::byte> value) {
  it.aside.assign(value.begin(), value.end());
  return it.aside.data();
}

}  // namespace

void MpiCollectives::free_groups() {
  for (auto& [group, channel] : groups_) MPI_Comm_free(&channel);
  groups_.clear();
}

Status MpiCollectives::accepts(const Collective& collective, DType dtype) const {
  if (adds_up(collective.kind) && !number_type(dtype))
    return unsupported(fmt::format("MPI adds up no {}", name_of(dtype)));
  const int64_t members = std::ssize(collective.group);
  int64_t largest = value_elements(collective);
  for (int64_t m = 0; m < members; ++m)
    largest = std::max(largest, result_elements(collective, static_cast<size_t>(m)));
  if (largest * units_of(dtype) <= std::numeric_limits<int>::max()) return ok_status();
  return unsupported(fmt::format("MPI counts with int: a collective of {} {} is too large", largest, name_of(dtype)));
}

void MpiCollectives::join(std::span<const std::vector<int>> groups) {
  MPI_Group all = MPI_GROUP_NULL;
  failure_.check(MPI_Comm_group(all_, &all), "MPI_Comm_group");
  for (const std::vector<int>& ranks : groups) {
    const auto [known, is_new] = groups_.try_emplace(ranks, MPI_COMM_NULL);
    if (!is_new) continue;
    MPI_Group group = MPI_GROUP_NULL;
    failure_.check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
    failure_.check(MPI_Comm_create_group(all_, group, 0, &known->second), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(known->second, MPI_ERRORS_RETURN);
    MPI_Group_free(&group);
  }
  MPI_Group_free(&all);
}

Transport::Request MpiCollectives::begin(const Collective& collective, DType dtype, std::span<std::byte> value,
                                         std::span<std::byte> result) {
  const Transport::Request request = requests_.add(false, pauses_);
  MpiRequest& it = requests_[request];
  it.collective = true;
  it.sizes = {0};
  MPI_Request* const made = &it.pieces.emplace_back(MPI_REQUEST_NULL);
  const MPI_Comm channel = groups_.at(collective.group);
  const auto member =
      static_cast<size_t>(std::ranges::find(collective.group, failure_.rank) - collective.group.begin());
  const auto members = static_cast<int64_t>(collective.group.size());
  const MPI_Datatype type = number_type(dtype).value_or(MPI_BYTE);
  const int64_t factor = units_of(dtype);
  const int count = static_cast<int>(value_elements(collective) * factor);
  it.sent = counts_of(collective.elements, factor);
  switch (collective.kind) {
    case CollectiveKind::all_reduce: {
      const void* from = MPI_IN_PLACE;
      if (members >= least_apart) from = copy_aside(it, value);
      failure_.check(MPI_Iallreduce(from, value.data(), count, type, MPI_SUM, channel, made), "MPI_Iallreduce");
      break;
    }
    case CollectiveKind::reduce_scatter: {  // in place MPI would put the share at the value's beginning
      int64_t begin = 0;
      for (size_t m = 0; m < member; ++m) begin += collective.elements[m];
      failure_.check(MPI_Ireduce_scatter(copy_aside(it, value), value.data() + size_of(dtype, begin),
                                         it.sent.counts.data(), type, MPI_SUM, channel, made),
                     "MPI_Ireduce_scatter");
      break;
    }
    case CollectiveKind::all_gather:
      failure_.check(MPI_Iallgatherv(MPI_IN_PLACE, 0, type, value.data(), it.sent.counts.data(), it.sent.begins.data(),
                                     type, channel, made),
                     "MPI_Iallgatherv");
      break;
    case CollectiveKind::all_to_all:
      it.received = counts_of(std::vector<int64_t>(collective.group.size(), collective.elements[member]), factor);
      failure_.check(MPI_Ialltoallv(value.data(), it.sent.counts.data(), it.sent.begins.data(), type, result.data(),
                                    it.received.counts.data(), it.received.begins.data(), type, channel, made),
                     "MPI_Ialltoallv");
      break;
    case CollectiveKind::broadcast:
      failure_.check(MPI_Ibcast(value.data(), count, type, 0, channel, made), "MPI_Ibcast");
      break;
  }
  return request;
}

}  // namespace nlsplit::inline exec
