#include "before_after.h"

#include <iostream>

#include "bitgrad/base/error.h"

namespace bitgrad::cli {

std::string numbers_of(const Evaluation& e) {
  std::string text = concat(e.accuracy < 0 ? "" : concat("accuracy ", e.accuracy, " %  "), "loss ", e.loss);
  for (const auto& [name, value] : e.metrics)
    if (name != "loss" && name != "accuracy") text += concat("  ", name, ' ', value);
  return text;
}

void print_before_after(const Evaluation& before, const std::string& of, const Evaluation& after,
                        const std::string& written, const std::string& split) {
  std::cout << "before: " << numbers_of(before) << "  (" << of << ")\n"
            << "after:  " << numbers_of(after) << "  (" << written << ")\n"
            << "of " << after.samples
            << (split == "train"   ? " training"
                : split == "valid" ? " validation"
                                   : " test")
            << " samples\n";
}

}  // namespace bitgrad::cli
