// Plugins as people use them: the example's run, from training to the converted file, and every way in which a library
// is no good.
#include "bitgrad/config/plugin.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <regex>
#include <set>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/bitgrad.h"
#include "bitgrad/task/metric.h"
#include "config/schema.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kRings = build_path("bin/rings_plugin.so");
std::string library(const std::string& name) { return concat(build_path("bin/tests/libraries/"), name, ".so"); }

ProcessResult good(const std::vector<std::string>& arguments) {
  ProcessResult r = cli(arguments);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return r;
}
ProcessResult refused(const std::vector<std::string>& arguments, int code = 2) {
  ProcessResult r = cli(arguments);
  INFO(r.out << r.err);
  REQUIRE(r.code == code);
  return r;
}
std::string text_of_rings() { return slurp(source_path("apps/examples/plugin/rings.yaml")); }

// rings.yaml with the plugin beside it, in a folder that can be moved.
struct Folder {
  TempDir temp;
  const std::string config = temp.file("rings.yaml"), plugin = temp.file("rings_plugin.so"), run = temp.file("run");
  Folder() {
    write_file_atomically(config, text_of_rings());
    std::filesystem::copy_file(kRings, plugin);
  }
  std::vector<std::string> train(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"train", config, "--out", run});
    return more;
  }
};

Json eval_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "eval");
  arguments.emplace_back("--json");
  return Json::parse(good(arguments).out);
}
Json json_of(const std::string& path) { return Json::parse(slurp(path)); }

// What this process reads: rings.yaml with the plugin that it has loaded.
RunConfig parsed(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), concat("plugins=[", kRings, ']'));
  return parse_config(text_of_rings(), "rings.yaml", overrides);
}
std::string mistake(const std::vector<std::string>& overrides) {
  return error_of([&] { parsed(overrides); });
}
std::string not_loaded(const std::string& name) {
  return error_of([&] { load_plugin(library(name)); });
}

}  // namespace

TEST_CASE("The example trains, is evaluated, inspected, converted and compared with what its plugin gives") {
  const Folder f;
  const ProcessResult trained = good(f.train());
  CHECK(contains(trained.out, "sure_accuracy on the packed weights: "));
  const Json summary = json_of(f.run + "/summary.json");
  CHECK(summary.at("metric") == "sure_accuracy");
  const Json e = eval_of({f.run, "--plugin", f.plugin});
  CHECK(e.at("accuracy").get<double>() > 85);
  CHECK(e.at("sure_accuracy").get<double>() > 50);
  CHECK(e.at("sure_accuracy").get<double>() <= e.at("accuracy").get<double>());
  CHECK(e.at("sure_accuracy") == summary.at("last_value"));
  CHECK(contains(slurp(f.run + "/metrics.jsonl"), "\"sure_accuracy\":"));
  // A lower bar counts more samples; the key comes from the configuration.
  CHECK(eval_of({f.run, "--plugin", f.plugin, "train.metrics.sure_accuracy.probability=0.01"})
            .at("sure_accuracy")
            .get<double>() >= e.at("accuracy").get<double>());
  CHECK(eval_of({f.run, "--plugin", f.plugin, "loss={smoothed_cross_entropy: {smoothing: 0.5}}"})
            .at("loss")
            .get<double>() > e.at("loss").get<double>() + 0.1);
  CHECK(contains(good({"inspect", f.run, "--plugin", f.plugin}).out, "int4 quantile_clip"));

  const std::string model = f.temp.file("model.safetensors");
  CHECK(
      contains(good({"convert", f.run, "-o", model, "--check", "--plugin", f.plugin}).out, "logits equal bit for bit"));
  CHECK(contains(good({"diff", f.run, model, "--plugin", f.plugin}).out, "output max_abs_difference: 0\n"));
}

TEST_CASE("A run that was cut ends with the bits of one that was not, and a run folder may move with its plugin") {
  const Folder f;
  good(f.train());
  const std::string full = json_of(f.run + "/summary.json").at("state_hash").text();
  const std::string first = f.temp.file("first"), moved = f.temp.file("moved");
  good({"train", f.config, "--out", first, "train.stop=3 epochs", "schedule.name=constant"});
  CHECK(json_of(first + "/summary.json").at("state_hash").text() != full);
  std::string yaml = slurp(first + "/config.yaml");
  CHECK(contains(yaml, "plugins: [" + f.plugin + "]\n"));
  yaml.replace(yaml.find("stop: 3 epochs"), 14, "stop: 6 epochs");
  write_file_atomically(first + "/config.yaml", yaml);
  good({"train", "--resume", first, "--use-config", "--plugin", f.plugin});
  CHECK(json_of(first + "/summary.json").at("state_hash").text() == full);
  good({"train", "--resume", first, "--plugin", f.plugin});  // it has ended: nothing is left to do

  // The folder names the plugin, and does not load it: --plugin does, wherever it is now.
  std::filesystem::rename(f.plugin, f.temp.file("elsewhere.so"));
  std::filesystem::create_directory(moved);
  std::filesystem::rename(f.temp.file("elsewhere.so"), moved + "/rings_plugin.so");
  const ProcessResult lost = refused({"eval", first});
  CHECK(contains(lost.err,
                 concat(first, "/config.yaml:2:11: error: plugins.0: ", f.plugin,
                        ": is not loaded, and a run or a model loads no library by itself. If you trust it: --plugin ",
                        f.plugin, ", or load_plugin in a program\n")));
  CHECK(contains(lost.err, "plugins: [" + f.plugin + "]\n"));
  CHECK(contains(lost.err, "           ^~~~"));
  const std::vector<std::string> named{"--plugin", moved + "/rings_plugin.so"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), named.begin(), named.end());
    return arguments;
  };
  CHECK(contains(good(with({"eval", first})).out, "sure_accuracy"));
  good(with({"train", "--resume", first}));
  good(with({"inspect", first}));
  good(with({"diff", first, first}));
  good(with({"convert", first, "-o", f.temp.file("m.safetensors")}));
  CHECK(contains(refused({"train", f.config, "--plugin", moved + "/rings_plugin.so"}).err,
                 "[train] --plugin needs --resume"));
}

TEST_CASE("Files name plugins without a path of the machine") {
  const Folder f;
  good(f.train({"train.stop=3 steps"}));
  const std::string model = f.temp.file("model.safetensors");
  good({"convert", f.run, "-o", model, "--plugin", f.plugin});
  for (const std::string& file : {f.run + "/last.safetensors", model}) {
    const std::string bytes = slurp(file);
    CHECK_FALSE(contains(bytes, f.temp.path()));
    CHECK(contains(bytes, "plugins: [rings_plugin.so]"));
    CHECK(std::regex_search(bytes.substr(0, 20000), std::regex(R"(plugin\\*":\\*"rings_plugin\.so)")));
  }
}

TEST_CASE("A library without a plugin of this program is refused at its place") {
  const Folder f;
  const auto refusal = [&](const std::string& path) {
    return refused({"train", f.config, "--out", f.run, "plugins=[" + path + "]"}).err;
  };
  const std::string absent = refusal("/nonexistent/a.so");
  CHECK(absent ==
        "command line, argument 1: error: plugins.0: /nonexistent/a.so: no such file\n"
        "   | plugins=[/nonexistent/a.so]\n"
        "   |          ^~~~~~~~~~~~~~~~~\n"
        "1 error. Nothing was started.\n");
  const std::string text = f.temp.file("text.so");
  write_file_atomically(text, "this is no shared library, only a text of some length\n");
  CHECK(contains(refusal(text), "plugins.0: " + text + ": cannot be loaded: " + text + ": "));
  CHECK(contains(refusal(f.temp.path()), "is a folder, not a shared library"));
  REQUIRE(::mkfifo(f.temp.file("pipe.so").c_str(), 0600) == 0);  // to open it would wait for a writer
  CHECK(contains(refusal(f.temp.file("pipe.so")), "it is a pipe, expected a regular file"));
  CHECK(contains(refusal(library("no_entry")),
                 library("no_entry") +
                     ": has no symbol bitgrad_plugin, so it is not a plugin: one of its files must contain "
                     "BITGRAD_PLUGIN(f)\n"));
  CHECK(contains(refusal(library("other_interface")),
                 library("other_interface") + ": is of plugin interface 99, expected 1. Build it with the headers of "
                                              "this program\n"));
  CHECK(contains(refusal(library("other_build")),
                 library("other_build") + ": was built with bitgrad 0.0.1, another compiler, expected " +
                     BITGRAD_PLUGIN_BUILD + ". Build it with the headers of this program\n"));
  // In the file: all of them, at their places.
  write_file_atomically(f.config, "version: 1\nplugins: [no_entry.so, rings_plugin.so,\n  throws.so]\n");
  std::filesystem::copy_file(library("throws"), f.temp.file("throws.so"));
  const std::string both = refused(f.train()).err;
  CHECK(contains(both, f.config + ":2:11: error: plugins.0: " + f.temp.file("no_entry.so") + ": no such file\n"));
  CHECK(contains(both, f.config + ":3:3: error: plugins.2: " + f.temp.file("throws.so") +
                           ": its registration failed, and nothing of it is kept: the table of the plugin is missing\n"
                           "  3 |   throws.so]\n    |   ^~~~~~~~~\n2 errors. Nothing was started.\n"));
  CHECK(contains(refused({"train", f.config, "plugins=a.so"}).err, "plugins: got 'a.so', expected a list of texts"));
}

TEST_CASE("Nothing of a plugin that fails half-way is kept, and the library goes on") {
  const std::vector<std::string> layers = layer_names(), losses = loss_names(), metrics = metric_names(),
                                 formats = dataset_formats();
  const size_t keys = config::all_keys().size(), plugins = loaded_plugins().size();
  CHECK(contains(not_loaded("throws"), "nothing of it is kept: the table of the plugin is missing"));
  CHECK(contains(not_loaded("second_name"), "[register_layer] a layer kind 'linear' exists already: it is built in"));
  CHECK(contains(not_loaded("twice"),
                 "[register_layer] a layer kind 'twice' exists already: this plugin registered it before"));
  CHECK(layer_names() == layers);
  CHECK(loss_names() == losses);
  CHECK(metric_names() == metrics);
  CHECK(dataset_formats() == formats);
  CHECK(config::all_keys().size() == keys);
  CHECK(loaded_plugins().size() == plugins);
  CHECK(contains(not_loaded("throws"), "the table of the plugin is missing"));  // and again
  register_layer([] {
    LayerKind kind;
    kind.name = "thrown_layer";  // as the plugin that threw
    kind.make = [](const LayerSpec&) -> std::shared_ptr<Module> { return nullptr; };
    return kind;
  }());
  CHECK(contains(not_loaded("throws"),
                 "[register_layer] a layer kind 'thrown_layer' exists already: it is of this program"));
}

TEST_CASE("A plugin is loaded once, and a second one may not have its names or describe its keys otherwise") {
  const Plugin rings = load_plugin(kRings);
  CHECK(rings.path == kRings);
  CHECK(rings.name == "rings_plugin.so");
  const size_t kinds = layer_names().size();
  CHECK(load_plugin(kRings).path == kRings);
  CHECK(load_plugin(build_path("bin/../bin/rings_plugin.so")).path == kRings);
  const TempDir temp;
  std::filesystem::create_symlink(kRings, temp.file("link.so"));
  CHECK(load_plugin(temp.file("link.so")).path == kRings);
  CHECK(layer_names().size() == kinds);
  CHECK(contains(not_loaded("same_as_rings"),
                 "[register_layer] a layer kind 'squares' exists already: it is of plugin rings_plugin.so"));
  CHECK(contains(not_loaded("other_points"),
                 "[register_dataset] format 'other_data': the key 'points' exists already with another description, at "
                 "format 'rings'"));
  CHECK(find_layer_kind("other_layer") == nullptr);
}

TEST_CASE("Keys of a plugin are checked as built-in ones are: hints, ranges, defaults, marks") {
  const std::string misspelt = mistake({"model.layers.0={squares: {facter: 2}}"});
  CHECK(misspelt ==
        "command line, argument 2: error: unknown key 'facter' in 'model.layers.0.squares'. Did you mean 'factor'? "
        "Known: factor, keep\n"
        "   | model.layers.0={squares: {facter: 2}}\n"
        "   |                           ^~~~~~\n"
        "1 error. Nothing was started.");
  std::string file = text_of_rings();
  file.replace(file.find("factor: 2"), 9, "factr: 2");
  const std::string marked = error_of([&] { parse_config(file, "rings.yaml", {concat("plugins=[", kRings, ']')}); });
  CHECK(contains(marked,
                 "rings.yaml:10:17: error: unknown key 'factr' in 'model.layers.0.squares'. Did you mean "
                 "'factor'? Known: factor, keep\n  10 |     - squares: {factr: 2}\n     |                 ^~~~~\n"));
  CHECK(contains(mistake({"model.layers.0.squares.factor=101"}),
                 "model.layers.0.squares.factor: 101 is out of range (0, 100]"));
  CHECK(contains(mistake({"model.layers.0={square: {}}"}),
                 "unknown layer kind 'square' in 'model.layers.0'. Did you mean 'squares'?"));
  CHECK(contains(mistake({"loss={smoothed_cross_entropy: {smothing: 0.1}}"}),
                 "unknown key 'smothing' in 'loss.smoothed_cross_entropy'. Did you mean 'smoothing'?"));
  CHECK(contains(mistake({"loss={smoothed_cross_entrop: {}}"}), "Did you mean 'smoothed_cross_entropy'?"));
  CHECK(contains(mistake({"loss=smoothed_cross_entrop"}), "did you mean 'smoothed_cross_entropy'? Expected one of "));
  CHECK(contains(mistake({"loss={squared_hinge: {p: 1}}"}), "loss.squared_hinge: squared_hinge has no keys"));
  CHECK(contains(mistake({"loss={}"}), "loss: got a map of 0 keys, expected the name of a loss, or {name: {...}}"));
  CHECK(contains(mistake({"train.metrics.sure_accuracy.probability=0"}), "0 is out of range (0, 1]"));
  CHECK(contains(mistake({"data.train.transforms=[{turn: {degree: 1}}]"}), "Did you mean 'degrees'?"));
  CHECK(contains(mistake({"data.train.transforms=[{turn: {degrees: 181}}]"}), "181 is out of range [0, 180]"));
  CHECK(contains(mistake({"data.train.transforms=[{trun: {}}]"}), "Did you mean 'turn'?"));
  CHECK(contains(mistake({"train.metrics={sure_acuracy: {}}"}), "Did you mean 'sure_accuracy'?"));
  CHECK(contains(mistake({"train.metrics={loss: {}}"}), "train.metrics.loss: loss has no keys"));
  CHECK(contains(mistake({"data.train.ring=4"}), "unknown key 'ring' in 'data.train'. Did you mean 'rings'?"));
  CHECK(contains(mistake({"data.train.noise=2"}), "data.train.noise: 2 is out of range [0, 1]"));
  CHECK(contains(mistake({"~data.train.noise", "data.train={format: rings}"}),
                 "missing required key 'data.train.points': a whole number in [1, 1000000]"));
  CHECK(contains(mistake({"data.train={format: digits, size: 9, noise: 0.5}"}),
                 "data.train.noise requires data.train.format rings, not digits"));
  CHECK(contains(mistake({"quant.weights.quantil=0.5", "~quant.weights.quantile"}), "Did you mean 'quantile'?"));
  CHECK(contains(mistake({"quant.weights.quantile=1.5"}), "quant.weights.quantile: 1.5 is out of range (0, 1]"));
  CHECK(contains(mistake({"quant.weights={dtype: int4, scheme: absmax, quantile: 0.5}"}),
                 "quant.weights: quantile requires scheme quantile_clip, the scheme is absmax"));
}

TEST_CASE("Values of a plugin's keys reach what it made, are written back, and appear in the reference") {
  const RunConfig c = parsed();
  CHECK(c.plugins == std::vector<std::string>{kRings});
  CHECK(c.layers[0].attributes == Attributes{{"factor", 2.0}, {"keep", true}});
  CHECK(c.loss == "smoothed_cross_entropy");
  CHECK(c.loss_keys == Attributes{{"smoothing", 0.05}});
  CHECK(c.train.metrics.at("sure_accuracy") == Attributes{{"probability", 0.8}});
  CHECK(c.data.train.keys == Attributes{{"points", 3000}, {"rings", 3}, {"noise", 0.6}});
  REQUIRE(c.data.train.transforms.size() == 1);
  CHECK(c.data.train.transforms[0].name == "turn");
  CHECK(c.data.train.transforms[0].keys == Attributes{{"degrees", 30.0}});
  CHECK(parsed({"data.train.transforms=[{turn: {}}]"}).data.train.transforms[0].keys == Attributes{{"degrees", 10.0}});
  CHECK(c.data.test->split == "test");
  CHECK(c.quant.weights.quant->keys == Attributes{{"quantile", 0.95}});
  CHECK(c.quant.activations->spec.keys == Attributes{{"quantile", 1.0}});
  CHECK(c.layers[5].weight.quant->keys == Attributes{{"quantile", 0.95}});  // from quant.weights
  CHECK(parse_config(to_yaml(c), "again.yaml") == c);
  CHECK(contains(to_portable_yaml(c), "plugins: [rings_plugin.so]\n"));
  CHECK(parsed({"loss=smoothed_cross_entropy"}).loss_keys == Attributes{{"smoothing", 0.1}});
  CHECK(parsed({"loss=squared_hinge"}).loss_keys == Attributes{});
  CHECK(parsed({"loss={squared_hinge: {}}"}).loss == "squared_hinge");
  // A layer with a scheme of its own does not take the key of another one over.
  CHECK(parsed({"model.layers.5.linear.weights={scheme: absmax}"}).layers[5].weight.quant->keys == Attributes{});

  const std::string page = config_reference();
  CHECK(contains(page, "### `layer.squares`"));
  CHECK(contains(page, "| `factor` | a number in (0, 100] | `1` |  | what the squares are multiplied by |"));
  CHECK(contains(page, "### `loss.smoothed_cross_entropy`"));
  CHECK(contains(page, "### `metrics.sure_accuracy`"));
  CHECK(contains(page, "### `transform.turn`"));
  CHECK(contains(page, "| `noise` | a number in [0, 1] | `0.6` | format rings | width of a ring |"));
  CHECK(contains(
      page, "| `quantile` | a number in (0, 1] | `0.8` | scheme quantile_clip | part of abs x that is not clipped |"));

  const auto data = open_dataset(parsed({"data.train.rings=4", "data.train.points=8"}),
                                 parsed({"data.train.rings=4", "data.train.points=8"}).data.train);
  CHECK(data->classes() == 4);
  CHECK(data->size() == 8);
}

TEST_CASE("bitgrad keys lists all keys of configurations, with those of named plugins") {
  const std::string plain = good({"keys"}).out, all = good({"keys", "--plugin", kRings}).out;
  CHECK(contains(plain, "### `layer.linear`"));
  CHECK_FALSE(contains(plain, "squares"));
  CHECK(contains(all, "### `layer.squares`"));
  CHECK(contains(all, "| `probability` | a number in (0, 1] | `0.9` |  | that the class must have |"));
  CHECK(contains(refused({"keys", "--plugin", library("no_entry")}).err, "has no symbol bitgrad_plugin"));
}

TEST_CASE("Loss, metric and scheme of the plugin compute what their formulas say") {
  load_plugin(kRings);
  // Label smoothing in double, with its gradient.
  const Tensor target = Tensor::empty({2}, dtypes::int32), z = Tensor::empty({2, 3}, dtypes::fp32);
  const double logits[2][3] = {{1.5, -0.5, 0.25}, {0.0, 2.0, -1.0}};
  const int32_t classes[2] = {2, 1};
  double expected = 0;
  for (int r = 0; r < 2; ++r) {
    target.as<int32_t>()[r] = classes[r];
    double sum = 0;
    for (int c = 0; c < 3; ++c)
      sum += std::exp(logits[r][c]), z.as<float>()[3 * r + c] = static_cast<float>(logits[r][c]);
    for (int c = 0; c < 3; ++c) expected -= (0.3 / 3 + (c == classes[r] ? 0.7 : 0)) * (logits[r][c] - std::log(sum));
  }
  const LossFunction loss = find_loss("smoothed_cross_entropy", {{"smoothing", 0.3}});
  CHECK(loss.name() == "smoothed_cross_entropy");
  CHECK_FALSE(loss.is_mean(target));
  CHECK(std::fabs(loss(Var(z), target).value().item() - expected) < 1e-6);
  CHECK(contains(error_of([] {
                   find_loss("smoothed_cross_entropy", {{"smoothing", 1.0}});
                 }),
                 "[smoothed_cross_entropy] smoothing: got 1, expected a number in [0, 1)"));
  CHECK(contains(error_of([] { find_loss("squared_hinge", {{"p", 1.0}}); }), "[squared_hinge] unknown attribute 'p'"));

  const Metric& metric = *find_metric("sure_accuracy");
  const Measures measures = measures_of({{.shape = {}, .classes = 3}, ""}, {{"sure_accuracy", {{"probability", 0.6}}}});
  REQUIRE(measures.count("sure_accuracy") == 1);
  StepResult sums;
  sums.counted = 2;
  sums.measured["sure_accuracy"] = measures.at("sure_accuracy")(z, target);  // 0.20 and 0.84 of the classes
  CHECK(metric.value({}, sums) == 50);
  CHECK(measures_of({{.shape = {2}, .classes = 0}, ""}, {}).empty());

  QuantSpec spec;
  spec.dtype = dtypes::int2;
  spec.scheme = "quantile_clip";
  const Tensor x = Tensor::empty({1, 5}, dtypes::fp32);
  for (int i = 0; i < 5; ++i) x.as<float>()[i] = static_cast<float>(i + 1);
  CHECK(quantize_dynamic(spec, x).values() == std::vector<double>{0, 0, 4, 4, 4});  // 4: four fifths of them
  spec.keys["quantile"] = 0.5;
  CHECK(quantize_dynamic(spec, x).values() == std::vector<double>{0, 3, 3, 3, 3});
  spec.keys["quantile"] = 2.0;
  CHECK(contains(error_of([&] { quantize_dynamic(spec, x); }),
                 "[quantile_clip] quantile: got 2, expected a number in (0, 1]"));
}

TEST_CASE("Keys that every data set or scheme has cannot be redefined") {
  for (const std::string& name : config::keys_of("dataset")) {
    // Keys of one format alone: those of the plugin's, of tokens, of jsonl, of arrays, and of csv.
    constexpr std::string_view kOfFormats =
        " points rings noise stored vocabulary order stride documents end target target_is ignore categories missing "
        "header separator channels ignore_label mask fill names decimal pack loss_on too_long "
        "normal_class ";
    if (kOfFormats.find(' ' + name + ' ') != kOfFormats.npos) continue;
    DatasetFormat format;
    format.name = "taker";
    format.keys = {{.name = name, .range = "[0, 1]", .standard = "1", .doc = "of a test"}};
    format.create = [](const DatasetSpec&) -> std::unique_ptr<Dataset> { return nullptr; };
    CHECK(contains(error_of([&] { register_dataset(format); }),
                   "[register_dataset] format 'taker': the key '" + name + "' exists already: it is built in"));
  }
  for (const char* group : {"weights", "activations"})
    for (const std::string& name : config::keys_of(group)) {
      if (name == "quantile") continue;
      struct Taker final : Quantizer {
        explicit Taker(std::string k) : key(std::move(k)) {}
        std::string_view name() const override { return "taker"; }
        std::vector<Key> keys() const override { return {{.name = key, .range = "[0, 1]", .standard = "1"}}; }
        void check(const QuantSpec&, bool) const override {}
        CodeRange code_range(const QuantSpec&) const override { return {}; }
        QuantParams fit(const QuantSpec&, const Tensor&) const override { return {}; }
        std::string key;
      };
      CHECK(contains(error_of([&] { register_quantizer(std::make_unique<Taker>(name)); }),
                     "[register_quantizer] scheme 'taker': the key '" + name + "' exists already: it is built in"));
    }
}

TEST_CASE("A file of a model never loads a library that it names, and reports its origin") {
  const Folder f;
  good(f.train({"train.stop=3 steps"}));
  const std::string alone = f.temp.file("alone/m.safetensors");
  std::filesystem::create_directory(f.temp.file("alone"));
  good({"convert", f.run, "-o", alone, "--plugin", f.plugin});
  std::filesystem::copy_file(kRings, f.temp.file("alone/rings_plugin.so"));
  CHECK(contains(refused({"inspect", alone}).err, "plugins.0: rings_plugin.so: is not loaded"));
  good({"inspect", alone, "--plugin", f.plugin});
  // Of the record, where a program opens the file: the plugin's name stands beside each kind.
  std::string record = read_checkpoint_header(alone).model;
  for (const auto& [known, unknown] : {std::pair("\"kind\":\"squares\"", "\"kind\":\"sqwares\""),
                                       std::pair("\"scheme\":\"quantile_clip\"", "\"scheme\":\"quantile_klip\"")}) {
    std::string text = record;
    const size_t at = text.find(known);
    REQUIRE(at != std::string::npos);
    text.replace(at, std::string(known).size(), unknown);
    load_plugin(kRings);
    CHECK(parse_model_record(record).model.layers.size() == 6);
    CHECK(contains(error_of([&] { parse_model_record(text); }),
                   concat("is not known: it came from plugin rings_plugin.so. Name the plugin: --plugin PATH, or "
                          "load_plugin in a program")));
  }
}

TEST_CASE("A file that no run wrote opens with --plugin, and names it where it is missing") {
  load_plugin(kRings);
  const TempDir temp;
  QuantSpec int4;
  int4.dtype = dtypes::int4;
  int4.scheme = "quantile_clip";
  int4.keys["quantile"] = 0.5;
  ModelSpec spec;
  spec.input.sample = {2};
  spec.layers = {{.kind = "squares", .attributes = {{"factor", 3.0}}},
                 {.kind = "linear", .attributes = {{"out", 3}}, .weight = {.quant = int4}}};
  Learner learner(
      make_model(spec), find_loss("softmax_cross_entropy"), {.name = "adam"}, {}, [](int64_t) { return 0.01f; }, 1);
  learner.plan({.input = {.sample = {2}}, .outputs = 3, .train_samples = 4, .eval_samples = 4});
  const std::string file = temp.file("model.safetensors");
  learner.convert();
  save_converted(file, learner, {});
  const auto record = read_model_record(file);
  REQUIRE(record);
  CHECK(record->model.layers[0].attributes == Attributes{{"factor", 3.0}, {"keep", true}});
  CHECK(record->model.layers[1].weight.quant->keys == Attributes{{"quantile", 0.5}});
  CHECK(contains(refused({"inspect", file}, 3).err,
                 "layer kind 'squares' is not known: it came from plugin rings_plugin.so. Name the plugin: --plugin "
                 "PATH, or load_plugin in a program"));
  CHECK(contains(good({"inspect", file, "--plugin", kRings}).out, "int4 quantile_clip"));
  const std::string rings = "data.test={format: rings, points: 60}";
  CHECK(contains(good({"eval", file, rings, "plugins=[" + kRings + "]"}).out, "sure_accuracy"));
}

TEST_CASE("The example builds against an installed bitgrad, for its program and for a program of a user", "[slow]") {
  const TempDir temp;
  const auto run = [](const std::vector<std::string>& arguments) {
    const ProcessResult r = run_program(arguments);
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    return r.out;
  };
  run({"cmake", "--install", build_path(), "--prefix", temp.file("there")});
  const std::string prefix = "-DCMAKE_PREFIX_PATH=" + temp.file("there"), flags = "-DCMAKE_CXX_FLAGS=-O0";
  run({"cmake", "-S", source_path("apps/examples/plugin"), "-B", temp.file("plugin"), prefix, flags});
  run({"cmake", "--build", temp.file("plugin")});
  const std::string plugin = temp.file("plugin/rings_plugin.so");
  CHECK(contains(run({temp.file("there/bin/bitgrad"), "train", source_path("apps/examples/plugin/rings.yaml"), "--out",
                      temp.file("run"), "plugins=[" + plugin + "]", "train.stop=3 steps"}),
                 "sure_accuracy on the packed weights"));
  write_file_atomically(temp.file("CMakeLists.txt"),
                        "cmake_minimum_required(VERSION 3.25)\nproject(host LANGUAGES CXX)\n"
                        "find_package(bitgrad REQUIRED)\nadd_executable(host main.cpp)\n"
                        "target_link_libraries(host PRIVATE bitgrad::bitgrad)\nbitgrad_plugin_host(host)\n"
                        "add_executable(deaf main.cpp)\ntarget_link_libraries(deaf PRIVATE bitgrad::bitgrad)\n");
  write_file_atomically(temp.file("main.cpp"),
                        "#include <iostream>\n#include \"bitgrad/bitgrad.h\"\n#include \"bitgrad/config/plugin.h\"\n"
                        "int main(int, char** a) try {\n  bitgrad::load_plugin(a[1]);\n"
                        "  std::cout << bitgrad::find_loss(\"smoothed_cross_entropy\").name();\n"
                        "} catch (const bitgrad::Error& e) {\n  std::cerr << e.what();\n  return 2;\n}\n");
  run({"cmake", "-S", temp.path(), "-B", temp.file("host"), prefix, flags});
  run({"cmake", "--build", temp.file("host")});
  CHECK(run({temp.file("host/host"), plugin}) == "smoothed_cross_entropy");
  // A program that exports nothing: the plugin brings no library of its own.
  const ProcessResult deaf = run_program({temp.file("host/deaf"), plugin});
  CHECK(deaf.code == 2);
  CHECK(contains(deaf.err, "undefined symbol: "));
  CHECK(contains(deaf.err, "or this program does not export the library's symbols (CMake: bitgrad_plugin_host)"));
}
