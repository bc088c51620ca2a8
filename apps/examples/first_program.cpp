#include <cstdio>

#include "bitgrad/bitgrad.h"

using namespace bitgrad;

int main() {
  // An int4 weight [10, 784], its gradient in bf16, its master in fp32 (the default).
  const QuantSpec int4{.dtype = dtypes::int4, .scheme = "symmetric", .granularity = Granularity::channel(0)};
  Parameter w({10, 784}, {.quant = int4, .grad = dtypes::bf16});
  w.initialize("w", /*seed=*/1);
  const auto optimizer = make_optimizer({.name = "adam"});
  optimizer->attach({&w});

  const auto digits = make_dataset({.format = "digits", .size = 4000, .affine = {2, -1}});
  Loader loader(*digits, {.micro = 50, .seed = 1, .end_epoch = 5});
  Tensor x;
  int64_t step = 0, correct = 0;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);  // [50, 784] fp32
    const std::span<const int32_t> labels(batch.labels, static_cast<size_t>(batch.size));
    Tape tape;
    const Var scores = linear(x, w.read());        // reads packed int4
    tape.backward(squared_hinge(scores, labels));  // writes w.grad() in bf16
    optimizer->step(0.002f, batch.size);           // updates w.master()
    w.requantize(/*seed=*/1, ++step);              // recomputes w.value() from it
    if (batch.epoch == 4) correct += count_correct(scores.value(), labels);
  }

  save_tensors("w.safetensors", {{"w", w.value()}});  // codes and scales
  const Tensor saved = load_tensors("w.safetensors").at("w");
  const std::vector<float> values = saved.to_vector();  // dequantized, row by row
  std::printf("%s\naccuracy in epoch 5: %.1f %%, w[3,400] = %g = %g\n", saved.describe().c_str(),
              100.0 * static_cast<double>(correct) / static_cast<double>(digits->size()),
              static_cast<double>(saved.at({3, 400})), static_cast<double>(values[3 * 784 + 400]));
}
