// Opens the data sets of a configuration.
#include <algorithm>

#include "bitgrad/run/build.h"
#include "config/choices.h"
#include "data/split_samples.h"

namespace bitgrad {
namespace {

using Windows = DatasetFormat::Windows;

bool has_windows(const DatasetConfig& section) { return format_of(section).windows != Windows::kNone; }

// Whether windows of tokens are those of the whole file, because no other section uses part of it.
bool reads_whole(const DataSection& all, const DatasetConfig& section) {
  const auto shares = [&](const std::optional<DatasetConfig>& other) {
    return other && (other->fraction > 0 || other->file == all.train.file);
  };
  return section.file != all.train.file || !(shares(all.valid) || shares(all.test));
}

// A table for evaluation is read by the plan of the training table: another wish for its columns would not be met.
void check_like_train(const DataSection& all, const DatasetConfig& section) {
  if (section.format != all.train.format || section.fraction > 0) return;
  const DatasetFormat& format = format_of(section);
  for (const Key& key : format.keys) {
    if (std::find(format.of_training.begin(), format.of_training.end(), key.name) == format.of_training.end()) continue;
    const auto value = [&](const DatasetConfig& c) {
      return c.keys.contains(key.name) ? c.keys.text(key.name) : key.standard;
    };
    const std::string own = value(section), train = value(all.train);
    require(own == train || own == key.standard, "data", key.name, ": got '", own, "' for ", section.file,
            ", data.train has '", train, "': a table is read by the plan of the training table. Leave it out here");
  }
}

DatasetSpec dataset_spec(const RunConfig& config, const DatasetConfig& section,
                         std::shared_ptr<const Tokenizer> of_model, std::shared_ptr<const TablePlan> table) {
  const DataSection& all = config.data;
  DatasetSpec spec = section;
  spec.root = all.root;
  spec.tokenizer = all.tokenizer;
  spec.chat = all.chat;
  spec.vocabulary_file = all.train.file;
  if (section.format == all.train.format) {
    spec.training_path = all.train.path;
    spec.training_labels = all.train.labels;
    spec.training_file = all.train.file;
  }
  spec.of_model = std::move(of_model);
  spec.table = std::move(table);
  spec.whole = reads_whole(all, section);
  if (all.valid && all.valid->fraction > 0 && has_windows(section) && section.file == all.train.file) {
    spec.valid_fraction = all.valid->fraction;
    const bool tests = all.test && all.test->file == all.train.file;
    if (format_of(section).windows == Windows::kTokens && !tests)
      spec.test_fraction = 0;  // no part is reserved for testing
  }
  // Arrays are ids if the model begins with an embedding.
  const bool given = spec.keys.contains("vocabulary") && spec.keys.integer("vocabulary") != 0;
  if (!format_of(section).ids && !given && config::choices::reads_ids(config) &&
      config::choices::may_read_ids(section.format))
    spec.keys["vocabulary"] = config.layers.front().attributes.integer("num");
  spec.affine = all.affine;
  spec.normalize = all.normalize;
  return spec;
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const RunConfig& config, const DatasetConfig& section,
                                      std::shared_ptr<const Tokenizer> of_model,
                                      std::shared_ptr<const TablePlan> table) {
  const DataSection& all = config.data;
  if (&section != &all.train) check_like_train(all, section);
  const double fraction = all.valid ? all.valid->fraction : 0;
  const bool is_part = section.fraction > 0, is_rest = fraction > 0 && &section == &all.train;
  DatasetSpec spec = dataset_spec(config, is_part ? all.train : section, std::move(of_model), std::move(table));
  if (!is_part && !is_rest) return make_dataset(spec);
  if (has_windows(all.train)) {
    if (is_part) spec.split = "valid", spec.limit = 0;
    return make_dataset(spec);
  }
  return data::split_samples(make_dataset(spec), fraction, static_cast<uint64_t>(config.run.seed),
                             is_part ? data::SplitPart::kValid : data::SplitPart::kTrain);
}

void take_counted_classes(RunConfig& config, const Dataset& train) {
  DataSection& data = config.data;
  const auto counts = [](const DatasetConfig& c) {
    return format_of(c).counts_classes && c.targets.empty() && c.classes == 0 && c.fraction == 0;
  };
  if (!counts(data.train) || train.classes() == 0) return;
  for (DatasetConfig* section : {&data.train, data.valid ? &*data.valid : nullptr, data.test ? &*data.test : nullptr})
    if (section != nullptr && counts(*section)) section->classes = train.classes();
}

std::string evaluation_split(const RunConfig& config) {
  return config.data.test ? "test" : config.data.valid ? "valid" : "train";
}

std::unique_ptr<Dataset> open_evaluation_dataset(const RunConfig& config, std::shared_ptr<const Tokenizer> of_model,
                                                 std::shared_ptr<const TablePlan> table) {
  const DataSection& all = config.data;
  const DatasetConfig& section = all.test ? *all.test : all.valid ? *all.valid : all.train;
  return open_dataset(config, section, std::move(of_model), std::move(table));
}

}  // namespace bitgrad
