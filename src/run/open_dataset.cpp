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

constexpr std::string_view kNormalClass = "normal_class";

// Keys that data.train decides, such as those of the plan of its table, may not differ in other data. Those of a plan
// may be left out there; normal_class may not, in data of any format that has it.
void check_like_train(const DataSection& all, const DatasetConfig& section) {
  if (section.fraction > 0) return;
  const auto decides = [](const DatasetFormat& format, const std::string& key) {
    return std::find(format.of_training.begin(), format.of_training.end(), key) != format.of_training.end();
  };
  const DatasetFormat &format = format_of(section), &trained = format_of(all.train);
  for (const Key& key : format.keys) {
    if (!decides(format, key.name) || !decides(trained, key.name)) continue;
    const auto value = [&](const DatasetConfig& c) -> std::string {
      if (!c.keys.contains(key.name)) return key.standard;
      const std::string* const text = c.keys.find_text(key.name);
      return text != nullptr ? *text : concat(c.keys.integer(key.name));
    };
    const std::string own = value(section), train = value(all.train);
    const bool may_lack = key.name != kNormalClass;
    require(own == train || (may_lack && own == key.standard), "data", key.name, ": got '", own, "' for ", section.file,
            section.images, ", data.train has '", train, "', which is for all data of the run. ",
            may_lack ? "Leave it out here, or write the same" : "Write the same here");
  }
}

DatasetSpec dataset_spec(const RunConfig& config, const DatasetConfig& section,
                         std::shared_ptr<const Tokenizer> of_model, std::shared_ptr<const TablePlan> table) {
  const DataSection& all = config.data;
  DatasetSpec spec = section;
  spec.root = all.root;
  if (spec.split.empty()) spec.split = &section == &all.train ? "train" : "test";  // no key of this format
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
  const auto part = is_part ? data::SplitPart::kValid : data::SplitPart::kTrain;
  // Anomalies are held out as well: all samples are split, and data.train keeps the normal ones of its part.
  const std::string normal(kNormalClass);
  const bool anomalies = spec.keys.contains(normal) && spec.keys.integer(normal) >= 0;
  if (anomalies) spec.split = "test";
  auto out = data::split_samples(make_dataset(spec), fraction, static_cast<uint64_t>(config.run.seed), part);
  return anomalies && is_rest ? data::normal_samples(std::move(out)) : std::move(out);
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
