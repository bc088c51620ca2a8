// Rules of the house that text can check. docs/architecture.md.
#include <map>
#include <regex>
#include <set>

#include "lint/source_tree.h"
#include "support/catch.h"

using namespace bitgrad::lint;

namespace {

// Which layers a layer may include directly; what those may include comes along.
const std::map<std::string, std::set<std::string>> kBelow = {
    {"base", {}},
    {"dtype", {"base"}},
    {"kernels", {"dtype", "base"}},
    {"tensor", {"dtype", "base"}},
    {"quant", {"tensor", "kernels"}},
    {"autograd", {"tensor", "kernels"}},
    {"ops", {"autograd", "quant", "kernels"}},
    {"nn", {"ops"}},
    {"io", {"tensor"}},
    {"data", {"tensor"}},
    {"dist", {"tensor", "kernels"}},
    {"optim", {"nn", "dist"}},
    {"task", {"ops", "data"}},
    {"config", {"task", "optim"}},
    {"train", {"task", "optim"}},
    {"checkpoint", {"config", "train", "io"}},
    {"interop", {"checkpoint"}},
    {"report", {"checkpoint"}},
    {"run", {"report", "interop"}},
    {"export", {"run"}},
    {"infer", {"export"}},
    {"tools", {"export"}},
    {"bitgrad", {"infer", "tools"}},  // the umbrella, bitgrad/bitgrad.h: for programs alone
    {"capi", {"bitgrad"}},            // the C interface, bitgrad/c.h: a program too
    {"apps", {"bitgrad"}},
};

std::set<std::string> closure(const std::string& layer) {
  std::set<std::string> all{layer};
  for (const std::string& below : kBelow.at(layer)) all.merge(closure(below));
  return all;
}

// src/<layer>/..., include/bitgrad/<layer>/..., apps/...
std::string layer_of(const std::string& path) {
  if (path == "include/bitgrad/bitgrad.h" || path == "include/bitgrad/c.h") return "bitgrad";
  std::smatch m;
  if (std::regex_search(path, m, std::regex("^(?:src|include/bitgrad)/([a-z]+)/"))) return m[1];
  return path.rfind("apps/", 0) == 0 ? "apps" : "";
}
// The layer that an #include of ours points to; "" for others.
std::string included_layer(const Include& include) {
  if (include.angled) return "";
  std::smatch m;
  if (!std::regex_search(include.target, m, std::regex("^(?:bitgrad/)?([a-z]+)/"))) return "";
  return kBelow.count(m[1]) ? std::string(m[1]) : "";
}

std::string at(const SourceFile& file, int line, const std::string& what) {
  return file.path + ":" + std::to_string(line) + ": " + what + "\n";
}

// Lines of code that match, outside the files that `allowed` accepts.
template <typename Allowed>
std::string uses(const std::vector<std::string>& folders, const std::string& pattern, Allowed allowed) {
  const std::regex expression(pattern);
  std::string found;
  for (const SourceFile& file : source_files(folders)) {
    if (allowed(file)) continue;
    for (const Line& line : file.lines)
      if (std::regex_search(line.code, expression)) found += at(file, line.number, line.text);
  }
  return found;
}
template <typename Allowed>
std::string includes_matching(const std::string& pattern, Allowed allowed) {
  const std::regex expression(pattern);
  std::string found;
  for (const SourceFile& file : source_files({"include", "src", "apps"})) {
    if (allowed(file)) continue;
    for (const Include& include : includes_of(file))
      if (std::regex_search(include.target, expression)) found += at(file, include.line, include.target);
  }
  return found;
}

}  // namespace

TEST_CASE("includes point down only") {
  std::string upward;
  std::set<std::string> layers;
  for (const SourceFile& file : source_files({"include", "src", "apps"})) {
    const std::string layer = layer_of(file.path);
    INFO(file.path);
    REQUIRE(kBelow.count(layer) == 1);
    layers.insert(layer);
    const std::set<std::string> allowed = closure(layer);
    for (const Include& include : includes_of(file)) {
      const std::string target = included_layer(include);
      if (!target.empty() && !allowed.count(target)) upward += at(file, include.line, include.target);
    }
  }
  INFO(upward);
  CHECK(upward.empty());
  CHECK(layers.size() >= 12);
}

TEST_CASE("public headers include other public headers and the standard library only") {
  std::string found;
  for (const SourceFile& file : source_files({"include"}))
    for (const Include& include : includes_of(file)) {
      const bool ours = !include.angled && include.target.rfind("bitgrad/", 0) == 0;
      const bool of_c = file.path == "include/bitgrad/c.h" && include.target.ends_with(".h");
      const bool standard = include.angled && (of_c || std::regex_match(include.target, std::regex("[a-z_]+")));
      if (!ours && !standard) found += at(file, include.line, include.target);
    }
  INFO(found);
  CHECK(found.empty());
}

// Private headers of a layer that others read, and why. The list may only become shorter.
const std::map<std::string, std::string> kShared = {
    {"base/loops.h", "loops that kernels cut into pieces"},
    {"base/registration.h", "names that plugins add: all of one plugin, or none"},
    {"dtype/bit_tricks.h", "bits of packed rows, for kernels"},
    {"dtype/layouts/", "the order of fragments that kernels of devices read"},
    {"io/onnx_file.h", "the messages of ONNX files"},
    {"io/event_file.h", "the scalars of a run for TensorBoard"},
    {"io/metadata.h", "metadata of files and records of codes, of checkpoints too"},
    {"nn/expanded_layers.h", "how many layers a configuration or a record becomes, counted before any is made"},
    {"base/simd.h", "the intrinsics of x86-64"},
    {"kernels/gemm/", "arguments and formulas that the CPU and devices share"},
    {"kernels/map/", "what a map is, and the functors that several layers run"},
    {"kernels/quantize/", "plan and rounding that the CPU and devices share"},
    {"kernels/reduce/", "rules that the CPU and devices share"},
    {"data/npy_array.h", "archives of exported arrays"},
    {"data/base64.h", "pictures of samples in a text"},
    {"data/picture_files.h", "pictures of samples"},
    {"data/tokenizers.h", "a tokenizer made of the vocabulary of a GGUF file"},
    {"data/augment.h", "crops and mirror images, which the loader and the gather on a device draw alike"},
    {"data/split_samples.h", "the part of data.train that data.valid takes; a few batches that measure an evaluation"},
    {"dist/add.h", "sums of gradients, over ranks and over a window"},
    {"nn/glob.h", "globs on paths, in maps of names of weights too"},
    {"nn/activation_quantizer.h", "reports read its state"},
    {"nn/layers/dropout.h", "whether a pass of training draws, which integer networks do not follow"},
    {"nn/layers/norm.h", "running statistics of norms, which calibration renews"},
    {"quant/learned.h", "the floor of learned steps"},
    {"nn/row_params.h", "scales of rows, for updates in blocks"},
    {"ops/common.h", "bf16 values that a quantizer widens, and what a slot runs without a tape"},
    {"ops/integer_product.h", "what integer layers compute, as data"},
    {"ops/norm.h", "norms that are fused with the quantizer behind them"},
    {"optim/finish.h", "statistics of finished gradients"},
    {"optim/requirements.h", "whether a scheme makes the codes of its values again, asked of files without masters"},
    {"optim/shards.h", "the sums of a window over ranks (train/ranks.h)"},
    {"optim/square_sums.h", "a stage of the step (train/step.h)"},
    {"quant/blocks.h", "blocks of scales, and how errors about data are worded"},
    {"quant/straight_through.h", "rules that ops and layers share"},
    {"quant/values.h", "bf16 values, which ops of activations quantize; scales as kernels take them"},
    {"checkpoint/", "parts of files: adapters, quantized models, values to begin with"},
    {"config/", "specs, choices and lengths of a configuration, of which runs are made"},
    {"interop/", "codes and names in files of other programs"},
    {"run/", "model.init_from for the learners of the C interface; warnings for `bitgrad check`"},
    {"tensor/narrow.h", "floats of 16 bits, which files, parameters and products hold where fp32 is not needed"},
    {"train/", "the state of a learner, which files store and runs drive"},
};

TEST_CASE("private headers stay in their layer, but for those that are listed with a reason") {
  const std::regex contract("kernels/[a-z_]+[.](h|inc)");  // what a kernel computes: all that is above launches it
  std::string found;
  std::set<std::string> used;
  for (const SourceFile& file : source_files({"src", "cuda"}))
    for (const Include& include : includes_of(file)) {
      const std::string owner = include.target.substr(0, include.target.find('/'));
      if (include.angled || kBelow.count(owner) == 0 || file.starts_with("src/" + owner + "/")) continue;
      if (owner == "bitgrad" || owner == "apps") continue;
      if (std::regex_match(include.target, contract)) continue;
      const auto entry = std::find_if(kShared.begin(), kShared.end(), [&](const auto& shared) {
        return shared.first.back() == '/' ? include.target.rfind(shared.first, 0) == 0 : include.target == shared.first;
      });
      if (entry == kShared.end())
        found += at(file, include.line, include.target);
      else
        used.insert(entry->first);
    }
  INFO(found);
  CHECK(found.empty());
  for (const auto& [header, why] : kShared) {
    INFO(header << " is read by no other layer: take it off the list");
    CHECK(used.count(header) == 1);
  }
}

// Folders side by side that include each other, which makes them one. The list may only become shorter.
const std::set<std::string> kBothWays = {
    "src/kernels/elementwise src/kernels/quantize",
    "src/kernels/map src/kernels/pointwise",
};

TEST_CASE("no two folders include each other, but for those that are listed") {
  std::map<std::string, std::string> folders;  // of files by include path; public headers belong to src/<layer>
  for (const SourceFile& file : source_files({"src", "include", "cuda"})) {
    const std::string path = file.starts_with("include/") ? file.path.substr(8) : file.path;
    const std::string folder = path.substr(0, path.rfind('/'));
    const std::string name = file.starts_with("src/") ? path.substr(4) : path;
    folders[name] = folder.starts_with("bitgrad/") ? "src" + folder.substr(7) : folder;
  }
  std::set<std::pair<std::string, std::string>> edges;
  for (const SourceFile& file : source_files({"src", "include", "cuda"}))
    for (const Include& include : includes_of(file)) {
      const std::string path = file.path.substr(file.starts_with("include/") ? 8 : file.starts_with("src/") ? 4 : 0);
      const auto target = folders.find(include.target);
      if (!include.angled && target != folders.end()) edges.emplace(folders.at(path), target->second);
    }
  std::string found;
  std::set<std::string> used;
  for (const auto& [from, to] : edges) {
    if (from >= to || edges.count({to, from}) == 0 || to.starts_with(from + "/")) continue;  // a folder and one in it
    if (kBothWays.count(from + " " + to) == 1)
      used.insert(from + " " + to);
    else
      found += from + " and " + to + " include each other\n";
  }
  INFO(found);
  CHECK(found.empty());
  CHECK(used == kBothWays);  // what is mended leaves the list
}

TEST_CASE("every layer with functors has their list") {
  std::set<std::string> layers, with_list;
  for (const SourceFile& file : source_files({"src"})) {
    std::smatch m;
    if (!std::regex_search(file.path, m, std::regex("^src/([a-z]+)/map/(.*)"))) continue;
    layers.insert(m[1]);
    if (m[2] == "maps.inc") with_list.insert(m[1]);
  }
  CHECK(layers.size() >= 7);
  CHECK(with_list == layers);  // src/<layer>/map/maps.inc, of which CMake makes kernels (cuda/kernels/map/layer.cu.in)
}

TEST_CASE("programs and examples use public headers and their own files only") {
  // Benchmarks measure single kernels and methods.
  const std::regex benched("shared/.*|kernels/[a-z_]+[.]h|tools/ptq/method[.]h");
  std::string found;
  for (const SourceFile& file : source_files({"apps"}))
    for (const Include& include : includes_of(file))
      if (!include.angled && include.target.rfind("bitgrad/", 0) != 0 &&
          include.target.find('/') != std::string::npos &&
          !(file.starts_with("apps/bench/") && std::regex_match(include.target, benched)) &&
          include.target.rfind("cli/", 0) != 0)
        found += at(file, include.line, include.target);
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("each third party is known to one place") {
  const auto check = [](const std::string& pattern, auto allowed) {
    const std::string found = includes_matching(pattern, allowed);
    INFO(found);
    CHECK(found.empty());
  };
  check("^CLI/", [](const SourceFile& f) { return f.path == "apps/cli/arguments.cpp"; });
  check("^spdlog/", [](const SourceFile& f) { return f.path == "apps/bitgrad/cmd_train.cpp"; });
  check("^yaml-cpp/", [](const SourceFile& f) { return f.starts_with("src/config/"); });
  check("^(dnnl|oneapi/dnnl)", [&](const SourceFile& f) {
    return f.path.find("onednn") != std::string::npos || f.starts_with("apps/bench/");
  });
  check("^Eigen/", [](const SourceFile& f) { return f.ends_with("/eigen.cpp"); });
  check("^nlohmann/",
        [](const SourceFile& f) { return f.path == "src/base/json.cpp" || f.path == "src/io/safetensors_format.cpp"; });
  check("^zlib", [](const SourceFile& f) { return f.starts_with("src/data/"); });
  check("^zip\\.h", [](const SourceFile& f) { return f.path == "src/data/zip.cpp"; });
  check("^pcre2", [](const SourceFile& f) { return f.path == "src/data/split_pattern.cpp"; });
  check("^utf8proc", [](const SourceFile& f) { return f.path == "src/data/split_pattern.cpp"; });
  check("^sentencepiece", [](const SourceFile& f) {
    return f.path == "src/data/tokenizer_sentencepiece.cpp" || f.path == "src/data/sentencepiece_train.cpp";
  });
  check("^png", [](const SourceFile& f) { return f.path == "src/data/picture_png.cpp"; });
  check("^j(peglib|error)", [](const SourceFile& f) { return f.path == "src/data/picture_jpeg.cpp"; });
  check("^curl/", [](const SourceFile& f) { return f.path == "apps/bitgrad/download.cpp"; });
  check("^mpi\\.h", [](const SourceFile& f) { return f.path == "src/dist/mpi/mpi_ranks.cpp"; });
  check("^archive", [](const SourceFile& f) { return f.path == "apps/bitgrad/unpack.cpp"; });
}

TEST_CASE("the library never prints, aborts or exits") {
  // The module for ranks is not part of the library: a rank that no call of MPI can end ends itself.
  const auto in_module = [](const SourceFile& f) { return f.path == "src/dist/mpi/mpi_ranks.cpp"; };
  const std::string found = uses(
      {"include", "src"},
      R"((\bstd::(cout|cerr|clog|abort|exit|quick_exit|terminate)\b)|((^|[^\w.>])(printf|fprintf|puts|fputs|putchar|abort|_exit|exit) *\())",
      in_module);
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("dtypes are chosen by data, not by switches") {
  const std::string found = uses({"include", "src", "apps"}, R"(switch *\(.*(dtype|DTypeKind|info\(\)\.kind))",
                                 [](const SourceFile& f) { return layer_of(f.path) == "dtype"; });
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("files call the file system through its seam") {
  const std::string found =
      uses({"include", "src"}, R"(\bstd::(o|i)?fstream\b|\bfopen *\(|std::filesystem::(?!path\b|absolute\b))",
           [](const SourceFile& f) { return f.path == "src/base/file.cpp"; });
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("texts are made and read by streams that throw") {
  const std::string found = uses({"include", "src", "apps"}, R"(\bstd::[oi]?stringstream\b)",
                                 [](const SourceFile& f) { return f.path == "include/bitgrad/base/error.h"; });
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("no function has more than 60 lines") {
  constexpr int kLines = 60;
  std::string found;
  int functions = 0;
  for (const SourceFile& file : source_files({"include", "src", "cuda", "apps"}))
    for (const Function& f : functions_of(file)) {
      ++functions;
      if (f.lines > kLines) found += at(file, f.line, "a function of " + std::to_string(f.lines) + " lines");
    }
  INFO(found);
  CHECK(found.empty());
  CHECK(functions > 2000);
}

namespace {

// The kinds of a list, and the lines outside of their room that still know one by its name: by file, how many.
struct ListOfKinds {
  const char *list, *line;         // the file, and what a line of it begins with; the kind is its first group
  std::vector<std::string> rooms;  // folders and files that may name the kinds
  std::map<std::string, int> exceptions;
};

// A comparison with a kind, a call that asks for one, a list or a table of them. Making one is none of these.
std::regex asks_for(const std::string& kinds) {
  const std::string kind = "\"(" + kinds + ")\"";
  return std::regex("[!=]= *" + kind + "|" + kind + " *[!=]=|\\b(is_one_of|spec_of|take)\\b[^;]*" + kind + "|\\{ *" +
                    kind + " *(, *(true|false|\"|\\w+::\\w+)|\\})");
}

const std::vector<ListOfKinds>& lists_of_kinds() {
  static const std::vector<ListOfKinds> all{
      // decoder.cpp recognises the networks that other programs have, and is made of their kinds.
      {"src/nn/layers/layers.inc",
       R"(^BITGRAD_LAYER\((\w+)_kind\))",
       {"src/nn/layers/", "src/interop/decoder.cpp"},
       {{"apps/bench/bench_generate_files.cpp", 1},  // whose products say how many keys are read
        {"src/data/bpe_file.cpp", 1},                // a member of tokenizer.json
        {"src/config/write.cpp", 1},                 // a key of quant.budget
        {"src/interop/families.cpp", 7},
        {"src/run/model_warnings.cpp", 2}}},
      {"include/bitgrad/kernels/unary.inc",
       R"(^BITGRAD_UNARY\w*\((\w+))",
       {"src/nn/layers/"},
       {{"src/interop/families.cpp", 6}, {"src/run/model_warnings.cpp", 1}}},
      {"src/data/datasets.inc",
       R"(^BITGRAD_DATASET\((\w+))",
       {"src/data/"},
       {{"apps/bitgrad/cmd_predict.cpp", 4},  // forms of files
        {"src/config/checks_data.cpp", 1},    // a value of the key stored
        {"src/infer/generator.cpp", 1}}},     // a reason to stop
      {"src/task/losses.inc",
       R"(^BITGRAD_LOSS\((\w+))",
       {"src/task/"},
       {{"src/infer/predictor.cpp", 2}, {"src/train/evaluation.cpp", 1}}},
      {"src/data/tokenizers.inc",
       R"(^BITGRAD_TOKENIZER\((\w+))",
       {"src/data/"},
       {{"apps/bitgrad/check_export.cpp", 1},  // the name of an array
        {"src/interop/gguf_vocabulary.cpp", 3},
        {"src/interop/hugging_face_export.cpp", 1},
        {"src/interop/hugging_face_import.cpp", 2},
        {"src/interop/origin_files.cpp", 1}}}};
  return all;
}

}  // namespace

TEST_CASE("kinds of a list are known by name in their own room alone") {
  const std::vector<SourceFile> files = source_files({"include", "src", "apps"});
  for (const ListOfKinds& list : lists_of_kinds()) {
    std::string kinds, found;
    std::smatch m;
    for (const std::string& line : lines_of(list.list))
      if (std::regex_search(line, m, std::regex(list.line))) kinds += (kinds.empty() ? "" : "|") + m[1].str();
    REQUIRE(!kinds.empty());
    const std::regex asks = asks_for(kinds);
    for (const SourceFile& file : files) {
      const bool own = std::any_of(list.rooms.begin(), list.rooms.end(),
                                   [&](const std::string& room) { return file.starts_with(room); });
      if (own || file.starts_with("apps/examples/") || file.ends_with(".inc")) continue;
      std::string here;
      int count = 0;
      for (const Line& line : file.lines)
        if (line.text.find('"') != std::string::npos && std::regex_search(line.text, asks))
          here += at(file, line.number, line.text), ++count;
      const auto allowed = list.exceptions.find(file.path);
      if (count != (allowed == list.exceptions.end() ? 0 : allowed->second)) found += here + at(file, count, "in all");
    }
    INFO(list.list << ": a member of the record says what is asked. A line less: shorten the exceptions\n" << found);
    CHECK(found.empty());
  }
}

TEST_CASE("no file has more than 500 lines") {
  std::string found;
  for (const SourceFile& file : source_files({"include", "src", "cuda", "apps", "tests"}))
    if (file.lines.size() > 500) found += file.path + " has " + std::to_string(file.lines.size()) + " lines\n";
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("public headers describe in their first line what they declare") {
  std::string found;
  for (const SourceFile& file : source_files({"include"}))
    if (file.lines.empty() || (file.lines[0].text.rfind("// ", 0) != 0 && file.lines[0].text.rfind("/* ", 0) != 0))
      found += file.path + "\n";
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("headers have #pragma once, and nothing is left for later") {
  std::string found;
  const std::regex later(R"(\b(TODO|FIXME|XXX|HACK)\b)");
  for (const SourceFile& file : source_files({"include", "src", "cuda", "apps", "tests"})) {
    bool once = !file.ends_with(".h");
    for (const Line& line : file.lines) {
      once = once || line.text == "#pragma once";
      if (!file.starts_with("tests/lint/") && std::regex_search(line.text, later))
        found += at(file, line.number, line.text);
    }
    if (!once) found += file.path + " has no #pragma once\n";
  }
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("cases that a device skips have a reason") {
  std::string found;
  int cases = 0;
  for (const SourceFile& file : source_files({"tests"})) {
    if (file.starts_with("tests/lint/")) continue;
    bool reason = false;
    for (const Line& line : file.lines) {
      reason = reason || line.text.find("// [cpu]: ") != std::string::npos;
      if (line.text.find("[cpu]\"") == std::string::npos) continue;
      ++cases;
      if (!reason) found += at(file, line.number, line.text);
    }
  }
  INFO(found);
  CHECK(found.empty());
  CHECK(cases > 100);
}

TEST_CASE("the lint rules see what they forbid") {
  CHECK(code_of("a = \"// exit(1)\"; // std::cout") == "a = \"; ");
  CHECK(closure("quant") == std::set<std::string>{"quant", "tensor", "kernels", "dtype", "base"});
  CHECK(closure("train").count("apps") == 0);
  CHECK(included_layer({1, "bitgrad/nn/module.h", false}) == "nn");
  CHECK(included_layer({1, "kernels/gemm/kernels.h", false}) == "kernels");
  CHECK(included_layer({1, "bitgrad/bitgrad.h", false}) == "bitgrad");
  CHECK(closure("train").count("bitgrad") == 0);
  CHECK(included_layer({1, "vector", true}).empty());
  CHECK(layer_of("include/bitgrad/io/sha256.h") == "io");
  for (const char* line :
       {"if (k == \"relu\")", "is_one_of(kind, {\"tanh\", \"relu\"})", "{\"relu\", true}", "{\"relu\"}"})
    CHECK(std::regex_search(std::string(line), asks_for("relu")));
  for (const char* line : {"spec.kind = \"relu\";", "find_loss(\"relu\")", "{\"relu\", count}", "k == \"relu2\""})
    CHECK(!std::regex_search(std::string(line), asks_for("relu")));
  SourceFile file{"a.cpp", {}};
  int number = 0;
  for (const char* text :
       {"int one() { return 1; }", "class A {", " public:", "  void two(int a,", "           int b) {", "    three();",
        "  }", "};", "static int four(", "    int a) {", "  if (a) {", "  }", "}", "int x = four(1);"})
    file.lines.push_back({++number, text, code_of(text)});
  const std::vector<Function> functions = functions_of(file);
  REQUIRE(functions.size() == 2);
  CHECK((functions[0].line == 9 && functions[0].lines == 5));
  CHECK((functions[1].line == 4 && functions[1].lines == 4));
}
