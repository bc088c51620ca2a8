// norms: statistics of batch norm of the samples, of the float model first (its outputs are what layers are fitted to),
// and of the quantized model in the end.
#include "tools/ptq/method.h"

namespace bitgrad::detail {
namespace {

class Norms final : public PtqMethod {
 public:
  std::string_view name() const override { return "norms"; }
  std::string_view doc() const override { return "statistics of batch norm, renewed on the samples"; }
  bool has_layer_step() const override { return false; }
  std::vector<PtqLayer> prepare(const FloatModels& models) const override {
    for (Learner* learner : {&models.quantized, &models.reference}) renew_norms(*learner, models.norm_samples);
    return {};
  }
  void finish(Learner& learner, std::span<const SampleBatch> samples) const override { renew_norms(learner, samples); }
};

}  // namespace

std::unique_ptr<PtqMethod> make_Norms() { return std::make_unique<Norms>(); }

}  // namespace bitgrad::detail
