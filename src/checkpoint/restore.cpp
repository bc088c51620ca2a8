// Reads checkpoints and model files.
#include <algorithm>

#include "bitgrad/base/log.h"
#include "checkpoint/restorer.h"
#include "train/averages.h"
#include "train/pieces.h"
#include "train/train_state.h"

namespace bitgrad {

using namespace checkpoint;

namespace {

// The average of a run that kept none begins here.
void restore_average(Restorer& restorer, const CheckpointHeader& header, const detail::Averages& average) {
  const std::vector<SafetensorsEntry>& entries = restorer.file().entries();
  if (std::none_of(entries.begin(), entries.end(),
                   [](const SafetensorsEntry& e) { return e.name.ends_with(detail::kAverageEnd); }))
    return log(LogLevel::kWarning, concat(restorer.file().path(), " holds no average (train.ema): it begins with the ",
                                          "values of step ", header.step));
  for (const auto& [name, tensor] : average.state()) restorer.into(name, tensor);
}

}  // namespace

CheckpointHeader checkpoint::read_checkpoint_header(const SafetensorsFile& file) {
  CheckpointHeader header = read_state(file);
  read_tensors(file);
  return header;
}
CheckpointHeader read_checkpoint_header(const std::string& path) {
  return checkpoint::read_checkpoint_header(*open_verified(path));
}

void enter_phase_of(const CheckpointHeader& header, const std::string& file, Learner& learner) {
  const int64_t count = std::max<int64_t>(std::ssize(learner.phases()), 1);
  if (header.phase >= count)
    fail_with(ErrorCode::kData, "checkpoint", file, ": was saved in phase ", header.phase,
              " of quantization, the configuration has ", count);
  if (header.phase != learner.phase()) learner.enter_phase(header.phase);
}

void load_checkpoint(const std::string& path, Learner& learner) {
  checkpoint::load_checkpoint(open_verified(path), learner);
}

void checkpoint::load_checkpoint(const OpenFile& file, Learner& learner) {
  const std::string& path = file->path();
  reading(path, [&] {
    const DeviceGuard guard(learner.device());
    Restorer restorer(file, SavedKind::kCheckpoint);
    const CheckpointHeader h = read_state(restorer.file());
    if (h.seed != learner.state().seed)
      bad(path, concat("was trained with seed ", h.seed, ", the configuration has ", learner.state().seed));
    detail::TrainState& s = learner.train_state();
    s.origin = h.origin;
    if (h.phase != learner.phase())
      bad(path, concat("was saved in phase ", h.phase, " of quantization, the model is in phase ", learner.phase()));
    if (h.step > h.microbatch || std::max(h.since_requantize, h.cut_since_requantize) > h.microbatch)
      bad(path, concat("its counters do not agree: step ", h.step, ", microbatch ", h.microbatch,
                       ", microbatches since the last requantization ", h.since_requantize));
    for (Parameter* p : learner.model().parameters()) restorer.parameter(*p);
    for (const auto& part : learner.optimizer().state()) restorer.into(part.name, part.tensor);
    for (const auto& b : learner.model().buffers()) restorer.into(b.path, b.tensor);
    s.follow_average();
    if (s.average) restore_average(restorer, h, *s.average);
    detail::CutWindow window{h.cut_since_requantize};
    for (const Parameter* p : learner.model().parameters())
      if (h.cut_since_requantize > 0 && p->low_bit() && p->has_master())
        window.codes[p->path()] = restorer.codes(*p, p->path(), kWindowPrefix);
    restorer.done(s.state.read_only ? &learner.model() : nullptr);
    detail::set_counters(s, h.step, h.microbatch, h.since_requantize);
    if (!s.state.read_only) learner.optimizer().set_own_updates(h.updates);
    s.skipped = h.skipped;
    s.cut_window = std::move(window);
    return 0;
  });
}

void load_values(const std::string& path, Module& model) { checkpoint::load_values(open_verified(path), model); }

void checkpoint::load_values(const OpenFile& file, Module& model) {
  reading(file->path(), [&] {
    Restorer restorer(file, SavedKind::kCheckpoint);
    read_state(restorer.file());
    for (Parameter* p : model.parameters()) restorer.parameter(*p);
    for (const auto& b : model.buffers()) restorer.into(b.path, b.tensor);
    return 0;
  });
}

void load_model(const std::string& path, Module& model) { checkpoint::load_model(open_verified(path), model); }

void checkpoint::load_model(const OpenFile& file, Module& model) {
  reading(file->path(), [&] {
    Restorer restorer(file, SavedKind::kModel);
    read_state(restorer.file());
    for (Parameter* p : model.parameters()) restorer.converted(*p);
    for (const auto& b : model.buffers()) restorer.into(b.path, b.tensor);
    restorer.done();
    return 0;
  });
}

FileForm file_form(const std::string& path) {
  return reading(path, [&] { return checkpoint::file_form(*open_verified(path)); });
}

FileForm checkpoint::file_form(const SafetensorsFile& file) {
  return reading(file.path(), [&] {
    FileForm form{file.path(), kind_of(file), {}, 0};
    for (const SafetensorsEntry& e : file.entries()) {
      form.bytes += e.bytes;
      for (const std::string_view suffix : {".master", ".value"})
        if (e.name.ends_with(suffix) && e.bytes > 0)
          form.parameters.emplace(e.name.substr(0, e.name.size() - suffix.size()), Shape(e.shape));
    }
    for (const auto& [name, record] : read_tensors(file))
      form.parameters.insert_or_assign(name.substr(0, name.rfind('.')), record.shape);
    return form;
  });
}

SavedKind file_kind(const std::string& path) { return file_form(path).kind; }

}  // namespace bitgrad
