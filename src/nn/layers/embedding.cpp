// y[r, c*dim .. c*dim+dim-1] = weight[ids[r,c], :] * scale (flat), or y[r, c, :]: rows of a table, in codes or fp32,
// selected by ids.
#include <limits>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kEmbeddingLayer = "embedding";

// A spec without an initializer gets the configuration's default for tables.
ParameterSpec table_spec(ParameterSpec spec) {
  if (spec.init.name.empty()) spec.init = {"normal", 0, 1};
  return spec;
}

class Embedding final : public detail::ValuesLayer {
 public:
  explicit Embedding(const LayerSpec& spec)
      : num_(spec.attributes.integer("num")),
        dim_(spec.attributes.integer("dim")),
        flat_(spec.attributes.flag("flat")),
        scale_(static_cast<float>(spec.attributes.number("scale"))),
        slot_(add_quantizable("weight", table_spec(spec.weight), Quantizable::Kind::kEmbedding)),
        weight_(slot_.weight()) {
    if (num_ > 0) weight_.describe({num_, dim_});
  }

  Var forward(const Var& x) override {
    if (scale_ == 1) return embedding(x, weight_.read(), flat_, y_);
    return cast(times(embedding(x, weight_.read(), flat_, dtypes::fp32), scale_), y_);
  }

  Form plan(const Form& in, PlanRequests&) override {
    require((in.dtype == dtypes::int32 || in.dtype == dtypes::int64) && !in.scales, kEmbeddingLayer,
            "needs ids, int32 or int64 without scales, got ", in.dtype,
            ". It must be the first layer of a model whose data are ids.");
    if (!weight_.described()) describe_for(in);
    require(weight_.shape().rows() >= in.ids, kEmbeddingLayer, "num: got ", weight_.shape().rows(),
            ", expected at least ", in.ids, ", the number of different ids in the data");
    require(in.features() <= std::numeric_limits<int64_t>::max() / dim_, kEmbeddingLayer, in.features(), " ids of ",
            dim_, " values each are more than int64 can count");
    require(flat_ || in.sample.rank() == 1, kEmbeddingLayer, "flat: false needs samples of one axis, ids [t], got ",
            in.sample);
    Form y = flat_ ? in.with_features(in.features() * dim_) : in;
    if (!flat_) y.sample = {in.features(), dim_};
    y.dtype = y_ = in.float_output();
    y.ids = 0;
    y.grad = weight_.trains();
    return y;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    const Form ids = graph[x].form;
    Form rows = detail::values_like(ids, y_);
    std::vector<int64_t> dims = ids.sample.dims();
    dims.push_back(dim_);
    rows.sample = Shape(dims);
    rows.ids = 0;
    x = detail::add_node(graph, path(), inference::Embedding{slot_.inference_weight()}, x, rows);
    if (scale_ != 1) x = detail::add_node(graph, path(), inference::Times{scale_}, x, rows);
    if (!flat_) return x;
    return detail::add_passing(graph, path(), inference::Reshape{}, x, ids.with_features(ids.features() * dim_).sample);
  }
  std::string_view kind() const override { return "embedding"; }

 private:
  // num = 0: one row per id of the vocabulary. Files then store the resolved number.
  void describe_for(const Form& in) {
    require(in.ids > 0, kEmbeddingLayer,
            "num: 0 means the number of different ids, which is not known for this input: set num");
    num_ = in.ids;
    weight_.describe({num_, dim_});
    record_key("num", num_);
  }

  int64_t num_, dim_;
  bool flat_;
  float scale_;
  Quantizable& slot_;
  Parameter& weight_;
};

}  // namespace

LayerKind embedding_kind() {
  using Type = Key::Type;
  return {.name = "embedding",
          .doc = "looks up the row of a table for each id",
          .keys = {{"num", Type::kInt, "[0, 16777216]", "0",
                    "rows of the table: at least the number of different ids; 0: as many as the data have"},
                   {"dim", Type::kInt, "[1, 1048576]", "!", "values per row"},
                   {"flat", Type::kBool, "", "true",
                    "true: the rows of a sample are concatenated, [t * dim]; false: [t, dim]"},
                   {"scale", Type::kNumber, "(0, 1e6]", "1", "factor of the rows that are read (Gemma: sqrt(dim))"}},
          .weights = true,
          .ids = true,
          .bf16 = true,
          .output = LayerKind::Output::kNone,
          .make = [](const LayerSpec& spec) { return std::make_shared<Embedding>(spec); }};
}

}  // namespace bitgrad
