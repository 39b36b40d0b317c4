#include "base/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/child_process.h"
#include "base/host_list.h"
#include "base/which_mpi.h"

namespace nlsplit::inline base {
namespace {

// CMakeLists.txt knows which MPI it is.
#ifdef NLS_MPICH
constexpr const char* own_mpirun = "mpiexec.hydra -disable-auto-cleanup";
constexpr const char* own_pmi = "pmi2";
constexpr bool is_mpich = true;
#else
constexpr const char* own_mpirun = "mpirun --oversubscribe";
constexpr const char* own_pmi = "pmix";
constexpr bool is_mpich = false;
#endif

std::string file_name(const std::string& program) { return std::filesystem::path(program).filename(); }

bool has_option(const std::vector<std::string>& words, std::string_view option) {
  return std::ranges::any_of(words, [&](const std::string& word) { return word.starts_with(option); });
}

}  // namespace

Result<Launcher> parse_launcher(std::string_view text, const std::string& said_by) {
  Launcher launcher;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) launcher.words.push_back(word);
  if (launcher.words.empty()) return invalid_input(said_by + " is empty");
  launcher.is_srun = file_name(launcher.words[0]) == "srun";
  return launcher;
}

std::string usual_launcher() {
  const std::string mpirun = own_mpirun;
  const bool in_allocation = std::getenv("SLURM_JOB_ID") != nullptr;
  return in_allocation && !is_in_path(mpirun.substr(0, mpirun.find(' '))) && is_in_path("srun") ? "srun" : mpirun;
}

std::vector<std::string> command_of(const Launcher& launcher, const std::vector<RanksTogether>& ranks) {
  std::vector<std::string> words = launcher.words;
  const auto add = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (launcher.is_srun) {
    // Slurm's own default is no PMI, with which every rank would be alone.
    if (!has_option(words, "--mpi") && std::getenv("SLURM_MPI_TYPE") == nullptr)
      add({fmt::format("--mpi={}", own_pmi)});
    add({"--overlap", "--overcommit", "--cpu-bind=none"});
  }
  const bool one_list = is_mpich && !launcher.is_srun;  // of hosts, for all components
  if (one_list && !ranks.empty() && !ranks[0].host.empty()) {
    std::string hosts;
    for (const RanksTogether& some : ranks) {
      for (int rank = 0; rank < some.count; ++rank) hosts += (hosts.empty() ? "" : ",") + some.host;
    }
    add({"-hosts", hosts});
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r > 0) add({":"});
    if (launcher.is_srun) {
      if (!ranks[r].host.empty()) add({fmt::format("--nodelist={}", ranks[r].host), "--nodes=1"});
      add({fmt::format("--ntasks={}", ranks[r].count)});
    } else {
      add({"-np", fmt::format("{}", ranks[r].count)});
      if (!ranks[r].host.empty() && !one_list) add({"--host", ranks[r].host});
    }
    add(ranks[r].command);
  }
  return words;
}

bool built_for_mpich() { return is_mpich; }

Result<std::vector<std::string>> allocated_nodes() {
  const char* nodes = std::getenv("SLURM_JOB_NODELIST");
  if (nodes == nullptr) return std::vector<std::string>();
  return parse_slurm_nodes(nodes, "SLURM_JOB_NODELIST");
}

}  // namespace nlsplit::inline base
