// Text and code of the error that a call throws. A device finds some errors later than the CPU: its flags are read.
#pragma once

#include <string>

#include "bitgrad/base/error.h"
#include "kernels/flag.h"

namespace bitgrad::test {

// what() of the bitgrad::Error that `call` throws, "" if it throws nothing. Other exceptions pass through.
template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
    poll_errors();
  } catch (const Error& error) {
    discard_errors();
    return error.what();
  }
  return "";
}

// The exit code of the bitgrad::Error that `call` throws, 0 if it throws nothing.
template <typename Call>
int error_code_of(Call&& call) {
  try {
    call();
    poll_errors();
  } catch (const Error& error) {
    discard_errors();
    return static_cast<int>(error.code());
  }
  return 0;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace bitgrad::test
