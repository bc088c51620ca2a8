// The loop of low-bit training, written out: an int4 weight with a bf16 gradient and an fp32 master. After every 2
// microbatches Adam updates the master, which is then quantized again. The task: recover the matrix T of y = T x from
// noisy samples.
//
//   build/release/bin/requantize_loop
#include <cstdio>
#include <iostream>

#include "bitgrad/nn/parameter.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/optim/optimizer.h"

using namespace bitgrad;

namespace {

constexpr int64_t kInputs = 64, kOutputs = 16, kMicro = 32;
constexpr int kMicrobatches = 400, kAccumulate = 2;
constexpr uint64_t kSeed = 7;

// Values of a named stream, uniform in [-r, r).
Tensor draw(const Shape& shape, const char* name, uint32_t step, float r) {
  const RandomStream stream{kSeed, Purpose::kUser, site_id(name), step};
  Tensor t = Tensor::empty(shape, dtypes::fp32);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.as<float>()[i] = r * (2.0f * stream.uniform(static_cast<uint64_t>(i)) - 1.0f);
  return t;
}

// One microbatch: x [32, 64], and the negated expected output of the layer, so that y + target is the error.
struct Sample {
  Tensor x, minus_target;
};
Sample make_sample(const Tensor& truth, uint32_t microbatch) {
  const Tensor x = draw({kMicro, kInputs}, "x", microbatch, 1.0f);
  Tensor t = linear(x, truth).value();
  const Tensor noise = draw(t.shape(), "noise", microbatch, 0.01f);
  for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = -(t.as<float>()[i] + noise.as<float>()[i]);
  return {x, t};
}

}  // namespace

int main() {
  const Tensor truth = draw({kOutputs, kInputs}, "truth", 0, 0.5f);

  ParameterSpec spec;
  spec.quant.emplace();
  spec.quant->dtype = dtypes::int4;
  spec.quant->scheme = "symmetric";
  spec.quant->granularity = Granularity::channel(0);
  spec.grad = dtypes::bf16;
  Parameter weight({kOutputs, kInputs}, spec);
  weight.initialize("weight", kSeed);

  OptimizerSpec adam;
  adam.name = "adam";
  const auto optimizer = make_optimizer(adam);
  optimizer->attach({&weight});

  double first = 0, sum_of_loss = 0;
  int64_t samples = 0, step = 0;
  for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
    const Sample sample = make_sample(truth, static_cast<uint32_t>(microbatch));
    {
      Tape tape;
      const Var y = linear(sample.x, weight.read());  // reads the packed int4 codes
      const Var error = add(y, sample.minus_target);
      const Var loss = sum(mul(error, error));  // a sum over samples, so that microbatches of a window simply add up
      tape.backward(loss);                      // adds to weight.grad(), in bf16
      sum_of_loss += loss.value().item();
    }
    samples += kMicro;
    if ((microbatch + 1) % kAccumulate != 0) continue;  // the codes do not change

    if (step == 0)
      std::cout << "weight   " << weight.value().dtype() << "\n"
                << "gradient " << weight.grad().dtype() << "\n"
                << "master   " << weight.master().dtype() << "\n";
    optimizer->step(0.02f, samples);   // updates the master and zeroes the gradient
    weight.requantize(kSeed, ++step);  // codes and scales from the master
    const double loss = sum_of_loss / static_cast<double>(samples);
    if (step == 1) first = loss;
    if (step == 1 || step % 25 == 0) std::printf("step %3d  loss per sample %.4f\n", static_cast<int>(step), loss);
    if (microbatch + 1 < kMicrobatches) sum_of_loss = 0, samples = 0;
  }

  std::cout << "\n"
            << weight.value().describe() << "\n"
            << "codes    " << weight.value().bytes() << " bytes, scales " << weight.value().quant()->bytes()
            << " bytes\n"
            << "gradient " << weight.grad().bytes() << " bytes\n"
            << "master   " << weight.master().bytes() << " bytes\n"
            << "codes of row 0:";
  const std::vector<double> codes = weight.value().row_slice(0, 1).elements();
  for (size_t i = 0; i < 16; ++i) std::cout << ' ' << codes[i];
  const double last = sum_of_loss / static_cast<double>(samples);
  std::printf(" ...\nloss %.4f -> %.4f\n", first, last);
  return last < first / 10 ? 0 : 1;
}
