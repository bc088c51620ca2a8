// Weights of other programs as first values.
#include "bitgrad/interop/interop.h"

#include <cmath>

#include "bitgrad/base/file.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/nn/layers.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/npy_bytes.h"
#include "support/numbers.h"
#include "support/temp_dir.h"
#include "train/small_learner.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// conv2d 3x3 of [4,5,2] images -> batch_norm -> relu -> flatten -> linear 3.
std::unique_ptr<Learner> small_cnn() {
  LayerSpec conv = plain_spec("conv2d");
  conv.attributes["out"] = 3;
  conv.attributes["kernel"] = std::vector<int64_t>{3, 3};
  conv.attributes["bias"] = true;
  ModelSpec spec;
  spec.input.sample = {4, 5, 2};
  spec.layers = {conv, plain_spec("batch_norm"), plain_spec("relu"), plain_spec("flatten"),
                 linear_spec(3, dtypes::fp32, "")};
  auto learner = std::make_unique<Learner>(
      make_model(spec), find_loss("softmax_cross_entropy"), OptimizerSpec{}, RequantPolicy{},
      [](int64_t) { return 0.1f; }, 1);
  PlanSpec plan;
  plan.input = spec.input;
  plan.input.dtype = dtypes::fp32;
  learner->plan(plan);
  return learner;
}

constexpr int64_t kOut = 3, kIn = 2, kSide = 3, kRows = 2, kColumns = 3;  // without padding

// What PyTorch calls the tensors of small_cnn, in its orders.
NamedTensors torch_cnn() {
  return {{"0.weight", random_tensor({kOut, kIn, kSide, kSide}, dtypes::fp32, 1)},
          {"0.bias", random_tensor({kOut}, dtypes::fp32, 2)},
          {"1.weight", random_tensor({kOut}, dtypes::fp32, 3)},
          {"1.bias", random_tensor({kOut}, dtypes::fp32, 4)},
          {"1.running_mean", random_tensor({kOut}, dtypes::fp32, 5)},
          {"1.running_var", Tensor::full({kOut}, dtypes::fp32, 0.5)},
          {"1.num_batches_tracked", Tensor::full({1}, dtypes::int64, 7)},
          {"4.weight", random_tensor({3, kOut * kRows * kColumns}, dtypes::fp32, 6)},
          {"4.bias", random_tensor({3}, dtypes::fp32, 7)}};
}

// The network as PyTorch computes it, in double: x [2, 4, 5] of one sample.
std::vector<double> torch_forward(const NamedTensors& w, const std::vector<double>& x) {
  const auto at = [&](const char* name) { return w.at(name).values(); };
  const auto conv = at("0.weight"), bias = at("0.bias"), gamma = at("1.weight"), beta = at("1.bias");
  const auto mean = at("1.running_mean"), var = at("1.running_var"), fc = at("4.weight"), fc_bias = at("4.bias");
  std::vector<double> features;  // [C, H, W]
  for (size_t o = 0; o < 3; ++o)
    for (size_t r = 0; r < 2; ++r)
      for (size_t c = 0; c < 3; ++c) {
        double sum = bias[o];
        for (size_t i = 0; i < 2; ++i)
          for (size_t y = 0; y < 3; ++y)
            for (size_t z = 0; z < 3; ++z) sum += conv[((o * 2 + i) * 3 + y) * 3 + z] * x[(i * 4 + r + y) * 5 + c + z];
        features.push_back(std::max(0.0, (sum - mean[o]) / std::sqrt(var[o] + 1e-5) * gamma[o] + beta[o]));
      }
  std::vector<double> out;
  for (size_t o = 0; o < 3; ++o) {
    double sum = fc_bias[o];
    for (size_t k = 0; k < features.size(); ++k) sum += fc[o * features.size() + k] * features[k];
    out.push_back(sum);
  }
  return out;
}

void expect_torch_outputs(Learner& learner) {
  const NamedTensors w = torch_cnn();
  const std::vector<double> x = random_tensor({2 * 4 * 5}, dtypes::fp32, 9).values();  // [2, 4, 5]
  Tensor image = Tensor::empty({1, 4, 5, 2}, dtypes::fp32);
  for (size_t i = 0; i < 20; ++i)
    for (size_t c = 0; c < 2; ++c) image.as<float>()[i * 2 + c] = static_cast<float>(x[c * 20 + i]);
  const std::vector<float> got = learner.predict(image).to_vector();
  const std::vector<double> expected = torch_forward(w, x);
  for (size_t o = 0; o < 3; ++o) CHECK(std::abs(static_cast<double>(got[o]) - expected[o]) < 1e-5);
}

void write(const std::string& path, const NpyBytes& bytes) {
  write_file_atomically(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::vector<WeightName> named(const std::vector<std::pair<std::string, std::string>>& lines) {
  std::vector<WeightName> out;
  for (const auto& [path, name] : lines) out.push_back(parse_weight_name(path, name));
  return out;
}

}  // namespace

TEST_CASE("a CNN in PyTorch's names and orders gives PyTorch's outputs") {
  const TempDir temp;
  save_tensors(temp.file("w.safetensors"), torch_cnn());
  REQUIRE(is_weight_file(temp.file("w.safetensors")));
  const auto learner = small_cnn();
  const InitFrom found = init_from_weights(temp.file("w.safetensors"), learner->model());
  CHECK(found.taken.size() == 8);
  CHECK(found.skipped == std::vector<std::string>{"1.num_batches_tracked"});
  expect_torch_outputs(*learner);
}

TEST_CASE("names are mapped by paths, layers and globs, and matrices transposed or in other orders") {
  const TempDir temp;
  NamedTensors w = torch_cnn(), renamed;
  for (auto& [name, tensor] : w) {
    const std::string own = name.substr(2);
    renamed[(name[0] == '4' ? "head." : name[0] == '0' ? "net.a.conv." : "net.b.norm.") + own] = tensor;
  }
  renamed["head.weight"] = transpose(renamed.at("head.weight"));
  renamed["extra.thing"] = Tensor::zeros({4}, dtypes::fp32);
  // OHWI as our own files have it.
  Tensor ohwi = Tensor::empty({kOut, kSide, kSide, kIn}, dtypes::fp32);
  for (int64_t o = 0; o < kOut; ++o)
    for (int64_t k = 0; k < 9; ++k)
      for (int64_t i = 0; i < kIn; ++i)
        ohwi.as<float>()[(o * 9 + k) * kIn + i] = w.at("0.weight").as<float>()[(o * kIn + i) * 9 + k];
  renamed["net.a.conv.weight"] = ohwi;
  save_tensors(temp.file("w.safetensors"), renamed);
  const auto learner = small_cnn();
  const WeightMap map{named({{"layers.0", "net.a.conv"},
                             {"layers.0.weight", "net.a.conv.weight ohwi"},
                             {"layers.1.*", "net.b.norm.*"},
                             {"layers.4.weight", "head.weight transpose chw(3,2,3)"},
                             {"layers.4.bias", "head.bias"}}),
                      {"extra.*"}};
  init_from_weights(temp.file("w.safetensors"), learner->model(), map);
  expect_torch_outputs(*learner);
}

TEST_CASE("everything that does not fit is listed at once, and the model keeps its values") {
  const TempDir temp;
  NamedTensors w = torch_cnn();
  w.erase("0.bias");
  w["4.weight"] = Tensor::zeros({3, 17}, dtypes::fp32);
  w["1.weight"] = Tensor::full({kOut}, dtypes::int32, 1);
  w["other"] = Tensor::zeros({2}, dtypes::fp32);
  save_tensors(temp.file("w.safetensors"), w);
  const auto learner = small_cnn();
  const std::vector<float> before = learner->predict(Tensor::full({1, 4, 5, 2}, dtypes::fp32, 1)).to_vector();
  const auto init = [&] {
    init_from_weights(temp.file("w.safetensors"), learner->model(), {named({{"layers.9", "x"}}), {}});
  };
  CHECK(error_code_of(init) == static_cast<int>(ErrorCode::kData));
  const std::string text = error_of(init);
  INFO(text);
  CHECK(contains(text, "missing: layers.0.bias [3]: no tensor layers.0.bias, 0.bias"));
  CHECK(contains(text, "shape: 4.weight [3,17] for layers.4.weight [3,18], expected [3,18]"));
  CHECK(contains(text, "dtype: 1.weight I32 for layers.1.gamma, expected floats"));
  CHECK(contains(text, "unexpected: other [2] F32"));
  CHECK(contains(text, "rename: 'layers.9' matches no parameter of the model"));
  CHECK(learner->predict(Tensor::full({1, 4, 5, 2}, dtypes::fp32, 1)).to_vector() == before);
  // NaN in the last tensor changes nothing either.
  w = torch_cnn();
  w.at("4.bias").as<float>()[1] = std::nanf("");
  save_tensors(temp.file("n.safetensors"), w);
  CHECK(error_code_of([&] { init_from_weights(temp.file("n.safetensors"), learner->model()); }) ==
        static_cast<int>(ErrorCode::kNonFinite));
  CHECK(learner->predict(Tensor::full({1, 4, 5, 2}, dtypes::fp32, 1)).to_vector() == before);
}

TEST_CASE("npz, gguf and shards give the same values as one safetensors file") {
  const TempDir temp;
  const NamedTensors w = torch_cnn();
  std::vector<std::pair<std::string, NpyBytes>> arrays;
  std::vector<GgufItem> items;
  std::string map;
  NamedTensors parts[2];
  for (const auto& [name, tensor] : w) {
    const bool counter = name.ends_with("tracked");
    std::string shape = "(";
    for (const int64_t d : tensor.shape().dims()) shape += concat(d, ',');
    if (!counter) arrays.emplace_back(name + ".npy", npy("<f4", shape + ")", bytes_of<float>(tensor.to_vector())));
    if (!counter) items.push_back(gguf_item(name, tensor, GgufType::kF32));
    parts[name[0] == '4' ? 1 : 0][name] = tensor;
    map += concat(map.empty() ? "" : ",", '"', name, "\":\"", name[0] == '4' ? "b" : "a", ".safetensors\"");
  }
  write(temp.file("w.npz"), zip(arrays));
  write_gguf(temp.file("w.gguf"), items, {});
  save_tensors(temp.file("a.safetensors"), parts[0]);
  save_tensors(temp.file("b.safetensors"), parts[1]);
  write_file_atomically(temp.file("x.index.json"), "{\"weight_map\":{" + map + "}}");
  for (const std::string name : {"w.npz", "w.gguf", "x.index.json"}) {
    INFO(name);
    REQUIRE(is_weight_file(temp.file(name)));
    const auto learner = small_cnn();
    init_from_weights(temp.file(name), learner->model());
    expect_torch_outputs(*learner);
  }
}

TEST_CASE("low-bit weights are quantized from the values of the file, and files of bitgrad are not weight files") {
  const TempDir temp;
  const auto learner = small_learner();
  save_checkpoint(temp.file("own.safetensors"), *learner, {}, "");
  CHECK_FALSE(is_weight_file(temp.file("own.safetensors")));
  NamedTensors w;
  const auto to = small_learner(dtypes::bint1, "binary", 8);
  for (Parameter* p : learner->model().parameters()) w[p->path()] = dequantized(*p).clone(MemoryKind::kBuffer);
  for (const Module::Buffer& b : learner->model().buffers()) w[b.path] = b.tensor;
  save_tensors(temp.file("w.safetensors"), w);
  init_from_weights(temp.file("w.safetensors"), to->model());
  for (size_t i = 0; i < w.size(); ++i) {
    const std::vector<Parameter*> a = learner->model().parameters(), b = to->model().parameters();
    if (i < a.size()) CHECK(dequantized(*a[i]).to_vector() == dequantized(*b[i]).to_vector());
  }
}

TEST_CASE("wrong lines of a name map are reported with the reason") {
  CHECK(value_text(parse_weight_name("a.*", "b.* transpose ohwi chw(1,2,3)")) == "b.* transpose ohwi chw(1,2,3)");
  CHECK(contains(error_of([] { parse_weight_name("a", "b.*"); }), "got more * in the name than in the path"));
  CHECK(contains(error_of([] { parse_weight_name("a", "b turn"); }),
                 "got 'turn' after the name, expected transpose, ohwi or chw(c,h,w)"));
  for (const std::string bad : {"b chw(1,2)", "b chw(1,2,3", "b chw", "b chw(0,1,1)", "b chw(1,2,3,4)", "b chw()"})
    CHECK(contains(error_of([&] { parse_weight_name("a", bad); }), "expected transpose, ohwi or chw(c,h,w)"));
  CHECK(contains(error_of([] { parse_weight_name("a", ""); }), "expected a path of the model and a name"));
}
