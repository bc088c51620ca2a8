// Strict mode for a scope.
#pragma once

#include "bitgrad/base/cpu.h"

namespace bitgrad::test {

class StrictBits {
 public:
  StrictBits() : before_(bits_mode()) { set_bits_mode(BitsMode::kStrict); }
  ~StrictBits() { set_bits_mode(before_); }
  StrictBits(const StrictBits&) = delete;
  StrictBits& operator=(const StrictBits&) = delete;

 private:
  BitsMode before_;
};

}  // namespace bitgrad::test
