// Hosts as people and batch systems name them: a hostfile, Slurm's node lists, and a list with commas.
//
//   ASSIGN_OR_RETURN(const std::vector<ListedHost> hosts, parse_hostfile(text, "hosts"));
//   parse_slurm_nodes("n[01-03,7],gpu2", "SLURM_JOB_NODELIST");     // n01 n02 n03 n7 gpu2
//
// However short the text, no list has more than most_listed_hosts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline base {

inline constexpr size_t most_listed_hosts = 4096;

struct ListedHost {
  std::string name;
  int cores = 0;  // that may be used there; 0: the list does not say
  friend bool operator==(const ListedHost&, const ListedHost&) = default;
};

// A line for each host: "NAME", "NAME slots=4 max_slots=8" (Open MPI) or "NAME:4" (MPICH); "#" begins a comment. A name
// that comes again is the same host: its slots are added up, if each of its lines has some. Errors name file and line:
// another word, no such name, no host at all.
Result<std::vector<ListedHost>> parse_hostfile(std::string_view text, const std::string& file);

// "a,b,c", each once.
Result<std::vector<ListedHost>> parse_hosts(std::string_view text, const std::string& said_by);

// Slurm's compressed list: names with commas, in each any number of brackets with numbers and ranges of them, whose
// leading zeros stay. said_by: for errors, as "SLURM_JOB_NODELIST".
Result<std::vector<std::string>> parse_slurm_nodes(std::string_view text, const std::string& said_by);

// SLURM_JOB_CPUS_PER_NODE: "4(x3),2" is 4 4 4 2.
Result<std::vector<int>> parse_slurm_counts(std::string_view text, const std::string& said_by);

}  // namespace nlsplit::inline base
