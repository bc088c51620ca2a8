#include "bitgrad/data/transform.h"

#include <deque>
#include <mutex>

#include "base/registration.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/transforms.h"

namespace bitgrad {
namespace {

constexpr std::string_view kTransformWhere = "transform";

// A deque, because pointers must stay valid.
struct Transforms {
  std::mutex mutex;
  std::deque<TransformKind> kinds;

  Transforms() {
#define BITGRAD_TRANSFORM(kind) kinds.push_back(data::kind());
#include "data/transforms.inc"
#undef BITGRAD_TRANSFORM
  }
  const TransformKind* find(std::string_view name) const {
    for (const TransformKind& kind : kinds)
      if (kind.name == name) return &kind;
    return nullptr;
  }
};

Transforms& transforms() {
  static Transforms instance;
  return instance;
}

}  // namespace

RandomStream transform_stream(uint64_t seed, int64_t epoch, int64_t place) {
  return {seed, Purpose::kTransform, site_id(concat("data.train.transforms.", place)), static_cast<uint32_t>(epoch)};
}

void register_transform(TransformKind kind) {
  constexpr std::string_view kRegister = "register_transform";
  check_kind_name(kRegister, kind.name);
  require(static_cast<bool>(kind.make), kRegister, "transform '", kind.name, "' has no make function");
  check_keys(kRegister, concat("transform '", kind.name, '\''), kind.keys);
  const detail::Named named{"a transform", kind.name};
  detail::require_new(kRegister, named, find_transform(kind.name) != nullptr);
  const auto shared = std::make_shared<TransformKind>(std::move(kind));
  detail::add_new(named, [shared] {
    Transforms& t = transforms();
    const std::lock_guard<std::mutex> lock(t.mutex);
    t.kinds.push_back(std::move(*shared));
  });
}

std::vector<const TransformKind*> transform_kinds() {
  Transforms& t = transforms();
  const std::lock_guard<std::mutex> lock(t.mutex);
  std::vector<const TransformKind*> kinds;
  for (const TransformKind& kind : t.kinds) kinds.push_back(&kind);
  return kinds;
}

const TransformKind* find_transform(std::string_view name) {
  Transforms& t = transforms();
  const std::lock_guard<std::mutex> lock(t.mutex);
  return t.find(name);
}

std::shared_ptr<const Transform> make_transform(const std::string& name, const Attributes& keys) {
  const TransformKind* const kind = find_transform(name);
  std::vector<std::string> names;
  for (const TransformKind* k : transform_kinds()) names.push_back(k->name);
  if (kind == nullptr) fail(kTransformWhere, unknown_name("transform", name, names));
  auto made = kind->make(completed(concat(kTransformWhere, ' ', kind->name), kind->keys, keys));
  require(made != nullptr, kTransformWhere, kind->name, ": its make function returned nothing.");
  return made;
}

}  // namespace bitgrad
