// Choices of masters, moments and rules: how files hold them, and what the learner asks of them.
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_learner.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Choice {
  std::string rule = "adam";
  MomentKind moments = MomentKind::kFp32;
  MasterKind master = MasterKind::kFp32;
  std::string scheme = "absmax";
  DType dtype = dtypes::int8;
  DType grad = dtypes::fp32;
  bool frozen = false;
};

std::unique_ptr<Learner> make(const Choice& c, int64_t accumulate = 1, int64_t every = 1) {
  LayerSpec first = linear_spec(70, c.dtype, c.scheme, Granularity::channel(0));
  first.weight.master = c.master;
  first.weight.grad = c.grad;
  first.weight.frozen = c.frozen;
  OptimizerSpec spec;
  spec.name = c.rule;
  spec.moments = c.moments;
  if (c.rule == "sgd") spec.momentum = 0.9f;
  auto learner = std::make_unique<Learner>(
      make_sequential({first, plain_spec("batch_norm"), plain_spec("relu"), linear_spec(3, dtypes::fp32, "")},
                      kFeatures),
      find_loss("softmax_cross_entropy"), spec, RequantPolicy{accumulate, every}, [](int64_t) { return 0.05f; }, 3);
  learner->set_total_steps(10);
  return learner;
}

const RunCounters kCounters{1, 2, 50, 1, 50, 1};

}  // namespace

TEST_CASE("files hold masters and moments in their own dtypes") {
  TempDir temp;
  const auto dtype_of = [&](const Choice& c, const std::string& name) -> std::string {
    const auto learner = make(c);
    train_some(*learner, 1);
    save_checkpoint(temp.file("c"), *learner, kCounters, "");
    const SafetensorsFile file = SafetensorsFile::read(temp.file("c"));
    return file.contains(name) ? file.entry(name).dtype : "absent";
  };
  const std::string w = "layers.0.weight";
  CHECK(dtype_of({"adam", MomentKind::kBf16, MasterKind::kBf16}, w + ".master") == "BF16");
  CHECK(dtype_of({"adam", MomentKind::kBf16, MasterKind::kBf16}, w + ".adam.v") == "BF16");
  const Choice small{"adam", MomentKind::kInt8, MasterKind::kNone};
  CHECK(dtype_of(small, w + ".master") == "absent");
  CHECK(dtype_of(small, w + ".adam.m") == "I8");
  CHECK(dtype_of(small, w + ".adam.v") == "U8");
  CHECK(dtype_of(small, w + ".adam.v.unit") == "F32");
  const Choice smaller{"adam", MomentKind::kInt4, MasterKind::kNone};
  CHECK(dtype_of(smaller, w + ".adam.m") == "U8");
  CHECK(dtype_of(smaller, w + ".adam.v") == "U8");
  CHECK(dtype_of(smaller, w + ".adam.m.unit") == "F32");
  const Choice lsq{"adam", MomentKind::kInt8, MasterKind::kFp32, "lsq", dtypes::int4};
  CHECK(dtype_of(lsq, w + ".step.master") == "F32");
  CHECK(dtype_of(lsq, w + ".step.adam.m") == "F32");
  const Choice twn{"adam", MomentKind::kFp32, MasterKind::kFp32, "ternary_threshold", dtypes::ternary};
  CHECK(dtype_of(twn, w + ".statistic") == "F32");
  const Choice frozen{"adam", MomentKind::kFp32, MasterKind::kFp32, "affine", dtypes::int4, dtypes::fp32, true};
  CHECK(dtype_of(frozen, w + ".master") == "absent");
  CHECK(dtype_of(frozen, w + ".adam.m") == "absent");
  CHECK(dtype_of(frozen, w + ".codes") == "U8");
}

TEST_CASE("a checkpoint of one choice cannot resume another, and the error names the difference") {
  TempDir temp;
  const auto learner = make({"adam", MomentKind::kInt8, MasterKind::kBf16});
  train_some(*learner, 1);
  save_checkpoint(temp.file("c"), *learner, kCounters, "");
  const auto error_for = [&](const Choice& c) {
    const auto other = make(c);
    return error_of([&] { load_checkpoint(temp.file("c"), *other); });
  };
  CHECK(contains(error_for({"adam", MomentKind::kInt8, MasterKind::kFp32}),
                 "'layers.0.weight.master' is [70,5] BF16, expected [70,5] F32"));
  CHECK(contains(error_for({"adam", MomentKind::kInt8, MasterKind::kNone}),
                 "'layers.0.weight.master' does not belong to this model"));
  CHECK(contains(error_for({"adam", MomentKind::kFp32, MasterKind::kBf16}), "'layers.0.weight.adam.m' is [350] I8"));
  CHECK(contains(error_for({"adam", MomentKind::kInt4, MasterKind::kBf16}),
                 "'layers.0.weight.adam.m' is [350] I8, expected [175] U8"));
  CHECK(
      contains(error_for({"sgd", MomentKind::kInt8, MasterKind::kBf16}), "'layers.0.weight.sgd.momentum' is missing"));
  CHECK(error_for({"adamw", MomentKind::kInt8, MasterKind::kBf16}).empty());
}

TEST_CASE("buffers of any dtype are saved, hashed and resumed") {
  class Counting final : public Module {
   public:
    Counting() {
      for (const DType d : {dtypes::fp32, dtypes::bf16, dtypes::int8, dtypes::uint8, dtypes::int32, dtypes::int64})
        kept.push_back(add_buffer(concat("as_", d), Tensor::zeros({3, 5}, d, MemoryKind::kBuffer)));
    }
    Var forward(const Var& x) override { return x; }
    Form plan(const Form& in, PlanRequests&) override { return in; }
    std::vector<Tensor> kept;
  };
  const auto made = [] {
    auto counting = std::make_shared<Counting>();
    auto model = make_sequential({linear_spec(3, dtypes::int4, "absmax")}, kFeatures);
    model->append(counting);
    OptimizerSpec sgd;
    return std::pair{counting,
                     std::make_unique<Learner>(
                         model, find_loss("squared_hinge"), sgd, RequantPolicy{}, [](int64_t) { return 0.1f; }, 1)};
  };
  TempDir temp;
  const auto [counting, learner] = made();
  for (const Tensor& t : counting->kept) {
    const std::string before = state_hash(*learner, kCounters);
    t.copy_from(random_tensor({3, 5}, t.dtype(), 4));
    CHECK(state_hash(*learner, kCounters) != before);
  }
  save_checkpoint(temp.file("c"), *learner, kCounters, "");
  const auto [other, resumed] = made();
  load_checkpoint(temp.file("c"), *resumed);
  CHECK(state_hash(*resumed, kCounters) == state_hash(*learner, kCounters));
  for (size_t i = 0; i < counting->kept.size(); ++i) CHECK(other->kept[i].elements() == counting->kept[i].elements());
  CHECK(SafetensorsFile::read(temp.file("c")).entry("layers.1.as_int8").dtype == "I8");
  CHECK(SafetensorsFile::read(temp.file("c")).entry("layers.1.as_int64").dtype == "I64");
}

TEST_CASE("a master that holds NaN is not saved") {
  TempDir temp;
  const auto learner = make({"adam", MomentKind::kFp32, MasterKind::kBf16});
  learner->model().parameters()[0]->master().as<uint16_t>()[3] = 0x7FC0;
  const std::string text = error_of([&] { save_checkpoint(temp.file("c"), *learner, kCounters, ""); });
  CHECK(contains(text, "'layers.0.weight.master' holds NaN or Inf"));
}

TEST_CASE("parameters without a master are requantized by every optimizer step") {
  const Choice none{"adam", MomentKind::kFp32, MasterKind::kNone};
  CHECK_NOTHROW(make(none, 4, 4));
  CHECK(
      error_of([&] { make(none, 2, 4); }) ==
      "[requantize_every] parameter 'layers.0.weight' has no master, so its codes change at every optimizer step of 2 "
      "microbatches: got requantize_every 4. Set it to 2, or add a master to the parameter");
  Choice frozen = none;
  frozen.frozen = true;
  CHECK_NOTHROW(make(frozen, 2, 4));
}

TEST_CASE("a frozen weight passes the gradient on and does not move") {
  const auto learner = make({"adam", MomentKind::kFp32, MasterKind::kFp32, "affine", dtypes::int4, dtypes::fp32, true});
  const auto parameters = learner->model().parameters();
  const auto before = parameters[0]->value().values(), bias = parameters[1]->value().values();
  train_some(*learner, 2);
  CHECK(parameters[0]->value().values() == before);
  CHECK(parameters[1]->value().values() != bias);
}

TEST_CASE("progress is steps done of the steps of the run") {
  const auto learner = make({});
  CHECK(learner->state().progress == 0);
  train_some(*learner, 1);
  CHECK(learner->state().progress == 0);
  train_some(*learner, 3);
  CHECK(learner->state().progress == 0.3);
  train_some(*learner, 10);
  CHECK(learner->state().progress == 1);
  const auto unknown = make({});
  unknown->set_total_steps(0);
  train_some(*unknown, 3);
  CHECK(unknown->state().progress == 0);
  CHECK(contains(error_of([&] { unknown->set_total_steps(-1); }), "at least 0, got -1"));
}
