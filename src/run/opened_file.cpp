#include "bitgrad/run/build.h"

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "checkpoint/records.h"
#include "run/load.h"
#include "run/model_warnings.h"

namespace bitgrad {
namespace {

// A data set without samples, which provides the form of a sample only.
class FormOfData final : public Dataset {
 public:
  explicit FormOfData(const Form& form) : form_(form) {}
  std::string name() const override { return "no data"; }
  int64_t size() const override { return 1; }
  std::vector<int64_t> sample_shape() const override { return form_.sample.dims(); }
  int64_t classes() const override { return 0; }
  int64_t vocabulary() const override { return form_.ids; }
  void sample(int64_t, float*, int32_t*) const override { fail("data", "this command reads no data"); }

 private:
  Form form_;
};

// Placeholder for everything that is not about the model, for files that no run wrote.
constexpr const char* kNoRun =
    "version: 1\nrun: {name: model}\ndata: {train: {format: digits, size: 1}}\nmodel: {layers: [{linear: {out: 1}}]}\n"
    "optim: {name: sgd, lr: 0.1}\ntrain: {stop: 1 steps}\n";

}  // namespace

OpenedFile open_file(const std::string& target, const std::vector<std::string>& overrides, CheckpointChoice choice) {
  OpenedFile out;
  out.path = checkpoint_of(target, choice, &out.choice);
  out.tensors = checkpoint::open_verified(out.path);
  out.kind = checkpoint::file_form(*out.tensors).kind;
  out.header = checkpoint::read_checkpoint_header(*out.tensors);
  out.of_run = !out.header.config.empty();
  // The configuration first: it says which plugins define the kinds in the record.
  const ConfigSource source{true, remembered_root(out.path), ConfigSource::Plugins::kLoaded};
  out.config = parse_config(out.of_run ? out.header.config : kNoRun, out.path, overrides, source);
  if (out.header.model.empty())
    fail_with(ErrorCode::kData, "checkpoint", out.path,
              ": has no record of its model: only the program that wrote it can open it");
  out.input = checkpoint::reading(out.path, [&] { return parse_model_record(out.header.model); }).model.input;
  return out;
}

std::unique_ptr<Learner> load_file(const OpenedFile& file, const Dataset* data, LearnerUse use) {
  const FormOfData form(file.input);
  const checkpoint::OpenFile tensors = file.tensors ? file.tensors : checkpoint::open_verified(file.path);
  std::unique_ptr<Learner> learner =
      file.of_run ? detail::load_evaluator(file.config, data != nullptr ? *data : form, tensors, use)
                  : checkpoint::load_evaluator(tensors, find_loss(file.config.loss, file.config.loss_keys),
                                               file.config.train.eval.batch, use);
  detail::log_all(detail::batch_warnings(learner->model(), /*trains=*/false));
  return learner;
}

}  // namespace bitgrad
