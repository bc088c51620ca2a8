// Losses by name: the lines of losses.inc, then those that programs and plugins register.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "base/registration.h"
#include "bitgrad/base/text.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/task/loss.h"

namespace bitgrad {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// ---- keys of the losses of losses.inc: class weights, label smoothing, probabilities as targets. docs/numerics.md
// section 10.
// Summed over the samples, or over the positions that count.
Var class_loss(const Var& logits, const Tensor& target) {
  const bool positions = target.shape().rank() >= 2;
  return cross_entropy(logits, target, Reduction::kSum, positions ? std::optional(kIgnoreIndex) : std::nullopt);
}

using Loss = std::function<Var(const Var&, const Tensor&)>;

// Numbers of a configuration on the device that reads them.
class DeviceNumbers {
 public:
  explicit DeviceNumbers(const std::vector<double>& numbers) : numbers_(numbers) {}
  const Tensor& here() {
    if (!numbers_.empty() && (!tensor_.defined() || tensor_.device() != current_device()))
      tensor_ = Tensor::from_elements({std::ssize(numbers_)}, dtypes::fp32, numbers_);
    return tensor_;
  }

 private:
  std::vector<double> numbers_;
  Tensor tensor_;
};

std::vector<double> numbers_of(const Attributes& keys, const std::string& key) {
  return keys.contains(key) ? keys.numbers(key) : std::vector<double>{};
}

Loss softmax_loss(const Attributes& keys) {
  const std::vector<double> weights = numbers_of(keys, "weights");
  const double smoothing = keys.number("smoothing");
  require(weights.empty() || std::any_of(weights.begin(), weights.end(), [](double w) { return w > 0; }),
          "softmax_cross_entropy", "weights: all are 0, so that no class counts");
  return [of_class = std::make_shared<DeviceNumbers>(weights), smoothing, plain = weights.empty() && smoothing == 0](
             const Var& logits, const Tensor& target) {
    if (plain && target.dtype() == dtypes::int32) return class_loss(logits, target);
    return weighted_cross_entropy_sum(logits, target, {.weights = of_class->here(), .smoothing = smoothing});
  };
}

// The weights in fp32, as the loss reads them.
double weight_of(const std::vector<double>& weights, const Tensor& target) {
  const auto of_class = [&](size_t c) { return static_cast<double>(static_cast<float>(weights[c])); };
  double sum = 0;
  if (target.dtype() == dtypes::int32) {
    for (int64_t i = 0; i < target.numel(); ++i) {
      const int32_t label = target.as<int32_t>()[i];
      if (label >= 0 && label < std::ssize(weights)) sum += of_class(static_cast<size_t>(label));
    }
    return sum;
  }
  const std::vector<double> t = target.elements();
  for (size_t i = 0; i < t.size(); ++i) sum += t[i] * of_class(i % weights.size());
  return sum;
}

void check_length(std::string_view loss, std::string_view key, const std::vector<double>& given, int64_t outputs) {
  require(given.empty() || std::ssize(given) == outputs, loss, key, ": got ", given.size(), " numbers, the model has ",
          outputs, " outputs. Give one for each");
}

void add_softmax_keys(LossKind& kind) {
  kind.keys = {
      {.name = "weights",
       .type = Key::Type::kNumbers,
       .range = "[0, 1e9]",
       .doc = "a weight for each class: the loss is sum w[y] * -log p[y] / sum w[y] over the window, or over an "
              "evaluation; by default all classes weigh 1"},
      {.name = "smoothing",
       .type = Key::Type::kNumber,
       .range = "[0, 1)",
       .standard = "0",
       .doc = "label smoothing e: the target is (1-e) * onehot + e / classes"}};
  kind.either = true;
  kind.make = softmax_loss;
  kind.weigh = [](const Attributes& keys) -> std::function<double(const Tensor&)> {
    const std::vector<double> weights = numbers_of(keys, "weights");
    if (weights.empty()) return {};
    return [weights](const Tensor& target) { return weight_of(weights, target); };
  };
  kind.check = [](const Attributes& keys, int64_t outputs) {
    check_length("softmax_cross_entropy", "weights", numbers_of(keys, "weights"), outputs);
  };
}

void add_sigmoid_keys(LossKind& kind) {
  kind.keys = {{.name = "pos_weight",
                .type = Key::Type::kNumbers,
                .range = "(0, 1e9]",
                .doc =
                    "a factor of the term -t log p for each output, above 1 where few targets are 1; by default 1. The "
                    "loss is still the mean over all outputs"}};
  kind.make = [](const Attributes& keys) -> Loss {
    const std::vector<double> factors = numbers_of(keys, "pos_weight");
    if (factors.empty()) return static_cast<LossFunction::Of>(sigmoid_cross_entropy);
    return [of_output = std::make_shared<DeviceNumbers>(factors)](const Var& logits, const Tensor& target) {
      return weighted_sigmoid_cross_entropy(logits, target, of_output->here());
    };
  };
  kind.check = [](const Attributes& keys, int64_t outputs) {
    check_length("sigmoid_cross_entropy", "pos_weight", numbers_of(keys, "pos_weight"), outputs);
  };
}

// ---- the registry

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
#include "task/losses.inc"
#undef BITGRAD_LOSS_KEYS
#undef BITGRAD_LOSS
};

LossKind kind_of(const Listed& l) {
  LossKind kind{l.name, l.doc, {}, l.classes, l.mean_from_rank, /*recordable=*/true};
  kind.make = [of = l.of](const Attributes&) { return of; };
#define BITGRAD_LOSS(...)
#define BITGRAD_LOSS_KEYS(loss, add) \
  if (kind.name == #loss) add(kind);
#include "task/losses.inc"
#undef BITGRAD_LOSS_KEYS
#undef BITGRAD_LOSS
  return kind;
}
detail::KindList<LossKind>& losses() {
  static detail::KindList<LossKind> all([] {
    std::vector<LossKind> kinds;
    for (const Listed& l : kListed) kinds.push_back(kind_of(l));
    return kinds;
  }());
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
  losses().add("register_loss", "a loss", std::move(kind));
}

const LossKind* find_loss_kind(std::string_view name) { return losses().find(name); }
std::vector<const LossKind*> loss_kinds() { return losses().all(); }
std::vector<std::string> loss_names() { return losses().names(); }

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
