#include "task/followed_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace bitgrad::detail {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// Calls use(output, is, told) for each target that counts and each output: whether the target has that class or label,
// and whether the prediction has it. Classes: the first of the largest outputs; labels: outputs above 0.
template <typename Use>
void each_decision(const Tensor& outputs, const Tensor& target, Use use) {
  const int64_t cols = outputs.cols(), rows = outputs.rows();
  const float* const y = outputs.as<float>();
  if (target.dtype() != dtypes::int32) {
    const float* const t = target.as<float>();
    for (int64_t i = 0; i < rows * cols; ++i) use(static_cast<size_t>(i % cols), t[i] > 0.5f, y[i] > 0);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t label = target.as<int32_t>()[r];
    if (label == kIgnoredClass) continue;
    const auto told = static_cast<int32_t>(std::max_element(y + r * cols, y + (r + 1) * cols) - (y + r * cols));
    use(static_cast<size_t>(label), true, told == label);
    if (told != label) use(static_cast<size_t>(told), false, true);
  }
}

// Exact counts of each class, or of each label.
class Counting : public MetricFollower {
 public:
  explicit Counting(const MetricTask& task) : labels_(task.target.classes == 0) {}
  void add(const Tensor& outputs, const Tensor& target) override {
    counts_.resize(static_cast<size_t>(outputs.cols()));
    each_decision(outputs, target, [&](size_t c, bool is, bool told) {
      Count& n = counts_[c];
      (is && told ? n.hits : is ? n.missed : told ? n.false_alarms : n.others) += 1;
    });
  }

 protected:
  struct Count {
    int64_t hits = 0, missed = 0, false_alarms = 0, others = 0;
    int64_t present() const { return hits + missed; }
    double f1() const {
      return 2.0 * static_cast<double>(hits) / static_cast<double>(2 * hits + missed + false_alarms);
    }
    double recall() const { return static_cast<double>(hits) / static_cast<double>(present()); }
  };
  std::string name_of(size_t c) const { return concat(labels_ ? "label " : "class ", c); }
  const Count* at(int64_t c) const {
    return c >= 0 && c < std::ssize(counts_) ? &counts_[static_cast<size_t>(c)] : nullptr;
  }
  // Classes without a target, as a text; empty if there are none.
  std::string absent() const {
    std::string text;
    int64_t n = 0;
    constexpr int64_t kShown = 5;
    for (size_t c = 0; c < counts_.size(); ++c)
      if (counts_[c].present() == 0 && ++n <= kShown) text += concat(text.empty() ? "" : ", ", name_of(c));
    return n > kShown ? concat(text, " and ", n - kShown, " more") : text;
  }
  std::vector<Count> counts_;
  const bool labels_;
};

// As sklearn: macro is the mean over the classes that occur in targets or predictions, or over all labels.
class F1 final : public Counting {
 public:
  F1(const MetricTask& task, const Attributes& keys)
      : Counting(task), binary_(keys.text("average") == "binary"), positive_(keys.integer("positive")) {
    const int64_t classes = task.target.outputs();
    require(!binary_ || (!labels_ && classes == 2) || (labels_ && classes == 1), "metric f1",
            "average: binary is for two classes, or one label: the targets have ", classes, ". Use macro");
    require(!labels_ || positive_ == 1, "metric f1", "positive: got ", positive_, ", which is for classes");
  }
  double value(std::string& why) const override {
    if (binary_) return of_one(labels_ ? 0 : static_cast<size_t>(positive_), why);
    double sum = 0;
    int64_t n = 0;
    for (const Count& c : counts_) {
      const bool occurs = c.present() + c.false_alarms > 0;
      if (occurs) sum += c.f1();
      if (occurs || labels_) ++n;
    }
    if (const std::string none = absent(); !none.empty())
      why = concat("no target of ", none, labels_ ? ": counted as 0" : ": excluded, or 0 where predicted");
    return n > 0 ? sum / static_cast<double>(n) : kUndefined;
  }

 private:
  double of_one(size_t c, std::string& why) const {
    if (counts_.size() > c && counts_[c].present() + counts_[c].false_alarms > 0) return counts_[c].f1();
    why = concat(name_of(c), " is neither a target nor predicted: counted as 0");
    return 0;
  }
  const bool binary_;
  const int64_t positive_;
};

class Recall final : public Counting {
 public:
  Recall(const MetricTask& task, const Attributes& keys) : Counting(task), class_(keys.integer("class")) {
    require(class_ < task.target.outputs(), "metric recall", "class: got ", class_, ", the targets have ",
            task.target.outputs(), labels_ ? " labels" : " classes");
  }
  double value(std::string& why) const override {
    if (class_ >= 0) {
      const Count* const c = at(class_);
      if (c != nullptr && c->present() > 0) return c->recall();
      why = concat("not defined: no target is ", name_of(static_cast<size_t>(class_)));
      return kUndefined;
    }
    double least = kUndefined;
    for (const Count& c : counts_)
      if (c.present() > 0) least = std::fmin(least, c.recall());
    if (const std::string none = absent(); !none.empty()) why = concat("no target of ", none, ": excluded");
    return least;
  }

 private:
  const int64_t class_;
};

// Mean recall of the classes that have targets.
class BalancedAccuracy final : public Counting {
 public:
  using Counting::Counting;
  double value(std::string& why) const override {
    double sum = 0;
    int64_t n = 0;
    for (const Count& c : counts_)
      if (c.present() > 0) sum += c.recall(), ++n;
    if (const std::string none = absent(); !none.empty()) why = concat("no target of ", none, ": excluded");
    return n > 0 ? sum / static_cast<double>(n) : kUndefined;
  }
};

// Probability that a target of the class has a larger score than another one, ties counting half: from exact counts of
// pairs, whatever the order of the batches.
class Auc final : public MetricFollower {
 public:
  void add(const Tensor& outputs, const Tensor& target) override {
    const bool classes = target.dtype() == dtypes::int32;
    const int64_t cols = outputs.cols(), each = classes ? 1 : cols;
    scores_.resize(static_cast<size_t>(each));
    const float* const y = outputs.as<float>();
    for (int64_t r = 0; r < outputs.rows(); ++r) {
      if (classes) {
        const int32_t label = target.as<int32_t>()[r];
        if (label != kIgnoredClass)
          scores_[0].emplace_back(static_cast<double>(y[2 * r + 1]) - static_cast<double>(y[2 * r]), label == 1);
        continue;
      }
      for (int64_t c = 0; c < cols; ++c)
        scores_[static_cast<size_t>(c)].emplace_back(y[r * cols + c], target.as<float>()[r * cols + c] > 0.5f);
    }
  }
  double value(std::string& why) const override {
    double sum = 0;
    for (size_t c = 0; c < scores_.size(); ++c) {
      const double area = area_of(scores_[c]);
      if (std::isnan(area))
        why =
            concat("not defined: all targets", scores_.size() > 1 ? concat(" of label ", c) : "", " are of one class");
      sum += area;
    }
    return scores_.empty() ? kUndefined : sum / static_cast<double>(scores_.size());
  }

 private:
  using Scores = std::vector<std::pair<double, bool>>;
  static double area_of(Scores scores) {
    std::sort(scores.begin(), scores.end());
    __int128 twice = 0;  // pairs in the right order, times 2
    int64_t below = 0, above = 0;
    for (size_t i = 0; i < scores.size();) {
      int64_t is = 0, others = 0;
      for (const double score = scores[i].first; i < scores.size() && scores[i].first == score; ++i)
        ++(scores[i].second ? is : others);
      twice += static_cast<__int128>(is) * (2 * below + others);
      below += others;
      above += is;
    }
    if (below == 0 || above == 0) return kUndefined;
    return static_cast<double>(twice) / 2 / (static_cast<double>(below) * static_cast<double>(above));
  }
  std::vector<Scores> scores_;
};

class AbsoluteError final : public MetricFollower {
 public:
  void add(const Tensor& outputs, const Tensor& target) override {
    for (int64_t i = 0; i < target.numel(); ++i)
      sum_ += std::fabs(static_cast<double>(outputs.as<float>()[i]) - static_cast<double>(target.as<float>()[i]));
    n_ += target.numel();
  }
  double value(std::string&) const override { return sum_ / static_cast<double>(n_); }

 private:
  double sum_ = 0;
  int64_t n_ = 0;
};

// Mean over the outputs of 1 - sum (y - t)^2 / sum (t - mean t)^2. Targets are summed from the first one on, so that a
// large mean does not cancel.
class R2 final : public MetricFollower {
 public:
  void add(const Tensor& outputs, const Tensor& target) override {
    const int64_t cols = outputs.cols();
    for (int64_t i = 0; i < target.numel(); ++i) {
      const double t = target.as<float>()[i], y = outputs.as<float>()[i];
      if (std::ssize(outputs_) < cols) outputs_.push_back({.first = t});
      Sums& s = outputs_[static_cast<size_t>(i % cols)];
      const double d = t - s.first;
      s.error += (y - t) * (y - t), s.sum += d, s.squares += d * d;
      s.varies = s.varies || d != 0;
      ++s.n;
    }
  }
  double value(std::string& why) const override {
    double sum = 0;
    for (size_t c = 0; c < outputs_.size(); ++c) {
      const Sums& s = outputs_[c];
      if (!s.varies)
        why = concat("not defined: all ", s.n, " targets", outputs_.size() > 1 ? concat(" of output ", c) : "",
                     " are equal");
      const double spread = s.squares - s.sum * s.sum / static_cast<double>(s.n);
      sum += s.varies ? 1 - s.error / spread : kUndefined;
    }
    return outputs_.empty() ? kUndefined : sum / static_cast<double>(outputs_.size());
  }

 private:
  struct Sums {
    double first = 0, error = 0, sum = 0, squares = 0;
    int64_t n = 0;
    bool varies = false;
  };
  std::vector<Sums> outputs_;
};

}  // namespace

std::vector<Key> f1_keys() {
  return {{.name = "average",
           .type = Key::Type::kChoice,
           .standard = "macro",
           .doc = "macro: mean over the classes that occur, or over all labels; binary: of one of two classes",
           .choices = {"macro", "binary"}},
          {.name = "positive",
           .type = Key::Type::kInt,
           .range = "[0, 1]",
           .standard = "1",
           .doc = "average binary: the class"}};
}

std::vector<Key> recall_keys() {
  return {{.name = "class",
           .type = Key::Type::kInt,
           .range = "[-1, 16777215]",
           .standard = "-1",
           .doc = "the class, or label; -1: the one with the lowest recall"}};
}

Follower follow_f1(const MetricTask& task, const Attributes& keys) { return std::make_unique<F1>(task, keys); }
Follower follow_recall(const MetricTask& task, const Attributes& keys) { return std::make_unique<Recall>(task, keys); }
Follower follow_balanced_accuracy(const MetricTask& task, const Attributes&) {
  return std::make_unique<BalancedAccuracy>(task);
}
Follower follow_auc(const MetricTask&, const Attributes&) { return std::make_unique<Auc>(); }
Follower follow_absolute_error(const MetricTask&, const Attributes&) { return std::make_unique<AbsoluteError>(); }
Follower follow_r2(const MetricTask&, const Attributes&) { return std::make_unique<R2>(); }

}  // namespace bitgrad::detail
