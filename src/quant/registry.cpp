// Lookup of quantizers by name: the lines of quantizers.inc, then those registered by programs.
#include <mutex>
#include <string>

#include "base/registration.h"
#include "bitgrad/base/text.h"
#include "bitgrad/quant/quantizer.h"
#include "bitgrad/quant/scheme.h"

namespace bitgrad {

namespace detail {
#define BITGRAD_QUANTIZER(class_name) std::unique_ptr<Quantizer> make_##class_name();
#include "quant/quantizers.inc"
#undef BITGRAD_QUANTIZER
}  // namespace detail

namespace {

// Append-only, so that references stay valid.
// Keys of the maps in configurations that also contain the keys of schemes.
std::vector<std::string_view> built_in_keys() {
  std::vector<std::string_view> keys{"alpha",        "ste_t",   "learned",      "observer",  "init",
                                     "master",       "moments", "latent_clamp", "optimizer", "lr_factor",
                                     "weight_decay", "frozen",  "grad",         "matrices"};
  const QuantSpec spec;
  visit_quant([&](std::string_view key, const auto&) { keys.emplace_back(key); }, spec);
  return keys;
}

class Registry {
 public:
  Registry() {
#define BITGRAD_QUANTIZER(class_name) all_.push_back(detail::make_##class_name());
#include "quant/quantizers.inc"
#undef BITGRAD_QUANTIZER
  }
  const Quantizer* find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    return look_up(name);
  }
  std::vector<std::string_view> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string_view> out;
    for (const auto& q : all_) out.push_back(q->name());
    return out;
  }
  void add(std::shared_ptr<const Quantizer> quantizer) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(quantizer));
  }
  detail::SharedKeys keys{built_in_keys()};

 private:
  const Quantizer* look_up(std::string_view name) const {
    for (const auto& q : all_)
      if (q->name() == name) return q.get();
    return nullptr;
  }
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Quantizer>> all_;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

const Quantizer& known_quantizer(std::string_view name) {
  if (const Quantizer* found = registry().find(name)) return *found;
  const std::vector<std::string_view> names = registry().names();
  fail("find_quantizer", unknown_name("scheme", name, {names.begin(), names.end()}));
}

const Quantizer& find_quantizer(std::string_view name) {
  const Quantizer& found = known_quantizer(name);
  if (!current_device().is_cpu() && !found.on_device())
    fail_with(ErrorCode::kDevice, name, "the scheme is registered for the CPU only, but the current device is ",
              to_string(current_device()), ". Use the CPU (device.kind=cpu), or a scheme whose on_device() is true.");
  return found;
}

std::vector<std::string_view> quantizer_names() { return registry().names(); }

void register_quantizer(std::unique_ptr<Quantizer> quantizer) {
  require(quantizer != nullptr, "register_quantizer", "the quantizer is a null pointer.");
  require(!quantizer->name().empty(), "register_quantizer", "the scheme's name is empty.");
  const std::shared_ptr<const Quantizer> shared = std::move(quantizer);
  const std::string name(shared->name());
  const detail::Named named{"scheme", name};
  require(registry().find(name) == nullptr || !detail::plugin_of("scheme", name).empty(), "register_quantizer",
          "scheme \"", name, "\" is registered already. Choose another name.");
  detail::require_new("register_quantizer", named, registry().find(name) != nullptr, "is registered already");
  const std::vector<Key> keys = shared->keys();
  for (const Key& key : keys)
    require(!key.standard.empty() && key.standard != "!", "register_quantizer", "scheme '", name, "': the key '",
            key.name, "' has no default: a scheme is also used without its keys");
  registry().keys.claim("register_quantizer", concat("scheme '", name, '\''), keys, shared);
  detail::add_new(named, [shared] { registry().add(shared); });
}

}  // namespace bitgrad
