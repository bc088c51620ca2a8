// Losses by name: the lines of losses.inc, then those that programs and plugins register.
#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>

#include "base/registration.h"
#include "bitgrad/base/text.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/train/loss.h"
#include "train/loss_keys.h"

namespace bitgrad {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
using detail::class_loss;

struct Listed {
  const char* name;
  LossFunction::Of of;
  bool classes;
  int64_t mean_from_rank;
  const char* doc;
};
constexpr Listed kListed[] = {
#define BITGRAD_LOSS(name, op, classes, mean_from_rank, doc) {#name, op, classes, mean_from_rank, doc},
#define BITGRAD_LOSS_KEYS(...)
#include "train/losses.inc"
#undef BITGRAD_LOSS_KEYS
#undef BITGRAD_LOSS
};

struct LossRegistry {
  std::deque<LossKind> kinds;
  std::mutex mutex;
  LossRegistry() {
    for (const Listed& l : kListed)
      kinds.push_back(
          {l.name, l.doc, {}, l.classes, l.mean_from_rank, /*recordable=*/true, [of = l.of](const Attributes&) {
             return of;
           }});
#define BITGRAD_LOSS(...)
#define BITGRAD_LOSS_KEYS(name, add) detail::add(*of_name(#name));
#include "train/losses.inc"
#undef BITGRAD_LOSS_KEYS
#undef BITGRAD_LOSS
  }
  LossKind* of_name(std::string_view name) {
    const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const LossKind& k) { return k.name == name; });
    return found == kinds.end() ? nullptr : &*found;
  }
};
LossRegistry& losses() {
  static LossRegistry all;
  return all;
}

const LossKind& known_loss(const std::string& name) {
  const LossKind* const kind = find_loss_kind(name);
  if (kind == nullptr) fail("loss", unknown_name("loss", name, loss_names()));
  return *kind;
}

}  // namespace

LossFunction::LossFunction(Of of) : of_(of) {
  for (const Listed& l : kListed)
    if (l.of == of) name_ = l.name, classes_ = l.classes, mean_from_rank_ = l.mean_from_rank;
}

LossFunction::LossFunction(const LossKind& kind, const Attributes& keys)
    : of_(kind.make(completed(kind.name, kind.keys, keys))),
      name_(kind.name),
      classes_(kind.classes),
      either_(kind.either),
      plain_(keys.values().empty()),
      mean_from_rank_(kind.mean_from_rank),
      recordable_(kind.recordable) {
  require(of_ != nullptr, kind.name, "the kind returned no loss");
  const Attributes all = completed(kind.name, kind.keys, keys);
  if (kind.weigh) weigh_ = kind.weigh(all);
  if (kind.check) check_ = [check = kind.check, all](int64_t outputs) { check(all, outputs); };
}

double LossFunction::weight(const Tensor& target, int64_t counted) const {
  if (weigh_ == nullptr) {  // values of a loss of classes are probabilities: rows count
    const bool rows = classes_ && !name_.empty() && target.dtype() != dtypes::int32 && target.cols() > 0;
    return static_cast<double>(rows ? counted / target.cols() : counted);
  }
  const Tensor host = target.on_host();
  const DeviceGuard cpu(Device::cpu());
  return weigh_(host);
}

Var LossFunction::operator()(const Var& outputs, const Tensor& target) const {
  const bool view = target.dtype() == dtypes::fp32 && target.shape() != outputs.shape() &&
                    target.numel() == outputs.value().numel() && target.contiguous();
  return of_(outputs, view ? target.reshape(outputs.shape()) : target);
}

void register_loss(LossKind kind) {
  check_kind_name("register_loss", kind.name);
  require(kind.make != nullptr, "register_loss", "loss '", kind.name, "' has no make function");
  check_keys("register_loss", concat("loss '", kind.name, '\''), kind.keys);
  const detail::Named named{"a loss", kind.name};
  detail::require_new("register_loss", named, find_loss_kind(kind.name) != nullptr);
  const auto shared = std::make_shared<LossKind>(std::move(kind));
  detail::add_new(named, [shared] {
    LossRegistry& all = losses();
    const std::lock_guard lock(all.mutex);
    all.kinds.push_back(std::move(*shared));
  });
}

const LossKind* find_loss_kind(std::string_view name) {
  LossRegistry& all = losses();
  const std::lock_guard lock(all.mutex);
  return all.of_name(name);
}

std::vector<const LossKind*> loss_kinds() {
  LossRegistry& all = losses();
  const std::lock_guard lock(all.mutex);
  std::vector<const LossKind*> kinds;
  for (const LossKind& kind : all.kinds) kinds.push_back(&kind);
  return kinds;
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const LossKind* kind : loss_kinds()) names.push_back(kind->name);
  return names;
}

LossFunction find_loss(const std::string& name, const Attributes& keys) { return LossFunction(known_loss(name), keys); }
bool loss_takes_classes(const std::string& name) {
  const LossKind& kind = known_loss(name);
  return kind.classes || kind.either;
}
bool loss_takes_values(const std::string& name) {
  const LossKind& kind = known_loss(name);
  return !kind.classes || kind.either;
}

}  // namespace bitgrad
