#include "train/config/quantizer.h"

#include <algorithm>

#include "train/config/bind.h"
#include "train/config/choices.h"

namespace bitgrad::config {
namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Resolver {
 public:
  Resolver(const QuantizerKeys& keys, Report& report)
      : keys_(keys), report_(report), group_(keys.weights ? "weights" : "activations") {}

  QuantConfig run() {
    QuantConfig c;
    if (!known("dtype") || !known("scheme")) return c;
    const Node* dtype = pick("dtype");
    if (!dtype && !keys_.weights) {
      const bool scheme_only = own("scheme") != nullptr;
      error(scheme_only ? own("scheme")->mark : keys_.key_mark,
            concat(keys_.path, scheme_only ? ".scheme needs a dtype beside it"
                                           : " needs a dtype, its own or that of quant.activations"));
      return c;
    }
    if (dtype) c.dtype = std::get<DType>(dtype->value);
    for_all(c);
    if (c.dtype.is_float())
      refuse_low_bit_keys(c);
    else
      low_bit(c);
    return c;
  }

 private:
  const Node* own(std::string_view key) const { return keys_.own ? keys_.own->child(key) : nullptr; }
  const Node* inherited(std::string_view key) const { return keys_.base ? keys_.base->child(key) : nullptr; }
  // The node that counts; nullptr when there is none or it is wrong.
  const Node* pick(std::string_view key) const {
    const Node* node = own(key) ? own(key) : inherited(key);
    return node && !node->bad ? node : nullptr;
  }
  bool known(std::string_view key) const { return sound(keys_.own, key) && (own(key) || sound(keys_.base, key)); }

  void error(SourceMark mark, std::string message, const Node* node = nullptr) {
    report_.error(mark, std::move(message), node ? node->length() : 1);
  }
  // Blames the first node that stands in `own`; silent when none does.
  void contradiction(std::initializer_list<const Node*> nodes, const std::string& message) {
    std::vector<const Node*> mine;
    for (const Node* node : nodes)
      if (node && is_own(node)) mine.push_back(node);
    if (mine.empty()) return;
    const auto argument =
        std::find_if(mine.begin(), mine.end(), [](const Node* node) { return node->mark.argument > 0; });
    const Node* node = argument == mine.end() ? mine.front() : *argument;
    error(node->mark, concat(keys_.path, ": ", message), node);
  }
  bool is_own(const Node* node) const {
    if (!keys_.own) return false;
    return std::any_of(keys_.own->entries.begin(), keys_.own->entries.end(),
                       [&](const Entry& e) { return &e.node == node; });
  }
  template <typename T>
  void set(T& field, std::string_view key) const {
    const KeySpec& spec = *find_key(group_, key);
    if (const Node* node = pick(key))
      assign(field, node->value);
    else if (spec.has_default())
      assign(field, default_value(spec));
  }

  void for_all(QuantConfig& c) const {
    set(c.grad, "grad");
    if (!keys_.weights) return;
    set(c.init, "init");
    set(c.latent_clamp, "latent_clamp");
  }

  void refuse_low_bit_keys(const QuantConfig& c) {
    for (const char* key : {"scheme", "alpha", "granularity", "rounding", "ste", "scale", "offset"}) {
      const bool given = own("dtype") || inherited("dtype");
      contradiction({own(key)}, concat(key, " is for low-bit dtypes, ", given ? "" : "no dtype is given, so it is ",
                                       given ? "dtype is " : "", c.dtype.name()));
    }
  }

  void low_bit(QuantConfig& c) {
    c.scheme = pick_scheme(c.dtype);
    if (c.scheme.empty()) return;
    set(c.rounding, "rounding");
    pick_ste(c);
    pick_scale(c);
    pick_constants(c);
  }

  // Own, else the inherited one where it fits, else the dtype's first. Empty: reported.
  std::string pick_scheme(DType dtype) {
    const std::vector<std::string> fitting = choices::schemes_for(dtype, keys_.weights);
    const Node* node = pick("scheme");
    if (!node) return fitting.front();
    const std::string scheme = std::get<std::string>(node->value);
    if (contains(fitting, scheme)) return scheme;
    // A layer that changes the dtype alone takes that dtype's scheme.
    if (!own("scheme") && own("dtype") && keys_.base) return fitting.front();
    contradiction({own("scheme"), own("dtype")}, misfit(scheme, dtype, fitting));
    return {};
  }

  std::string misfit(const std::string& scheme, DType dtype, const std::vector<std::string>& fitting) const {
    const DTypeInfo& info = dtype.info();
    if (keys_.weights && info.kind == DTypeKind::kUint && info.bits == 1 &&
        (scheme == "symmetric" || scheme == "symmetric_no_clip" || scheme == "absmax" || scheme == "affine"))
      return concat("scheme ", scheme, " on ", info.name,
                    " weights loses them (every code would be the same); use scheme step or minmax_offset, or dtype "
                    "bint1 with scheme binary");
    std::vector<std::string> dtypes;
    for (DType other : all_dtypes())
      if (contains(choices::schemes_for(other, keys_.weights), scheme)) dtypes.push_back(other.name());
    return concat("scheme ", scheme, " needs dtype ", join(dtypes, " or "), ", got ", info.name, "; ", info.name,
                  " goes with ", join(fitting, " or "));
  }

  void pick_ste(QuantConfig& c) {
    const Node* node = pick("ste");
    c.ste = node ? std::get<std::string>(node->value) : choices::default_ste(c.scheme);
    const std::vector<std::string> fitting = choices::schemes_of_ste(c.ste);
    if (fitting.empty() || contains(fitting, c.scheme)) return;
    if (!own("ste")) {  // that of quant does not fit the layer's own scheme
      c.ste = choices::default_ste(c.scheme);
      return;
    }
    contradiction({own("ste")},
                  concat("ste ", c.ste, " goes with scheme ", join(fitting, " or "), ", not with ", c.scheme));
  }

  // alpha is the scale of scheme binary and says its granularity.
  void pick_scale(QuantConfig& c) {
    const Node* alpha = pick("alpha");
    const Node* granularity = pick("granularity");
    const std::string wanted = alpha ? std::get<std::string>(alpha->value) : "none";
    if (granularity) c.granularity = std::get<Granularity>(granularity->value);
    if (c.scheme != "binary") {
      if (wanted != "none")
        contradiction({own("alpha")}, concat("alpha is the scale of scheme binary, the scheme is ", c.scheme));
      return;
    }
    c.alpha = wanted;
    const bool channel = wanted == "channel";
    if (channel && !keys_.weights)
      contradiction({own("alpha")}, "alpha channel is for weights; activations take none or tensor");
    const bool clash = granularity && (c.granularity.kind == Granularity::kChannel) != channel;
    if (clash && own("granularity"))
      contradiction({own("alpha"), own("granularity")},
                    concat("alpha ", wanted, " and granularity ", channel ? "tensor" : "channel",
                           " contradict each other; leave granularity out or write the same"));
    c.granularity = channel ? Granularity::channel(0) : Granularity::tensor();
  }

  void pick_constants(QuantConfig& c) {
    if (c.scheme == "fixed") {
      if (pick("scale"))
        set(c.scale, "scale");
      else if (known("scale"))
        contradiction({own("scheme")}, "scheme fixed needs a scale, such as scale: 1");
      set(c.offset, "offset");
      return;
    }
    for (const char* key : {"scale", "offset"})
      contradiction({own(key)}, concat(key, " goes with scheme fixed, the scheme is ", c.scheme));
  }

  const QuantizerKeys& keys_;
  Report& report_;
  std::string_view group_;
};

}  // namespace

QuantConfig resolve_quantizer(const QuantizerKeys& keys, Report& report) { return Resolver(keys, report).run(); }

}  // namespace bitgrad::config
