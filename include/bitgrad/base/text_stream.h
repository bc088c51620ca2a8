// String streams that throw. A stream of the standard library keeps an exception of its buffer to itself, the one of a
// failed allocation above all: the text just ends there, and what is written or read of it is cut short without a word.
// With badbit among its exceptions a stream rethrows what was thrown ([iostate.flags], [ostream.formatted.reqmts]).
#pragma once

#include <sstream>
#include <string>
#include <utility>

namespace bitgrad {

// Collects text: `out << parts`, then `out.str()`. Throws what an insertion throws, such as std::bad_alloc.
class TextWriter final : public std::ostringstream {
 public:
  TextWriter() { exceptions(std::ios::badbit); }
};

// Reads a text by std::getline and >>. The end of the text and words of another form set the stream's state, as usual;
// everything else is thrown.
class TextReader final : public std::istringstream {
 public:
  explicit TextReader(std::string text) : std::istringstream(std::move(text)) { exceptions(std::ios::badbit); }
};

}  // namespace bitgrad
