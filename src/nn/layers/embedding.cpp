// y[r, c*dim .. c*dim+dim-1] = weight[ids[r,c], :]: the rows of a table, in codes or fp32, that ids name.
#include <limits>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

constexpr std::string_view kEmbeddingLayer = "embedding";

// A spec without initial values has those that configurations give a table.
ParameterSpec table_spec(ParameterSpec spec) {
  if (spec.init.name.empty()) spec.init = {"normal", 0, 1};
  return spec;
}

class Embedding final : public Module {
 public:
  explicit Embedding(const LayerSpec& spec)
      : weight_(add_quantizable("weight", {spec.num, spec.dim}, table_spec(spec.weight), Quantizable::Kind::kEmbedding)
                    .weight()) {}

  Var forward(const Var& x) override { return embedding(x, weight_.read()); }

  TensorMeta plan(const TensorMeta& in) override {
    require((in.dtype == dtypes::int32 || in.dtype == dtypes::int64) && !in.granularity, kEmbeddingLayer,
            "needs ids, int32 or int64 without scales, got ", in.dtype,
            ". It is the first layer of a model whose data are ids.");
    const int64_t dim = weight_.shape().cols();
    require(in.features <= std::numeric_limits<int64_t>::max() / dim, kEmbeddingLayer, in.features, " ids of ", dim,
            " numbers each are more than int64 counts");
    TensorMeta y;
    y.rows = in.rows;
    y.features = in.features * dim;
    y.training = in.training;
    y.grad = !weight_.spec().frozen;
    return y;
  }
  std::string_view kind() const override { return "embedding"; }

 private:
  Parameter& weight_;
};

}  // namespace

std::shared_ptr<Module> make_embedding_layer(const LayerSpec& spec, int64_t) {
  require(spec.num > 0 && spec.dim > 0, kEmbeddingLayer, "num and dim must be at least 1: got num ", spec.num, ", dim ",
          spec.dim);
  return std::make_shared<Embedding>(spec);
}

}  // namespace bitgrad
