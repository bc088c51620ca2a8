// bitgrad version
#include <iostream>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/version.h"
#include "command.h"

namespace bitgrad::cli {

Run setup_version(CLI::App&) {
  return [] {
    std::cout << "bitgrad " << BITGRAD_VERSION << " (" << BITGRAD_GIT << ", " << BITGRAD_BUILD_TYPE << ")\n"
              << "compiler  " << BITGRAD_COMPILER << "\n"
              << "cpu       " << cpu_model_name() << "\n"
              << "isa       " << isa_names(cpu_isa()) << "\n"
              << "threads   " << num_threads() << "\n";
    return 0;
  };
}

}  // namespace bitgrad::cli
