// Custom dtypes, registered in a few lines without rebuilding the library, and used for training at once. Each trains
// the same small network on drawn digits. The weights are stored packed in the dtype; forward and backward read them
// directly.
//
//   build/release/bin/custom_dtype
#include <cstdio>
#include <iostream>

#include "bitgrad/data/loader.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/train/learner.h"

using namespace bitgrad;

namespace {

// The 16 levels of NF4: quantiles of a normal distribution (Dettmers et al. 2023, arXiv 2305.14314, appendix E).
DType register_my_nf4() {
  DTypeInfo info;
  info.name = "my_nf4";
  info.bits = 4;
  info.kind = DTypeKind::kCodebook;
  info.levels = {-1.0f,       -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
                 0.07958030f, 0.16093020f,  0.24611230f,  0.33791524f,  0.44070983f,  0.56261700f,  0.72295684f,  1.0f};
  return register_dtype(info);
}

DType register_my_ternary() {
  return register_dtype({.name = "my_ternary", .bits = 2, .kind = DTypeKind::kInt, .qmin = -1, .qmax = 1});
}

std::shared_ptr<Sequential> make_model(DType dtype, const std::string& scheme, int64_t features, int64_t classes) {
  const QuantSpec codes{.dtype = dtype, .scheme = scheme, .granularity = Granularity::channel(0)};
  const auto linear = [&](int64_t out) {
    return LayerSpec{.kind = "linear", .attributes = {{"out", out}, {"bias", false}}, .weight = {.quant = codes}};
  };
  return make_sequential({linear(64), {.kind = "batch_norm"}, {.kind = "relu"}, linear(classes)}, features);
}

bool train(DType dtype, const std::string& scheme, const Dataset& data, const Dataset& test) {
  Learner learner(
      make_model(dtype, scheme, data.features(), data.classes()), find_loss("softmax_cross_entropy"), {.name = "adam"},
      {.accumulate = 1, .every = 1}, [](int64_t) { return 5e-3f; }, /*seed=*/1);
  learner.plan(
      {.input = {.sample = {data.features()}}, .outputs = data.classes(), .train_samples = 50, .eval_samples = 250});
  Loader loader(data, {.micro = 50, .seed = 1, .end_epoch = 6});
  Tensor x;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);
    learner.microbatch(x, {batch.labels, static_cast<size_t>(batch.size)});
  }
  const double percent = evaluate(learner, test, /*batch=*/250).accuracy;  // of the packed weights
  std::cout << learner.model().parameters()[0]->value().describe() << '\n';
  std::printf("%-10s accuracy %.1f %%\n", dtype.name().c_str(), percent);
  return percent > 60;
}

}  // namespace

int main() {
  const auto data = make_dataset({.format = "digits", .size = 2000, .affine = {2, -1}});
  const auto test = make_dataset({.format = "digits", .split = "test", .size = 500, .affine = {2, -1}});

  bool fine = train(register_my_nf4(), "codebook", *data, *test);
  fine = train(register_my_ternary(), "absmax", *data, *test) && fine;
  fine = train(dtypes::int4, "symmetric", *data, *test) && fine;
  return fine ? 0 : 1;
}
