// What a process finds out about its launcher from variables, and how the module for ranks is found and refused.
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/dist/engines.h"
#include "dist/wire_module.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// The variables of launchers that are set during its life, and no others.
class LauncherVariables {
 public:
  using Values = std::vector<std::pair<const char*, const char*>>;

  explicit LauncherVariables(const Values& values) {
    for (const char* name : kNames) {
      if (const char* const value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    for (const auto& entry : values) setenv(entry.first, entry.second, 1);
  }
  ~LauncherVariables() {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& entry : before_) setenv(entry.first.c_str(), entry.second.c_str(), 1);
  }
  LauncherVariables(const LauncherVariables&) = delete;
  LauncherVariables& operator=(const LauncherVariables&) = delete;

 private:
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALRANKID",
                                           "MPI_LOCALNRANKS",
                                           "PMIX_RANK",
                                           "SLURM_STEP_ID",
                                           "SLURM_STEPID",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_LOCALID",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "TORCHELASTIC_RUN_ID",
                                           "BITGRAD_MPI_MODULE"};
  std::map<std::string, std::string> before_;
};

std::string launch_with(const LauncherVariables::Values& values) {
  const LauncherVariables variables(values);
  try {
    const auto launch = find_launch();
    if (!launch) return "none";
    return concat(launch->launcher, " by ", launch->source, ": ", launch->rank, " of ", launch->size, ", local ",
                  launch->local_rank, " of ", launch->local_size);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a process finds its rank in the variables of each launcher") {
  CHECK(launch_with({}) == "none");
  CHECK(launch_with({{"OMPI_COMM_WORLD_RANK", "3"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"PMIX_RANK", "3"}}) == "Open MPI by OMPI_COMM_WORLD_RANK: 3 of 4, local 1 of 2");
  CHECK(launch_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}}) ==
        "PMI by PMI_RANK: 0 of 2, local 0 of 2");
  CHECK(launch_with({{"PMIX_RANK", "5"}}) == "PMIx by PMIX_RANK: 5 of 0, local 0 of 0");
  CHECK(launch_with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}) ==
        "Open MPI by OMPI_COMM_WORLD_RANK: 0 of 1, local 0 of 0");
}

TEST_CASE("Slurm counts inside a step of several tasks alone") {
  const LauncherVariables::Values tasks = {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}};
  const auto with = [&](LauncherVariables::Values more) {
    more.insert(more.end(), tasks.begin(), tasks.end());
    return launch_with(more);
  };
  CHECK(with({}) == "none");
  CHECK(with({{"SLURM_STEP_ID", "0"}}) == "Slurm by SLURM_PROCID: 2 of 4, local 1 of 0");
  CHECK(with({{"SLURM_STEPID", "7"}}) == "Slurm by SLURM_PROCID: 2 of 4, local 1 of 0");
  for (const char* step : {"batch", "interactive", "4294967291", "4294967290"})
    CHECK(with({{"SLURM_STEP_ID", step}}) == "none");
  CHECK(launch_with({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}) == "none");
  // By srun --mpi=pmix, which does not say how many there are.
  CHECK(with({{"SLURM_STEP_ID", "0"}, {"PMIX_RANK", "2"}}) == "PMIx by PMIX_RANK: 2 of 4, local 1 of 0");
  // By mpirun inside an allocation: the step is that of its daemons.
  CHECK(with({{"SLURM_STEP_ID", "0"}, {"OMPI_COMM_WORLD_RANK", "7"}, {"OMPI_COMM_WORLD_SIZE", "8"}}) ==
        "Open MPI by OMPI_COMM_WORLD_RANK: 7 of 8, local 0 of 0");
}

TEST_CASE("launchers that differ are named, with what each says") {
  CHECK(launch_with(
            {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}) ==
        "[ranks] OMPI_COMM_WORLD_RANK says rank 3 of 4, but PMI_RANK says rank 0 of 2. Start the ranks with one "
        "launcher, or unset the variables of the other");
  CHECK(contains(launch_with({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMIX_RANK", "2"}}),
                 "PMI_RANK says rank 1 of 4, but PMIX_RANK says rank 2."));
  CHECK(
      contains(launch_with({{"PMIX_RANK", "1"}, {"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}}),
               "PMIX_RANK says rank 1, but SLURM_PROCID says rank 2 of 4."));
}

TEST_CASE("values that name no rank are refused by name") {
  CHECK(launch_with({{"OMPI_COMM_WORLD_RANK", "one"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) ==
        "[ranks] OMPI_COMM_WORLD_RANK: got 'one', expected a whole number from 0 on");
  CHECK(launch_with({{"OMPI_COMM_WORLD_RANK", "-1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) ==
        "[ranks] OMPI_COMM_WORLD_RANK: got '-1', expected a whole number from 0 on");
  CHECK(launch_with({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}) ==
        "[ranks] PMI_RANK: got 4, expected less than PMI_SIZE, which is 4");
  CHECK(contains(launch_with({{"PMI_RANK", "0"}}), "PMI_RANK is set, so that PMI_SIZE must be at least 1: got ''"));
}

TEST_CASE("ranks of torchrun are refused with the line of mpirun") {
  const std::string error = launch_with({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}});
  CHECK(contains(error, "[ranks] found RANK=1 and WORLD_SIZE=4"));
  CHECK(contains(error, "mpirun -n 4 --bind-to none bitgrad train"));
  CHECK(contains(launch_with({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "x"}}), "mpirun -n 4"));
  CHECK(launch_with({{"RANK", "1"}, {"WORLD_SIZE", "4"}}) == "none");  // two words that many programs use
  CHECK(launch_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}) == "none");
  CHECK(launch_with({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}) ==
        "PMI by PMI_RANK: 1 of 4, local 0 of 0");
}

TEST_CASE("without a launcher, or as the only rank, a process has no communicator and loads nothing") {
  const LauncherVariables::Values module = {{"BITGRAD_MPI_MODULE", "/nonexistent/bitgrad_mpi.so"}};
  const LauncherVariables none(module);
  CHECK(launched_ranks() == nullptr);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  CHECK(launched_ranks() == nullptr);
  CHECK(contains(error_of([] { launched_ranks({.message_bytes = int64_t{1} << 31}); }), "expected 1 to 2147483647"));
  CHECK(contains(error_of([] { launched_ranks({.timeout = std::chrono::milliseconds(0)}); }), "got a timeout of 0 ms"));
}

TEST_CASE("a module that is missing, or is none, is named with what to do") {
  const LauncherVariables launched({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  const auto refused = [](const std::string& path) {
    setenv("BITGRAD_MPI_MODULE", path.c_str(), 1);
    return error_of([] { launched_ranks(); });
  };
  const std::string missing = refused("/nonexistent/bitgrad_mpi.so");
  CHECK(contains(missing, "need the module bitgrad_mpi.so, which is not at /nonexistent/bitgrad_mpi.so."));
  CHECK(contains(missing, "Install the package bitgrad-mpi"));
  CHECK(contains(missing, "-DBITGRAD_WITH_MPI=ON"));
  const TempDir temp;
  std::ofstream(temp.file("text.so")) << "no library";
  CHECK(contains(refused(temp.file("text.so")), "text.so: cannot be loaded: "));
  CHECK(contains(refused(build_path("bin/tests/libraries/wire_of_other_build.so")),
                 "wire_of_other_build.so: was built with bitgrad 0.0.1 (of yesterday), C++ ABI 1, expected bitgrad "));
  CHECK(contains(refused(build_path("bin/tests/libraries/wire_of_other_mpi.so")),
                 "this process was started by Open MPI (OMPI_COMM_WORLD_RANK), and the module bitgrad_mpi.so was built "
                 "for MPICH 4.0.2"));
  unsetenv("BITGRAD_MPI_MODULE");
  const std::vector<std::string> paths = detail::wire_module_paths();
  CHECK(paths.size() >= 3);
  for (const std::string& path : paths) CHECK((path.starts_with('/') && path.ends_with("/bitgrad_mpi.so")));
  CHECK(contains(detail::wire_build(), "bitgrad "));
}
