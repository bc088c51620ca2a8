// What launchers say in the environment of a rank.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "bitgrad/base/text.h"
#include "bitgrad/dist/engines.h"

namespace bitgrad {
namespace {

// One of the launchers: its variables. An empty name: it has none for that.
struct Variables {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};
constexpr Variables kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kPmi{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Variables kPmix{"PMIx", "PMIX_RANK", "", "", ""};
constexpr Variables kSlurm{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""};
constexpr int64_t kFirstSpecialStep = 0xFFFFFFF0;  // batch, interactive and extern steps have numbers from here on

std::string_view value_of(const char* name) {
  const char* const value = *name == '\0' ? nullptr : std::getenv(name);
  return value == nullptr ? "" : value;
}

// A whole number in a variable; nothing if it is not set.
std::optional<int64_t> number_of(const char* name) {
  const std::string_view text = value_of(name);
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  require(parse_whole(text, value) == NumberResult::kOk && value >= 0, "ranks", name, ": got '", text,
          "', expected a whole number from 0 on");
  return value;
}

std::optional<Launch> launch_of(const Variables& names) {
  const auto rank = number_of(names.rank);
  if (!rank) return std::nullopt;
  Launch launch;
  launch.launcher = names.launcher;
  launch.source = names.rank;
  launch.rank = *rank;
  launch.size = number_of(names.size).value_or(0);
  launch.local_rank = number_of(names.local_rank).value_or(0);
  launch.local_size = number_of(names.local_size).value_or(0);
  require(*names.size == '\0' || launch.size > 0, "ranks", names.rank, " is set, so that ", names.size,
          " must be at least 1: got '", value_of(names.size), "'");
  require(launch.size == 0 || launch.rank < launch.size, "ranks", names.rank, ": got ", launch.rank,
          ", expected less than ", names.size, ", which is ", launch.size);
  return launch;
}

// srun starts the tasks of a step. The shell of salloc and the script of sbatch are steps, too, of one process.
bool in_slurm_step() {
  const std::string_view step =
      value_of("SLURM_STEP_ID").empty() ? value_of("SLURM_STEPID") : value_of("SLURM_STEP_ID");
  int64_t number = 0;
  return parse_whole(step, number) == NumberResult::kOk && number >= 0 && number < kFirstSpecialStep &&
         number_of(kSlurm.size).value_or(1) > 1;
}

std::string described(const Launch& launch) {
  return launch.size == 0 ? concat(launch.source, " says rank ", launch.rank)
                          : concat(launch.source, " says rank ", launch.rank, " of ", launch.size);
}

void refuse_torchrun() {
  const bool torchrun = !value_of("LOCAL_RANK").empty() || !value_of("TORCHELASTIC_RUN_ID").empty();
  if (!torchrun || value_of("RANK").empty()) return;
  const int64_t size = number_of("WORLD_SIZE").value_or(1);
  require(size <= 1, "ranks", "found RANK=", value_of("RANK"), " and WORLD_SIZE=", size,
          ", of a launcher such as torchrun, which bitgrad does not use. Start the ranks with: mpirun -n ", size,
          " --bind-to none bitgrad train ...");
}

}  // namespace

std::optional<Launch> find_launch() {
  if (value_of("BITGRAD_RANKS") == "off") return std::nullopt;
  std::vector<Launch> found;
  found.reserve(4);
  for (const Variables* names : {&kOpenMpi, &kPmi, &kPmix})
    if (auto launch = launch_of(*names)) found.push_back(std::move(*launch));
  // Below a launcher of MPI the variables of Slurm are those of its daemon on this machine.
  const bool of_mpi = !found.empty() && found[0].launcher != kPmix.launcher;
  if (!of_mpi && in_slurm_step())
    if (auto launch = launch_of(kSlurm)) found.push_back(std::move(*launch));
  if (found.empty()) {
    refuse_torchrun();
    return std::nullopt;
  }
  Launch launch = found[0];
  for (const Launch& other : found) {
    require(other.rank == launch.rank && (other.size == 0 || launch.size == 0 || other.size == launch.size), "ranks",
            described(launch), ", but ", described(other),
            ". Start the ranks with one launcher, or unset the variables of the other");
    if (launch.size == 0) launch.size = other.size;
    if (launch.local_size == 0) {
      launch.local_size = other.local_size;
      launch.local_rank = other.local_rank;
    }
  }
  return launch;
}

}  // namespace bitgrad
