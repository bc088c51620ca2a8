// Runs whose numbers grow until they overflow: each must end with Error(kNonFinite) that names what and when, or with a
// model that is finite; and what it leaves in its folder must be finite.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "support/expect_error.h"
#include "train/small_runs.h"

namespace bitgrad::test {

// 8 steps, evaluated after the 4th and the 8th, saved after the 3rd, the 6th and the last.
inline constexpr const char* kWildNet = R"yaml(version: 1
run: {name: wild, seed: 7}
data:
  train: {format: digits, size: 40}
  test: {format: digits, size: 20}
model:
  layers:
    - linear: {out: 8}
    - batch_norm: {}
    - relu: {}
    - linear: {out: 10}
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: sgd, lr: 0.1}
train: {stop: 8 steps}
checkpoint: {every: 3 steps}
log: {every: 2 steps, quantization: off}
)yaml";

struct WildRun {
  const char* name;
  std::vector<std::string> keys;
  bool overflows = true;  // it must end with the Error; false: it may
};

inline const std::vector<WildRun>& wild_runs() {
  // Each step multiplies the weights by 1 - 10^6.
  static const std::string grow = "optim={name: adamw, lr: 1000, weight_decay: 1000}";
  // A loss of 10^30 becomes one of 10^42 by the only step.
  static const std::vector<std::string> last_step{
      "model.layers=[{linear: {out: 10, bias: false}}]", "quant.weights={dtype: fp32, init: \"uniform(-1e13,1e13)\"}",
      "optim={name: sgd, lr: 1000, weight_decay: 1000}", "loss=squared_hinge", "train.stop=1 steps"};
  // Logits of 10^19 or more, whose squares are not finite while their gradients are.
  static const std::vector<std::string> hinge{"model.layers=[{linear: {out: 10}}]", "loss=squared_hinge",
                                              "quant.weights={dtype: fp32, init: \"uniform(-1e19,1e19)\"}"};
  const auto with = [](std::vector<std::string> keys, const std::vector<std::string>& more) {
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  };
  static const std::vector<WildRun> runs{
      {"sgd, rate 1000", {"optim={name: sgd, lr: 1000}"}, false},
      {"sgd, rate and decay 1000", {"optim={name: sgd, lr: 1000, weight_decay: 1000}"}},
      {"momentum", {"optim={name: sgd, lr: 1000, momentum: 0.99, nesterov: true, weight_decay: 1000}"}},
      {"adam, rate 1000", {"optim={name: adam, lr: 1000}"}, false},
      {"adamw, rate and decay 1000", {grow}},
      {"adamw after backward", {grow, "optim.fused=off"}},
      {"adamw, norm clip", {grow, "optim.clip_norm=1"}},
      {"adamw, value clip", {grow, "optim.clip_value=1"}},
      {"adamw, moments of 8 bits", {grow, "optim.moments=int8"}},
      {"adamw, moments of 4 bits", {grow, "optim.moments=int4"}},
      {"adamw, moments in bf16", {grow, "optim.moments=bf16"}},
      {"adamw, strict", {grow, "run.bits=strict"}},
      {"adamw, windows of 4", {grow, "batch.global=40"}},
      {"int8, codes every 4 steps", {grow, "quant.weights={dtype: int8}", "quant.requantize_every=4"}},
      {"int8 by channel", {grow, "quant.weights={dtype: int8, scheme: absmax, granularity: channel}"}},
      {"int8, bf16 masters", {grow, "quant.weights={dtype: int8, scheme: absmax, master: bf16}"}},
      {"int8, bf16 masters by channel",
       {grow, "quant.weights={dtype: int8, scheme: absmax, granularity: channel, master: bf16}", "optim.fused=off"}},
      {"int8, no masters", {grow, "quant.weights={dtype: int8, scheme: absmax, granularity: channel, master: none}"}},
      {"int4, symmetric", {grow, "quant.weights={dtype: int4, scheme: symmetric}"}},
      {"ternary", {grow, "quant.weights={dtype: ternary}"}},
      {"signs with alpha", {grow, "quant.weights={dtype: bint1, scheme: binary, alpha: tensor}"}},
      {"signs in a clamp", {grow, "quant.weights={dtype: bint1, scheme: binary, latent_clamp: 1}"}, false},
      {"learned steps", {"optim={name: sgd, lr: 1000}", "quant.weights={dtype: int4, scheme: lsq}"}, false},
      {"products of the backward in int8", {grow, "quant.recipe=w8a8", "quant.backward={gx: int8, gw: int8}"}},
      {"first values of 1e30", {"quant.weights={dtype: fp32, init: \"uniform(-1e30,1e30)\"}"}, false},
      {"first values of 1e30, int4", {"quant.weights={dtype: int4, init: \"uniform(-1e30,1e30)\"}"}, false},
      {"first values of 1e30, signs",
       {"quant.weights={dtype: bint1, scheme: binary, alpha: tensor, init: \"uniform(-1e30,1e30)\"}"},
       false},
      {"first values of 1e30, without a norm",
       {"quant.weights={dtype: fp32, init: \"uniform(-1e30,1e30)\"}",
        "model.layers=[{linear: {out: 8}}, {relu: {}}, {linear: {out: 10}}]"}},
      {"a loss that overflows", hinge},
      {"a loss that overflows, windows of 4", with(hinge, {"batch.global=40"})},
      {"a loss that overflows, int8", with(hinge, {"quant.weights={dtype: int8, init: \"uniform(-1e19,1e19)\"}"})},
      {"a loss that overflows after the last step", last_step},
      {"a loss that overflows after the last step, without test data", with(last_step, {"~data.test"})},
      {"pixels of 1e6", {"data.affine=[1000,1000]", "optim={name: sgd, lr: 1000}"}, false},
  };
  return runs;
}

// How `folder` or the end of the run breaks the promise; empty: it is kept. An empty folder: nothing is written.
inline std::string wrong_end(const WildRun& run, const RunConfig& config, const std::string& folder) {
  int code = 0;
  std::string text;
  try {
    run_all(config, folder);
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
    text = error.what();
  }
  if (code != 0 && code != 5) return concat("error ", code, ": ", text);
  if (code == 5 && !contains(text, "optimizer step")) return concat("no step is named: ", text);
  if (code == 0 && run.overflows) return "it ended well";
  if (folder.empty()) return "";
  const auto data = open_dataset(config, config.data.test ? *config.data.test : config.data.train);
  for (const char* name : {"/last.safetensors", "/best.safetensors"}) {
    if (!file_system().exists(folder + name)) continue;
    try {
      const Evaluation e = evaluate(*load_evaluator(config, *data, folder + name), *data, 10);
      if (!std::isfinite(e.loss)) return concat(name, " evaluates to a loss of ", e.loss);
    } catch (const Error& error) {
      return concat(name, ": ", error.what());
    }
  }
  return "";
}

}  // namespace bitgrad::test
