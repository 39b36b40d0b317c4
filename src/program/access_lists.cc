#include "program/access_lists.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace nlsplit::inline program {

void AccessList::forget_gone() {
  std::vector<Range> ranges;
  std::vector<Access> accesses;
  std::swap(ranges, ranges_);
  std::swap(accesses, accesses_);
  groups_.clear();
  gone_ = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin == gone.begin) continue;
    ranges_.push_back(ranges[i]);
    accesses_.push_back(accesses[i]);
    if (ranges_.size() % group_size == 0) note_group();
  }
}

void AccessList::note_group() {
  Range all = gone;
  for (size_t i = ranges_.size() - group_size; i < ranges_.size(); ++i) {
    all.begin = std::min(all.begin, ranges_[i].begin);
    all.end = std::max(all.end, ranges_[i].end);
  }
  groups_.push_back(all);
}

void AccessList::find(const Access& now) {
  found_.clear();
  for (auto& [n, length] : lengths_) {
    const int64_t longest = int64_t{1} << (n + 1);
    for (auto at = length.upper_bound(now.instance_begin - longest); at != length.end() && at->first < now.instance_end;
         ++at) {
      for (Entry& entry : at->second) {
        if (entry.access.instance_end > now.instance_begin) found_.push_back({&entry, &length, at});
      }
    }
  }
  std::ranges::sort(found_, {}, [](const Found& found) { return found.entry->order; });
}

void AccessList::remove_found() {
  const auto gone = [](const Entry& entry) { return entry.access.instance == no_instance; };
  std::erase_if(found_, [&](const Found& found) { return !gone(*found.entry); });
  // Each place once: a place that is empty is forgotten.
  std::ranges::sort(found_, {}, [](const Found& found) { return std::pair(found.length, found.at->first); });
  const auto same = [](const Found& a, const Found& b) { return a.length == b.length && a.at == b.at; };
  found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
  for (const Found& found : found_) {
    std::erase_if(found.at->second, gone);
    if (found.at->second.empty()) found.length->erase(found.at);
  }
}

void AccessList::insert(const Access& now) {
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(now.instance_end - now.instance_begin, 1));
  lengths_[std::bit_width(bytes) - 1][now.instance_begin].push_back({now, added_++});
}

AccessLists::AccessLists(const DeviceProgram& device, Reuse reuse) : device_(device), reuse_(reuse) {
  for (const Buffer& buffer : device.buffers) strides_.push_back(buffer.stride());
  if (reuse == Reuse::of_bytes) {
    group_by_bytes();
    return;
  }
  size_t instances = 0;
  for (const Buffer& buffer : device.buffers) {
    first_.push_back(instances);
    instances += static_cast<size_t>(buffer.instances);
  }
  per_instance_.assign(first_.size(), true);
  lists_.resize(instances);
}

std::vector<bool> AccessLists::with_neighbours(const std::vector<bool>& buffers) const {
  if (reuse_ == Reuse::of_buffers) return buffers;
  std::vector<bool> found(lists_.size(), false), all;
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b]) found[first_[b]] = true;
  }
  for (const size_t list : first_) all.push_back(found[list]);
  return all;
}

// One list for all buffers that have bytes in common, with one another or by way of others; for a buffer alone one
// for each instance.
void AccessLists::group_by_bytes() {
  const std::vector<Buffer>& buffers = device_.buffers;
  std::vector<uint32_t> by_offset(buffers.size());
  std::iota(by_offset.begin(), by_offset.end(), 0u);
  std::ranges::stable_sort(by_offset, {}, [&](uint32_t b) { return buffers[b].offset; });
  std::erase_if(by_offset, [&](uint32_t b) { return buffers[b].kind == BufferKind::view; });
  first_.assign(buffers.size(), 0);
  per_instance_.assign(buffers.size(), false);
  for (size_t begin = 0, end = 0; begin < by_offset.size(); begin = end) {
    int64_t reached = buffers[by_offset[begin]].offset;
    for (end = begin; end == begin || (end < by_offset.size() && buffers[by_offset[end]].offset < reached); ++end) {
      const uint32_t b = by_offset[end];
      first_[b] = lists_.size();
      reached = std::max(reached, buffers[b].offset + buffers[b].instances * strides_[b]);
    }
    const bool alone = end == begin + 1;
    per_instance_[by_offset[begin]] = alone;
    lists_.resize(lists_.size() + (alone ? static_cast<size_t>(buffers[by_offset[begin]].instances) : 1),
                  AccessList(!alone));
  }
}

}  // namespace nlsplit::inline program
