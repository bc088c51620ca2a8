// A model as data: the form of its input and a tree of layers. What configurations, checkpoints and exports hold.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bitgrad/base/copy_variant.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/nn/parameter.h"
#include "bitgrad/nn/quantizable.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/observer.h"

namespace bitgrad {

// The value of one key of a layer.
class Attribute {
 public:
  using Value = std::variant<bool, int64_t, double, std::string>;
  Attribute() = default;  // false
  Attribute(const Attribute& other) : value_(detail::copy_of(other.value_)) {}
  Attribute(Attribute&&) noexcept = default;
  Attribute& operator=(Attribute other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Attribute() = default;
  Attribute(bool x) : value_(x) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Attribute(T x) : value_(static_cast<int64_t>(x)) {}
  template <std::floating_point T>
  Attribute(T x) : value_(static_cast<double>(x)) {}
  Attribute(std::string x) : value_(std::move(x)) {}
  Attribute(const char* x) : value_(std::string(x)) {}

  const Value& value() const { return value_; }
  friend bool operator==(const Attribute&, const Attribute&) = default;

 private:
  Value value_;
};
std::ostream& operator<<(std::ostream& out, const Attribute& attribute);  // true, 5, 0.1, text

// Values by key. Getters throw Error when the key is absent or has a value of another type; a whole number is taken as
// a number too.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> values) : values_(values) {}
  Attribute& operator[](const std::string& key) { return values_[key]; }
  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }
  bool flag(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::map<std::string, Attribute, std::less<>>& values() const { return values_; }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  const Attribute& at(std::string_view key) const;
  std::map<std::string, Attribute, std::less<>> values_;
};

struct LayerSpec;

// Layers one after the other, under a key of a container: "body", "shortcut", or 0, 1, ... for one list of several.
struct LayerList {
  LayerList() = default;
  LayerList(std::string key, std::vector<LayerSpec> layers);
  std::string key;
  std::vector<LayerSpec> layers;
};

// Plain data that describes one layer. `attributes` are the keys of its kind (layer_kind.h); keys that are left out
// have their defaults. What low-bit layers of every kind share has fields of its own: a kind reads those that it
// declares.
struct LayerSpec {
  std::string kind = {};
  std::string name = {};  // among its siblings, and in paths; empty: its place, 0, 1, ...
  Attributes attributes = {};
  std::vector<LayerList> lists = {};  // of a container

  ParameterSpec weight = {};  // LayerKind::weights
  // LayerKind::product. gx, gw: modes of the backward products; other than fp32 they need compute int.
  Compute compute = Compute::kInt;
  ProductMode gx = ProductMode::kFp32, gw = ProductMode::kFp32;
  Rounding gradient_rounding = Rounding::kStochastic;  // of the gradients of int8 products
  bool gx_per_group = false;
  // LayerKind::quantizer
  std::optional<QuantSpec> activation = {};   // of the codes, or of the gradient
  DType activation_grad = dtypes::fp32;       // dtype of the gradient that leaves the quantizer, fp32 or bf16
  std::optional<ObserverSpec> observer = {};  // scales follow an observed range; none: found from each batch
  float learned_lr_factor = 1.0f;             // of learned steps, clips and offsets
  std::optional<float> learned_weight_decay = {};
};

inline LayerList::LayerList(std::string k, std::vector<LayerSpec> l) : key(std::move(k)), layers(std::move(l)) {}

struct ModelSpec {
  Form input = {};  // shape of a sample, dtype, and what values between layers are held in: input.values, fp32 or bf16
  std::vector<LayerSpec> layers = {};
};

}  // namespace bitgrad
