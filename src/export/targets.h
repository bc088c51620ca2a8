// Declares the functions of targets.inc.
#pragma once

#include "bitgrad/export/export.h"

namespace bitgrad {

#define BITGRAD_EXPORT(name, ending, companion, function, doc) \
  ExportReport function(const ExportSource& source, const std::string& path, const ExportSpec& spec);
#include "export/targets.inc"
#undef BITGRAD_EXPORT

}  // namespace bitgrad
