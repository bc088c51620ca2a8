// Values between layers in bf16 (Form::values): each layer against itself in fp32, and against fp64.
#include <functional>

#include "bitgrad/nn/prepare.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "nn/bf16_layers.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("a layer between bf16 values gives what it gives for the widened values in fp32, rounded once, bit for bit") {
  const StrictBits strict;
  for (const auto& [name, spec] : layers_of_values())
    for (const Shape& shape : {Shape{1, 1}, Shape{7, 33}, Shape{64, 130}, Shape{3, 5, 17}})
      for (const bool training : {true, false}) {
        if (name == "codes, compute integer_out" && shape.rank() == 3) continue;  // of matrices
        INFO(name << ' ' << shape << (training ? " training" : " evaluation"));
        const Tensor x = random_tensor(shape, dtypes::bf16, 5, -2, 2);
        if (training && shape == Shape{1, 1} && (name == "batch_norm" || name == "tensor_norm")) {
          for (const DType values : {dtypes::bf16, dtypes::fp32})  // one value has no variance
            CHECK(contains(
                error_of([&, &layer = spec] { run(layer, values == dtypes::bf16 ? x : wide(x), values, true); }),
                "the variance of one value is not defined"));
          continue;
        }
        const Result narrow = run(spec, x, dtypes::bf16, training), full = run(spec, wide(x), dtypes::fp32, training);
        if (full.y.dtype() == dtypes::fp32) {
          CHECK(narrow.y.dtype() == dtypes::bf16);
          CHECK(bits_of(narrow.y) == bits_of(rounded(full.y)));
        } else {
          CHECK(narrow.y.dtype() == full.y.dtype());
          CHECK(narrow.y.elements() == full.y.elements());
          CHECK(narrow.y.values() == full.y.values());
        }
        REQUIRE(narrow.gx.defined() == full.gx.defined());
        if (full.gx.defined()) {
          CHECK(narrow.gx.dtype() == dtypes::bf16);
          CHECK(bits_of(narrow.gx) == bits_of(rounded(full.gx)));
        }
        REQUIRE(narrow.grads.size() == full.grads.size());
        for (size_t i = 0; i < full.grads.size(); ++i) {
          REQUIRE(narrow.grads[i].defined() == full.grads[i].defined());
          if (full.grads[i].defined()) CHECK(bits_of(narrow.grads[i]) == bits_of(full.grads[i]));
        }
      }
}

TEST_CASE("the model's input is not rounded: a first layer reads fp32 and writes bf16") {
  const StrictBits strict;
  for (const auto& [name, spec] : layers_of_values()) {
    INFO(name);
    const Tensor x = random_tensor({6, 21}, dtypes::fp32, 6, -2, 2);
    const Result narrow = run(spec, x, dtypes::bf16, true), full = run(spec, x, dtypes::fp32, true);
    // What hands on its input keeps its dtype.
    const bool keeps = name == "dropout" || name == "quantize_gradient" || name == "dequantize";
    if (full.y.dtype() != dtypes::fp32) {
      CHECK(narrow.y.elements() == full.y.elements());
    } else {
      CHECK(narrow.y.dtype() == (keeps ? dtypes::fp32 : dtypes::bf16));
      CHECK(bits_of(narrow.y) == bits_of(keeps ? full.y : rounded(full.y)));
    }
  }
}

TEST_CASE("an embedding in bf16 gives its rows rounded once, and the fp32 sums of bf16 gradients") {
  for (const DType dtype : {dtypes::fp32, dtypes::bint1, dtypes::int4, dtypes::int8})
    for (const bool flat : {true, false}) {
      INFO(dtype << flat);
      const LayerSpec spec = with_weight(layer("embedding", {{"num", 11}, {"dim", 19}, {"flat", flat}}),
                                         dtype == dtypes::fp32 ? std::optional<QuantSpec>() : usual_weight_spec(dtype));
      const Tensor ids = Tensor::from_elements({2, 3}, dtypes::int32, std::vector<double>{4, 0, 4, 10, 1, 4});
      const Result narrow = run(spec, ids, dtypes::bf16, true), full = run(spec, ids, dtypes::fp32, true);
      CHECK(narrow.y.dtype() == dtypes::bf16);
      CHECK(narrow.y.shape() == full.y.shape());
      CHECK(bits_of(narrow.y) == bits_of(rounded(full.y)));
      CHECK(bits_of(narrow.grads[0]) == bits_of(full.grads[0]));
    }
}

TEST_CASE("layers in bf16 equal fp64 with a rounding at each edge, forward and backward") {
  const auto weighted = [](const std::vector<Var>& v) { return linear(v[0], v[1], v.size() > 2 ? v[2] : Var()); };
  NormOptions norm;
  norm.eps = 1e-5f;
  NormOptions whole;
  whole.eps = 1e-4f;
  using Reference = std::function<Var(const std::vector<Var>&)>;
  std::vector<std::pair<std::string, Reference>> references = {
      {"linear", weighted},
      {"linear bint1", weighted},
      {"linear ternary", weighted},
      {"linear int4", weighted},
      {"linear int8 affine", weighted},
      {"batch_norm", [&](const auto& v) { return batch_norm(v[0], v[1], v[2], norm); }},
      {"tensor_norm", [&](const auto& v) { return tensor_norm(v[0], v[1], v[2], whole); }}};
  for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op)
    references.emplace_back(unary_name(static_cast<UnaryOp>(op)),
                            [op](const auto& v) { return unary(static_cast<UnaryOp>(op), v[0]); });
  for (const auto& [name, reference] : references)
    for (const Shape& shape : {Shape{2, 3}, Shape{33, 65}, Shape{9, 257}}) {
      INFO(name << ' ' << shape);
      const LayerSpec& spec =
          std::find_if(layers_of_values().begin(), layers_of_values().end(), [&, &key = name](const auto& l) {
            return l.first == key;
          })->second;
      const Tensor x = random_tensor(shape, dtypes::bf16, 15, -2, 2);
      const Result got = run(spec, x, dtypes::bf16, true);
      const auto twin = make_layer(spec, shape.cols());
      StepState state;
      state.seed = 9;
      twin->initialize("layers.0", state);
      const DeviceGuard doubles(Device::cpu());
      Tape tape;
      std::vector<AccumulateSink> sinks(1 + twin->parameters().size());
      std::vector<Var> in{tape.leaf(as_double(x), &sinks[0], dtypes::fp64)};
      for (size_t i = 0; i < twin->parameters().size(); ++i)
        in.push_back(tape.leaf(as_double(twin->parameters()[i]->value()), &sinks[i + 1], dtypes::fp64));
      const Var y = reference(in);
      tape.backward({y}, {as_double(random_tensor(y.shape(), dtypes::bf16, 3))});
      constexpr double kSums = 4e-6;  // of fp32, for sums of at most 257 elements
      CHECK(off(got.y, y.value(), kSums) == "");
      CHECK(off(got.gx, grad_of(sinks[0]), kSums * 4) == "");
      for (size_t i = 0; i < got.grads.size(); ++i) CHECK(off(got.grads[i], grad_of(sinks[i + 1]), kSums * 4) == "");
    }
}

TEST_CASE("a product under every recipe reads and writes bf16 values as in fp32, rounded") {
  const StrictBits strict;
  for (const std::string& name : recipe_names()) {
    INFO(name);
    const Tensor x = random_tensor({9, 128}, dtypes::bf16, 31, -2, 2), gy = random_tensor({9, 33}, dtypes::bf16, 32);
    std::vector<Result> results;
    for (const DType values : {dtypes::bf16, dtypes::fp32}) {
      const auto model = make_layers({with_weight(layer("linear", {{"out", 33}}), {}), layer("relu")});
      Form in;
      in.sample = {128};
      in.dtype = in.values = values;
      in.grad = true;
      model->plan(in);
      PrepareSpec spec;
      spec.all = find_recipe(name);
      StepState state;
      model->initialize("layers", state);
      prepare(*model, spec);
      in.samples = 9;
      CHECK(model->plan(in).dtype == dtypes::fp32);
      Tape tape;
      AccumulateSink sink;
      Module& product = (*model)[0];
      const Tensor given = values == dtypes::bf16 ? x : wide(x);
      const Var y = product(tape.leaf(given.clone(MemoryKind::kActivation), &sink, values));
      CHECK(y.dtype() == values);
      tape.backward({y}, {values == dtypes::bf16 ? gy : wide(gy)});
      Result& result = results.emplace_back();
      result.y = y.value();
      result.gx = sink.grad();
      for (Parameter* p : product.parameters())
        if (p->grad_sink().filled()) result.grads.push_back(p->grad());
    }
    CHECK(bits_of(results[0].y) == bits_of(rounded(results[1].y)));
    CHECK(bits_of(results[0].gx) == bits_of(rounded(results[1].gx)));
    REQUIRE(results[0].grads.size() == results[1].grads.size());
    for (size_t i = 0; i < results[0].grads.size(); ++i)
      CHECK(bits_of(results[0].grads[i]) == bits_of(results[1].grads[i]));
  }
}

TEST_CASE("a head on a table gives fp32 scores of the bf16 values before it") {
  const StrictBits strict;
  ModelSpec spec;
  spec.input.sample = {6};
  spec.input.dtype = dtypes::int32;
  spec.input.values = dtypes::bf16;
  spec.layers = {with_weight(layer("embedding", {{"num", 13}, {"dim", 24}, {"flat", false}}), {}), layer("silu"),
                 layer("head", {{"tie", "layers.0"}})};
  const auto model = make_model(spec);
  StepState state;
  model->initialize("layers", state);
  const Tensor ids =
      Tensor::from_elements({2, 6}, dtypes::int32, std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12});
  const Tensor table = model->parameters()[0]->value();
  const Tensor rows = rounded(embedding(ids, table, false).value());
  const Tensor between = rounded(silu(Var(wide(rows))).value());
  const Tensor scores = (*model)(Var(ids)).value();
  CHECK(scores.dtype() == dtypes::fp32);
  CHECK(bits_of(scores) == bits_of(linear(wide(between), table).value()));
}

TEST_CASE("joins in bf16 are computed in fp32 of what their branches wrote, and rounded once") {
  const StrictBits strict;
  const Tensor x = random_tensor({5, 24}, dtypes::bf16, 8, -2, 2);
  const Var t(rounded(tanh(Var(wide(x))).value())), r(rounded(relu(Var(wide(x))).value())), s(x);
  const auto wide_var = [](const Var& v) { return Var(wide(v.value())); };
  const auto list = [](const std::string& key, const std::vector<std::string>& kinds) {
    std::vector<LayerSpec> layers;
    for (const std::string& kind : kinds) layers.push_back(layer(kind));
    return LayerList(key, layers);
  };
  LayerSpec residual = layer("residual");
  residual.lists = {list("body", {"tanh"})};
  CHECK(bits_of(run(residual, x, dtypes::bf16, true).y) == bits_of(rounded(add(wide_var(t), wide_var(s)).value())));
  residual.lists = {list("body", {"tanh"}), list("shortcut", {"relu"})};
  CHECK(bits_of(run(residual, x, dtypes::bf16, true).y) == bits_of(rounded(add(wide_var(t), wide_var(r)).value())));
  for (const std::string join : {"add", "multiply", "concat"}) {
    INFO(join);
    LayerSpec branches = layer("branches", {{"join", join}});
    const auto op = [&](const Var& a, const Var& b) {
      return join == "add" ? add(a, b) : join == "multiply" ? mul(a, b) : concatenate({a, b}, -1);
    };
    branches.lists = {list("0", {"tanh"}), list("1", {"relu"})};
    CHECK(bits_of(run(branches, x, dtypes::bf16, true).y) == bits_of(rounded(op(wide_var(t), wide_var(r)).value())));
    branches.lists.push_back(list("2", {}));
    CHECK(bits_of(run(branches, x, dtypes::bf16, true).y) ==
          bits_of(rounded(op(op(wide_var(t), wide_var(r)), wide_var(s)).value())));
  }
}
