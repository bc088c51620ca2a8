// Declares the functions of targets.inc.
#pragma once

#include "bitgrad/train/export.h"

namespace bitgrad {

#define BITGRAD_EXPORT(name, ending, companion, function, doc) \
  ExportReport function(const ExportSource& source, const std::string& path, const ExportSpec& spec);
#include "train/export/targets.inc"
#undef BITGRAD_EXPORT

}  // namespace bitgrad
