#include "before_after.h"

#include <cmath>

#include "bitgrad/base/error.h"

namespace bitgrad::cli {

std::string numbers_of(const Evaluation& e) {
  std::string text = concat(e.accuracy < 0 ? "" : concat("accuracy ", e.accuracy, " %  "), "loss ", e.loss);
  for (const auto& [name, value] : e.metrics)
    if (name != "loss" && name != "accuracy") text += concat("  ", name, ' ', value);
  return text;
}

Json evaluation_json(const Evaluation& e) {
  Json j{{"accuracy", e.accuracy < 0 ? Json(nullptr) : Json(e.accuracy)}, {"loss", e.loss}, {"samples", e.samples}};
  for (const auto& [name, value] : e.metrics)
    if (!j.contains(name)) j[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  return j;
}

void print_before_after(std::ostream& out, const Evaluation& before, const std::string& of, const Evaluation& after,
                        const std::string& written, const std::string& split) {
  out << "before: " << numbers_of(before) << "  (" << of << ")\n"
      << "after:  " << numbers_of(after) << "  (" << written << ")\n"
      << "of " << after.samples
      << (split == "train"   ? " training"
          : split == "valid" ? " validation"
                             : " test")
      << " samples\n";
}

}  // namespace bitgrad::cli
