// String streams that throw. The standard streams swallow exceptions of their buffer, above all std::bad_alloc, and
// then silently truncate the text. With badbit in exceptions() they rethrow ([iostate.flags],
// [ostream.formatted.reqmts]).
#pragma once

#include <sstream>
#include <string>
#include <utility>

namespace bitgrad {

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

}  // namespace bitgrad
