#include <string>

#include "bitgrad/run/trainer.h"
#include "capi/arrays.h"
#include "capi/guard.h"
#include "capi/run_config.h"
#include "run/initial_values.h"

using namespace bitgrad;
using namespace bitgrad::capi;

struct bitgrad_learner {
  std::recursive_mutex busy;
  RunConfig config;
  std::unique_ptr<Learner> learner;
  SampleValues values;
  int64_t outputs = 0;  // features of the model's output: scores or values
  int64_t samples = 0, epoch_samples = 1;
  RunCounters counters;

  Tensor on_device(const Tensor& t) const {
    return learner->device().is_cpu() ? t : t.to_device(learner->device(), MemoryKind::kBatch);
  }
};

namespace {

constexpr std::string_view kLearner = "learner";

Tensor inputs(const bitgrad_learner& l, const ArrayView& view, int32_t reading) {
  const bool stored = is_stored(reading), ids = l.learner->input()->dtype == dtypes::int32;
  const Shape& wanted = l.learner->input()->sample;
  require(view.samples().shape.numel() == wanted.numel(), kLearner, "x: got samples of ", view.samples().shape,
          ", the model expects ", wanted, ". The first axis is that of the samples");
  require(ids ? !view.is_float() : view.is_float() || view.is_bytes(), kLearner, "x: got ",
          view.is_float() ? "fp32 values" : "integers", ", the model expects ", ids ? "ids" : "fp32 values or bytes");
  if (ids || (!stored && view.is_float())) {
    const Tensor x = view.tensor();
    for (int64_t i = 0, known = l.learner->input()->ids; ids && known > 0 && i < x.numel(); ++i)
      require(x.as<int32_t>()[i] >= 0 && x.as<int32_t>()[i] < known, kLearner, "x: element ", i, ": got id ",
              x.as<int32_t>()[i], ", the model has ids 0 .. ", known - 1);
    return l.on_device(x);
  }
  require(stored, kLearner, "x: got unnormalized bytes, the model expects fp32 values: BITGRAD_STORED normalizes them");
  const SampleView& s = view.samples();
  const Tensor x = Tensor::empty({s.count, s.shape.numel()}, dtypes::fp32, MemoryKind::kBatch, Device::cpu());
  l.values.write(s, 0, s.count, x.as<float>());
  return l.on_device(x);
}

Tensor targets(const bitgrad_learner& l, const ArrayView& view, int64_t count) {
  require(view.samples().count == count, kLearner, "y: got ", view.samples().count, " targets for ", count, " samples");
  const bool classes = !view.is_float();
  require(classes ? loss_takes_classes(l.config.loss) : loss_takes_values(l.config.loss), kLearner, "y: got ",
          view.is_float() ? "fp32 values" : "integers", ", loss ", l.config.loss, " expects ",
          classes ? "fp32 values" : "classes (integers)");
  Tensor y = view.tensor();
  if (!classes) return l.on_device(y);
  if (view.samples().shape == Shape{1}) y = y.reshape({count});
  const bool positions = y.shape().rank() > 1;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int32_t c = y.as<int32_t>()[i];
    require((c >= 0 && c < l.outputs) || (positions && c == kIgnoredClass), kLearner, "y: element ", i, ": got class ",
            c, ", the model has classes 0 .. ", l.outputs - 1);
  }
  return l.on_device(y);
}

void write_step(const bitgrad_learner& l, const StepResult& r, bitgrad_step* out) {
  if (out == nullptr) return;
  *out = {};
  out->loss = r.weight > 0 ? r.loss / r.weight : 0;
  out->correct = r.correct;
  out->samples = r.samples;
  out->step = l.learner->state().step;
  out->stepped = r.stepped ? 1 : 0;
  out->learning_rate = static_cast<double>(l.learner->learning_rate(l.learner->state().step));
}

}  // namespace

int bitgrad_learner_create(const char* config, const char* const* overrides, int32_t n_overrides,
                           const bitgrad_form* input, int64_t outputs, int64_t epoch_samples, bitgrad_learner** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    require(outputs >= 0 && epoch_samples >= 1, kLearner, "outputs, epoch_samples: got ", outputs, ", ", epoch_samples,
            ", expected 0 or more, 1 or more");
    prepare_process();
    auto l = std::make_shared<bitgrad_learner>();
    l->config = memory_config(config, overrides, n_overrides, false);
    apply_run_settings(l->config);
    const DeviceGuard guard(device_of(l->config));
    Form form = read_form(given(input, "input"));
    if (form.ids == 0) form.ids = vocabulary_of_model(l->config);
    l->learner = build_learner(l->config, form, outputs, epoch_samples);
    if (!l->config.init_from.empty()) detail::take_initial_values(l->config, nullptr, *l->learner);
    l->values = sample_values(l->config);
    l->epoch_samples = epoch_samples;
    const std::optional<Form>& output = l->learner->model().output_form();
    l->outputs = output ? output->features() : outputs;
    *out = handles<bitgrad_learner>().add(std::move(l));
  });
}
void bitgrad_learner_close(bitgrad_learner* learner) { handles<bitgrad_learner>().remove(learner); }

int bitgrad_learner_set_learning_rate(bitgrad_learner* learner, double rate) {
  return alone(learner, "learner", [&](bitgrad_learner& l) { l.learner->set_learning_rates(constant_rate(rate)); });
}

int bitgrad_learner_step(bitgrad_learner* learner, const bitgrad_array* x, const bitgrad_array* y, int32_t reading,
                         bitgrad_step* out) {
  return alone(learner, "learner", [&](bitgrad_learner& l) {
    const ArrayView samples(x, "x"), classes(y, "y");
    const Tensor inputs_of = inputs(l, samples, reading);
    const Tensor target = targets(l, classes, samples.samples().count);
    const StepResult r = l.learner->microbatch(inputs_of, target);
    l.samples += r.samples;
    l.counters.epoch = l.samples / l.epoch_samples;
    l.counters.position = l.samples % l.epoch_samples;
    write_step(l, r, out);
  });
}

int bitgrad_learner_evaluate(bitgrad_learner* learner, const bitgrad_array* x, const bitgrad_array* y, int32_t reading,
                             bitgrad_step* out) {
  return alone(learner, "learner", [&](bitgrad_learner& l) {
    const ArrayView samples(x, "x"), classes(y, "y");
    const Tensor inputs_of = inputs(l, samples, reading);
    write_step(l, l.learner->evaluate(inputs_of, targets(l, classes, samples.samples().count)), out);
  });
}

int bitgrad_learner_predict(bitgrad_learner* learner, const bitgrad_array* x, int32_t reading, DLManagedTensor** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    const Exclusive<bitgrad_learner> used(learner, "learner");
    bitgrad_learner& l = *used;
    const ArrayView samples(x, "x");
    const Tensor y = l.learner->predict(inputs(l, samples, reading)).on_host();
    const DeviceGuard host(Device::cpu());
    *out = to_dlpack(
        y.dtype() == dtypes::fp32 && y.contiguous() ? y : Tensor::from(y.to_vector(), y.shape(), dtypes::fp32));
  });
}

int bitgrad_learner_save(bitgrad_learner* learner, const char* path) {
  return alone(learner, "learner", [&](bitgrad_learner& l) {
    save_checkpoint(&given(path, "path"), *l.learner, l.counters, to_portable_yaml(l.config));
  });
}
