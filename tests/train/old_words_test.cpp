// Words that had another name before: accepted wherever they may stand, written in their new form, and noted once.
#include <algorithm>
#include <set>

#include "base/old_words.h"
#include "bitgrad/train/metrics_log.h"
#include "bitgrad/train/model_record.h"
#include "bitgrad/train/run_folder.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/config/schema.h"
#include "train/config_support.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Word {
  std::string key, old, now;
};
const std::vector<Word> kWords{
#define BITGRAD_OLD_WORD(key, old, now) {key, old, now},
#include "base/old_words.inc"
#undef BITGRAD_OLD_WORD
};

std::string replaced_all(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(contains(text, from));
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// What a run that starts from these keys logs about words.
std::vector<std::string> notes_of(const RunConfig& config) {
  LogLines log;
  Trainer(config).run("");
  std::vector<std::string> notes;
  std::copy_if(log.lines.begin(), log.lines.end(), std::back_inserter(notes),
               [](const std::string& line) { return contains(line, "is now called"); });
  return notes;
}

const std::vector<std::string> kShort{"train.stop=1 steps"};
std::vector<std::string> short_run(std::vector<std::string> keys) {
  keys.insert(keys.end(), kShort.begin(), kShort.end());
  return keys;
}

}  // namespace

TEST_CASE("each old word stands for a word that its key takes, and is none itself") {
  std::set<std::string> seen;
  for (const Word& word : kWords) {
    INFO(word.key << ": " << word.old);
    CHECK(seen.insert(word.key + ' ' + word.old).second);
    CHECK(detail::current_word(word.key, word.old) == word.now);
    CHECK(detail::current_word(word.key, word.now) == word.now);
    CHECK(detail::current_word("none", word.old) == word.old);
    bool taken = false;
    for (const config::KeySpec* spec : config::all_keys()) {
      if (spec->key != word.key || spec->type != &config::kChoice) continue;
      const std::vector<std::string> names = spec->choices();
      CHECK(std::count(names.begin(), names.end(), word.now) == 1);
      CHECK(std::count(names.begin(), names.end(), word.old) == 0);
      taken = true;
    }
    CHECK(taken);
  }
}

TEST_CASE("old words are read as the new ones in files, overrides, layers, rules and phases") {
  const std::string keys = R"(  compute: packed
  rules:
    - {layers: layers.2, recipe: w8a8, compute: simulated}
    - {layers: layers.4, recipe: w8a8, compute: packed}
)";
  const RunConfig now = parse_config(with_quant(keys), "c.yaml");
  std::string old = replaced_all(keys, "compute: packed", "compute: int");
  old = replaced_all(old, "compute: simulated", "compute: \"fake\"");
  const RunConfig same = parse_config(with_quant(old), "c.yaml");
  CHECK(same == now);
  CHECK(to_yaml(same) == to_yaml(now));
  CHECK(contains(to_yaml(same), "compute: simulated"));
  CHECK(!contains(to_yaml(same), "fake"));
  CHECK(config_differences(same, now).empty());
  const std::vector<std::string> layer{"quant.weights={dtype: int8}", "model.layers.2.linear.compute="};
  const auto with = [](std::vector<std::string> overrides, const std::string& word) {
    overrides.back() += word;
    return parse_config(kFloat, "c.yaml", overrides);
  };
  CHECK(with(layer, "fake") == with(layer, "simulated"));
  CHECK(!(with(layer, "fake") == with(layer, "packed")));
  const std::vector<std::string> phase{
      "quant.phases=[{from: 0 steps, quantization: off}, {from: 3 steps, rules: [{layers: layers.2, recipe: w8a8, "
      "compute: "};
  CHECK(with(phase, "fake}]}]") == with(phase, "simulated}]}]"));
  const std::vector<std::string> input{
      "quant.activations={dtype: int8, scheme: symmetric}",
      "model.layers=[{quantize: {}}, {linear: {out: 10, weights: {dtype: int8}, bias: false, compute: "};
  const std::string end = "}}, {dequantize: {}}]";
  CHECK(with(input, "integer" + end) == with(input, "integer_out" + end));
}

TEST_CASE("a message names the new words alone, and so do the words that a program sets") {
  CHECK(contains(text_error(with_quant("  compute: floats\n")),
                 "quant.compute: got 'floats', expected one of packed, simulated, integer_out"));
  RunConfig config = parse_config(kFloat, "c.yaml");
  RunConfig old = config;
  config.quant.compute = config.layers[2].compute = "simulated";
  old.quant.compute = old.layers[2].compute = "fake";
  CHECK(to_yaml(old) == to_yaml(config));
  CHECK(parse_config(to_yaml(old), "again.yaml") == config);
}

TEST_CASE("a run notes the old words of its file and its overrides in one line") {
  using Lines = std::vector<std::string>;
  CHECK(notes_of(small_config(kShort)).empty());
  CHECK(notes_of(small_config(short_run({"quant.compute=simulated"}))).empty());
  CHECK(notes_of(small_config(short_run({"quant.compute=fake"}))) ==
        Lines{"compute: 'fake' is now called 'simulated'; both are accepted"});
  const std::string text = replaced_all(kSmallTfc, "quant:\n", "quant:\n  compute: fake\n");
  CHECK(notes_of(small_config(kShort, text.c_str())) ==
        Lines{"compute: 'fake' is now called 'simulated'; both are accepted"});
  CHECK(notes_of(small_config(short_run({"model.layers.2.linear.compute=fake"}), text.c_str())) ==
        Lines{"compute: 'fake' is now called 'simulated'; both are accepted"});
  CHECK(notes_of(small_config(short_run({"model.layers.2.linear.compute=int"}), text.c_str())) ==
        Lines{"compute: 'int' is now called 'packed', compute: 'fake' is now called 'simulated'; all are accepted"});
  // An override that takes the place of an old word leaves nothing to note.
  CHECK(notes_of(small_config(short_run({"quant.compute=simulated"}), text.c_str())).empty());
}

TEST_CASE("a run goes on from a checkpoint and a folder with old words, to the same bits and without a note") {
  TempDir temp;
  const RunConfig config = small_config({"quant.compute=fake"});
  const std::string unbroken = run_all(config).state_hash;
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 7);
  const std::string now = text_of(folder + "/config.yaml");
  write_file_atomically(folder + "/config.yaml", replaced_all(now, "compute: simulated", "compute: fake"));
  CheckpointHeader saved = read_checkpoint_header(run_folder_checkpoint(folder));
  saved.config = replaced_all(saved.config, "compute: simulated", "compute: fake");
  LogLines log;
  const RunConfig resumed = resumed_config(folder, saved, {});
  CHECK(resumed == small_config({"quant.compute=simulated"}));
  CHECK(run_folder_config(folder, {}) == resumed);
  Trainer trainer(resumed);
  trainer.resume(run_folder_checkpoint(folder));
  CHECK(trainer.run(folder).state_hash == unbroken);
  for (const std::string& line : log.lines) CHECK(!contains(line, "is now called"));
  CHECK(log.warnings.empty());
}

TEST_CASE("a model record with old words is that with the new ones") {
  Trainer trainer(small_config(short_run({"quant.compute=fake"})));
  trainer.run("");
  const std::string text = to_text(*model_record(trainer.learner()));
  CHECK(contains(text, "\"simulated\""));
  const std::string old = replaced_all(text, "\"compute\":\"simulated\"", "\"compute\":\"fake\"");
  CHECK(to_text(parse_model_record(old)) == text);
  CHECK(contains(
      error_of([&] { parse_model_record(replaced_all(text, "\"compute\":\"simulated\"", "\"compute\":\"floats\"")); }),
      "compute: got 'floats', which this program does not know"));
}
