// The walk over the layers: each is fitted to the samples, with the layers before it quantized already.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <ostream>

#include "bitgrad/base/text.h"
#include "bitgrad/nn/adapter.h"
#include "tools/norm_statistics.h"
#include "tools/ptq/method.h"

namespace bitgrad {
namespace detail {

#define BITGRAD_PTQ_METHOD(name) std::unique_ptr<PtqMethod> make_##name();
#include "tools/ptq/methods.inc"
#undef BITGRAD_PTQ_METHOD

const std::vector<std::unique_ptr<PtqMethod>>& ptq_method_list() {
  static const auto all = [] {
    std::vector<std::unique_ptr<PtqMethod>> list;
#define BITGRAD_PTQ_METHOD(name) list.push_back(make_##name());
#include "tools/ptq/methods.inc"
#undef BITGRAD_PTQ_METHOD
    return list;
  }();
  return all;
}

const PtqMethod& find_ptq_method(std::string_view name) {
  for (const auto& m : ptq_method_list())
    if (m->name() == name) return *m;
  throw Error("[quantize] " + unknown_name("method", name, ptq_method_names()));
}

namespace {

using Layer = Module::QuantizableAt;

std::vector<double> doubles_of(const std::shared_ptr<const Tensor>& t) {
  return t ? t->on_host().elements() : std::vector<double>();
}

// Sums over the inputs of a layer are two matrices of this size in double.
constexpr int64_t kMostSummedInputs = 8192;

// Why no method can change this layer; "": methods can. `weights`: how many layers with weights its module has.
std::string why_not(const Quantizable& slot, size_t weights) {
  const Tensor& value = slot.weight().value();
  if (weights > 1) return "its module has other weights: what it reads and returns is not seen";
  if (slot.weight().shape().cols() > kMostSummedInputs)
    return concat("it has ", slot.weight().shape().cols(), " inputs, more than ", kMostSummedInputs);
  if (slot.weight_owner() != nullptr) return "its weight is that of another layer";
  if (slot.kind() == Quantizable::Kind::kEmbedding) return "an embedding has no product to fit";
  if (slot.adapter() != nullptr) return "it has an adapter";
  if (!slot.weight().low_bit()) return "it is not quantized";
  const QuantSpec& spec = *slot.weight().spec().quant;
  const DTypeKind kind = spec.dtype.kind();
  if (kind != DTypeKind::kInt && kind != DTypeKind::kUint && kind != DTypeKind::kSign)
    return concat("codes of ", spec.dtype, " are not integers");
  const Granularity& g = value.quant()->granularity;
  const bool last = g.kind == Granularity::kGroup && (g.axis == -1 || g.axis == value.shape().rank() - 1);
  if (!(g.kind == Granularity::kTensor || g.per_row() || last)) return concat("scales per ", g);
  if (value.quant()->statistic) return concat("scheme ", spec.scheme, " has a rule of its own for codes");
  return "";
}

Parameter* bias_of(Module& model, const Layer& at) {
  for (const auto& [path, p] : model.parameters_at(model.path()))
    if (path == at.slot->owner().path() + ".bias" && p->shape().numel() == at.slot->weight().shape().rows() &&
        !p->low_bit())
      return p;
  return nullptr;
}

CodeGrid grid_of(const Quantizable& slot) {
  CodeGrid grid;
  grid.spec = *slot.weight().spec().quant;
  const Quantizer& quantizer = known_quantizer(grid.spec.scheme);
  const CodeRange range = quantizer.code_range(grid.spec);
  const QuantParams& params = *slot.weight().value().quant();
  grid.lo = range.lo;
  grid.hi = range.hi;
  grid.signs = grid.spec.dtype.kind() == DTypeKind::kSign;
  grid.shared = params.granularity.kind == Granularity::kTensor;
  grid.block = params.granularity.kind == Granularity::kGroup ? params.granularity.group : slot.weight().shape().cols();
  grid.fixed = params.scale == nullptr || quantizer.constant_params(grid.spec);
  return grid;
}

Matrix matrix_of(const Tensor& t) {
  Matrix m(t.shape().rows(), t.shape().cols());
  m.v = t.on_host().elements();
  return m;
}

LayerState state_of(const LayerData& data, const Quantizable& slot, const Parameter* bias) {
  const Tensor value = slot.weight().value().on_host();
  const QuantParams& params = *value.quant();
  LayerState state;
  state.codes = matrix_of(value.without_quant());
  state.scales = doubles_of(params.scale);
  state.zeros = doubles_of(params.zero);
  state.offsets = doubles_of(params.offset);
  if (!params.scale) state.scales.assign(data.grid.shared ? 1 : static_cast<size_t>(data.w.rows * data.blocks()), 1.0);
  if (bias != nullptr) state.bias = bias->value().on_host().elements();
  return state;
}

void store(const LayerState& state, Quantizable& slot, Parameter* bias) {
  const Tensor& now = slot.weight().value();
  QuantParams params = *now.quant();
  const auto put = [](std::shared_ptr<const Tensor>& to, const std::vector<double>& from) {
    if (to) to = std::make_shared<const Tensor>(Tensor::from_elements(to->shape(), to->dtype(), from, to->kind()));
  };
  put(params.scale, state.scales);
  put(params.zero, state.zeros);
  put(params.offset, state.offsets);
  const Tensor codes = Tensor::from_elements(now.shape(), now.dtype(), state.codes.v, MemoryKind::kWorkspace);
  Parameter& weight = slot.weight();
  const Tensor master = weight.has_master() ? weight.master().clone(MemoryKind::kWorkspace) : Tensor();
  weight.restore({master, codes.with_quant(std::make_shared<const QuantParams>(std::move(params)))});
  if (bias != nullptr)
    bias->restore({Tensor::from_elements(bias->value().shape(), bias->value().dtype(), state.bias), {}});
}

// The layers in the order in which an evaluation runs them.
std::vector<Layer> layers_in_order(Learner& learner, const Tensor& x) {
  std::map<std::string, size_t> places;
  predict_with(learner, x,
               [&](const std::string& path, const Tensor&, const Tensor&) { places.emplace(path, places.size()); });
  std::vector<Layer> layers = learner.model().quantizables_at(learner.model().path());
  const auto place = [&](const Layer& at) {
    const auto found = places.find(at.slot->owner().path());
    return found == places.end() ? places.size() : found->second;
  };
  std::stable_sort(layers.begin(), layers.end(), [&](const Layer& a, const Layer& b) { return place(a) < place(b); });
  return layers;
}

double spread(const LayerSums& sums) {
  double all = 0;
  for (size_t o = 0; o < sums.y.size(); ++o) all += sums.yy[o] - sums.y[o] * sums.y[o];
  return all;
}

int64_t groups_of(const Layer& at) {
  const Module& owner = at.slot->owner();
  return owner.spec() != nullptr && at.slot->kind() == Quantizable::Kind::kConv
             ? owner.spec()->attributes.integer("groups")
             : 1;
}

void step(const PtqMethod& method, const LayerData& data, double scale, const PtqSpec& spec, LayerState& state,
          PtqLayer& result) {
  if (!method.has_layer_step()) return;
  PtqStep& s = result.steps.emplace_back();
  s.method = method.name();
  s.before = s.after = result.after;
  s.refused = method.refuses(data, state);
  if (!s.refused.empty()) return;
  const auto begin = std::chrono::steady_clock::now();
  LayerState next = method.layer(data, state, spec);
  s.after = total(output_errors(data, next)) / scale;
  s.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  s.kept = s.after < s.before;
  if (!s.kept) return;
  state = std::move(next);
  result.after = s.after;
}

// Runs the methods on a layer whose sums are known. data.w: the float weights.
void fit_layer(LayerData& data, const Layer& at, Parameter* bias, const PtqSpec& spec, PtqLayer& result) {
  data.grid = grid_of(*at.slot);
  if (data.sums.rows == 0) {
    result.skipped = "samples do not reach it";
    return;
  }
  result.rows = data.sums.rows;
  result.inputs = data.w.cols;
  data.w = fitted_target(data, data.w, bias != nullptr, spec.damp);
  LayerState state = state_of(data, *at.slot, bias);
  const double scale = std::max(spread(data.sums), 1e-300);
  result.before = result.after = total(output_errors(data, state)) / scale;
  for (const std::string& name : spec.methods) step(find_ptq_method(name), data, scale, spec, state, result);
  store(state, *at.slot, bias);
}

class Walk {
 public:
  Walk(Learner& quantized, Learner& reference, const PtqSpec& spec, std::span<const SampleBatch> samples)
      : quantized_(quantized), reference_(reference), spec_(spec), samples_(samples) {
    for (const Layer& at : reference.model().quantizables_at(reference.model().path())) {
      floats_[at.layer] = at.slot;
      ++weights_[at.slot->owner().path()];
    }
  }

  PtqLayer fit(const Layer& at) {
    PtqLayer result;
    result.layer = at.layer;
    result.skipped = why_not(*at.slot, weights_[at.slot->owner().path()]);
    if (!result.skipped.empty()) return result;
    LayerData data;
    data.layer = at.layer;
    data.w = matrix_of(dequantized(floats_.at(at.layer)->weight()));
    data.groups = groups_of(at);
    data.sums = collect_sums(quantized_, reference_, at, data.groups, samples_, spec_.rows);
    fit_layer(data, at, bias_of(quantized_.model(), at), spec_, result);
    return result;
  }

 private:
  Learner &quantized_, &reference_;
  const PtqSpec& spec_;
  const std::span<const SampleBatch> samples_;
  std::map<std::string, const Quantizable*> floats_;
  std::map<std::string, size_t> weights_;  // layers with weights of each module
};

// What a method does to the float model, with its seconds.
std::vector<PtqLayer> prepared(const PtqMethod& method, const FloatModels& models) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<PtqLayer> layers = method.prepare(models);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto fits = [](const PtqLayer& layer) { return layer.steps.front().refused.empty(); };
  const auto count = static_cast<double>(std::count_if(layers.begin(), layers.end(), fits));
  for (PtqLayer& layer : layers)
    if (fits(layer)) layer.steps.front().seconds = seconds / count;
  return layers;
}

// How many weights the module of a layer has.
size_t weights_beside(Learner& learner, const Layer& at) {
  const auto slots = learner.model().quantizables();
  return static_cast<size_t>(std::count_if(slots.begin(), slots.end(), [&](const Quantizable* slot) {
    return slot->owner().path() == at.slot->owner().path();
  }));
}

}  // namespace

void require_used(const std::vector<PtqLayer>& layers, const PtqSpec& spec) {
  for (const std::string& name : spec.methods) {
    if (!find_ptq_method(name).has_layer_step()) continue;
    std::string why = "no layer is quantized to integers or signs";
    bool used = false;
    for (const PtqLayer& layer : layers)
      for (const PtqStep& s : layer.steps)
        if (s.method == name) {
          used = used || s.refused.empty();
          if (!s.refused.empty()) why = concat("'", layer.layer, "': ", s.refused);
        }
    require(used, "quantize", "method ", name, " fits no layer of this recipe: ", why);
  }
}

LayerData float_layer(Learner& learner, const Layer& at, std::span<const SampleBatch> samples, int64_t rows) {
  LayerData data;
  data.layer = at.layer;
  if (at.slot->kind() == Quantizable::Kind::kEmbedding || weights_beside(learner, at) > 1 ||
      at.slot->weight().shape().cols() > kMostSummedInputs)
    return data;  // as why_not says
  data.w = matrix_of(dequantized(at.slot->weight()));
  data.groups = groups_of(at);
  data.sums = collect_sums(learner, learner, at, data.groups, samples, rows);
  return data;
}

PtqLayer fit_alone(Learner& learner, const Layer& at, LayerData data, const PtqSpec& spec) {
  PtqLayer result;
  result.layer = at.layer;
  result.skipped = why_not(*at.slot, weights_beside(learner, at));
  if (result.skipped.empty()) fit_layer(data, at, bias_of(learner.model(), at), spec, result);
  return result;
}

}  // namespace detail

std::vector<std::string> ptq_method_names() {
  std::vector<std::string> names;
  for (const auto& m : detail::ptq_method_list()) names.emplace_back(m->name());
  return names;
}

void check_ptq(const PtqSpec& spec) {
  require(spec.damp >= 1e-6 && spec.damp <= 1, "quantize", "damp: got ", spec.damp, ", expected 0.000001 to 1");
  require(spec.rows >= 1, "quantize", "rows: got ", spec.rows, ", expected at least 1");
  for (const std::string& name : spec.methods) {
    detail::find_ptq_method(name);
    require(std::count(spec.methods.begin(), spec.methods.end(), name) == 1, "quantize", "method ", name,
            " is listed twice");
  }
}

std::vector<PtqLayer> quantize_with_methods(Learner& learner, Learner& reference, const PrepareSpec& spec,
                                            const PtqSpec& ptq, std::span<const SampleBatch> samples,
                                            std::span<const SampleBatch> norm_samples) {
  check_ptq(ptq);
  const DeviceGuard guard(learner.device());
  std::vector<PtqLayer> layers;
  for (const std::string& name : ptq.methods) {
    const auto pairs =
        detail::prepared(detail::find_ptq_method(name), {learner, reference, spec, samples, norm_samples});
    layers.insert(layers.end(), pairs.begin(), pairs.end());
  }
  quantize_after_training(learner, spec, samples, {});
  detail::Walk walk(learner, reference, ptq, samples);
  for (const auto& at : detail::layers_in_order(learner, samples.front().x)) layers.push_back(walk.fit(at));
  if (ptq.must_fit) detail::require_used(layers, ptq);
  for (const std::string& name : ptq.methods) detail::find_ptq_method(name).finish(learner, norm_samples);
  return layers;
}

void print_ptq(std::ostream& out, std::span<const PtqLayer> layers) {
  std::vector<std::vector<std::string>> table{{"layer", "method", "error before", "after", "seconds", ""}};
  const auto percent = [](double x) {
    return concat(number_text(static_cast<float>(std::round(x * 1e5) / 1e3)), " %");
  };
  for (const PtqLayer& layer : layers) {
    if (!layer.skipped.empty()) table.push_back({layer.layer, "-", "", "", "", layer.skipped});
    for (const PtqStep& s : layer.steps) {
      if (!s.refused.empty())
        table.push_back({layer.layer, s.method, "", "", "", "does not fit: " + s.refused});
      else
        table.push_back({layer.layer, s.method, percent(s.before), percent(s.after),
                         number_text(static_cast<float>(std::round(s.seconds * 100) / 100)), s.kept ? "" : "not kept"});
    }
  }
  out << text_table(table);
  const auto few = std::find_if(layers.begin(), layers.end(), [](const PtqLayer& l) {
    return l.rows < l.inputs && !l.steps.empty() && detail::find_ptq_method(l.steps.front().method).has_layer_step();
  });
  if (few != layers.end())
    out << "'" << few->layer << "' has " << few->inputs << " inputs and was fitted to " << few->rows
        << " rows of them: more samples give better codes\n";
}

}  // namespace bitgrad
