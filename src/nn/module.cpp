#include "bitgrad/nn/module.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <typeinfo>

#include "bitgrad/base/device.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/state.h"
#include "kernels/flag.h"
#include "nn/activation_quantizer.h"

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

std::vector<std::pair<std::string, Parameter*>> Module::parameters_at(const std::string& root) {
  std::vector<std::pair<std::string, Parameter*>> out;
  for (auto& p : parameters_) out.emplace_back(root + '.' + p.name, p.item.get());
  for (auto& c : children_)
    for (auto& p : c.item->parameters_at(root + '.' + c.name)) out.push_back(std::move(p));
  return out;
}

std::vector<std::pair<std::string, Module*>> Module::modules_at(const std::string& root) {
  std::vector<std::pair<std::string, Module*>> out{{root, this}};
  for (auto& c : children_)
    for (auto& m : c.item->modules_at(root + '.' + c.name)) out.push_back(std::move(m));
  return out;
}

void Module::freeze() {
  frozen_ = true;
  for (auto& p : parameters_) p.item->change([](ParameterSpec& spec) { spec.frozen = true; });
  for (auto& c : children_) c.item->freeze();
}

std::vector<Module::Buffer> Module::buffers() {
  std::vector<Buffer> out;
  for (auto& b : buffers_) out.push_back({path_ + '.' + b.name, b.item});
  for (auto& c : children_)
    for (Buffer& b : c.item->buffers()) out.push_back(std::move(b));
  return out;
}

Parameter& Module::add_parameter(const std::string& name, ParameterSpec spec) {
  parameters_.push_back({name, std::make_unique<Parameter>(Shape(), std::move(spec), name)});
  return *parameters_.back().item;
}
Parameter& Module::add_parameter(const std::string& name, Shape shape, ParameterSpec spec) {
  Parameter& p = add_parameter(name, std::move(spec));
  p.describe(shape);
  return p;
}

void Module::record_key(const std::string& key, int64_t value) {
  if (!spec_) return;
  auto found = std::make_shared<LayerSpec>(*spec_);
  found->attributes[key] = value;
  spec_ = std::move(found);
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
  if (frozen_) child->freeze();
  children_.push_back({name, std::move(child)});
}

void Module::replace_child(const std::string& name, std::shared_ptr<Module> child) {
  if (child && state_ != nullptr) child->name_all(path_ + '.' + name, *state_);
  const auto at = std::find_if(children_.begin(), children_.end(), [&](const auto& c) { return c.name == name; });
  if (at == children_.end()) {
    if (child) add_child(name, std::move(child));
  } else if (child) {
    if (frozen_) child->freeze();
    at->item = std::move(child);
  } else {
    children_.erase(at);
  }
}

Quantizable& Module::add_quantizable(const std::string& name, Shape shape, const ParameterSpec& spec,
                                     Quantizable::Kind kind, Compute compute) {
  return add_slot(name, add_parameter(name, std::move(shape), spec), spec, kind, compute);
}
Quantizable& Module::add_quantizable(const std::string& name, const ParameterSpec& spec, Quantizable::Kind kind,
                                     Compute compute) {
  return add_slot(name, add_parameter(name, spec), spec, kind, compute);
}

Quantizable& Module::add_tied(const std::string& name, Quantizable& owner, Compute compute) {
  Quantizable& slot = add_slot(name, owner.weight(), owner.weight().spec(), Quantizable::Kind::kLinear, compute);
  slot.owner_slot_ = &owner;
  return slot;
}

Quantizable& Module::add_slot(const std::string& name, Parameter& weight, const ParameterSpec& spec,
                              Quantizable::Kind kind, Compute compute) {
  require(compute != Compute::kInteger, "Module",
          "compute: integer is of the whole model, not of single layers: got it as a key of a layer or of quant. Use "
          "quant.recipe: int8, or compute: integer in quant.rules");
  LayerQuant own;
  if (spec.quant) own.recipe = "custom";
  own.weight = spec.quant;
  own.compute = compute;
  own.master = spec.master;
  own.grad = spec.grad;
  own.latent_clamp = spec.latent_clamp;
  own.learned = spec.learned;
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
  static const std::string kOwnPath;  // an initialized module has a path of its own
  for (auto& c : children_) {
    std::vector<QuantizableAt> more =
        c.item->initialized() ? c.item->quantizables_at(kOwnPath) : c.item->quantizables_at(path + '.' + c.name);
    out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
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

Module* Module::find(std::string_view names) {
  const size_t dot = names.find('.');
  for (auto& c : children_)
    if (c.name == names.substr(0, dot)) return dot == names.npos ? c.item.get() : c.item->find(names.substr(dot + 1));
  return nullptr;
}

void Module::connect_all(Module& root) {
  connect(root);
  for (auto& c : children_) in_layer(c.name, [&] { c.item->connect_all(root); });
}

Var Module::operator()(const Var& x) {
  Var y = forward(x);
  // The gradient of an edge has as many bytes as its values. An edge that only passes through keeps what its producer
  // requested, and one that the module itself has read keeps its dtype.
  const bool passed_on = x.tracked() && y.tracked() && y.edge() == x.edge();
  if (y.tracked() && y.dtype() == dtypes::bf16 && !passed_on && !y.was_read()) y.want_grad(dtypes::bf16);
  if (state_ != nullptr && state_->on_forward && !state_->recomputing) state_->on_forward(path_, x.value(), y.value());
  return y;
}

Form Module::plan(const Form& in) {
  PlanRequests unserved;
  check_causal();
  Form whole = in;
  whole.causal = in.causal || causal();
  return planned(whole, unserved);
}
Form Module::planned(const Form& in, PlanRequests& requests) {
  const Form out = plan(in, requests);
  if (in.training || !input_form_ || !input_form_->training) {
    input_form_ = in;
    output_form_ = out;
  }
  return out;
}
int64_t Module::macs(const Form&, const Form& out) const {
  int64_t macs = 0;
  for (const auto& slot : quantizables_)
    if (slot->kind() != Quantizable::Kind::kEmbedding) macs += out.sample_rows() * slot->weight().shape().numel();
  return macs;
}
PlanRequests Module::serve(const PlanRequests&) { return {}; }

const StepState& Module::state() const { return mutable_state(); }
StepState& Module::mutable_state() const {
  require(state_ != nullptr, "Module", "forward before initialize: the module (kind '", kind(),
          "') has no seed and no step yet. Call initialize of the model first; a Learner does.");
  return *state_;
}

void Module::name_all(const std::string& path, StepState& state) {
  path_ = path;
  state_ = &state;
  for (auto& p : parameters_) {
    if (state.read_only)
      p.item->leave_unset(path + '.' + p.name, state.seed);
    else
      p.item->initialize(path + '.' + p.name, state.seed);
  }
  allocate();
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

void rethrow_in_layer(const std::string& name) {
  try {
    throw;
  } catch (const LayerError& e) {
    throw LayerError(name + '.' + e.layer(), e.message(), e.code());
  } catch (const Error& e) {
    if (typeid(e) != typeid(Error)) throw;
    throw LayerError(name, e.what(), e.code());
  }
}

// ---- causal models: the output of a layer for a row may depend on earlier rows of the same sample, and on no others.

bool Module::causal() {
  const LayerKind* const known = find_layer_kind(kind());
  return (known != nullptr && known->causal) ||
         std::any_of(children_.begin(), children_.end(), [](const auto& c) { return c.item->causal(); });
}

void Module::check_causal() {
  if (causal()) check_all_rows();
}

// A slot's input quantizer reports errors under its layer's name, as in plan.
void Module::check_all_rows() {
  check_rows();
  for (auto& c : children_) {
    const bool of_slot = std::any_of(quantizables_.begin(), quantizables_.end(),
                                     [&](const auto& slot) { return slot->input_quantizer() == c.item.get(); });
    if (of_slot)
      c.item->check_rows();
    else
      in_layer(c.name, [&] { c.item->check_all_rows(); });
  }
}

const SequenceState& Module::sequence() const {
  static const SequenceState kBegin;
  return state_ != nullptr ? state_->sequence : kBegin;
}

uint32_t* FlagBoard::word(const std::string& name) {
  std::shared_ptr<Entry> entry;
  for (const auto& e : entries_)
    if (e->name == name) entry = e;
  if (entry == nullptr) entry = entries_.emplace_back(std::make_shared<Entry>(Entry{name}));
  if (current_device().is_cpu()) return &entry->word;
  const FlagWord flag;
  flag.read([entry](uint32_t word) { entry->word |= word; });
  return flag.word();
}

std::vector<std::string> FlagBoard::raised() const {
  std::vector<std::string> names;
  for (const auto& e : entries_)
    if (e->word != 0) names.push_back(e->name);
  return names;
}

void FlagBoard::clear() {
  for (const auto& e : entries_) e->word = 0;
}

}  // namespace bitgrad
