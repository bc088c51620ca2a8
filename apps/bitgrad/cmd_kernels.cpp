// bitgrad kernels [--all]: which rows each family has, and which of them this machine (under BITGRAD_ISA) may run.
#include <iomanip>
#include <iostream>

#include "bitgrad/kernels/row.h"
#include "command.h"

namespace bitgrad::cli {

Run setup_kernels(CLI::App& app) {
  auto all = std::make_shared<bool>(false);
  app.add_flag("--all", *all, "also rows that this machine cannot run");
  return [all] {
    std::cout << std::left << std::setw(13) << "family" << std::setw(44) << "kernel" << std::setw(26) << "needs"
              << std::setw(10) << "order"
              << "available\n";
    for (const KernelInfo& k : all_kernels()) {
      if (!k.available && !*all) continue;
      std::cout << std::left << std::setw(13) << k.family << std::setw(44) << k.name << std::setw(26)
                << isa_names(k.needs) << std::setw(10) << order_name(k.order) << (k.available ? "yes" : "no") << '\n';
    }
    return 0;
  };
}

}  // namespace bitgrad::cli
