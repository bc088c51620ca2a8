// A network with two norms on synthetic digits.
#pragma once

#include "train/small_runs.h"

namespace bitgrad::test {

inline constexpr const char* kDigits = R"(version: 1
data: {train: {format: digits, size: 1000}, test: {format: digits, size: 500}, affine: [2, -1]}
model:
  layers: [linear: {out: 48, bias: false}, batch_norm: {}, relu: {}, linear: {out: 32, bias: false}, batch_norm: {},
           relu: {}, linear: {out: 10}]
batch: {global: 50}
optim: {name: adam, lr: 0.005}
train: {stop: 5 epochs}
)";

inline RunConfig digits(const std::vector<std::string>& overrides = {}) {
  return parse_config(kDigits, "digits.yaml", overrides);
}

}  // namespace bitgrad::test
