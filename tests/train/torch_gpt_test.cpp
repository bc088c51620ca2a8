// A small GPT-2 and a small Llama, made by configurations, beside PyTorch in float64: logits, loss, every gradient, 10
// steps of AdamW. tests/golden/torch_gpt.json, scripts/torch_gpt_golden.py.
#include <cmath>
#include <fstream>
#include <iterator>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/json.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/torch_conv.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kVocabulary = 31, kPositions = 20, kBatch = 3, kIgnored = 17;
constexpr int64_t kTokens = kBatch * kPositions;

constexpr const char* kRun = R"yaml(version: 1
run: {name: golden, seed: 1}
data: {tokenizer: bytes, train: {format: tokens, file: a.txt, context: 20}}
batch: {global: 3}
loss: softmax_cross_entropy
optim: {name: adamw, lr: 2e-3, betas: [0.9, 0.95], weight_decay: 0.1, decay: matrices, clip_norm: 1}
train: {stop: 10 steps}
)yaml";

constexpr const char* kGpt = R"yaml(model:
  blocks:
    block:
      layers:
        - residual: {body: [{layer_norm: {}}, {linear: {out: 192, bias: false}}, {attention: {heads: 4}}, {linear: {out: 64}}]}
        - residual: {body: [{layer_norm: {}}, {linear: {out: 256}}, {gelu: {}}, {linear: {out: 64}}]}
  layers:
    - embedding: {num: 31, dim: 64, flat: false}
    - positions: {context: 20}
    - repeat: {times: 2, layers: [{block: {}}]}
    - layer_norm: {}
    - head: {tie: layers.0}
)yaml";

constexpr const char* kLlama = R"yaml(model:
  blocks:
    block:
      layers:
        - residual:
            body:
              - rms_norm: {}
              - linear: {out: 128, bias: false}
              - attention: {heads: 4, kv_heads: 2, rope: 10000}
              - linear: {out: 64, bias: false}
        - residual:
            body: [{rms_norm: {}}, {linear: {out: 192, bias: false}}, {swiglu: {}}, {linear: {out: 64, bias: false}}]
  layers:
    - embedding: {num: 31, dim: 64, flat: false}
    - repeat: {times: 2, layers: [{block: {}}]}
    - rms_norm: {}
    - linear: {out: 31, bias: false}
)yaml";

Json golden() {
  std::ifstream in(source_path("tests/golden/torch_gpt.json"));
  return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

// |got - expected| / |expected|.
double distance(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double apart = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    apart += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(apart / norm);
}

class Network {
 public:
  explicit Network(const Json& c) : c_(c), seed_(c["seed"].get<uint64_t>()) {
    Form input;
    input.sample = {kPositions};
    input.dtype = dtypes::int32;
    input.ids = kVocabulary;
    const std::string name = c["name"].get<std::string>();
    learner_ = build_learner(parse_config(kRun + std::string(name == "gpt" ? kGpt : kLlama), name), input, kVocabulary,
                             2 * kBatch);
    REQUIRE(parameters().size() == c["parameters"].size());
    for (size_t k = 0; k < parameters().size(); ++k) {
      const Json& p = c["parameters"][k];
      INFO(p["name"].get<std::string>() << ", " << parameters()[k]->path());
      const Shape shape(p["shape"].get<std::vector<int64_t>>());
      REQUIRE(parameters()[k]->shape() == shape);
      std::vector<double> x = torch_units(seed_ + k, shape).elements();
      for (double& v : x) v = v * p["factor"].get<double>() + p["offset"].get<double>();
      parameters()[k]->assign(Tensor::from_elements(shape, dtypes::fp32, x), 0);
    }
    for (const double id : torch_draws(seed_ + 90, 2 * kBatch * (kPositions + 1),
                                       [](uint64_t s) { return double((s >> 33) % kVocabulary); }))
      stream_.push_back(static_cast<int32_t>(id));
  }

  Learner& learner() { return *learner_; }
  std::vector<Parameter*> parameters() { return learner_->model().parameters(); }
  Tensor ids(int64_t batch) const { return rows(batch, 0); }
  Tensor targets(int64_t batch) const {
    Tensor t = rows(batch, 1);
    t.as<int32_t>()[kIgnored] = kIgnoredClass;
    return t;
  }
  // Of the gradient of parameter k: as the file tells it.
  void check_gradient(size_t k) {
    const Json& p = c_["parameters"][k];
    INFO(p["name"].get<std::string>());
    std::vector<double> g = parameters()[k]->grad().elements();
    for (double& v : g) v /= kTokens - 1;  // ours is that of the sum
    if (p.contains("all")) {
      CHECK(distance(g, p["all"].get<std::vector<double>>()) < 1e-5);
      return;
    }
    const Shape& shape = parameters()[k]->shape();
    const size_t rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
    const std::vector<double> u = torch_units(seed_ + 100 + 2 * k, {shape[1]}).elements();
    const std::vector<double> v = torch_units(seed_ + 101 + 2 * k, {shape[0]}).elements();
    std::vector<double> gu(rows), vg(columns);
    for (size_t r = 0; r < rows; ++r)
      for (size_t i = 0; i < columns; ++i) {
        gu[r] += g[r * columns + i] * u[i];
        vg[i] += v[r] * g[r * columns + i];
      }
    CHECK(distance(gu, p["rows"].get<std::vector<double>>()) < 1e-5);
    CHECK(distance(vg, p["columns"].get<std::vector<double>>()) < 1e-5);
  }

 private:
  Tensor rows(int64_t batch, int64_t shift) const {
    std::vector<double> out;
    for (int64_t n = 0; n < kBatch; ++n)
      for (int64_t t = 0; t < kPositions; ++t)
        out.push_back(stream_[static_cast<size_t>((batch * kBatch + n) * (kPositions + 1) + t + shift)]);
    return Tensor::from_elements({kBatch, kPositions}, dtypes::int32, out);
  }

  const Json& c_;
  uint64_t seed_;
  std::unique_ptr<Learner> learner_;
  std::vector<int32_t> stream_;
};

}  // namespace

TEST_CASE("a small GPT-2 and a small Llama have PyTorch's logits, loss and gradients") {
  const Json file = golden();
  REQUIRE(file["networks"].size() == 2);
  for (const Json& c : file["networks"]) {
    INFO(c["name"].get<std::string>());
    Network net(c);
    Tape tape;
    const Var logits = net.learner().model().forward(net.ids(0));
    CHECK(distance(logits.value().elements(), c["logits"].get<std::vector<double>>()) < 5e-6);
    const Var loss = net.learner().loss()(logits, net.targets(0));
    // Over positions a loss is the sum of what counts.
    CHECK(std::fabs(loss.value().item() / (kTokens - 1) - c["loss"].get<double>()) < 2e-6 * c["loss"].get<double>());
    tape.backward(loss);
    for (size_t k = 0; k < net.parameters().size(); ++k) net.check_gradient(k);
  }
}

TEST_CASE("10 steps of AdamW of a small GPT-2 and a small Llama have PyTorch's losses and end where it ends") {
  for (const Json file = golden(); const Json& c : file["networks"]) {
    Network net(c);
    const auto losses = c["losses"].get<std::vector<double>>();
    REQUIRE(losses.size() == 10);
    for (size_t step = 0; step < losses.size(); ++step) {
      const auto batch = static_cast<int64_t>(step % 2);
      const StepResult r = net.learner().microbatch(net.ids(batch), net.targets(batch));
      INFO(c["name"].get<std::string>() << ", step " << step);
      CHECK(r.counted == kTokens - 1);
      CHECK(std::fabs(r.loss / (kTokens - 1) - losses[step]) < 1e-5 * losses[step]);
    }
    for (size_t k = 0; k < net.parameters().size(); ++k) {
      double squares = 0;
      for (const double v : dequantized(*net.parameters()[k]).elements()) squares += v * v;
      const double expected = c["parameters"][k]["squares"].get<double>();
      INFO(c["name"].get<std::string>() << ' ' << c["parameters"][k]["name"].get<std::string>());
      CHECK(std::fabs(squares - expected) < 1e-5 * expected);
    }
  }
}
