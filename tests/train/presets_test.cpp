// model.preset: files of networks with keys, shipped or a user's; expansion, what a configuration keeps of its own,
// places of errors, round trips.
#include "bitgrad/config/presets.h"

#include <filesystem>
#include <fstream>

#include "bitgrad/config/config.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kHead = "version: 1\ndata: {train: {format: digits, size: 40}, test: {format: digits, size: 20}}\n";
const std::string kTail = "batch: {global: 20}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 4 steps}\n";

std::string yaml(const std::string& middle) { return kHead + middle + kTail; }
std::string refused(const std::string& middle, const std::vector<std::string>& overrides = {}) {
  return error_of([&] { parse_config(yaml(middle), "small.yaml", overrides); });
}

const std::string kNet =
    "keys: {classes: required, width: 8, p: 0.1}\n"
    "blocks:\n"
    "  unit: {keys: {c: required, p: required}, layers: [{linear: {out: $c}}, {relu: {}}, {dropout: {p: $p}}]}\n"
    "layers:\n"
    "  - unit: {c: $width, p: $p}\n"
    "  - repeat: {times: 2, layers: [{unit: {c: $width*3, p: 0}}]}\n"
    "  - linear: {out: $classes}\n"
    "quant:\n"
    "  weights: {dtype: int8, scheme: absmax, granularity: channel}\n"
    "  backward: {gw: bf16}\n"
    "loss: squared_hinge\n";

// A folder with net.yaml and a configuration that names it.
struct Files {
  TempDir temp;
  std::string net = temp.file("net.yaml"), config = temp.file("run.yaml");
  explicit Files(const std::string& text = kNet) { write(net, text); }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  RunConfig parsed(const std::string& middle, const std::vector<std::string>& overrides = {}) const {
    return parse_config(yaml(middle), config, overrides);
  }
  std::string refused(const std::string& middle, const std::vector<std::string>& overrides = {}) const {
    return error_of([&] { parsed(middle, overrides); });
  }
};
const std::string kUse = "model: {preset: net.yaml, keys: {classes: 10, width: 12}}\n";

}  // namespace

TEST_CASE("a preset expands to its layers, quant and loss, with the keys of the configuration") {
  const Files files;
  const RunConfig c = files.parsed(kUse);
  const RunConfig by_hand =
      parse_config(yaml("model:\n"
                        "  layers:\n"
                        "    - sequence: {layers: [{linear: {out: 12}}, {relu: {}}, {dropout: {p: 0.1}}]}\n"
                        "    - repeat: {times: 2, layers: [{sequence: {layers: [{linear: {out: 36}}, {relu: {}}, "
                        "{dropout: {p: 0}}]}}]}\n"
                        "    - linear: {out: 10}\n"
                        "quant: {weights: {dtype: int8, scheme: absmax, granularity: channel}, backward: {gw: bf16}}\n"
                        "loss: squared_hinge\n"),
                   files.config);
  CHECK(to_yaml(c) == to_yaml(by_hand));
  CHECK(c == by_hand);
}

TEST_CASE("what is written of a configuration with a preset needs no file of the preset") {
  const auto files = std::make_unique<Files>();
  const RunConfig c = files->parsed(kUse);
  std::filesystem::remove(files->net);
  const std::string written = to_yaml(c);
  CHECK(!contains(written, "preset"));
  const RunConfig again = parse_config(written, files->config);
  CHECK(again == c);
  CHECK(to_yaml(again) == written);
}

TEST_CASE("a key of quant and the loss are the configuration's own where it has them") {
  const Files files;
  const RunConfig own = files.parsed(kUse +
                                     "quant: {weights: {dtype: int4, scheme: symmetric}}\n"
                                     "loss: softmax_cross_entropy\n");
  CHECK(own.quant.weights.quant->dtype == dtypes::int4);
  CHECK(own.quant.weights.quant->granularity == Granularity::tensor());  // nothing of the preset's map
  CHECK(own.quant.product.gw == ProductMode::kBf16);
  CHECK(own.loss == "softmax_cross_entropy");
  CHECK(files.parsed(kUse + "quant:\n").quant.weights.quant->dtype == dtypes::int8);
  CHECK(files.parsed(kUse, {"quant.weights={dtype: int2}"}).quant.weights.quant->dtype == dtypes::int2);
}

TEST_CASE("the command line names presets and their keys") {
  const Files files;
  const RunConfig c = files.parsed(kUse, {"model.keys.width=5", "model.keys.p=0.5"});
  CHECK(c.layers[0].lists.at(0).layers.at(0).attributes.integer("out") == 5);
  CHECK(c.layers[0].lists.at(0).layers.at(2).attributes.number("p") == 0.5);
  const std::string path = concat("model.preset=", files.net);
  CHECK(files.parsed("model: {preset: nothing, keys: {classes: 10, width: 12}}\n", {path}) == files.parsed(kUse));
}

TEST_CASE("every shipped preset has a summary, and finn_mlp trains") {
  const std::vector<ModelPreset>& all = model_presets();
  REQUIRE(!all.empty());
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(all[i].name);
    CHECK(!all[i].summary.empty());
    CHECK(all[i].keys.at(0).first == (contains(all[i].text, "embedding:") ? "vocabulary" : "classes"));
    if (all[i].name == "resnet20_irnet")
      CHECK(all[i].keys.at(2) == std::pair<std::string, std::string>("input", "{quantize: {}}"));
    CHECK((i == 0 || all[i - 1].name < all[i].name));
    std::ifstream file(concat(source_path("presets/"), all[i].name, ".yaml"));
    CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == all[i].text);
  }
  const KeepModes keep;
  const RunConfig c = parse_config(yaml("model: {preset: finn_mlp, keys: {width: 16}}\n"), "small.yaml",
                                   {"run.bits=strict", "checkpoint.every=2 steps"});
  CHECK(c.loss == "squared_hinge");
  CHECK(c.quant.weights.quant->dtype == dtypes::bint1);
  TempDir temp;
  const std::string folder = create_run_folder(c, temp.file("run"));
  const TrainOutcome outcome = run_all(c, folder);
  // A run goes on from what its folder holds.
  const RunConfig resumed = run_folder_config(folder);
  CHECK(resumed == c);
  CHECK(run_all(resumed, create_run_folder(resumed, temp.file("again"))).state_hash == outcome.state_hash);
}

TEST_CASE("presets and keys that do not fit are errors that name what is known") {
  const std::string unknown = refused("model: {preset: fin_mlp}\n");
  CHECK(contains(unknown,
                 "small.yaml:3:17: error: model.preset: unknown preset 'fin_mlp'. Did you mean 'finn_mlp'? Known: "));
  CHECK(contains(unknown, "finn_mlp"));
  CHECK(contains(unknown, "The path of a file has a '/' or ends in .yaml"));
  CHECK(contains(refused("model: {preset: [finn_mlp]}\n"),
                 "model.preset: got a list, expected the name of a preset or the path of its file"));
  CHECK(contains(
      refused("model: {preset: finn_mlp, keys: {widht: 3}}\n"),
      "small.yaml:3:34: error: unknown key 'widht' of preset 'finn_mlp'. Did you mean 'width'? Known: classes, "
      "width, dropout"));
  CHECK(contains(refused("model: {preset: finn_mlp, keys: 3}\n"),
                 "model.keys: got '3', expected a map with the keys of the preset: classes, width, dropout"));
  CHECK(contains(
      refused("model: {preset: finn_mlp, layers: [{linear: {out: 10}}]}\n"),
      "small.yaml:3:27: error: model.layers and model.preset exclude each other: the preset has the layers. To "
      "change them, copy its file (bitgrad presets NAME) and name the copy: preset: ./my_net.yaml"));
  CHECK(contains(refused("model: {preset: finn_mlp}\n", {"model.layers=[{linear: {out: 10}}]"}),
                 "command line, argument 1: error: model.layers and model.preset exclude each other"));
  CHECK(
      contains(refused("model: {blocks: {}, preset: finn_mlp}\n"), "model.blocks and model.preset exclude each other"));
  CHECK(contains(refused("model: {keys: {width: 3}, layers: [{linear: {out: 10}}]}\n"),
                 "model.keys are those of model.preset, which is not set"));
  CHECK(contains(refused("model: {preset: finn_mlp, preset: finn_mlp}\n"), "duplicate key 'preset'"));
  CHECK(contains(refused("model: {presett: finn_mlp}\n"), "unknown key 'presett' in 'model'. Did you mean 'preset'?"));
  CHECK(contains(refused("model: {presett: finn_mlp}\n"), "1 error."));
  CHECK(contains(refused("model: {values: fp32}\n"), "missing required key 'model.layers'"));
  CHECK(contains(refused("model: {preset: ./absent.yaml}\n"), "model.preset: the file cannot be read: "));
  CHECK(contains(refused("model: {preset: ./}\n"), "is a folder, not a file of a preset"));
  const ConfigSource of_model{.plugins = ConfigSource::Plugins::kLoaded};
  CHECK(contains(error_of([&] { parse_config(yaml("model: {preset: ./net.yaml}\n"), "m.safetensors", {}, of_model); }),
                 "'./net.yaml' is a file, and a file of a model names no other file"));
}

TEST_CASE("what is wrong in a user's preset is said there, with the place that names it") {
  const auto with = [](const std::string& from, const std::string& to, const std::string& keys = "classes: 10") {
    std::string text = kNet;
    text.replace(text.find(from), from.size(), to);
    const Files files(text);
    return files.refused("model:\n  preset: net.yaml\n  keys: {" + keys + "}\n");
  };
  const std::string range = with("times: 2", "times: 0");
  CHECK(contains(range,
                 "net.yaml:6:21: error: model.layers.1.repeat.times: 0 is out of range [1, 4096] (in preset "
                 "'net.yaml', used at 4:11)"));
  CHECK(contains(range, "  6 |   - repeat: {times: 0, layers:"));
  const std::string inside = with("linear: {out: $c}", "linear: {ot: $c}");
  CHECK(contains(inside, "net.yaml:3:63: error: unknown key 'ot'"));
  CHECK(contains(inside, "(in block 'unit', used at "));
  CHECK(contains(inside, "net.yaml:5:5, in preset 'net.yaml', used at 4:11)"));
  // A value of the configuration is shown there.
  CHECK(
      contains(with("dtype: int8", "dtype: int8", "classes: 10, p: 2"),
               "run.yaml:5:26: error: model.layers.0.sequence.layers.2.dropout.p: 2 is out of range [0, 1) (in block"));
  CHECK(contains(with("scheme: absmax", "scheme: binary"), "net.yaml:9:"));
  CHECK(contains(with("loss: squared_hinge", "loss: hinge"), "net.yaml:11:7: error: loss: got 'hinge'"));
  CHECK(
      contains(with("loss:", "los:"),
               "net.yaml:11:1: error: unknown key 'los' of a preset. Did you mean 'loss'? Known: keys, blocks, layers, "
               "quant, loss"));
  CHECK(contains(with("$width*3", "$width*x"),
                 "'$width*x': expected $key, or products of keys and whole numbers from 1"));
  CHECK(contains(with("$width*3", "$widht"), "net.yaml:6:44: error: '$widht': preset 'net.yaml' has no such key"));
  CHECK(contains(with("$width*3", "$width*3", "classes: 10, width: wide"),
                 "run.yaml:5:30: error: width: got 'wide', expected a whole number, for $width*3 uses it"));
  const std::string six = error_of([] {
    parse_config(
        "version: 1\ndata: {train: {format: digits, size: 9}}\nmodel: {preset: cnv, keys: {width: x}}\n"
        "optim: {name: adam, lr: 0.01}\ntrain: {stop: 1 steps}\n",
        "c.yaml");
  });
  CHECK(contains(six, "c.yaml:3:36: error: width: got 'x', expected a whole number, for $width*2 uses it"));
  CHECK(contains(six, "\n1 error. Nothing was started."));  // said once, though six layers use it
  CHECK(contains(with("$width*3", "$width*9223372036854775807"), "width: got '8', expected a whole number"));
  CHECK(contains(with("out: $classes", "out: $c"), "'$c': preset 'net.yaml' has no such key"));
  CHECK(contains(with("width: 8", "width: 8", "width: 3"),
                 "run.yaml:5:3: error: preset 'net.yaml' needs the key 'classes'"));
  CHECK(contains(with("layers:\n", "layers: 3\nx:\n"), "layers of a preset: got '3', expected a list of layers"));
  CHECK(contains(with("keys: {classes: required, width: 8, p: 0.1}", "keys: 3"),
                 "keys of a preset: got '3', expected a map"));
  CHECK(contains(with("loss: squared_hinge", "layers: []"), "duplicate key 'layers'"));
  CHECK(contains(with("loss:", "\tloss:"), "net.yaml:11:1: error: a tab as indentation"));
  CHECK(
      contains(Files("").refused(kUse), "net.yaml:1:1: error: a preset: got nothing, expected {keys: {...}, blocks:"));
}

TEST_CASE("what does not fit the data is said in the preset too") {
  const Files files("layers: [{linear: {out: 8}}, {residual: {body: [{linear: {out: 9}}]}}, {linear: {out: 10}}]\n");
  const RunConfig c = files.parsed("model: {preset: ./net.yaml}\n");
  const std::string shape = error_of([&] { build_learner(c, {.sample = {784}}, 10, 40); });
  CHECK(contains(shape, "net.yaml:1:31: error: "));
  CHECK(contains(shape, "(in preset './net.yaml', used at 3:17)"));
}

TEST_CASE("$key*N is N times a whole number, in blocks too") {
  const RunConfig c = parse_config(yaml("model:\n"
                                        "  blocks:\n"
                                        "    two: {keys: {c: 4}, layers: [{linear: {out: $c*3}}, {one: {c: $c*2}}]}\n"
                                        "    one: {keys: {c: required}, layers: [{linear: {out: $c*1}}]}\n"
                                        "  layers: [{two: {}}, {two: {c: 5}}, {linear: {out: 10}}]\n"),
                                   "small.yaml");
  const auto out = [&](size_t layer) {
    const std::vector<LayerSpec>& layers = c.layers[layer].lists.at(0).layers;
    return std::pair(layers.at(0).attributes.integer("out"),
                     layers.at(1).lists.at(0).layers.at(0).attributes.integer("out"));
  };
  CHECK(out(0) == std::pair<int64_t, int64_t>(12, 8));
  CHECK(out(1) == std::pair<int64_t, int64_t>(15, 10));
}

TEST_CASE("defaults of keys are sums of products and quotients of other keys, unless they are given") {
  const auto out = [](const std::string& keys) {
    const Files files("keys: {a: 6, b: 2, c: $a/$b + 1, d: 2}\nlayers: [{linear: {out: $c*$d}}]\n");
    return files.parsed("model: {preset: net.yaml, keys: {" + keys + "}}\n").layers[0].attributes.integer("out");
  };
  CHECK(out("") == 8);
  CHECK(out("a: 10, d: 3") == 18);
  CHECK(out("a: 7, c: 5") == 10);  // 7 / 2 is not asked for
  const auto refused = [](const std::string& standard, const std::string& keys) {
    const Files files(concat("keys: {a: 6, b: 2, c: ", standard, "}\nlayers: [{linear: {out: $c}}]\n"));
    return files.refused("model: {preset: net.yaml, keys: {" + keys + "}}\n");
  };
  CHECK(contains(refused("$a/$b", "a: 7"), "net.yaml:1:23: error: $a/$b: 7 / 2, not a whole number"));
  CHECK(contains(refused("$a/$x", ""), "'$a/$x': preset 'net.yaml' has no such key"));
  CHECK(contains(refused("$a/$b", "a: [1]"), "expected a whole number, for $a/$b uses it"));
}

TEST_CASE("values are sums of products and quotients of keys and whole numbers") {
  const auto out = [](const std::string& expression, const std::string& keys) {
    const Files files(concat("keys: {a: 6, b: 4, c-d: 2}\nlayers: [{linear: {out: ", expression, "}}]\n"));
    return files.parsed("model: {preset: net.yaml, keys: {" + keys + "}}\n").layers[0].attributes.integer("out");
  };
  CHECK(out("$a + 2*$b", "") == 14);
  CHECK(out("2*$a", "a: 7") == 14);
  CHECK(out("$a+2*$a*$c-d/$b", "a: 8") == 16);  // rows of q, k and v: dim + 2 * dim * kv_heads / heads
  CHECK(out("$a/2*$b + 1", "") == 13);
  const auto refused = [](const std::string& expression, const std::string& keys = "a: 6") {
    const Files files(
        concat("keys: {a: 6, b: 4, big: 9223372036854775807}\nlayers: [{linear: {out: ", expression, "}}]\n"));
    return files.refused("model: {preset: net.yaml, keys: {" + keys + "}}\n");
  };
  CHECK(contains(refused("$a/$b"), "net.yaml:2:25: error: $a/$b: 6 / 4, not a whole number"));
  CHECK(contains(refused("$b/$a", "a: 0"), "$b/$a: 4 / 0, not a whole number"));
  CHECK(contains(refused("$a*", "a: 6"), "'$a*': expected $key, or products of keys and whole numbers from 1"));
  CHECK(contains(refused("$a*0"), "'$a*0': expected $key, or products"));
  CHECK(contains(refused("$a % 2"), "'$a % 2': expected $key, or products"));
  CHECK(contains(refused("2*$x + $a"), "'2*$x + $a': preset 'net.yaml' has no such key"));
  CHECK(contains(refused("$a + $b*2", "b: [4]"), "b: got a list, expected a whole number, for $a + $b*2 uses it"));
  CHECK(contains(refused("$a + $big"), "big: got '9223372036854775807', expected a whole number"));
}

TEST_CASE("a key that holds a list of layers expands to them in a list of layers, in containers and blocks too") {
  const Files files(
      "keys: {some: [], more: [{relu: {}}, {dropout: {p: 0.5}}], one: {tanh: {}}, path: [{relu: {}}]}\n"
      "blocks: {unit: {keys: {inner: []}, layers: [{linear: {out: 6}}, $inner, {residual: {body: [$inner, {relu: "
      "{}}]}}]}}\n"
      "layers: [$some, {unit: {inner: $more}}, {unit: {}}, {branches: {layers: [$path, [{relu: {}}, $more]], join: "
      "add}}, $one, {linear: {out: 10}}]\n");
  const RunConfig by_hand = files.parsed(
      "model:\n"
      "  layers:\n"
      "    - sequence: {layers: [{linear: {out: 6}}, {relu: {}}, {dropout: {p: 0.5}},\n"
      "        {residual: {body: [{relu: {}}, {dropout: {p: 0.5}}, {relu: {}}]}}]}\n"
      "    - sequence: {layers: [{linear: {out: 6}}, {residual: {body: [{relu: {}}]}}]}\n"
      "    - branches: {layers: [[{relu: {}}], [{relu: {}}, {relu: {}}, {dropout: {p: 0.5}}]], join: add}\n"
      "    - tanh: {}\n"
      "    - linear: {out: 10}\n");
  CHECK(to_yaml(files.parsed("model: {preset: net.yaml}\n")) == to_yaml(by_hand));
  CHECK(contains(files.refused("model: {preset: net.yaml, keys: {more: [{rely: {}}]}}\n"),
                 "unknown layer kind 'rely' in 'model.layers."));
}
