// Ranges and learned parts of inputs, from samples.
#include <algorithm>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/error.h"
#include "bitgrad/nn/prepare.h"
#include "kernels/flag.h"
#include "nn/activation_quantizer.h"

namespace bitgrad {
namespace {

struct Calibrating {
  StepState& state;
  bool training, calibrating;
  explicit Calibrating(StepState& s) : state(s), training(s.training), calibrating(s.calibrating) {
    state.training = false;
    state.calibrating = true;
  }
  ~Calibrating() {
    state.training = training;
    state.calibrating = calibrating;
  }
};

// The learned parts of an input that has none yet: each batch is fitted alone. Of a step all samples have the mean of
// the fits by their rows, of an offset the least; for the first layer what they give in one batch.
class Fits {
 public:
  explicit Fits(ActivationQuantizer& quantizer) : quantizer_(quantizer) {}

  void forget() {
    for (Parameter* p : quantizer_.learned()) p->assign(Tensor::zeros(p->shape(), dtypes::fp32), 0);
    quantizer_.values_replaced();
  }
  void add(double rows) {
    rows_ += rows;
    for (size_t i = 0; i < quantizer_.learned().size(); ++i) {
      const std::vector<double> now = quantizer_.learned()[i]->value().elements();
      if (parts_.size() == i) parts_.push_back(now);
      for (size_t j = 0; j < now.size(); ++j) {
        double& all = parts_[i][j];
        all = i == 0 ? all + (now[j] - all) * (rows / rows_) : std::min(all, now[j]);
      }
    }
  }
  void store() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      Parameter* p = quantizer_.learned()[i];
      p->assign(Tensor::from_elements(p->shape(), dtypes::fp32, parts_[i]), 0);
    }
    quantizer_.values_replaced();
  }

 private:
  ActivationQuantizer& quantizer_;
  double rows_ = 0;
  std::vector<std::vector<double>> parts_;
};

void find_unfitted(Module& module, std::vector<Fits>& found) {
  if (auto* q = dynamic_cast<ActivationQuantizer*>(&module))
    if (!q->learned().empty() && q->learned()[0]->value().elements().at(0) == 0) found.emplace_back(*q);
  for (Module* child : module.children()) find_unfitted(*child, found);
}

}  // namespace

void calibrate(Module& model, StepState& state, std::span<const Tensor> batches,
               const std::function<void(const Tensor&)>& before) {
  const NoGrad off;
  const Calibrating mode(state);
  std::vector<Fits> unfitted;
  if (batches.size() > 1) find_unfitted(model, unfitted);
  for (const Tensor& x : batches) {
    if (&x != &batches.front())
      for (Fits& f : unfitted) f.forget();
    if (before) before(x);
    model(x);
    for (Fits& f : unfitted) f.add(static_cast<double>(x.shape()[0]));
  }
  poll_errors();
  const std::vector<std::string> raised = state.flags.raised();
  if (!raised.empty()) {
    state.flags.clear();
    fail_with(ErrorCode::kNonFinite, "calibrate", "NaN or Inf in the input of '", raised.front(), "'.");
  }
  for (Fits& f : unfitted) f.store();
}

}  // namespace bitgrad
