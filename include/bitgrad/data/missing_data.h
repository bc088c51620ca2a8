// The error of data that are not there, as opposed to data that exist and cannot be read.
#pragma once

#include <string>

#include "bitgrad/base/error.h"

namespace bitgrad {

// A file or folder that a data set refers to does not exist.
class MissingData : public Error {
 public:
  explicit MissingData(const std::string& message) : Error(message, ErrorCode::kData) {}
};

}  // namespace bitgrad
