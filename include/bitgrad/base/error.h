// Errors: one exception type and one message format, `[where] fact: got A, expected B. Hint.`
#pragma once

#include <concepts>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace bitgrad {

// String streams that throw. The standard streams swallow exceptions of their buffer, above all std::bad_alloc, and
// then silently truncate the text. With badbit in exceptions() they rethrow ([iostate.flags],
// [ostream.formatted.reqmts]).

// Collects text: `out << parts`, then `out.str()`. Throws whatever an insertion throws, such as std::bad_alloc.
class TextWriter final : public std::ostringstream {
 public:
  TextWriter() { exceptions(std::ios::badbit); }
};

// Reads text with std::getline and >>. End of text and malformed words set the stream state as usual; other errors
// throw.
class TextReader final : public std::istringstream {
 public:
  explicit TextReader(std::string text) : std::istringstream(std::move(text)) { exceptions(std::ios::badbit); }
};

std::string printable_lines(std::string_view text);  // base/text.h

// Category of an error. The value is the exit code that a program should end with.
enum class ErrorCode : int {
  kUsage = 2,      // invalid argument, shape, dtype or configuration
  kData = 3,       // unreadable data set or checkpoint
  kMemory = 4,     // out of memory or disk space
  kNonFinite = 5,  // NaN or Inf where finite values are required
  kDevice = 6,     // failure of a device or a peer
  kBug = 70,       // violated internal invariant
};

// The only exception type that the library throws deliberately. what() is a complete message for the user, with
// unprintable bytes escaped (printable_lines, base/text.h), since parts of it may come from a file.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorCode code = ErrorCode::kUsage)
      : std::runtime_error(printable_lines(message)), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// Concatenates the parts with operator<<.
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
// As require, for internal invariants: throws ErrorCode::kBug.
template <typename... Parts>
void ensure(bool ok, std::string_view where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail_with(ErrorCode::kBug, where, "internal error: ", parts...);
}

}  // namespace bitgrad
