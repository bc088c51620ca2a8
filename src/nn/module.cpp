#include "bitgrad/nn/module.h"

#include <algorithm>
#include <map>
#include <typeinfo>

#include "bitgrad/base/rng.h"

namespace bitgrad {

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> out;
  for (auto& p : parameters_) {
    out.push_back(p.item.get());
    for (const auto& part : p.item->learned()) out.push_back(part.get());
  }
  for (auto& c : children_)
    for (Parameter* p : c.item->parameters()) out.push_back(p);
  return out;
}

std::vector<Module::Buffer> Module::buffers() {
  std::vector<Buffer> out;
  for (auto& b : buffers_) out.push_back({path_ + '.' + b.name, b.item});
  for (auto& c : children_)
    for (Buffer& b : c.item->buffers()) out.push_back(std::move(b));
  return out;
}

Parameter& Module::add_parameter(const std::string& name, Shape shape, ParameterSpec spec) {
  parameters_.push_back({name, std::make_unique<Parameter>(std::move(shape), std::move(spec), name)});
  return *parameters_.back().item;
}

Tensor Module::add_buffer(const std::string& name, const Shape& shape, double number) {
  return add_buffer(name, Tensor::full(shape, dtypes::fp32, number, MemoryKind::kBuffer));
}

Tensor Module::add_buffer(const std::string& name, const Tensor& tensor) {
  require(tensor.defined() && tensor.contiguous() && !tensor.quant(), "Module", "buffer '", name,
          "' must be dense, canonical and without scales, got ", tensor);
  buffers_.push_back({name, tensor});
  return buffers_.back().item;
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> child) {
  children_.push_back({name, std::move(child)});
}

void Module::replace_child(const std::string& name, std::shared_ptr<Module> child) {
  if (child && state_ != nullptr) child->name_all(path_ + '.' + name, *state_);
  const auto at = std::find_if(children_.begin(), children_.end(), [&](const auto& c) { return c.name == name; });
  if (at == children_.end()) {
    if (child) add_child(name, std::move(child));
  } else if (child) {
    at->item = std::move(child);
  } else {
    children_.erase(at);
  }
}

Quantizable& Module::add_quantizable(const std::string& name, Shape shape, const ParameterSpec& spec,
                                     Quantizable::Kind kind, Compute compute) {
  Parameter& weight = add_parameter(name, std::move(shape), spec);
  LayerQuant own;
  if (spec.quant) own.recipe = "custom";
  own.weight = spec.quant;
  own.compute = compute;
  own.master = spec.master;
  own.grad = spec.grad;
  own.latent_clamp = spec.latent_clamp;
  own.learned_lr_factor = spec.learned_lr_factor;
  own.learned_weight_decay = spec.learned_weight_decay;
  quantizables_.push_back(std::make_unique<Quantizable>(*this, name, kind, weight, own));
  return *quantizables_.back();
}

std::vector<Quantizable*> Module::quantizables() {
  std::vector<Quantizable*> out;
  for (const QuantizableAt& at : quantizables_at("")) out.push_back(at.slot);
  return out;
}

std::vector<Module::QuantizableAt> Module::quantizables_at(const std::string& root) {
  const std::string& path = initialized() ? path_ : root;
  std::vector<QuantizableAt> out;
  for (const auto& q : quantizables_)
    out.push_back({q->name_ == Quantizable::kWeight ? path : path + '.' + q->name_, q.get()});
  for (auto& c : children_)
    for (QuantizableAt& at : c.item->quantizables_at(path + '.' + c.name)) out.push_back(std::move(at));
  return out;
}

void Module::set_quant_mode(const QuantMode& mode) {
  for (const auto& q : quantizables_) q->set_mode(mode);
}

std::vector<Module*> Module::children() {
  std::vector<Module*> out;
  for (auto& c : children_) out.push_back(c.item.get());
  return out;
}

Var Module::operator()(const Var& x) {
  Var y = forward(x);
  if (state_ != nullptr && state_->on_forward) state_->on_forward(path_, x.value(), y.value());
  return y;
}

Var Module::forward_behind(Module&, const Var&) { return {}; }

const StepState& Module::state() const { return mutable_state(); }
StepState& Module::mutable_state() const {
  require(state_ != nullptr, "Module", "forward before initialize: the module (kind '", kind(),
          "') knows no seed and no step yet. Call initialize of the model first; a Learner does.");
  return *state_;
}

void Module::name_all(const std::string& path, StepState& state) {
  path_ = path;
  state_ = &state;
  for (auto& p : parameters_) p.item->initialize(path + '.' + p.name, state.seed);
  for (auto& c : children_) c.item->name_all(path + '.' + c.name, state);
}

void Module::initialize(const std::string& path, StepState& state) {
  name_all(path, state);
  check_paths();
}

void Module::check_paths() const {
  std::vector<std::string> paths;
  collect_paths(paths);
  std::map<uint32_t, std::string> seen;
  for (const std::string& p : paths) {
    const auto [at, fresh] = seen.emplace(site_id(p), p);
    require(fresh || at->second != p, "Module", "two modules or parameters have the path '", p, "'. Rename one.");
    require(fresh, "Module", "the paths '", at->second, "' and '", p,
            "' have the same CRC32C, so their random draws would be equal. Rename one.");
  }
}

void Module::collect_paths(std::vector<std::string>& out) const {
  out.push_back(path_);
  for (const auto& p : parameters_) {
    out.push_back(p.item->path());
    for (const auto& part : p.item->learned()) out.push_back(part->path());
  }
  for (const auto& c : children_) c.item->collect_paths(out);
}

namespace {

// The layer's place before what its errors say. A type of error of a program's own passes as it is.
template <typename F>
auto in_layer(size_t i, F&& run) {
  try {
    return run();
  } catch (const Error& e) {
    if (typeid(e) != typeid(Error)) throw;
    throw Error(concat("layer ", i, ": ", e.what()), e.code());
  }
}

// Module `i` with the one before it as one, or undefined. An error is told of the one that makes it: of the two, one
// after the other, the first that does.
Var run_behind(size_t i, Module& before, Module& module, const Var& x) {
  try {
    return module.forward_behind(before, x);
  } catch (const Error&) {
    const Var between = in_layer(i - 1, [&] { return before(x); });
    in_layer(i, [&] { return module(between); });
    throw;
  }
}

}  // namespace

Sequential::Sequential(const std::vector<std::shared_ptr<Module>>& modules) {
  for (const auto& m : modules) append(m);
}

void Sequential::append(std::shared_ptr<Module> module) {
  add_child(std::to_string(modules_.size()), module);
  modules_.push_back(std::move(module));
}

Var Sequential::forward(const Var& x) {
  const bool pairs = initialized() && !state().training && !state().on_forward && Tape::current() == nullptr;
  Var y = x;
  for (size_t i = 0; i < modules_.size(); ++i) {
    Var z;
    if (pairs && i + 1 < modules_.size()) z = run_behind(i + 1, *modules_[i], *modules_[i + 1], y);
    if (z.defined())
      ++i;
    else
      z = in_layer(i, [&] { return (*modules_[i])(y); });
    y = std::move(z);
  }
  return y;
}

TensorMeta Sequential::plan(const TensorMeta& in) {
  TensorMeta meta = in;
  for (size_t i = 0; i < modules_.size(); ++i) meta = in_layer(i, [&] { return modules_[i]->plan(meta); });
  return meta;
}

}  // namespace bitgrad
