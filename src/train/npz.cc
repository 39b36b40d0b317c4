#include "train/npz.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace nlsplit::inline train {
namespace {

using Archive = std::shared_ptr<zip_t>;  // of all its members

struct CloseMember {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Member = std::unique_ptr<zip_file_t, CloseMember>;

std::string why(zip_file_t* member) { return zip_error_strerror(zip_file_get_error(member)); }

// Up to as many bytes as there is room for.
Result<size_t> read_some(zip_file_t* member, std::span<std::byte> bytes, const std::string& where) {
  size_t done = 0;
  while (done < bytes.size()) {
    const zip_int64_t got = zip_fread(member, bytes.data() + done, bytes.size() - done);
    if (got < 0) return invalid_input(fmt::format("{}: {}", where, why(member)));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

// A member as it stands in the archive.
class StoredArray final : public NpzArray {
 public:
  StoredArray(Archive archive, Member member, std::string where, std::string name, NpyHeader header)
      : archive_(std::move(archive)), member_(std::move(member)), where_(std::move(where)) {
    name_ = std::move(name);
    header_ = std::move(header);
  }

  Status read(size_t offset, std::span<std::byte> bytes) const override {
    if (zip_fseek(member_.get(), static_cast<zip_int64_t>(header_.begin + offset), SEEK_SET) != 0)
      return invalid_input(fmt::format("{}: {}", where_, why(member_.get())));
    ASSIGN_OR_RETURN(const size_t got, read_some(member_.get(), bytes, where_));
    if (got != bytes.size()) return invalid_input(fmt::format("{}: ends before its last value", where_));
    return ok_status();
  }

 private:
  Archive archive_;
  Member member_;  // before the archive goes
  std::string where_;
};

class UnpackedArray final : public NpzArray {
 public:
  UnpackedArray(std::string values, std::string name, NpyHeader header) : values_(std::move(values)) {
    name_ = std::move(name);
    header_ = std::move(header);
  }

  Status read(size_t offset, std::span<std::byte> bytes) const override {
    CHECK(offset <= values_.size() && bytes.size() <= values_.size() - offset, name_);
    if (!bytes.empty()) std::memcpy(bytes.data(), values_.data() + offset, bytes.size());
    return ok_status();
  }

 private:
  std::string values_;
};

// What the archive says of a size is not trusted: as much is held as was unpacked.
Result<std::string> unpack(zip_file_t* member, size_t size, const std::string& where) {
  constexpr size_t piece = size_t{1} << 20;
  std::string values;
  while (values.size() < size) {
    const size_t before = values.size();
    values.resize(before + std::min(piece, size - before));
    ASSIGN_OR_RETURN(const size_t got,
                     read_some(member, std::as_writable_bytes(std::span(values).subspan(before)), where));
    values.resize(before + got);
    if (got == 0) return invalid_input(fmt::format("{}: ends before its last value", where));
  }
  std::byte more{};
  ASSIGN_OR_RETURN(const size_t behind, read_some(member, std::span(&more, 1), where));  // and checks their checksum
  if (behind != 0) return invalid_input(fmt::format("{}: there is data after its last value", where));
  return values;
}

using Opened = std::unique_ptr<NpzArray>;

constexpr std::string_view ending = ".npy";

// name: without its ending.
Result<Opened> open_member(const Archive& archive, zip_uint64_t index, std::string name, const std::string& path) {
  const std::string where = fmt::format("{}:{}{}", path, name, ending);
  zip_stat_t about;
  if (zip_stat_index(archive.get(), index, 0, &about) != 0)
    return invalid_input(fmt::format("{}: {}", where, zip_strerror(archive.get())));
  Member member(zip_fopen_index(archive.get(), index, 0));
  if (member == nullptr) return invalid_input(fmt::format("{}: {}", where, zip_strerror(archive.get())));
  std::string beginning(most_npy_header, '\0');
  ASSIGN_OR_RETURN(const size_t got, read_some(member.get(), std::as_writable_bytes(std::span(beginning)), where));
  beginning.resize(got);
  ASSIGN_OR_RETURN(NpyHeader header, read_npy_header(beginning, where));
  const bool stored = (about.valid & ZIP_STAT_COMP_METHOD) != 0 && about.comp_method == ZIP_CM_STORE &&
                      (about.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && about.encryption_method == ZIP_EM_NONE;
  if (stored && (about.valid & ZIP_STAT_SIZE) != 0) {
    const size_t behind = about.size < header.begin ? 0 : static_cast<size_t>(about.size) - header.begin;
    if (behind != header.size)
      return invalid_input(
          fmt::format("{}: its shape needs {} bytes of values, but {} follow its header", where, header.size, behind));
    return Opened(std::make_unique<StoredArray>(archive, std::move(member), where, std::move(name), std::move(header)));
  }
  member.reset(zip_fopen_index(archive.get(), index, 0));  // from the beginning again
  if (member == nullptr) return invalid_input(fmt::format("{}: {}", where, zip_strerror(archive.get())));
  std::string before(header.begin, '\0');
  ASSIGN_OR_RETURN(const size_t skipped, read_some(member.get(), std::as_writable_bytes(std::span(before)), where));
  if (skipped != before.size()) return invalid_input(fmt::format("{}: ends within its header", where));
  ASSIGN_OR_RETURN(std::string values, unpack(member.get(), header.size, where));
  return Opened(std::make_unique<UnpackedArray>(std::move(values), std::move(name), std::move(header)));
}

}  // namespace

Result<std::vector<std::unique_ptr<NpzArray>>> open_npz(const std::string& path, const std::set<std::string>& names,
                                                        std::vector<std::string>& there) {
  int code = 0;
  const Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code), [](zip_t* open) {
    if (open != nullptr) zip_discard(open);
  });
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string message = fmt::format("{}: {}", path, zip_error_strerror(&error));
    zip_error_fini(&error);
    return invalid_input(message);
  }
  std::vector<std::unique_ptr<NpzArray>> arrays;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    const char* const member = zip_get_name(archive.get(), index, 0);
    if (member == nullptr) return invalid_input(fmt::format("{}: {}", path, zip_strerror(archive.get())));
    std::string name = member;
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
    there.push_back(name);
    if (!names.contains(name) || !std::string_view(member).ends_with(ending)) continue;
    ASSIGN_OR_RETURN(arrays.emplace_back(), open_member(archive, index, std::move(name), path));
  }
  return arrays;
}

}  // namespace nlsplit::inline train
