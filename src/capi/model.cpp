#include <cstring>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/base/log.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/run/adapters.h"
#include "capi/arrays.h"
#include "capi/guard.h"
#include "capi/model.h"

using namespace bitgrad;
using namespace bitgrad::capi;

namespace {

std::shared_ptr<bitgrad_model> used(const bitgrad_model* model) { return handles<bitgrad_model>().get(model, "model"); }

std::string description_of(const Predictor& model) {
  const OpenedFile& file = model.file();
  const CheckpointHeader& h = file.header;
  Json j{{"file", file.path},
         {"kind", std::string(enum_name(file.kind))},
         {"name", file.of_run ? Json(file.config.run.name) : Json(nullptr)},
         {"step", h.step},
         {"epoch", h.counters.epoch},
         {"input", model.input().sample.dims()},
         {"output", model.output().sample.dims()},
         {"task", std::string(prediction_task_name(model.output().task))},
         {"loss", file.of_run ? Json(file.config.loss) : Json(nullptr)},
         {"table", model.table() != nullptr ? table_record(*model.table()) : Json(nullptr)}};
  return j.dump();
}

Tensor predicted(bitgrad_model& model, const bitgrad_array* x, int32_t reading) {
  const ArrayView view(x, "x");
  if (is_stored(reading)) return model.predictor->predict(view.samples());
  const bool ids = model.predictor->input().dtype == dtypes::int32;
  require(ids || !view.is_bytes(), "predict",
          "x: got unnormalized bytes, the model expects fp32 values: BITGRAD_STORED "
          "normalizes them as the run did");
  return model.predictor->predict(view.tensor());
}

// Outputs for a table; what was not read of it goes to the log.
template <typename Predict>
DLManagedTensor* with_notes(Predict&& predict) {
  std::vector<std::string> notes;
  const Tensor y = predict(&notes);
  for (const std::string& note : notes) log(LogLevel::kWarning, note);
  return to_dlpack(y);
}

}  // namespace

int bitgrad_model_open(const char* path, bitgrad_model** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    prepare_process();
    auto model = std::make_shared<bitgrad_model>();
    model->predictor = open_model(std::string(&given(path, "path")));
    model->description = description_of(*model->predictor);
    *out = handles<bitgrad_model>().add(std::move(model));
  });
}
void bitgrad_model_close(bitgrad_model* model) { handles<bitgrad_model>().remove(model); }

int bitgrad_model_input(const bitgrad_model* model, bitgrad_form* out) {
  return guarded([&] { write_form(used(model)->predictor->input(), given(out, "out")); });
}
int bitgrad_model_output(const bitgrad_model* model, bitgrad_form* out, int32_t* task, int32_t* probabilities) {
  return guarded([&] {
    const std::shared_ptr<bitgrad_model> m = used(model);
    const OutputForm& form = m->predictor->output();
    Form as_form;
    as_form.sample = form.sample;
    write_form(as_form, given(out, "out"));
    if (task != nullptr) *task = static_cast<int32_t>(form.task);
    if (probabilities != nullptr) *probabilities = form.probabilities ? 1 : 0;
  });
}
const char* bitgrad_model_class_name(const bitgrad_model* model, int64_t index) {
  if (model == nullptr) return nullptr;
  const std::vector<std::string>& names = model->predictor->output().names;
  return index >= 0 && index < std::ssize(names) ? names[static_cast<size_t>(index)].c_str() : nullptr;
}
const char* bitgrad_model_describe(const bitgrad_model* model) {
  return model == nullptr ? nullptr : model->description.c_str();
}

int bitgrad_model_predict(bitgrad_model* model, const bitgrad_array* x, int32_t reading, DLManagedTensor** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    *out = to_dlpack(predicted(*used(model), x, reading));
  });
}
int bitgrad_model_predict_table(bitgrad_model* model, const char* text, int64_t length, DLManagedTensor** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    require(length >= 0, "c", "length: got ", length);
    Predictor& predictor = *used(model)->predictor;
    const std::string copy(&given(text, "text"), static_cast<size_t>(length));
    *out = with_notes(
        [&](auto* notes) { return predictor.predict(predictor.read_csv("x (as CSV)", copy, notes).view()); });
  });
}
int bitgrad_model_predict_csv(bitgrad_model* model, const char* path, DLManagedTensor** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    Predictor& predictor = *used(model)->predictor;
    *out = with_notes([&](auto* notes) { return predictor.predict_csv(&given(path, "path"), notes); });
  });
}
int bitgrad_model_predict_into(bitgrad_model* model, const bitgrad_array* x, int32_t reading, float* out,
                               int64_t capacity) {
  return guarded([&] {
    const std::shared_ptr<bitgrad_model> m = used(model);
    const Shape& sample = m->predictor->output().sample;
    const int64_t needed = given(x, "x").rank >= 1 ? x->shape[0] * sample.numel() : 0;
    require(capacity >= needed, "predict", "out: got room for ", capacity, " outputs, expected ", needed);
    given(out, "out");
    const Tensor y = predicted(*m, x, reading);
    std::memcpy(out, y.data(), static_cast<size_t>(y.numel()) * sizeof(float));
  });
}
int bitgrad_model_scores(const bitgrad_model* model, const float* outputs, int64_t n, double* out) {
  return guarded([&] {
    require(n >= 0, "c", "n: got ", n);
    const std::vector<double> y = used(model)->predictor->scores({&given(outputs, "outputs"), static_cast<size_t>(n)});
    std::copy(y.begin(), y.end(), &given(out, "out"));
  });
}

int bitgrad_model_save(bitgrad_model* model, const char* path) {
  return guarded([&] { used(model)->predictor->save(std::string(&given(path, "path"))); });
}
int bitgrad_model_export(bitgrad_model* model, const char* path, const char* format) {
  return guarded(
      [&] { used(model)->predictor->export_to(std::string(&given(path, "path")), format == nullptr ? "" : format); });
}
int bitgrad_model_save_adapters(bitgrad_model* model, const char* folder) {
  return guarded([&] {
    const OpenedFile& file = used(model)->predictor->file();
    const auto learner = load_file(file, nullptr, LearnerUse::kTrain);
    save_adapters(std::string(&given(folder, "folder")), learner->model(), file.header.model,
                  parse_origin(file.header.origin, file.path).name);
  });
}
int bitgrad_model_merge_adapters(bitgrad_model* model, const char* path, int32_t to_float) {
  return guarded([&] {
    const OpenedFile& file = used(model)->predictor->file();
    write_merged(std::string(&given(path, "path")), file, *load_file(file, nullptr, LearnerUse::kTrain), to_float != 0);
  });
}
