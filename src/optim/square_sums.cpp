#include "optim/square_sums.h"

#include <bit>

#include "kernels/flag.h"
#include "kernels/reduce.h"

namespace bitgrad::detail {

void SquareSums::next() { parameters_.push_back(std::make_shared<Blocks>()); }

void SquareSums::add(float sum_of_squares) { parameters_.back()->push_back(sum_of_squares); }

void SquareSums::add_to(size_t index, float sum_of_squares) { parameters_.at(index)->push_back(sum_of_squares); }

void SquareSums::add(const float* x, int64_t n) {
  if (n == 0) return add(0.0f);
  if (current_device().is_cpu()) return add(kernels::sum_squares(x, n));
  const FlagWord word;
  kernels::ReduceArgs args;
  args.rule = kernels::ReduceRule::kSumSquares;
  args.rows = 1;
  args.cols = args.ldx = n;
  args.x = x;
  args.out = reinterpret_cast<float*>(word.word());
  kernels::reduce(args);
  word.read([blocks = parameters_.back()](uint32_t bits) { blocks->push_back(std::bit_cast<float>(bits)); });
}

void SquareSums::forget() {
  for (const auto& blocks : parameters_) blocks->clear();
}

double SquareSums::total() const {
  double total = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) total += of_parameter(i);
  return total;
}

double SquareSums::of_parameter(size_t index) const {
  double sum = 0;
  for (const float block : *parameters_[index]) sum += static_cast<double>(block);
  return sum;
}

}  // namespace bitgrad::detail
