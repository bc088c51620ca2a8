#include "config/merge.h"

#include <algorithm>
#include <utility>

#include "bitgrad/base/text.h"
#include "bitgrad/quant/quantizer.h"
#include "bitgrad/quant/scheme.h"
#include "config/choices.h"

namespace bitgrad::config {
namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Resolver {
 public:
  Resolver(const QuantizerKeys& keys, Report& report)
      : keys_(keys), merged_(keys.own, keys.base, keys.path, group_of(keys.role), report) {}

  // What the keys give: for activations the part of a ParameterSpec that they share, and the observer.
  ParameterSpec run() {
    ParameterSpec c;
    if (!merged_.known("dtype") || !merged_.known("scheme")) return c;
    const Node* dtype = merged_.pick("dtype");
    if (!dtype && keys_.role == Role::kGradients) return c;  // required: already reported
    if (!dtype && !weights()) {
      const Node* scheme = own("scheme");
      merged_.error(
          scheme ? scheme->mark : keys_.key_mark,
          concat(keys_.path, scheme                             ? ".scheme needs a dtype"
                             : keys_.path.starts_with("model.") ? " needs a dtype, its own or that of quant.activations"
                                                                : " needs a dtype"));
      return c;
    }
    const DType codes = dtype != nullptr ? std::get<DType>(dtype->value) : dtypes::fp32;
    if (keys_.role != Role::kGradients) merged_.set(c.grad, "grad");
    if (codes.is_float())
      refuse_low_bit_keys(codes);
    else if (const std::string scheme = pick_scheme(codes); !scheme.empty())
      low_bit(c, codes, scheme);
    if (weights() && (codes.is_float() || c.quant)) resolve_training(merged_, c);
    return c;
  }
  const std::optional<ObserverSpec>& observer() const { return observer_; }

 private:
  bool weights() const { return keys_.role == Role::kWeights; }
  const Node* own(std::string_view key) const { return merged_.own(key); }

  void refuse_low_bit_keys(DType dtype) const {
    const bool given = own("dtype") || merged_.inherited("dtype");
    for (const std::string& key : keys_of(group_of(keys_.role)))
      if (!choices::for_float(key))
        merged_.contradiction({key}, concat(key, " is for low-bit dtypes, ", given ? "" : "no dtype is set, so it is ",
                                            given ? "dtype is " : "", dtype.name()));
  }

  void low_bit(ParameterSpec& spec, DType dtype, const std::string& scheme) {
    QuantSpec& c = spec.quant.emplace();
    c.dtype = dtype;
    c.scheme = scheme;
    c.ste = find_quantizer(scheme).default_ste();
    c.ste_t = c.ste_t_first;
    c.granularity = *choices::default_granularity(dtype, scheme, keys_.role);
    if (keys_.role != Role::kGradients) {
      pick_ste(c);
      pick_alpha(c);
      pick_constants(c);
    }
    if (scheme != "binary" || keys_.role == Role::kGradients) option(c, c.granularity, "granularity");
    visit_quant_options(
        [&](std::string_view key, auto& field) {
          if (find_key(group_of(keys_.role), key) != nullptr) option(c, field, key);
        },
        c);
    if (keys_.role == Role::kGradients) return;
    pick_own_keys(c);
    pick_learned(spec);
    if (keys_.role == Role::kActivations) pick_observer(c);
  }

  // The scheme's own objection to this configuration; empty if there is none.
  std::string refusal(const QuantSpec& c) const {
    try {
      find_quantizer(c.scheme).check(c, weights());
      return {};
    } catch (const Error& error) {
      return library_text(error.what());
    }
  }
  // Takes a key over unless the scheme rejects it: then an own key is reported, an inherited one dropped.
  template <typename T>
  void option(const QuantSpec& c, T& field, std::string_view key) const {
    const T before = field;
    merged_.set(field, key);
    if (field == before) return;
    const std::string wrong = refusal(c);
    if (wrong.empty()) return;
    field = before;
    merged_.contradiction({key}, wrong);
  }

  // The own scheme, else the inherited one if it fits, else the dtype's default. Empty: an error was reported.
  std::string pick_scheme(DType dtype) const {
    const std::vector<std::string> fitting = choices::schemes_for(dtype, keys_.role);
    const Node* node = merged_.pick("scheme");
    if (!node && fitting.empty()) merged_.contradiction({"dtype"}, concat("no scheme makes codes of ", dtype, " here"));
    if (!node) return fitting.empty() ? "" : fitting.front();
    std::string scheme = std::get<std::string>(node->value);
    if (contains(fitting, scheme)) return scheme;
    // A layer that overrides only the dtype gets that dtype's default scheme.
    if (!own("scheme") && own("dtype") && merged_.has_base()) return fitting.front();
    merged_.contradiction({"scheme", "dtype"}, misfit(scheme, dtype, fitting));
    return {};
  }

  std::string misfit(const std::string& scheme, DType dtype, const std::vector<std::string>& fitting) const {
    const DTypeInfo& info = dtype.info();
    if (weights() && info.kind == DTypeKind::kUint && info.bits == 1 &&
        (scheme == "symmetric" || scheme == "symmetric_no_clip" || scheme == "absmax" || scheme == "affine"))
      return concat("scheme ", scheme, " on ", info.name,
                    " weights loses them (every code would be the same); use scheme step or minmax_offset, or dtype "
                    "bint1 with scheme binary");
    std::vector<std::string> dtypes;
    for (DType other : all_dtypes())
      if (contains(choices::schemes_for(other, keys_.role), scheme)) dtypes.push_back(other.name());
    if (dtypes.empty()) return concat("scheme ", scheme, " is not for ", choices::purpose_of(keys_.role));
    return concat("scheme ", scheme, " needs dtype ", joined(dtypes, " or "), ", got ", info.name, "; ", info.name,
                  " requires ", joined(fitting, " or "));
  }

  void pick_ste(QuantSpec& c) const {
    const std::optional<SteRule> standard = c.ste;
    merged_.set(c.ste, "ste");
    const std::vector<std::string> fitting = choices::schemes_of_ste(*c.ste);
    if (!fitting.empty() && !contains(fitting, c.scheme)) {  // an inherited rule may not fit the layer's own scheme
      merged_.contradiction(
          {"ste"}, concat("ste ", enum_name(*c.ste), " requires scheme ", joined(fitting, " or "), ", not ", c.scheme));
      c.ste = standard;
    } else if (const std::string wrong = refusal(c); !wrong.empty()) {
      merged_.contradiction({"ste"}, wrong);
      c.ste = standard;
    }
    if (*c.ste != SteRule::kTanh) {
      if (merged_.known("ste"))
        merged_.contradiction({"ste_t"}, concat("ste_t requires ste tanh, the rule is ", enum_name(*c.ste)));
      return;
    }
    merged_.set(Pair{c.ste_t_first, c.ste_t_last}, "ste_t");
    c.ste_t = c.ste_t_first;
  }

  // alpha is the scale of scheme binary and determines its granularity.
  void pick_alpha(QuantSpec& c) const {
    std::string wanted = "none";
    merged_.set(wanted, "alpha");
    if (c.scheme != "binary") {
      if (wanted != "none")
        merged_.contradiction({"alpha"}, concat("alpha is the scale of scheme binary, the scheme is ", c.scheme));
      return pick_alpha_grad(c);
    }
    c.alpha = wanted != "none";
    if (wanted == "channel") c.granularity = Granularity::channel(0);
    if (wanted == "token") c.granularity = Granularity::token();
    Granularity given = c.granularity;
    if (own("granularity") && merged_.pick("granularity")) merged_.set(given, "granularity");
    if (!(given == c.granularity) && merged_.known("alpha"))
      merged_.contradiction({"alpha", "granularity"},
                            concat("alpha ", wanted, " and granularity ", given,
                                   " contradict each other; leave granularity out or write the same"));
    pick_alpha_grad(c);
  }
  void pick_alpha_grad(QuantSpec& c) const {
    bool wanted = false;
    merged_.set(wanted, "alpha_grad");
    if (wanted && !merged_.known("alpha")) return;
    if (wanted && !c.alpha)
      return merged_.contradiction({"alpha_grad"}, "alpha_grad needs scheme binary with alpha, alpha is none");
    option(c, c.alpha_grad, "alpha_grad");
  }

  void pick_constants(QuantSpec& c) const {
    if (c.scheme == "pact")
      option(c, c.first_clip, "first_clip");
    else
      merged_.contradiction({"first_clip"}, concat("first_clip requires scheme pact, the scheme is ", c.scheme));
    if (c.scheme == "fixed") {
      if (merged_.pick("scale"))
        option(c, c.scale, "scale");
      else if (merged_.known("scale"))
        merged_.contradiction({"scheme"}, "scheme fixed needs a scale, such as scale: 1");
      option(c, c.offset, "offset");
      return;
    }
    for (const char* key : {"scale", "offset"})
      merged_.contradiction({key}, concat(key, " requires scheme fixed, the scheme is ", c.scheme));
  }

  // Keys defined by registered schemes.
  void pick_own_keys(QuantSpec& c) const {
    for (const std::string_view scheme : quantizer_names())
      for (const Key& key : known_quantizer(scheme).keys()) {
        const KeySpec& spec = *find_key(group_of(keys_.role), key.name);
        if (!spec.applies(c.scheme))
          merged_.contradiction({key.name},
                                concat(key.name, " requires scheme ", spec.with(), ", the scheme is ", c.scheme));
        else if (scheme == c.scheme)
          pick_own_key(c, key, spec);
      }
  }
  void pick_own_key(QuantSpec& c, const Key& key, const KeySpec& spec) const {
    c.keys[key.name] = attribute_of(default_value(spec)).value();
    const Node* const node = merged_.pick(key.name);
    const std::optional<Attribute> given = node != nullptr ? attribute_of(node->value) : std::nullopt;
    if (!given) return;
    const Attribute before = std::exchange(c.keys[key.name], *given);
    const std::string wrong = refusal(c);
    if (wrong.empty()) return;
    c.keys[key.name] = before;
    merged_.contradiction({key.name}, wrong);
  }

  void pick_learned(ParameterSpec& spec) const {
    if (!choices::has_learned_parts(spec.quant))
      return merged_.contradiction(
          {"learned"}, concat("learned requires a scheme with learned parts (", joined(choices::learned_schemes()),
                              "), the scheme is ", spec.quant->scheme));
    visit([inner = merged_.inner("learned", "learned")](auto key, auto& field) { inner.set(field, key); },
          spec.learned);
  }

  // Whether ranges would be computed from the whole batch: results of a sample would depend on the others.
  static bool ranges_of_batch(const QuantSpec& c) {
    const bool of_batch = c.granularity.kind == Granularity::kTensor ||
                          (c.granularity.kind == Granularity::kChannel && c.granularity.axis != 0);
    return of_batch && find_quantizer(c.scheme).from_range() && !choices::has_learned_parts(c);
  }

  void pick_observer(const QuantSpec& c) {
    const Merged inner = merged_.inner("observer", "observer");
    const ObserverSpec standard;
    ObserverSpec wanted;
    if (!ranges_of_batch(c)) wanted.name = "none";
    visit([&](auto key, auto& field) { inner.set(field, key); }, wanted);
    if (!inner.known("name")) return;
    for (const char* key : {"momentum", "percentile"})
      if (!find_key("observer", key)->applies(wanted.name))
        inner.contradiction({key}, concat(key, " requires observer ", find_key("observer", key)->when,
                                          ", the observer is ", wanted.name));
    if (wanted.name != "moving_average") wanted.momentum = standard.momentum;
    if (wanted.name != "percentile") wanted.percentile = standard.percentile;
    if (wanted.name == "none") return;
    const std::string wrong = observer_refusal(wanted, c);
    if (wrong.empty()) {
      observer_ = wanted;
      return;
    }
    const bool given = merged_.pick("observer") != nullptr;
    if (given) inner.contradiction({"name", "momentum", "percentile"}, wrong);
    if (given && !own("observer") && !own("scheme") && !own("dtype")) merged_.contradiction({"granularity"}, wrong);
  }
  static std::string observer_refusal(const ObserverSpec& observer, const QuantSpec& c) {
    if (!find_quantizer(c.scheme).from_range())
      return concat("an observer measures a range, scheme ", c.scheme, " uses none; observers require ",
                    joined(choices::range_schemes()));
    try {
      make_observer(observer, c, /*features=*/1);
      return {};
    } catch (const Error& error) {
      return library_text(error.what());
    }
  }

  const QuantizerKeys& keys_;
  const Merged merged_;
  std::optional<ObserverSpec> observer_;
};

}  // namespace

std::string library_text(std::string_view text) {
  const size_t end = text.find("] ");
  if (!text.starts_with('[') || end == std::string_view::npos) return std::string(text);
  return concat(text.substr(1, end - 1), ": ", text.substr(end + 2));
}

ParameterSpec resolve_weights(const QuantizerKeys& keys, Report& report) { return Resolver(keys, report).run(); }

std::optional<ActivationQuant> resolve_activations(const QuantizerKeys& keys, Report& report) {
  Resolver resolver(keys, report);
  const ParameterSpec c = resolver.run();
  if (!c.quant) return std::nullopt;
  return ActivationQuant{*c.quant, resolver.observer(), c.grad, c.learned};
}

}  // namespace bitgrad::config
