// The small networks of promises.inc, and a folder with what they train on.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "support/expect_error.h"
#include "support/npy_bytes.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/image_networks.h"
#include "train/language_networks.h"
#include "train/small_runs.h"

namespace bitgrad::test {

// 4 numbers and a category on 48 rows: an epoch of 4.8 steps.
inline constexpr const char* kTableNet = R"yaml(version: 1
data:
  train: {format: csv, file: train.csv, target: sign, ignore: z}
  test: {format: csv, file: test.csv, target: sign, ignore: z}
model:
  layers:
    - linear: {out: 20}
    - batch_norm: {}
    - relu: {}
    - dropout: {p: 0.2}
    - linear: {out: 9}
    - relu: {}
    - linear: {out: 2}
batch: {global: 10}
optim: {name: adam, lr: 0.02}
train: {stop: 6 steps, eval: {every: 2 steps, batch: 8}}
)yaml";

// Rows and widths that every kernel cuts into pieces for several threads.
inline constexpr const char* kWideNet = R"yaml(version: 1
data:
  train: {format: csv, file: train.csv, target: sign, ignore: z}
  test: {format: csv, file: test.csv, target: sign, ignore: z}
model:
  layers:
    - linear: {out: 260}
    - batch_norm: {}
    - relu: {}
    - dropout: {p: 0.1}
    - linear: {out: 140}
    - layer_norm: {}
    - relu: {}
    - linear: {out: 2}
batch: {global: 140}
optim: {name: adam, lr: 0.01}
train: {stop: 3 steps, eval: {every: 2 steps, batch: 20}}
)yaml";

// Values for two targets, by blocks, residuals and branches.
inline constexpr const char* kValuesNet = R"yaml(version: 1
data:
  train: {format: csv, file: train.csv, target: z, target_is: values, ignore: sign, transforms: [{noise: {sd: 0.1}}]}
  test: {format: csv, file: test.csv, target: z, target_is: values, ignore: sign}
model:
  blocks:
    dense: {keys: {c: required}, layers: [{linear: {out: $c}}, {tanh: {}}]}
    unit: {keys: {p: 0.1}, layers: [{residual: {body: [{dense: {c: 12}}, {dropout: {p: $p}}]}}]}
  layers:
    - branches: {join: concat, layers: [[{dense: {c: 7}}], [{linear: {out: 5}}, {sigmoid: {}}]]}
    - repeat: {times: 2, layers: [{unit: {p: 0.3}}]}
    - linear: {out: 1}
loss: mean_squared_error
batch: {global: 10}
optim: {name: sgd, lr: 0.05, momentum: 0.9}
train: {stop: 6 steps, eval: {every: 2 steps, batch: 8}}
)yaml";

// Bytes that a context predicts, windows across epochs.
inline constexpr const char* kTextNet = R"yaml(version: 1
data:
  train: {format: text, file: text.txt, context: 4, test_fraction: 0.18}
  test: {format: text, file: text.txt, context: 4, test_fraction: 0.18}
model:
  layers:
    - embedding: {num: 30, dim: 5}
    - linear: {out: 12}
    - relu: {}
    - linear: {out: 25}
quant:
  weights: {dtype: int4, scheme: symmetric, granularity: group(4), rounding: stochastic}
batch: {global: 9}
optim: {name: adam, lr: 0.01}
train: {stop: 12 steps}
)yaml";

// The next id at every position of a window, by a gated layer and a head on the table.
inline constexpr const char* kTokensNet = R"yaml(version: 1
data:
  tokenizer: chars
  train: {format: tokens, file: tokens.txt, context: 6, order: random}
  test: {format: tokens, file: tokens.txt, context: 6}
model:
  layers:
    - embedding: {num: 26, dim: 8, flat: false}
    - residual: {body: [{rms_norm: {}}, {linear: {out: 24, bias: false}}, {swiglu: {}}, {linear: {out: 8}}]}
    - layer_norm: {bias: false}
    - head: {tie: layers.0}
quant:
  weights: {dtype: int8, scheme: absmax, granularity: channel}
batch: {global: 4, micro: 2}
optim: {name: adamw, lr: 0.01}
train: {stop: 5 steps, eval: {every: 3 steps, batch: 3}}
)yaml";

// The network of twins.inc: nothing in it depends on what else is in a microbatch.
inline constexpr const char* kTwinNet = R"yaml(version: 1
data:
  train: {format: csv, file: train.csv, target: sign, ignore: z}
  test: {format: csv, file: test.csv, target: sign, ignore: z}
model:
  layers:
    - linear: {out: 20}
    - hardtanh: {}
    - linear: {out: 9}
    - relu: {}
    - linear: {out: 2}
batch: {global: 10, sum: tree}
optim: {name: adam, lr: 0.02}
train: {stop: 7 steps, eval: {every: 2 steps, batch: 8}}
)yaml";

class PromiseFolder {
 public:
  PromiseFolder() {
    write("train.csv", table(0, 48));
    write("test.csv", table(100, 21));
    write("many.csv", table(200, 300));
    write("text.txt",
          "no plan survives contact with the enemy; no text survives contact with a reader, who is 1 of many.");
    write("tokens.txt",
          "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows "
          "of outrageous fortune, or to take arms against a sea of troubles, and by opposing end them. to die, to "
          "sleep, no more.");
    write("chat.jsonl", conversations());
    for (const auto& [name, rows] : {std::pair{"train", table(0, 48)}, {"test", table(100, 21)}}) {
      write(concat("gaps_", name, ".csv"), with_gaps(rows));
      write_arrays(name, rows);
    }
    NpyBytes ids;
    for (uint64_t i = 0; i < 90; ++i) put(ids, i * i * 7 % 480, 2);
    write("ids.bin", ids);
    std::filesystem::copy_file(source_path("tests/golden/tokenizers/gpt2.json"), file("words.json"));
    // What model.init_from=$FLOATS begins with: kTableNet in fp32 after two steps.
    const RunConfig floats = config("table", {"train.stop=2 steps", "log.report=false"});
    const std::string folder = start_run_folder(floats, file("floats")).path;
    run_all(floats, folder);
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  // `net`: table, twin, wide, values, text, tokens, tfc, int4, gpt, llama, or the name of an ImageNetwork. $FLOATS in
  // keys: a run folder of net table.
  RunConfig config(const std::string& net, std::vector<std::string> keys) const {
    for (std::string& key : keys)
      if (const size_t at = key.find("$FLOATS"); at != std::string::npos) key.replace(at, 7, file("floats"));
    const bool again = std::erase(keys, "recompute") > 0;
    if (net == "gpt" || net == "llama") return text_.config(net == "gpt" ? kSmallGptModel : kSmallLlama, keys, again);
    for (const ImageNetwork& image : {kCnvNet, kIrNet, kLsqNet, kDepthwiseNet})
      if (net == image.name) return images_.config(image, keys);
    static const std::map<std::string, const char*> texts = {
        {"table", kTableNet}, {"twin", kTwinNet}, {"wide", kWideNet},     {"values", kValuesNet},
        {"text", kTextNet},   {"tfc", kSmallTfc}, {"tokens", kTokensNet}, {"int4", kSmallInt4}};
    keys.insert(keys.begin(), "data.root=" + folder_.path());
    return parse_config(texts.at(net), net + ".yaml", keys);
  }

 private:
  static std::string table(int first, int rows) {
    std::string text = "a,b,c,d,e,z,sign\n";
    for (int i = first; i < first + rows; ++i) {
      const double a = std::sin(i * 0.7), b = std::cos(i * 1.3);
      const double z = (2 * a - b) * (i % 3 != 0 ? 1 : -1);
      text += concat(a, ',', b, ',', i % 3 != 0 ? "up" : "down", ',', a * b, ',', 0.1 * (i % 11), ',', z, ',',
                     z > 0 ? "plus" : "minus", '\n');
    }
    return text;
  }
  // Conversations of one to three turns, in letters of tokens.txt and the marks of zephyr's table.
  static std::string conversations() {
    const std::vector<std::string> words{"to be", "or not", "that is the question", "no more", "suffer", "sleep"};
    std::string text;
    for (size_t i = 0; i < 17; ++i) {
      text += "{\"messages\": [";
      for (size_t turn = 0; turn <= i % 3; ++turn)
        text += concat(turn > 0 ? ", " : "", "{\"role\": \"user\", \"content\": \"", words[(i + turn) % 6],
                       "\"}, {\"role\": \"assistant\", \"content\": \"", words[(i * i + 3 * turn) % 6], "\"}");
      text += "]}\n";
    }
    return text;
  }
  // The same table as a spreadsheet writes it where the decimal mark is a comma, with gaps.
  static std::string with_gaps(std::string table) {
    for (char& c : table) c = c == ',' ? ';' : c == '.' ? ',' : c;
    std::string text;
    std::istringstream lines(table);
    for (int i = 0; std::getline(lines, table); ++i)
      text += (i % 5 != 2 ? table : "NA" + table.substr(table.find(';'))) + '\n';
    return text;
  }
  // The same table as arrays: NAME.rows.npy of the columns a, b, d, and NAME.signs.npy of the names of its classes.
  void write_arrays(const std::string& name, const std::string& table) const {
    std::istringstream lines(table);
    std::string line;
    std::getline(lines, line);
    std::vector<float> values;
    NpyBytes names;
    for (; std::getline(lines, line);) {
      std::istringstream cells(line);
      std::string cell;
      for (int c = 0; std::getline(cells, cell, ','); ++c)
        if (c == 0 || c == 1 || c == 3) values.push_back(std::stof(cell));
      cell.resize(5);
      for (const char c : cell) put(names, static_cast<uint8_t>(c), 4);
    }
    const size_t n = values.size() / 3;
    write(name + ".rows.npy", npy("<f4", concat('(', n, ", 3)"), bytes_of(values)));
    write(name + ".signs.npy", npy("<U5", concat('(', n, ",)"), names));
  }
  void write(const std::string& name, const NpyBytes& bytes) const {
    write(name, std::string(bytes.begin(), bytes.end()));
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(file(name)) << text; }
  TempDir folder_{memory_or_disk()};
  ImageFolder images_;
  LanguageFolder text_;
};

}  // namespace bitgrad::test
