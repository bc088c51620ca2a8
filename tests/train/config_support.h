// A small configuration that is right, and helpers to spoil it.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/config/config.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad::test {

using Strings = std::vector<std::string>;

inline const char* const kSmall = R"(version: 1
data: {train: {format: digits, size: 100}, test: {format: digits, size: 50}}
model:
  layers:
    - quantize: {}
    - linear: {out: 10, bias: false}
quant:
  weights: {dtype: bint1, scheme: binary}
  activations: {dtype: bint1, scheme: binary}
optim: {name: adam, lr: 0.01}
train: {stop: 3 epochs}
)";

inline RunConfig small(const Strings& overrides) { return parse_config(kSmall, "small.yaml", overrides); }
inline std::string small_error(const Strings& overrides) {
  return error_of([&] { small(overrides); });
}
inline std::string text_error(const std::string& text) {
  return error_of([&] { parse_config(text, "c.yaml"); });
}
// kSmall with one line replaced.
inline std::string with_line(const std::string& start, const std::string& line) {
  std::string text = kSmall;
  const size_t begin = text.find(start);
  REQUIRE(begin != std::string::npos);
  return text.replace(begin, text.find('\n', begin) - begin, line);
}
// A float network with layers.0, layers.2 and layers.4 to quantize.
inline const char* const kFloat = R"(version: 1
data: {train: {format: digits, size: 100}}
model:
  layers:
    - linear: {out: 16}
    - relu: {}
    - linear: {out: 12, bias: false}
    - relu: {}
    - linear: {out: 10}
quant:
  requantize_every: 1
optim: {name: adam, lr: 0.01}
train: {stop: 10 epochs}
)";
// kFloat with these lines below `quant:` (line 11 on).
inline std::string with_quant(const std::string& lines) {
  std::string text = kFloat;
  const std::string from = "  requantize_every: 1\n";
  return text.replace(text.find(from), from.size(), lines);
}
// "line:col" of each finding, joined by blanks.
inline std::string places(const std::string& text, const Strings& overrides = {}) {
  try {
    parse_config(text, "c.yaml", overrides);
  } catch (const ConfigError& error) {
    std::string out;
    for (const ConfigDiagnostic& d : error.diagnostics())
      out += (out.empty() ? "" : " ") +
             (d.mark.argument ? concat("arg", d.mark.argument) : concat(d.mark.line, ':', d.mark.col));
    return out;
  }
  return "";
}

}  // namespace bitgrad::test
