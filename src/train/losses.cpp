// Losses by name: the lines of losses.inc, then those that programs and plugins register.
#include <deque>
#include <memory>
#include <mutex>

#include "base/registration.h"
#include "bitgrad/base/text.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/train/loss.h"

namespace bitgrad {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Summed over the samples, or over the positions that count.
Var class_loss(const Var& logits, const Tensor& target) {
  if (target.shape().rank() < 2) return softmax_cross_entropy_sum(logits, target);
  return cross_entropy_sum(logits, target, kIgnoreIndex);
}

struct Listed {
  const char* name;
  LossFunction::Of of;
  bool classes;
  int64_t mean_from_rank;
  const char* doc;
};
constexpr Listed kListed[] = {
#define BITGRAD_LOSS(name, op, classes, mean_from_rank, doc) {#name, op, classes, mean_from_rank, doc},
#include "train/losses.inc"
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
    if (l.of == of) name_ = l.name, mean_from_rank_ = l.mean_from_rank;
}

LossFunction::LossFunction(const LossKind& kind, const Attributes& keys)
    : of_(kind.make(completed(kind.name, kind.keys, keys))),
      name_(kind.name),
      mean_from_rank_(kind.mean_from_rank),
      recordable_(kind.recordable) {
  require(of_ != nullptr, kind.name, "the kind returned no loss");
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
  for (const LossKind& kind : all.kinds)
    if (kind.name == name) return &kind;
  return nullptr;
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
bool loss_takes_classes(const std::string& name) { return known_loss(name).classes; }

}  // namespace bitgrad
