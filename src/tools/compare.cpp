#include "bitgrad/tools/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "bitgrad/run/quant_monitor.h"
#include "nn/activation_quantizer.h"
#include "tools/norm_statistics.h"

namespace bitgrad {
namespace {

std::optional<Difference> difference(const Shape& shape_a, const std::vector<double>& a, const Shape& shape_b,
                                     const std::vector<double>& b) {
  if (shape_a != shape_b) return std::nullopt;
  Difference d;
  d.equal_bits = true;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    d.equal_bits = d.equal_bits && std::bit_cast<uint64_t>(a[i]) == std::bit_cast<uint64_t>(b[i]);
    const double off = std::abs(a[i] - b[i]);
    d.max_abs_difference = std::max(d.max_abs_difference, off);
    sum += off * off;
  }
  if (!a.empty()) d.rms_difference = std::sqrt(sum / static_cast<double>(a.size()));
  return d;
}

// Input quantizers of layers that are off: they pass their input through, and a converted model has none.
std::vector<ActivationQuantizer*> inputs_off(Module& model) {
  std::vector<ActivationQuantizer*> inputs;
  for (const Quantizable* slot : model.quantizables())
    if (!slot->on() && slot->input_quantizer() != nullptr) inputs.push_back(slot->input_quantizer());
  return inputs;
}

// Parameters by path, excluding learned parts of weights and of inputs that are off, which a converted model does not
// have.
std::vector<std::pair<std::string, const Parameter*>> parameters_of(Module& model) {
  std::set<const Parameter*> learned;
  for (ActivationQuantizer* input : inputs_off(model))
    for (const Parameter* p : input->parameters()) learned.insert(p);
  std::vector<std::pair<std::string, const Parameter*>> out;
  for (const Parameter* p : model.parameters()) {
    if (learned.count(p) == 0) out.emplace_back(p->path(), p);
    for (const auto& part : p->learned()) learned.insert(part.get());
  }
  return out;
}

std::string form_of(const Parameter& p) {
  const Tensor& value = p.value();
  if (!value.quant()) return concat(value.dtype());
  return concat(value.dtype(), ' ', value.quant()->scheme, ' ', value.quant()->granularity);
}

ParameterDifference parameter_difference(const Parameter& a, const Parameter& b) {
  ParameterDifference d;
  d.path = a.path();
  d.a = form_of(a);
  d.b = form_of(b);
  d.same_form = d.a == d.b && a.shape() == b.shape();
  d.elements = a.shape().numel();
  if (a.low_bit() && b.low_bit() && a.value().dtype() == b.value().dtype() && a.shape() == b.shape())
    d.codes_differ = count_flips(a.value(), b.value());
  d.values = difference(a.shape(), a.value().values(), b.shape(), b.value().values());
  return d;
}

struct Seen {
  std::string path, form;
  Shape shape;
  std::vector<double> values;
};

Seen seen(const std::string& path, const Tensor& out) { return {path, concat(out), out.shape(), out.values()}; }

// The output of every module for x, the first time it runs, and finally the logits.
std::vector<Seen> run(Learner& learner, const Tensor& x) {
  std::vector<Seen> all;
  std::set<std::string> paths{learner.model().path()};  // already recorded, or to be skipped
  for (const ActivationQuantizer* input : inputs_off(learner.model())) paths.insert(input->path());
  const Tensor logits =
      detail::predict_with(learner, x, [&](const std::string& path, const Tensor&, const Tensor& out) {
        if (paths.insert(path).second) all.push_back(seen(path, out));
      });
  all.push_back(seen("output", logits));
  return all;
}

OutputDifference output_difference(const Seen& a, const Seen& b) {
  return {a.path, a.form, b.form, difference(a.shape, a.values, b.shape, b.values)};
}

// Calls both(a, b) for items with equal paths, in the order of a; unmatched paths go into the lists of `out`.
template <typename Item, typename Path, typename Both>
void match(const std::vector<Item>& a, const std::vector<Item>& b, Path path, Both both, ModelDifference& out) {
  std::map<std::string, const Item*> of_b;
  for (const Item& item : b) of_b[path(item)] = &item;
  for (const Item& item : a) {
    const auto at = of_b.find(path(item));
    if (at == of_b.end()) {
      out.only_a.push_back(path(item));
      continue;
    }
    both(item, *at->second);
    of_b.erase(at);
  }
  for (const Item& item : b)
    if (of_b.count(path(item)) != 0) out.only_b.push_back(path(item));
}

bool equal(const std::optional<Difference>& d) { return d && d->equal_bits; }

}  // namespace

ModelDifference compare_models(Learner& a, Learner& b, const Tensor& x) {
  ModelDifference out;
  match(
      parameters_of(a.model()), parameters_of(b.model()), [](const auto& item) { return item.first; },
      [&](const auto& p, const auto& q) { out.parameters.push_back(parameter_difference(*p.second, *q.second)); }, out);
  std::vector<Seen> of_a = run(a, x), of_b = run(b, x);
  out.output = output_difference(of_a.back(), of_b.back());
  of_a.pop_back();
  of_b.pop_back();
  match(
      of_a, of_b, [](const Seen& s) { return s.path; },
      [&](const Seen& p, const Seen& q) { out.modules.push_back(output_difference(p, q)); }, out);
  out.equal_bits = out.only_a.empty() && out.only_b.empty() && equal(out.output.values) &&
                   std::all_of(out.modules.begin(), out.modules.end(), [](const auto& m) { return equal(m.values); }) &&
                   std::all_of(out.parameters.begin(), out.parameters.end(),
                               [](const auto& p) { return p.same_form && equal(p.values); });
  return out;
}

}  // namespace bitgrad
