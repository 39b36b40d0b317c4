// What starts ranks on machines: mpirun (Open MPI's, or MPICH's) or Slurm's srun, and the words each wants to hear.
//
//   ASSIGN_OR_RETURN(const Launcher launcher, parse_launcher("srun --mpi=pmix", "--launcher"));
//   const std::vector<std::string> words = command_of(launcher, {{"a", 2, {"nlbench", "run", "saved"}}, …});
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline base {

struct Launcher {
  std::vector<std::string> words;  // the program and its options
  bool is_srun = false;            // else mpirun's words
};

// So many ranks with one command, one after the other in the order of ranks.
struct RanksTogether {
  std::string host = {};  // empty: where the launcher likes
  int count = 1;
  std::vector<std::string> command = {};
};

// The words of the text: a program, found in PATH or named with its folder, and options. srun is known by its name; all
// others are mpirun to us. said_by: for errors, as "--launcher". Error: no word.
Result<Launcher> parse_launcher(std::string_view text, const std::string& said_by);

// That of the MPI this was built for, also inside a Slurm allocation, where it starts its daemons with srun by itself
// and needs no PMI of Slurm's. srun where only that is there.
std::string usual_launcher();

// Of srun: ranks share cores with other steps and are not bound, as with mpirun --oversubscribe. A host may stand there
// once: each is a component of the step, and srun refuses two of them on one host. Not --distribution=arbitrary, which
// would take any order: slurmctld 22.05 dies of it when the job ends.
std::vector<std::string> command_of(const Launcher& launcher, const std::vector<RanksTogether>& ranks);

// The nodes of the Slurm allocation this process is in, in Slurm's order; empty: it is in none. Error: of
// SLURM_JOB_NODELIST.
Result<std::vector<std::string>> allocated_nodes();

}  // namespace nlsplit::inline base
