#include <algorithm>

#include "bitgrad/base/text.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/nn/layers.h"
#include "config/checks.h"
#include "config/merge.h"

namespace bitgrad::config {
namespace {

class DataChecks : public Checks {
 public:
  using Checks::Checks;

  void run() {
    pixel_values("data.affine");
    pixel_values("data.normalize");
    affine();
    augment();
    labels();
    targets();
    transforms();
    best();
    valid();
    texts("data.test", config_.data.test);
    texts("data.valid", config_.data.valid);
    each_dataset([this](const std::string& path, const DatasetConfig& c) { tokens(path, c); });
    each_dataset([this](const std::string& path, const DatasetConfig& c) { documents(path, c); });
    each_dataset([this](const std::string& path, const DatasetConfig& c) { packed(path, c); });
    chat();
    tokenizer();
    evaluation();
  }

 private:
  void pixel_values(const std::string& path) {
    if (sound_path(path) && sound_path("data.train") && find(path) && choices::reads_ids(config_))
      contradiction({path},
                    concat(path, " is for pixels, data.train of format ", config_.data.train.format, " has ids"));
  }
  void affine() {
    if (sound_path("data.affine") && config_.data.affine[0] == 0.0)
      contradiction({"data.affine"}, "data.affine: a factor of 0 makes all pixels equal");
    const Node *const affine = find("data.affine"), *const normalize = find("data.normalize");
    if (sound_path("data.affine") && sound_path("data.normalize") && affine && normalize)
      contradiction({"data.normalize"}, concat("data.normalize and data.affine (", place(affine->mark),
                                               ") both say what a pixel becomes: give one of them"));
  }
  static std::string place(const SourceMark& mark) {
    return mark.argument > 0 ? concat("command line, argument ", mark.argument) : concat(mark.line, ':', mark.col);
  }
  void augment() {
    for (const std::string path : {"data.test.augment", "data.valid.augment"})
      if (sound_path(path) && find(path))
        contradiction({path}, path + ": augmentation applies to training samples only");
    if (sound_path("data.train.augment") && find("data.train.augment") && choices::reads_ids(config_))
      contradiction({"data.train.augment"}, concat("data.train.augment needs images, data.train of format ",
                                                   config_.data.train.format, " has ids"));
    const auto says = [this](const char* key) { return find(concat("data.train.augment.", key)) != nullptr; };
    if (sound_path("data.train.augment") && find("data.train.augment") && !says("crop_pad") && !says("flip"))
      contradiction({"data.train.augment"},
                    "data.train.augment changes no image: give crop_pad or flip, or leave the key out");
  }
  // A key of a format that expects one of these words. `of`: what the error says behind the key.
  void word(const std::string& key, const std::string& value, const std::vector<DatasetFormat::Word>& words,
            const std::string& of = "") {
    const auto is_value = [&](const DatasetFormat::Word& w) { return w.name == value; };
    if (words.empty() || value.empty() || !sound_path(key) || std::any_of(words.begin(), words.end(), is_value)) return;
    const auto shown = [](const DatasetFormat::Word& w) { return concat(w.name, " (", w.meaning, ')'); };
    contradiction({key}, concat(key, of, ": got '", value, "', expected ", joined(words, " or ", shown)));
  }
  void labels() {
    each_dataset([this](const std::string& path, const DatasetConfig& c) {
      word(path + ".labels", c.labels, format_of(c).label_words);
    });
  }
  // Labels and targets exclude each other.
  void targets() {
    each_dataset([this](const std::string& path, const DatasetConfig& c) {
      const auto& words = format_of(c).target_words;
      word(path + ".targets", c.targets, words, " of a " + c.format);
      if (sound_path(path + ".targets") && !c.targets.empty() && words.empty() && !c.labels.empty())
        contradiction({path + ".targets"},
                      concat(path, " has both labels and targets: labels are classes, targets are values. Give one"));
    });
  }
  void transforms() {
    for (const std::string path : {"data.test.transforms", "data.valid.transforms"})
      if (sound_path(path) && find(path)) contradiction({path}, path + ": transforms apply to training samples only");
    if (sound_path("data.train.transforms") && !config_.data.train.transforms.empty() && choices::reads_ids(config_))
      contradiction({"data.train.transforms"}, concat("data.train.transforms need values, data.train of format ",
                                                      config_.data.train.format, " has ids"));
  }
  void best() {
    if (!sound_path("data.test") || !sound_path("data.valid") || evaluates()) return;
    if (find("train.best"))
      contradiction(
          {"train.best"},
          "train.best needs data.test or data.valid, neither of which is set: the best model is selected on them");
    if (find("train.early_stop"))
      contradiction(
          {"train.early_stop"},
          "train.early_stop needs data.test or data.valid, neither of which is set: it looks at their evaluations");
  }
  // data.valid is a part of data.train, or data of its own.
  void valid() {
    for (const std::string path : {"data.train.fraction", "data.test.fraction"})
      if (sound_path(path) && find(path))
        contradiction({path}, concat(path, " is a key of data.valid: a part of data.train that is not trained on"));
    if (!sound_path("data.valid") || !config_.data.valid) return;
    const DatasetConfig& valid = *config_.data.valid;
    const Node* const map = find("data.valid");
    if (valid.fraction > 0 && map->entries.size() > 1)
      contradiction({"data.valid.fraction"},
                    "data.valid.fraction selects samples of data.train and cannot be combined with other keys");
    if (valid.fraction == 0 && sound_path("data.test") && config_.data.test && *config_.data.test == valid)
      contradiction({"data.valid"}, "data.valid and data.test are the same data: give other data, or one of the two");
  }
  // Keys that must agree: ids depend on the whole file, and the test part on both fractions.
  void texts(const std::string& path, const std::optional<DatasetConfig>& other) {
    if (!sound_path("data.train") || !sound_path(path) || !other || other->fraction > 0) return;
    const DatasetConfig &train = config_.data.train, &test = *other;
    const DatasetFormat::Windows windows = format_of(train).windows;
    if (windows == DatasetFormat::Windows::kNone || windows != format_of(test).windows) return;
    const auto same = [&](const std::string& key, const auto& a, const auto& b, std::string_view why) {
      const std::string here = concat(path, '.', key);
      if (a == b || !sound_path("data.train." + key) || !sound_path(here)) return;
      const bool missing = !find("data.train." + key) || !find(here);
      if (missing && find_key("dataset", key)->required()) return;  // already reported
      contradiction({here, "data.train." + key},
                    concat(here, " (", b, ") must be data.train.", key, " (", a, "): ", why));
    };
    if (windows == DatasetFormat::Windows::kBytes)
      same("file", train.file, test.file, "ids are assigned from the file's bytes");
    same("context", train.context, test.context, "samples are of one length");
    same("targets", train.targets, test.targets, "both have targets at the same positions");
    if (train.split != test.split && train.file == test.file)
      same("test_fraction", train.test_fraction, test.test_fraction,
           "it splits the file once, so that the parts do not overlap");
  }
  static bool takes_tokenizer(const DatasetConfig& c) {
    return format_of(c).windows == DatasetFormat::Windows::kTokens || format_of(c).chats;
  }
  // Requires what the file does not say: the tokenizer of a text, or the vocabulary size of ids.
  void tokens(const std::string& path, const DatasetConfig& c) {
    if (!takes_tokenizer(c) || !sound_path(path + ".stored") || !sound_path("data.tokenizer")) return;
    if (format_of(c).chats) {
      if (config_.data.tokenizer.empty())
        contradiction({path + ".format"}, concat(path, " of format ", c.format,
                                                 ": set data.tokenizer to a file (.json, .model), or to bytes"));
      return;
    }
    const bool reads_text = !c.keys.contains("stored") || c.keys.text("stored") == "text";
    if (reads_text && config_.data.tokenizer.empty())
      contradiction({path + ".format"}, concat(path,
                                               " of format tokens reads a text: set data.tokenizer (chars, bytes or "
                                               "a file) or the stored form of its ids"));
    const bool says = is_tokenizer_file(config_.data.tokenizer) || c.keys.text("stored") == "shard";
    if (!reads_text && !says && sound_path(path + ".vocabulary") && !find(path + ".vocabulary"))
      contradiction({path + ".stored"}, concat(path, ".stored: ", c.keys.text("stored"),
                                               ": a file of ids does not say how many there are: set ", path,
                                               ".vocabulary, or data.tokenizer to the file of what made them"));
  }
  // Tables of roles, and what they are for.
  void chat() {
    if (!config_.data.chat || !sound_path("data.chat")) return;
    try {
      static_cast<void>(resolved(*config_.data.chat));
    } catch (const Error& error) {
      contradiction({"data.chat"}, library_text(error.what()));
    }
  }
  // A window of several conversations.
  void packed(const std::string& path, const DatasetConfig& c) {
    const std::string key = path + ".pack";
    if (!sound_path(key) || !sound_path("model.layers") || config_.layers.empty()) return;
    if (!c.keys.contains("pack") || !c.keys.flag("pack")) return;
    bool attends = false, places = false;
    for_each_layer(config_.layers, [&](const LayerSpec& layer) {
      const LayerKind& kind = *find_layer_kind(layer.kind);
      attends = attends || kind.causal;
      places = places || kind.positions;
    });
    const std::string own = concat(". Set ", key, ": false");
    if (!attends)
      contradiction({key},
                    concat(key, ": attention keeps the conversations of a window apart, and the model has none", own));
    else if (places)
      contradiction({key}, concat(key,
                                  ": the model has learned positions, which would go on from one conversation to "
                                  "the next",
                                  own, ", or take rotary positions (preset llama)"));
  }
  // Only layers that mix positions (LayerKind::causal) can separate documents.
  void documents(const std::string& path, const DatasetConfig& c) {
    const std::string key = path + ".documents";
    if (!sound_path(key) || !sound_path("model.layers") || config_.layers.empty()) return;
    if (!c.keys.contains("documents") || c.keys.text("documents") != "apart") return;
    bool attends = false;
    for_each_layer(config_.layers,
                   [&](const LayerSpec& layer) { attends = attends || find_layer_kind(layer.kind)->causal; });
    if (!attends)
      contradiction({key}, concat(key,
                                  ": got apart, which is what attention sees, and the model has no attention layer. "
                                  "Expected joined, or a model with attention"));
  }
  void tokenizer() {
    const std::string& name = config_.data.tokenizer;
    if (name.empty() || !sound_path("data.tokenizer") || !sound_path("data.train.format")) return;
    if (!takes_tokenizer(config_.data.train) && !(config_.data.test && takes_tokenizer(*config_.data.test)))
      contradiction({"data.tokenizer"},
                    "data.tokenizer only applies to formats tokens and jsonl, which are not used here");
    const std::vector<std::string> known = tokenizer_names();
    if (std::find(known.begin(), known.end(), name) != known.end() || is_tokenizer_file(name)) return;
    std::string names;
    for (const std::string& k : known) names += k + ", ";
    const std::string near = nearest_name(name, known);
    contradiction({"data.tokenizer"}, concat("data.tokenizer: got '", name, "', expected one of ", names,
                                             "or a file with .json or .model at its end",
                                             near.empty() ? "" : concat("; did you mean '", near, "'?")));
  }
  void evaluation() {
    if (!find("train.eval") || find("train.eval")->entries.empty() || evaluates()) return;
    if (sound_path("data.test") && sound_path("data.valid"))
      contradiction({"train.eval"}, "train.eval needs data.test or data.valid, neither of which is set");
  }
};

}  // namespace

void check_data(const Node& root, const RunConfig& config, Report& report) { DataChecks(root, config, report).run(); }

}  // namespace bitgrad::config
