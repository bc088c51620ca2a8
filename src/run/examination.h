// What an evaluation gets wrong: counts of predicted against true classes, and the worst samples. Written to
// evaluation.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/config/config.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/run/trainer.h"

namespace bitgrad::detail {

// Observes the batches of an evaluation, in sample order. Supports targets of one class per sample, or values; no
// texts.
class Examination {
 public:
  // nullptr if the targets are not supported.
  static std::unique_ptr<Examination> of(const Dataset& data, const RunConfig& config);
  // Discards earlier results and returns the hook for one evaluation.
  OutputHook begin();
  // Results of the last evaluation, which `event` describes.
  std::string json(const EvalEvent& event) const;

 private:
  struct Sample {
    double value = 0;  // error; larger is worse
    int64_t index = 0, label = -1, predicted = -1;
  };
  Examination(const Dataset& data, const RunConfig& config) : data_(data), config_(config) {}
  void add(const Tensor& outputs, const Tensor& target);
  void add_class(const float* scores, int64_t count, int64_t label);
  void keep(const Sample& sample);

  const Dataset& data_;
  const RunConfig& config_;
  int64_t seen_ = 0;
  std::vector<int64_t> confusion_;  // [true class, predicted class]; empty for more than kMostClasses classes
  std::vector<Sample> worst_;       // worst first
};

}  // namespace bitgrad::detail
