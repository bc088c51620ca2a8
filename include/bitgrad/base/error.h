// Errors: one exception type, one message form, `[where] fact: got A, expected B. Hint.`
#pragma once

#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bitgrad/base/text_stream.h"

namespace bitgrad {

std::string printable_lines(std::string_view text);  // base/text.h

// What went wrong, as the process exit code that a program should end with.
enum class ErrorCode : int {
  kUsage = 2,      // wrong argument, shape, dtype or configuration
  kData = 3,       // a data set or checkpoint that cannot be read
  kMemory = 4,     // memory or disk is full
  kNonFinite = 5,  // a NaN or Inf where none may be
  kDevice = 6,     // a device or peer failed
  kBug = 70,       // an internal promise was broken
};

// The only exception that the library throws on purpose. what() is a complete sentence for the user, made printable
// (base/text.h): parts of it may come from a file.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorCode code = ErrorCode::kUsage)
      : std::runtime_error(printable_lines(message)), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// Joins the parts with operator<<.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  TextWriter out;
  (out << ... << parts);
  return out.str();
}

// Throws Error("[where] parts...").
template <typename... Parts>
[[noreturn]] void fail(std::string_view where, const Parts&... parts) {
  throw Error(concat('[', where, "] ", parts...));
}
template <typename... Parts>
[[noreturn]] void fail_with(ErrorCode code, std::string_view where, const Parts&... parts) {
  throw Error(concat('[', where, "] ", parts...), code);
}

// Throws unless `ok`. The parts are formatted only on failure.
template <typename... Parts>
void require(bool ok, std::string_view where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(where, parts...);
}
// The same for internal promises (ErrorCode::kBug).
template <typename... Parts>
void ensure(bool ok, std::string_view where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail_with(ErrorCode::kBug, where, "internal error: ", parts...);
}

}  // namespace bitgrad
