// A float network on the drawn digits, for tests of commands that take a trained one.
#pragma once

namespace bitgrad::test {

inline constexpr const char* kDigitsNet = R"yaml(version: 1
run: {name: net, seed: 2}
data:
  train: {format: digits, size: 400}
  test: {format: digits, size: 200}
  affine: [2, -1]
model:
  layers:
    - linear: {out: 32}
    - batch_norm: {}
    - relu: {}
    - linear: {out: 32}
    - relu: {}
    - linear: {out: 10}
batch: {global: 20, micro: 20}
optim: {name: adam, lr: 0.005}
train: {stop: 4 epochs}
checkpoint: {every: 4 epochs}
)yaml";

}  // namespace bitgrad::test
