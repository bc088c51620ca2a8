// Initial values from another run, whatever its quantization was. What has the same precision in the file is taken bit
// for bit.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/config/weight_name.h"

#include "checkpoint/part.h"
#include "checkpoint/restorer.h"
#include "config/weight_names.h"
#include "nn/activation_quantizer.h"
#include "optim/requirements.h"
#include "train/averages.h"

namespace bitgrad {
using namespace checkpoint;

namespace {

// model.rename and model.ignore for files of bitgrad.
class WeightPaths {
 public:
  // Throws Error for a rule with an order of elements: files of bitgrad have its own.
  explicit WeightPaths(const WeightMap& map) : map_(map), rule_used_(map.names.size()), ignored_(map.ignore) {
    for (const WeightName& rule : map.names)
      require(!rule.transpose && !rule.ohwi && rule.chw.empty(), "rename", '\'', rule.parameter, "': got '",
              value_text(rule), "', expected a name alone: a file of bitgrad has the order of this model");
  }
  // The name in the file of a parameter or buffer of the model.
  std::string name_of(const std::string& path) {
    std::string name = path;
    for (size_t i = 0; i < map_.names.size(); ++i)
      if (const auto given = interop::renamed(map_.names[i], path)) {
        name = *given;
        rule_used_[i] = true;
      }
    return name;
  }
  bool ignored(const std::string& name) { return ignored_.ignored(name); }
  // Throws Error for a rule that matched nothing. Call it when every path of the model was asked for.
  void check_used() const {
    for (size_t i = 0; i < rule_used_.size(); ++i)
      require(rule_used_[i], "rename", '\'', map_.names[i].parameter, "' matches no parameter of the model");
  }
  // Throws Error for a glob that matched nothing. Call it when every name of the file was asked for, too.
  void require_used() const { ignored_.require_used(); }

 private:
  const WeightMap map_;
  std::vector<bool> rule_used_;
  interop::IgnoredNames ignored_;
};

// The parameter that a tensor belongs to; empty for a buffer. Parts of a parameter append one name to its path,
// optimizer state two or three.
std::string owner_of(const std::string& name, const std::set<std::string>& parameters) {
  for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.', dot - 1))
    if (parameters.count(name.substr(0, dot))) return name.substr(0, dot);
  return "";
}

// Whether two specs give the same codes for the same values and scales: all but what only training reads.
bool same_precision(QuantSpec a, const QuantSpec& b) {
  a.rounding = b.rounding;
  a.ste = b.ste;
  a.alpha_grad = b.alpha_grad;
  a.ste_t = b.ste_t;
  a.ste_t_first = b.ste_t_first;
  a.ste_t_last = b.ste_t_last;
  a.first_clip = b.first_clip;
  return a == b;
}

// Finds the quantizers of inputs, by path; the model must be initialized.
void find_quantizers(Module& module, std::map<std::string, const ActivationQuantizer*>& out) {
  if (const auto* const found = dynamic_cast<const ActivationQuantizer*>(&module)) out[module.path()] = found;
  for (Module* child : module.children()) find_quantizers(*child, out);
}

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

// The precision of a file's weights and inputs.
class FilePrecision {
 public:
  FilePrecision(const std::string& path, const std::string& record) {
    if (record.empty()) return;
    try {
      model_ = recorded_model(parse_model_record(record));
    } catch (const Error& e) {
      log(LogLevel::kInfo,
          concat(path, ": its model cannot be built, so learned parts and ranges of inputs begin anew: ", e.what()));
    }
    if (!model_) return;
    for (const auto& [at, parameter] : model_->parameters_at(kModelRoot)) weights_[at] = parameter;
  }
  // Without a record only the codes say it.
  bool fits(const std::string& path, const Parameter& p) const {
    if (!p.low_bit() || !model_) return p.low_bit();
    const auto found = weights_.find(path);
    return found != weights_.end() && found->second->low_bit() &&
           same_precision(*found->second->spec().quant, *p.spec().quant);
  }
  bool fits(const std::string& path, const ActivationQuantizer& quantizer) const {
    const ActivationQuantizer* const found = quantizer_at(path);
    if (found == nullptr) return false;
    const ActivationQuant &a = found->quant(), &b = quantizer.quant();
    return same_precision(a.spec, b.spec) && a.observer.has_value() == b.observer.has_value() &&
           (!a.observer || a.observer->name == b.observer->name);
  }
  const ActivationQuantizer* quantizer_at(const std::string& path) const {
    const std::string root = concat(kModelRoot, '.');
    if (!model_ || !path.starts_with(root)) return nullptr;
    return dynamic_cast<const ActivationQuantizer*>(model_->find(std::string_view(path).substr(root.size())));
  }

 private:
  std::shared_ptr<Sequential> model_;  // nullptr: not recorded
  std::map<std::string, const Parameter*> weights_;
};

class InitialValues {
 public:
  // part: of a file of that kind, which need not have everything.
  InitialValues(const std::string& path, Module& model, const WeightMap& map, int64_t step, bool part,
                bool values_only = false)
      : restorer_(path, part ? std::optional(SavedKind::kPart) : std::nullopt),
        part_(part),
        values_only_(values_only),
        precision_(path, read_state(restorer_.file()).model),
        model_(model),
        paths_(map),
        step_(step) {
    find_quantizers(model, quantizers_);
    for (const SafetensorsEntry& e : restorer_.file().entries())
      for (const std::string_view form : {".master", ".value", ".codes"})
        if (e.name.ends_with(form)) in_file_.insert(e.name.substr(0, e.name.size() - form.size()));
    own_ = own_values(model, [&](const std::string& at) { return in_file_.count(paths_.name_of(at)) > 0; });
  }

  InitFrom take() {
    for (const Parameter* p : model_.parameters()) paths_.name_of(p->path());
    for (const Module::Buffer& b : model_.buffers()) paths_.name_of(b.path);
    paths_.check_used();
    for (Parameter* p : model_.parameters()) {
      const std::string name = paths_.name_of(p->path());
      if (keeps_own(p->path(), name) || (part_ && in_file_.count(name) == 0)) continue;
      if (own_.count(p->path()) > 0 && !restored(*p, name)) {
        found_.fresh.push_back(p->path());
        continue;
      }
      if (own_.count(p->path()) == 0) assign(*p, name);
      taken(p->path(), name);
    }
    for (const Module::Buffer& b : model_.buffers()) {
      const std::string name = paths_.name_of(b.path);
      if (keeps_own(b.path, name) || (part_ && !restorer_.file().contains(name))) continue;
      if (own_.count(b.path) > 0 && !(of_same_input(b.path, name) && restorer_.file().contains(name))) {
        found_.fresh.push_back(b.path);
        continue;
      }
      reading_of(b.path, [&] { restorer_.into(name, b.tensor); });
      taken(b.path, name);
    }
    list_unused();
    paths_.require_used();
    return std::move(found_);
  }

 private:
  bool keeps_own(const std::string& path, const std::string& name) {
    if (!paths_.ignored(name)) return false;
    found_.own.push_back(path);
    return true;
  }
  void taken(const std::string& path, const std::string& name) {
    found_.taken.push_back(path);
    taken_names_.insert(name);
  }
  template <typename F>
  void reading_of(const std::string& path, F&& read) {
    try {
      read();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kData) throw;
      const std::string name = paths_.name_of(path);
      throw Error(concat(e.what(), name == path ? "" : concat(". It is for '", path, "' of this model"),
                         ". model.rename names what is to be read: {layers.4: layers.3}; model.ignore leaves names of "
                         "the file out, such as ['",
                         parent_of(name), ".*'], and what they are for keeps its own initial values"),
                  e.code());
    }
  }
  void assign(Parameter& p, const std::string& name) {
    reading_of(p.path(), [&] {
      if (!values_only_ && precision_.fits(name, p) && restorer_.same_codes(p, name))
        same_.insert(&p);
      else
        p.assign(restorer_.numbers(name, p.shape()), step_);
    });
    if (same_.count(&p) == 0) return;
    for (const auto& part : p.learned()) owner_[part.get()] = &p;
    const bool fitted = p.has_master() && p.learned().empty() && !restorer_.file().contains(name + ".master");
    if (fitted && !detail::keeps_its_values(*p.spec().quant)) found_.moving.push_back(p.path());
  }
  // A learned part, or a parameter of an input's quantizer or of an adapter.
  bool restored(Parameter& p, const std::string& name) {
    const auto owner = owner_.find(&p);
    const bool same = owner != owner_.end() || of_same_input(p.path(), name);
    if (!same) return false;
    if (in_file_.count(name) == 0) return owner != owner_.end() && from_codes(*owner->second, p);
    p.assign(restorer_.numbers(name, p.shape()), step_);
    return true;
  }
  // A converted model has no learned parts of weights: scales and offsets of its codes are their values.
  bool from_codes(const Parameter& owner, Parameter& part) const {
    const QuantParams& params = *owner.value().quant();
    const std::string name = part.path().substr(owner.path().size() + 1);
    const std::shared_ptr<const Tensor> source = name == "step"     ? params.scale
                                                 : name == "offset" ? params.offset
                                                                    : nullptr;
    if (source == nullptr || source->numel() != part.shape().numel()) return false;
    const Tensor host = source->on_host();
    const DeviceGuard cpu(Device::cpu());
    part.assign(Tensor::from_elements(part.shape(), dtypes::fp32, host.elements(), MemoryKind::kWorkspace), step_);
    return true;
  }
  bool of_same_input(const std::string& path, const std::string& name) const {
    if (values_only_) return false;
    for (std::string at = parent_of(path), from = parent_of(name); at.size() > 1; at = parent_of(at)) {
      if (const auto found = quantizers_.find(at); found != quantizers_.end())
        return precision_.fits(from, *found->second);
      if (at.find('.') == std::string::npos) break;
      from = parent_of(from);
    }
    return false;
  }
  bool quantizes(const std::string& name) const {
    if (in_file_.count(parent_of(name)) > 0) return true;
    for (std::string at = parent_of(name); at.find('.') != std::string::npos; at = parent_of(at))
      if (precision_.quantizer_at(at) != nullptr) return true;
    return false;
  }
  void list_unused() {
    std::set<std::string> skipped, ignored;
    for (const SafetensorsEntry& e : restorer_.file().entries()) {
      const std::string owner = owner_of(e.name, in_file_), name = owner.empty() ? e.name : owner;
      if (taken_names_.count(name) > 0 || e.name.ends_with(detail::kAverageEnd)) continue;
      (paths_.ignored(name) ? ignored : skipped).insert(name);
    }
    // What begins anew here has a place, but no use for the value there.
    for (const std::string& path : found_.fresh) skipped.erase(paths_.name_of(path));
    found_.ignored.assign(ignored.begin(), ignored.end());
    found_.skipped.assign(skipped.begin(), skipped.end());
    for (const std::string& name : skipped)
      if (quantizes(name)) found_.quantization.push_back(name);
  }

  Restorer restorer_;
  const bool part_, values_only_;
  const FilePrecision precision_;
  Module& model_;
  WeightPaths paths_;
  const int64_t step_;
  std::map<std::string, const ActivationQuantizer*> quantizers_;  // of this model, by path
  std::set<std::string> in_file_;                                 // paths of the file's parameters
  std::set<std::string> own_, taken_names_;
  std::set<const Parameter*> same_;
  std::map<const Parameter*, const Parameter*> owner_;  // of learned parts whose owners have the file's codes
  InitFrom found_;
};

}  // namespace

InitFrom init_from(const std::string& path, Module& model, const WeightMap& map, int64_t step) {
  return reading(path, [&] { return InitialValues(path, model, map, step, /*part=*/false).take(); });
}

InitFrom checkpoint::take_values(const std::string& path, Module& model) {
  return reading(path, [&] { return InitialValues(path, model, {}, 0, /*part=*/false, /*values_only=*/true).take(); });
}

InitFrom checkpoint::take_part(const std::string& path, Module& model) {
  return reading(path, [&] { return InitialValues(path, model, {}, 0, /*part=*/true).take(); });
}

}  // namespace bitgrad
