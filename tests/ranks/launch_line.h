// Command lines that start ranks, and variables of ranks, for the MPI that this build has: Open MPI or MPICH.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bitgrad::test {

inline constexpr bool kOpenMpi = std::string_view(BITGRAD_MPI_KIND) == "openmpi";
// What the launcher says in the environment of a rank.
inline constexpr const char *kRankVariable = kOpenMpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK",
                            *kSizeVariable = kOpenMpi ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE",
                            *kMpiName = kOpenMpi ? "Open MPI" : "MPICH";

// What comes before the program: as many ranks as wanted, whatever the number of cores.
inline std::vector<std::string> mpirun(int ranks, const std::string& binding = "none") {
  std::vector<std::string> line{BITGRAD_MPIRUN};
  if (kOpenMpi) line.emplace_back("--oversubscribe");
  line.insert(line.end(), {"--bind-to", binding, "-n", std::to_string(ranks)});
  return line;
}
// After mpirun(ranks): a variable of these ranks.
inline std::vector<std::string> with_variable(const std::string& name, const std::string& value) {
  if (kOpenMpi) return {"-x", name + '=' + value};
  return {"-env", name, value};
}

}  // namespace bitgrad::test
