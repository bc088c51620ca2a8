#include "export/targets.h"

#include "bitgrad/base/error.h"

namespace bitgrad {

void require_all_held(const ExportReport& report, std::string_view where) {
  if (!report.refused()) return;
  std::string all;
  for (const ExportedLayer& l : report.layers)
    if (l.fate == ExportedTensor::Fate::kRefused) all += concat("\n  ", l.layer, " (", l.operation, "): ", l.reason);
  std::string tensors;
  for (const ExportedTensor& t : report.tensors)
    if (t.fate == ExportedTensor::Fate::kRefused) tensors += concat("\n  ", t.parameter, ": ", t.reason);
  if (all.empty()) fail(where, "this format does not hold these tensors:", tensors);
  fail(where, "this format does not hold these layers:", all, tensors);
}

}  // namespace bitgrad
