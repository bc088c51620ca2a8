#include "train/reducer.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "nn/row_params.h"
#include "train/window_sums.h"

namespace bitgrad::detail {
namespace {

// The gradient of a parameter that no microbatch of this rank has reached: -0, which changes no sum, not even one of
// -0.
void make_zero(Parameter& p) {
  const GradTarget target = p.grad_sink().target(p.shape(), p.spec().grad);
  target.out.copy_from(Tensor::full(p.shape(), p.spec().grad, -0.0, MemoryKind::kWorkspace));
  p.grad_sink().done();
}

// While it lives, a parameter calls `completed` with its index when backward has come past all that read it.
class Listening {
 public:
  Listening(const std::vector<Parameter*>& parameters, const std::function<void(size_t)>& completed)
      : parameters_(parameters) {
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i]->grad_sink().set_on_complete([&completed, i] { completed(i); });
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening() {
    for (Parameter* p : parameters_) p->grad_sink().set_on_complete(nullptr);
  }

 private:
  const std::vector<Parameter*>& parameters_;
};

}  // namespace

void Reducer::run_last(const std::function<void()>& backward) {
  const std::function<void(size_t)> call = [this](size_t index) { completed(index); };
  complete_.assign(s_.parameters.size(), false);
  const Listening listening(s_.parameters, call);
  backward();
}

void Reducer::completed(size_t index) {
  ensure(!complete_[index], "reducer", "backward came past all reads of '", s_.parameters[index]->path(), "' twice");
  completed_.push_back(index);
  complete_[index] = true;
  s_.sums->finish(*s_.parameters[index]);
  for (; next_ < order_.size() && order_[next_] < complete_.size() && complete_[order_[next_]]; ++next_)
    send(order_[next_]);
  if (sums_) sums_->poll();
}

// Its gradient is that of the window.
void Reducer::send(size_t index) {
  if (index >= s_.parameters.size()) return;  // of another form of the model, on all ranks
  Parameter& p = *s_.parameters[index];
  const RowShares* const shares = s_.optimizer->shares(p);
  if (shares == nullptr || p.spec().frozen) return;
  if (sent_.empty()) sent_.assign(s_.parameters.size(), Sent::kNo);
  sent_[index] = p.grad_sink().filled() ? Sent::kFilled : Sent::kZero;
  if (!p.grad_sink().filled()) make_zero(p);
  if (!sums_) sums_.emplace(*s_.ranks, s_.wire);
  sums_->add({as_matrix(p.grad()),
              shares,
              {s_.state.seed, Purpose::kWire, site_id(p.path()),
               static_cast<uint32_t>(s_.window.start + s_.ranks->rank() * s_.share())}});
}

double Reducer::finish(const std::vector<double>& weights) {
  const std::vector<Parameter*>& parameters = s_.parameters;
  for (; next_ < order_.size(); ++next_) send(order_[next_]);
  sent_.resize(parameters.size(), Sent::kNo);
  // Which gradients this rank has; its seconds; the order in which they came, of rank 0; its weights.
  std::vector<double> own;
  own.reserve(2 * parameters.size() + weights.size() + 2);
  for (size_t i = 0; i < parameters.size(); ++i)
    own.push_back(parameters[i]->grad_sink().filled() && sent_[i] != Sent::kZero ? 1 : 0);
  using Clock = std::chrono::steady_clock;
  own.push_back(since_ ? std::chrono::duration<double>(Clock::now() - *since_).count() : 0);
  if (s_.ranks->rank() > 0) completed_.clear();
  own.push_back(static_cast<double>(completed_.size()));
  own.insert(own.end(), completed_.begin(), completed_.end());
  own.insert(own.end(), weights.begin(), weights.end());
  if (sums_) sums_->finish();  // how many buckets have left is another number on each rank
  const std::vector<std::vector<double>> all = gather_lists(*s_.ranks, std::span<const double>(own));
  std::vector<bool> any(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    any[i] = std::any_of(all.begin(), all.end(), [i](const auto& of) { return of[i] != 0; });
  std::vector<Tensor> whole;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!any[i] || sent_[i] != Sent::kNo) continue;
    if (s_.optimizer->shares(*parameters[i]) != nullptr) {
      send(i);
      continue;
    }
    if (!parameters[i]->grad_sink().filled()) make_zero(*parameters[i]);
    whole.push_back(parameters[i]->grad());
  }
  if (sums_) sums_->finish();
  sum_over_ranks(*s_.ranks, whole);
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!any[i]) parameters[i]->grad_sink().clear();
  const auto first = all[0].begin() + std::ssize(parameters) + 2;
  const auto count = static_cast<int64_t>(all[0][parameters.size() + 1]);
  if (count > 0) order_.clear();
  for (auto i = first; i != first + count; ++i)
    if (const auto index = static_cast<size_t>(*i); any[index] && s_.optimizer->shares(*parameters[index]) != nullptr)
      order_.push_back(index);
  drop();
  s_.rank_seconds.clear();
  if (since_)
    for (const std::vector<double>& of : all) s_.rank_seconds.push_back(of[parameters.size()]);
  since_ = Clock::now();
  double sum = 0;  // in the order of the microbatches
  for (const std::vector<double>& of : all) {
    const auto skip = std::ssize(parameters) + 2 + static_cast<int64_t>(of[parameters.size() + 1]);
    sum = std::accumulate(of.begin() + skip, of.end(), sum);
  }
  return sum;
}

void Reducer::drop() {
  completed_.clear();
  complete_.clear();
  sent_.clear();
  next_ = 0;
  sums_.reset();
}

}  // namespace bitgrad::detail
