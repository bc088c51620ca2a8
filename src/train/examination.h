// What an evaluation gets wrong: counts of predicted against true classes, and the worst samples. evaluation.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/train/config.h"
#include "bitgrad/train/trainer.h"

namespace bitgrad::detail {

// Sees the batches of an evaluation, samples in order. One class, or values, a sample; no texts.
class Examination {
 public:
  // nullptr where the data's targets are others.
  static std::unique_ptr<Examination> of(const Dataset& data, const RunConfig& config);
  // Forgets what it saw before; the hook of one evaluation.
  OutputHook begin();
  // Of the evaluation that was seen last; `event` says when it was.
  std::string json(const EvalEvent& event) const;

 private:
  struct Sample {
    double value = 0;  // how bad: larger is worse
    int64_t index = 0, label = -1, predicted = -1;
  };
  Examination(const Dataset& data, const RunConfig& config) : data_(data), config_(config) {}
  void add(const Tensor& outputs, const Tensor& target);
  void add_class(const float* scores, int64_t count, int64_t label);
  void keep(const Sample& sample);

  const Dataset& data_;
  const RunConfig& config_;
  int64_t seen_ = 0;
  std::vector<int64_t> confusion_;  // [classes true, classes predicted]; empty: of more than kMostClasses none
  std::vector<Sample> worst_;       // the worst first
};

}  // namespace bitgrad::detail
