// Ranks that a launcher has started (mpirun, srun): how a process finds that it is one, and its communicator.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bitgrad/dist/communicator.h"

namespace bitgrad {

// What the variables of a launcher say about this process.
struct Launch {
  std::string launcher = {};  // "Open MPI", "PMI" (MPICH and its relatives), "PMIx", "Slurm"
  std::string source = {};    // the variable that holds the rank
  int64_t rank = 0;
  int64_t size = 1;        // 0: only MPI knows
  int64_t local_rank = 0;  // among the ranks of the same host
  int64_t local_size = 0;  // 0: only MPI knows
};

// Reads OMPI_COMM_WORLD_*, PMI_*, PMIX_RANK and SLURM_*; of Slurm inside a step of several tasks alone. None: this
// process was started on its own, or BITGRAD_RANKS is "off". Throws Error if two of them say different ranks or sizes,
// if a value is not a number or out of range, or if RANK and WORLD_SIZE of a launcher such as torchrun are set instead.
std::optional<Launch> find_launch();

struct RankOptions {
  std::chrono::milliseconds timeout = kRankTimeout;  // after which a silent rank ends all
  // Whether this process was asked to end (SIGTERM), as a launcher asks when it has lost a rank. Called by another
  // thread. While it returns true, a rank that is waited for and does not answer for 0.3 s ends all.
  std::function<bool()> stop = {};
  int64_t message_bytes = int64_t{1} << 30;  // the most of one message, at most 2^31 - 1; longer parts are split
};

// The communicator of this process among those of its launcher, by MPI: the module bitgrad_mpi.so is loaded, and logs
// who this rank is. nullptr: no launcher, or one rank. Further calls, the same on all ranks, return others.
// At the end of the process (exit, or return of main) the ranks wait for each other; after a failure for a few seconds,
// then they end with its ErrorCode. A program that ends otherwise takes the other ranks along.
// Throws as find_launch, and Error if the module is missing, of another build or of another MPI than the launcher, or
// if MPI does not start or finds another number of ranks.
std::shared_ptr<Communicator> launched_ranks(const RankOptions& options = {});

// The Error with which a rank ends the others because of this one: of an exception that is none with kMemory if memory
// ran out, else kBug.
Error error_for_ranks(const std::exception& error);

}  // namespace bitgrad
