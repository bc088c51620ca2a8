// Causal attention over q, k and v side by side, as produced by a single linear layer, with rotary positions; and
// learned positions. Both depend on a row's position in its sequence.
#include "bitgrad/ops/attention.h"

#include <algorithm>

#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/kv_cache.h"
#include "bitgrad/nn/layers.h"
#include "nn/values.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

constexpr std::string_view kAttentionLayer = "attention", kPositionsLayer = "positions";
constexpr std::string_view kNoNorm = "none", kHeadNorm = "head", kRowNorm = "row";  // of key qk_norm

void check_sequence(std::string_view name, const Form& in) {
  require(detail::is_values(in.dtype), name, "needs fp32 input, got ", in.dtype,
          ". Put it before the quantizer, or dequantize before it");
  require(in.sample.rank() == 2, name, "needs sequences [n,t,features], got ", in);
}

class AttentionLayer final : public detail::ValuesLayer {
 public:
  explicit AttentionLayer(const Attributes& keys)
      : rotates_(keys.number("rope") > 0), dropout_(keys.number("dropout")) {
    options_.heads = keys.integer("heads");
    options_.kv_heads = keys.integer("kv_heads") == 0 ? options_.heads : keys.integer("kv_heads");
    require(options_.heads % options_.kv_heads == 0, kAttentionLayer, "kv_heads: got ", options_.kv_heads,
            ", expected a divisor of heads, ", options_.heads);
    options_.scale = static_cast<float>(keys.number("scale"));
    options_.window = keys.integer("window");
    options_.softcap = static_cast<float>(keys.number("softcap"));
    rope_.base = rotates_ ? keys.number("rope") : rope_.base;
    rope_.interleaved = keys.flag("interleaved");
    rope_.factor = keys.number("rope_factor");
    rope_.low = keys.number("rope_low");
    rope_.high = keys.number("rope_high");
    rope_.original = keys.integer("rope_original");
    require(rope_.low < rope_.high, kAttentionLayer, "rope_low: got ", rope_.low, ", expected less than rope_high, ",
            rope_.high);
    if (keys.text("qk_norm") == kNoNorm) return;
    row_norm_ = keys.text("qk_norm") == kRowNorm;
    qk_eps_ = static_cast<float>(keys.number("qk_eps"));
    q_norm_ = &add_parameter("q_norm", ParameterSpec{.init = {"constant", 1, 0}});
    k_norm_ = &add_parameter("k_norm", ParameterSpec{.init = {"constant", 1, 0}});
  }

  Var forward(const Var& x) override {
    const AttentionOptions options = options_now();
    return detail::in_values(x, y_, [&](const Var& in) {
      const SequenceState& rows = sequence();
      require(rows.first == 0 || rows.caches, kAttentionLayer, "rows from position ", rows.first,
              " on: got no cache of the keys and values before them (StepState::sequence)");
      const Var all = turned(normed(in), rows);
      return rows.caches ? cached(all, rows) : attention(all, options);
    });
  }

  Form plan(const Form& in, PlanRequests& requests) override {
    check_sequence(kAttentionLayer, in);
    const int64_t sides = options_.heads + 2 * options_.kv_heads;
    require(in.features() > 0 && in.features() % sides == 0, kAttentionLayer, "expects q, k and v concatenated: got ",
            in.features(), " features, expected a multiple of ", sides, " (heads + 2 * kv_heads)");
    rope_.dim = in.features() / sides;
    require(!rotates_ || rope_.dim % 2 == 0, kAttentionLayer, "rope turns pairs: got heads of ", rope_.dim,
            " features, expected an even number");
    const int64_t q = options_.heads * rope_.dim, kv = options_.kv_heads * rope_.dim;
    requests.stack({q, kv, kv});
    if (q_norm_ != nullptr) {
      q_norm_->describe({row_norm_ ? q : rope_.dim});
      k_norm_->describe({row_norm_ ? kv : rope_.dim});
    }
    Form out = planned_as(in.with_features(q), in.float_output());
    out.grad = in.grad || (q_norm_ != nullptr && (q_norm_->trains() || k_norm_->trains()));
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    const Form in = graph[x].form;  // adding nodes moves the graph's own
    const Form out = detail::values_like(in.with_features(options_.heads * rope_.dim), y_);
    if (q_norm_ != nullptr)
      x = detail::add_node(graph, path(),
                           inference::QkNorm{options_.heads, options_.kv_heads, qk_eps_,
                                             detail::floats_of(q_norm_->value()), detail::floats_of(k_norm_->value())},
                           x, in);
    if (rotates_)
      x = detail::add_node(graph, path(), inference::Rope{rope_, options_.heads + options_.kv_heads}, x, in);
    return detail::add_node(graph, path(), inference::Attention{options_}, x, out);
  }
  // MACs of q k^T and p v over the keys that each row sees.
  int64_t macs(const Form& in, const Form&) const override {
    const int64_t t = in.sample[0], w = options_.window == 0 ? t : std::min(t, options_.window);
    return options_.heads * rope_.dim * (w * (w + 1) + 2 * (t - w) * w);
  }
  std::string_view kind() const override { return kAttentionLayer; }

 private:
  // Appends the rows to the cache. Each attends to all cached rows up to and including itself.
  Var cached(const Var& x, const SequenceState& rows) {
    require(!x.tracked(), kAttentionLayer, "keys and values in a cache carry no gradients: run without a tape");
    const int64_t q = options_.heads * rope_.dim, end = rows.first + x.shape()[1];
    KvCache& cache = rows.caches->of(this, options_.kv_heads * rope_.dim, options_.kv_heads);
    const Var wide(widened(x.value()));
    cache.store(wide.value(), q, rows.first, mutable_state().flags.word(path()));
    AttentionOptions options = options_;
    options.first = rows.first;
    return cast(attention(slice(wide, 2, 0, q), Var(cache.keys(end)), Var(cache.values(end)), options), x.dtype());
  }

  // Options for this batch: document starts, and dropout in training.
  AttentionOptions options_now() const {
    AttentionOptions options = options_;
    if (!initialized()) return options;
    options.starts = state().sequence.starts;
    if (!state().training || dropout_ == 0) return options;
    options.dropout = dropout_;
    options.stream = live_by_microbatch(
        {state().seed, Purpose::kDropout, site_id(path()), static_cast<uint32_t>(state().microbatch)});
    return options;
  }
  // q and k by their root mean square.
  Var normed(const Var& x) {
    if (q_norm_ == nullptr) return x;
    return qk_norm(x, q_norm_->read(), k_norm_->read(), options_.heads, options_.kv_heads, qk_eps_);
  }
  // q and k rotated by their positions (RoPE).
  Var turned(const Var& x, const SequenceState& rows) {
    if (!rotates_) return x;
    const int64_t end = std::max<int64_t>(1, rows.first + x.shape()[1]);
    if (!rows.caches &&
        (!table_.defined() || table_.rows() < end || table_.cols() != rope_.dim || table_.device() != current_device()))
      table_ = rope_table(end, rope_);
    const Tensor table = rows.caches ? rows.caches->angles(rope_, end) : table_;
    return rope(x, table, rope_, rows.first, options_.heads + options_.kv_heads);
  }

  AttentionOptions options_;
  RopeOptions rope_;
  bool rotates_;
  double dropout_;
  Parameter *q_norm_ = nullptr, *k_norm_ = nullptr;  // nullptr: q and k are not normalized
  bool row_norm_ = false;                            // over all heads of a row at once
  float qk_eps_ = 0;
  Tensor table_;  // of rope without a cache, built on first use
};

// y[n,t,:] = x[n,t,:] + weight[first + t,:].
class Positions final : public detail::ValuesLayer {
 public:
  Positions(int64_t context, float std)
      : context_(context), weight_(add_parameter("weight", ParameterSpec{.init = {"normal", 0, std}})) {}

  Var forward(const Var& x) override {
    const int64_t first = sequence().first, end = first + x.shape()[1];
    require(end <= context_, kPositionsLayer, "context: got rows at positions ", first, " to ", end - 1, " of ",
            context_);
    const Var rows = slice(weight_.read(), 0, first, end);
    return detail::in_values({x, rows}, y_, false, [](const auto& in) { return add(in[0], in[1]); });
  }
  Form plan(const Form& in, PlanRequests&) override {
    check_sequence(kPositionsLayer, in);
    if (context_ == 0) record_key("context", context_ = in.sample[0]);
    require(in.sample[0] <= context_, kPositionsLayer, "context: got ", context_, ", expected at least ", in.sample[0],
            ", the positions of a sample");
    weight_.describe({context_, in.features()});
    Form out = in;
    out.dtype = y_ = in.float_output();
    out.grad = true;
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    return detail::add_node(graph, path(), inference::Positions{weight_.value().on_host()}, x,
                            detail::values_like(graph[x].form, y_));
  }
  std::string_view kind() const override { return kPositionsLayer; }

 private:
  int64_t context_;
  Parameter& weight_;
};

}  // namespace

LayerKind attention_kind() {
  using Type = Key::Type;
  return {
      .name = std::string(kAttentionLayer),
      .doc = "causal attention (Vaswani et al. 2017) of q, k and v, concatenated along the last axis",
      .keys = {{"heads", Type::kInt, "[1, 4096]", "!", "heads of q"},
               {"kv_heads", Type::kInt, "[0, 4096]", "0", "heads of k and v, a divisor of heads; 0: as many"},
               {"rope", Type::kNumber, "[0, 1e12]", "0", "base of rotary positions of q and k; 0: none"},
               {"interleaved", Type::kBool, "", "false", "rope rotates pairs (2i, 2i + 1) instead of (i, i + d / 2)"},
               {"dropout", Type::kNumber, "[0, 1)", "0",
                "probability of a zero among the weights of the values, in training"},
               {"rope_factor", Type::kNumber, "[1, 1e6]", "1",
                "Llama 3.1: frequency scaling factor for long wavelengths; 1: off"},
               {"rope_low", Type::kNumber, "(0, 1e6]", "1", "wavelengths above rope_original / rope_low are long"},
               {"rope_high", Type::kNumber, "(0, 1e6]", "4",
                "wavelengths below rope_original / rope_high are not scaled; linear in between"},
               {"rope_original", Type::kInt, "[1, 16777216]", "8192", "context length of the original training"},
               {.name = "qk_norm",
                .type = Type::kChoice,
                .standard = std::string(kNoNorm),
                .doc =
                    "divides q and k by their root mean square, before rope. head: of each head (Qwen3); row: of all "
                    "heads at once (OLMo 2)",
                .choices = {std::string(kNoNorm), std::string(kHeadNorm), std::string(kRowNorm)}},
               {"scale", Type::kNumber, "[0, 1e6]", "0",
                "factor of the products of q and k; 0: 1 / sqrt(features of a head)"},
               {"softcap", Type::kNumber, "[0, 1e6]", "0",
                "scores s become softcap * tanh(s / softcap) (Gemma 2); 0: no cap"},
               {"window", Type::kInt, "[0, 16777216]", "0", "keys that a row sees, itself included; 0: all before it"},
               {"qk_eps", Type::kNumber, "[1e-12, 1]", "1e-6", "added to the mean square of q and of k"}},
      .axes = true,
      .causal = true,
      .bf16 = true,
      .output = LayerKind::Output::kNone,
      .make = [](const LayerSpec& spec) { return std::make_shared<AttentionLayer>(spec.attributes); }};
}

LayerKind positions_kind() {
  using Type = Key::Type;
  return {.name = std::string(kPositionsLayer),
          .doc = "adds a learned row for each position of a sequence",
          .keys = {{"context", Type::kInt, "[0, 1048576]", "0",
                    "positions of the table: at least those of a sample; 0: as many"},
                   {"std", Type::kNumber, "[0, 1000]", "0.02", "standard deviation of the initial values"}},
          .axes = true,
          .positions = true,
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec& spec) {
            return std::make_shared<Positions>(spec.attributes.integer("context"),
                                               static_cast<float>(spec.attributes.number("std")));
          }};
}

}  // namespace bitgrad
