#include "train/export/report.h"

#include "bitgrad/base/error.h"

namespace bitgrad {

void require_none_refused_layers(const ExportReport& report, std::string_view where) {
  if (!report.refused()) return;
  std::string all;
  for (const ExportedLayer& l : report.layers)
    if (l.fate == ExportedTensor::Fate::kRefused) all += concat("\n  ", l.layer, " (", l.operation, "): ", l.reason);
  fail(where, "this format does not hold these layers:", all);
}

}  // namespace bitgrad
