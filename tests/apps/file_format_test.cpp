// docs/file_format.md: its Python runs on files that the program and the library make, and every key of such files
// stands in it.
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/bitgrad.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string page() { return slurp(source_path("docs/file_format.md")); }

// The Python of the page, as it stands there.
std::string blocks() {
  std::istringstream lines(page());
  std::string out, line;
  int count = 0;
  for (bool inside = false; std::getline(lines, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = line == "```python";
      count += inside ? 1 : 0;
    } else if (inside) {
      out += line + '\n';
    }
  }
  REQUIRE(count == 3);
  return out;
}

// A Python that has NumPy; empty: there is none.
const std::string& python() {
  static const std::string found = [] {
    for (const std::string& candidate : {std::string(BITGRAD_PYTHON), std::string("/usr/bin/python3")})
      if (!candidate.empty() && run_program({candidate, "-c", "import numpy"}).code == 0) return candidate;
    return std::string();
  }();
  return found;
}
bool skipped_without_numpy() {
  if (python().empty()) WARN("skipped: no python3 with NumPy (Debian: python3-numpy)");
  return python().empty();
}

// What follows the blocks, for arguments.
std::string run_page(const TempDir& temp, const std::string& program, std::vector<std::string> arguments) {
  write_file_atomically(temp.file("page.py"), blocks() + program);
  arguments.insert(arguments.begin(), {python(), "-W", "error", temp.file("page.py")});
  const ProcessResult r = run_program(arguments);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return r.out;
}

struct Values {
  std::vector<int64_t> shape = {};
  std::string bytes = {};  // of fp32
  bool operator==(const Values&) const = default;
};
using Weights = std::map<std::string, Values>;

Values values_of(const Tensor& t) {
  Values out{t.shape().dims(), {}};
  const std::vector<double> numbers = t.elements();
  for (const double number : numbers) {
    const auto x = static_cast<float>(number);
    out.bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  return out;
}

// The weights of files by the page's reader, and their plain tensors as "tensor <name>".
constexpr const char* kWriteWeights = R"py(
import sys
for i, path in enumerate(sys.argv[2:]):
    metadata, tensors, weights = read(path)
    for x in weights.values(): assert x.dtype == np.float32, x.dtype
    codes = json.loads(metadata.get("bitgrad.tensors", "{}"))
    parts = {name[:-5] + part for name in codes for part in ("codes", "scale", "zero", "offset", "statistic")}
    plain = {"tensor " + name: x.astype(np.float32) for name, x in tensors.items() if name not in parts}
    with open(f"{sys.argv[1]}.{i}", "ab") as out:
        for name, x in {**weights, **plain}.items():
            text = json.dumps({"name": name, "shape": x.shape, "bytes": x.nbytes})
            out.write(text.encode() + b"\n" + np.ascontiguousarray(x, "<f4").tobytes())
)py";
std::vector<Weights> read_by_page(const TempDir& temp, std::vector<std::string> files) {
  const std::string out = temp.file("weights");
  const size_t count = files.size();
  for (size_t i = 0; i < count; ++i) write_file_atomically(out + "." + std::to_string(i), "");
  files.insert(files.begin(), out);
  run_page(temp, kWriteWeights, files);
  std::vector<Weights> all(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string text = slurp(out + "." + std::to_string(i));
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      const Json line = Json::parse(text.substr(at, end - at));
      Values& to = all[i][line.at("name").text()];
      for (const Json& size : line.at("shape")) to.shape.push_back(size.get<int64_t>());
      const auto bytes = line.at("bytes").get<size_t>();
      to.bytes = text.substr(end + 1, bytes);
      at = end + 1 + bytes;
    }
  }
  return all;
}

// The same by the library: the values of codes, else the master or the fp32 value; and the plain tensors.
Weights read_by_library(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  Weights out;
  for (const auto& [name, t] : load_tensors(path)) {
    const size_t dot = name.rfind('.');
    const std::string end = dot == std::string::npos ? "" : name.substr(dot);
    if (file.contains(name + ".codes")) {
      out[name] = values_of(dequantize_tensor(t));
      continue;
    }
    out["tensor " + name] = values_of(t);
    if (end == ".master" || end == ".value") out.emplace(name.substr(0, dot), values_of(t));
  }
  return out;
}

void check_equal(const Weights& got, const Weights& expected) {
  for (const auto& [name, values] : expected) {
    INFO(name);
    REQUIRE(got.count(name) == 1);
    CHECK(got.at(name).shape == values.shape);
    CHECK(got.at(name).bytes == values.bytes);
  }
  CHECK(got.size() == expected.size());
}

void train_at(const std::string& folder, const std::string& yaml, const TempDir& temp) {
  write_file_atomically(temp.file("config.yaml"), yaml);
  const ProcessResult r = cli({"train", temp.file("config.yaml"), "--out", folder});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
}

const std::string kHead =
    "version: 1\nrun: {name: small, bits: strict}\ndata:\n  train: {format: digits, size: 120}\n  test: {format: "
    "digits, size: 60}\nbatch: {global: 20}\nlog: {every: 3 steps, quantization: 1 epochs}\n";

// Learned steps of weights and of a quantize layer, norms, containers.
const std::string kLearned = kHead + R"yaml(model:
  layers:
    - linear: {out: 24, weights: {dtype: fp32}}
    - residual: {body: [{quantize: {}}, {linear: {out: 24}}, {batch_norm: {}}, {relu: {}}]}
    - linear: {out: 10}
quant:
  weights: {dtype: int4, scheme: lsq_plus, granularity: channel}
  activations: {dtype: int8, scheme: lsq}
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs}
)yaml";

// A layer for each recipe of weights; int8 moments.
const std::string kRecipes = kHead + R"yaml(model:
  layers:
    - linear: {out: 13}
    - linear: {out: 35}
    - linear: {out: 67}
    - linear: {out: 31}
    - linear: {out: 33}
    - linear: {out: 65}
    - linear: {out: 19}
    - linear: {out: 40}
    - linear: {out: 10}
quant:
  rules:
    - {layers: layers.0, recipe: int4wo}
    - {layers: layers.1, recipe: int3wo}
    - {layers: layers.2, recipe: ternary_wo}
    - {layers: layers.3, recipe: binary_wo}
    - {layers: layers.4, recipe: nf4wo}
    - {layers: layers.5, recipe: int5wo}
    - {layers: layers.6, recipe: 8da4w}
    - {layers: layers.7, recipe: w8a8}
    - {layers: layers.8, recipe: w1a2}
optim: {name: adam, lr: 0.001, moments: int8}
train: {stop: 2 epochs}
)yaml";

// Codes that train without masters, bf16 masters, zero points, an observed input; another metric picks the best model.
const std::string kMasters = kHead + R"yaml(model:
  layers:
    - linear: {out: 21, weights: {dtype: int8, scheme: affine, granularity: channel, master: none}}
    - linear: {out: 17, weights: {dtype: int5, scheme: affine, granularity: channel, master: bf16}}
    - quantize: {dtype: int8, scheme: affine, observer: {name: percentile}}
    - linear: {out: 10, weights: {dtype: int7, scheme: absmax, granularity: channel, master: none}}
optim: {name: sgd, lr: 0.01, momentum: 0.9, moments: bf16}
train: {stop: 2 epochs, best: loss}
)yaml";

// Two phases of quantization.
const std::string kPhases = kHead + R"yaml(model: {layers: [{linear: {out: 16}}, {relu: {}}, {linear: {out: 10}}]}
quant: {recipe: int4wo, phases: [{from: 0 steps, quantization: off}, {from: 4 steps, quantization: on}]}
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs}
)yaml";

// By the page and by the run itself.
constexpr const char* kPrintHash = "\nimport sys\nprint(state_hash(sys.argv[1], len(sys.argv) > 2))\n";
void check_hash(const TempDir& temp, const std::string& folder, const std::vector<std::string>& phases = {}) {
  std::vector<std::string> arguments{folder + "/last.safetensors"};
  arguments.insert(arguments.end(), phases.begin(), phases.end());
  const std::string hash = Json::parse(slurp(folder + "/summary.json")).at("state_hash").text();
  CHECK(run_page(temp, kPrintHash, arguments) == hash + "\n");
}

// Keys of JSON, of objects in objects and lists too, but not below the members in `names`, whose keys are names.
void collect_keys(const Json& j, const std::set<std::string>& names, std::set<std::string>& keys) {
  if (j.is_object())
    for (const auto& [key, value] : j.members()) {
      keys.insert(key);
      if (names.count(key) == 0) collect_keys(value, names, keys);
    }
  if (j.is_array())
    for (const Json& item : j) collect_keys(item, names, keys);
}

bool stands_in_page(const std::string& text, const std::string& key) { return contains(text, '`' + key + '`'); }

}  // namespace

TEST_CASE("the reader of docs/file_format.md gives the values of every dtype and granularity bit for bit") {
  if (skipped_without_numpy()) return;
  TempDir temp;
  register_dtype({.name = "of_file_format_test", .bits = 3, .kind = DTypeKind::kCodebook, .levels = {-2, -0.3f, 0, 1}});
  const Granularity granularities[] = {Granularity::tensor(),    Granularity::channel(0),  Granularity::channel(1),
                                       Granularity::channel(-1), Granularity::token(),     Granularity::groups(5),
                                       Granularity::groups(64),  Granularity::groups(3, 0)};
  const Shape shapes[] = {Shape{1, 1},  Shape{9},        Shape{3, 8},  Shape{4, 63},
                          Shape{7, 65}, Shape{2, 3, 17}, Shape{5, 130}};
  NamedTensors tensors;
  size_t next = 0;
  for (const DType dtype : all_dtypes()) {
    if (!dtype.is_code()) continue;
    for (const Granularity& granularity : granularities)
      for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) {
        const Shape& shape = shapes[next++ % std::size(shapes)];
        if (granularity.kind == Granularity::kGroup && granularity.axis == 0 && shape.rank() != 2) continue;
        if (zero == ZeroKind::kInteger && (dtype.info().qmin > -3 || dtype.info().qmax < 3)) continue;
        tensors[concat(dtype, ' ', granularity, ' ', granularity.axis, ' ', static_cast<int>(zero))] =
            random_codes(shape, dtype, next, granularity, zero);
      }
    if (dtype != dtypes::int8 && dtype != dtypes::uint8)
      for (const Shape& shape : {Shape{}, Shape{3, 11}, Shape{0, 5}})
        tensors[concat(dtype, " bare ", shape)] = random_tensor(shape, dtype, next++);
  }
  for (const DType dtype : {dtypes::fp64, dtypes::fp32, dtypes::fp16, dtypes::bf16, dtypes::int64, dtypes::int32,
                            dtypes::int8, dtypes::uint8})
    tensors[concat("plain ", dtype)] = random_tensor({3, 5}, dtype, next++);
  REQUIRE(tensors.size() > 300);
  const std::string path = temp.file("all.safetensors");
  save_tensors(path, tensors);
  Weights expected;
  for (const auto& [name, t] : tensors) {
    const bool plain = name.starts_with("plain ");
    expected[plain ? "tensor " + name : name] = values_of(plain ? t : dequantize_tensor(t));
  }
  check_equal(read_by_page(temp, {path})[0], expected);
}

TEST_CASE("the reader of docs/file_format.md gives the weights of runs and of converted models") {
  if (skipped_without_numpy()) return;
  TempDir temp;
  std::vector<std::string> files;
  for (const std::string& yaml : {kLearned, kRecipes, kMasters}) {
    const std::string folder = temp.file("run" + std::to_string(files.size()));
    train_at(folder, yaml, temp);
    REQUIRE(cli({"convert", folder, "-o", folder + "/../" + std::to_string(files.size()) + ".safetensors"}).code == 0);
    check_hash(temp, folder);
    for (const char* name : {"last", "best"}) files.push_back(folder + "/" + name + ".safetensors");
    files.push_back(temp.file(std::to_string(files.size() - 2) + ".safetensors"));
  }
  train_at(temp.file("phases"), kPhases, temp);
  check_hash(temp, temp.file("phases"), {"phases"});
  const std::vector<Weights> all = read_by_page(temp, files);
  std::set<std::string> dtypes;
  for (size_t i = 0; i < files.size(); ++i) {
    INFO(files[i]);
    check_equal(all[i], read_by_library(files[i]));
    // And what the model computes with.
    const auto learner = load_evaluator(files[i], find_loss("softmax_cross_entropy"));
    for (const Parameter* p : learner->model().parameters()) {
      INFO(p->path());
      if (p->low_bit()) dtypes.insert(p->spec().dtype().name());
      const Values expected = values_of(p->low_bit() ? dequantize_tensor(p->value()) : p->value());
      REQUIRE(all[i].count(p->path()) == 1);
      CHECK(all[i].at(p->path()) == expected);
    }
  }
  CHECK(dtypes == std::set<std::string>{"bint1", "int3", "int4", "int5", "int7", "int8", "nf4", "ternary", "uint4"});
}

TEST_CASE("the writer of docs/file_format.md makes the bytes of the program, and files that it reads") {
  if (skipped_without_numpy()) return;
  TempDir temp;
  const std::string folder = temp.file("run"), again = temp.file("again");
  train_at(folder, kLearned, temp);
  run_page(temp, "\nimport sys\nwrite(sys.argv[2], *parse(sys.argv[1]))\n", {folder + "/last.safetensors", again});
  CHECK(slurp(again) == slurp(folder + "/last.safetensors"));
  constexpr const char* kMake = R"py(
import sys
record = {"dtype": {"name": "int3", "bits": 3, "kind": "int", "qmin": -4, "qmax": 3}, "shape": [2, 5],
          "scheme": "symmetric", "granularity": {"kind": 1, "axis": 0, "group": 0, "text": "channel(0)"}}
codes = pack([[1, -1, 3, -4, 2], [0, 3, -3, -2, 1]], 3)
assert codes[0, :2].tolist() == [0xF9, 0x28], codes
write(sys.argv[1], {"bitgrad.tensors": json.dumps({"w.codes": record})},
      {"w.codes": ("U8", codes.shape, codes.tobytes()), "w.scale": ("F32", [2], np.float32([0.5, 2]).tobytes())})
)py";
  // A converted file with no more than the page asks for.
  constexpr const char* kLeast = R"py(
import sys
metadata, entries = parse(sys.argv[1])
least = {key: metadata[key] for key in ("bitgrad.kind", "bitgrad.tensors", "bitgrad.state", "bitgrad.model")}
write(sys.argv[2], {**least, "bitgrad.config": "", "bitgrad.kernels": "", "own": "text"}, entries)
)py";
  REQUIRE(cli({"convert", folder, "-o", temp.file("model")}).code == 0);
  run_page(temp, kLeast, {temp.file("model"), temp.file("least")});
  const auto learner = load_evaluator(temp.file("least"), find_loss("softmax_cross_entropy"));
  const auto model = load_evaluator(temp.file("model"), find_loss("softmax_cross_entropy"));
  const Tensor x = random_tensor({4, 784}, dtypes::fp32, 1);
  CHECK(learner->predict(x).elements() == model->predict(x).elements());
  const ProcessResult inspected = cli({"inspect", temp.file("least")});
  INFO(inspected.err);
  CHECK(inspected.code == 0);
  run_page(temp, kMake, {temp.file("made")});
  CHECK(SafetensorsFile::read(temp.file("made")).has_checksums());
  const Tensor w = load_tensors(temp.file("made")).at("w");
  CHECK(w.dtype() == dtypes::int3);
  CHECK(dequantize_tensor(w).elements() == std::vector<double>{0.5, -0.5, 1.5, -2, 1, 0, 6, -6, -4, 2});
}

// A model of text: its files hold the tokenizer.
const std::string kOfText = R"yaml(version: 1
run: {name: text, seed: 3}
data:
  tokenizer: bytes
  train: {format: tokens, file: ")yaml" +
                            source_path() + R"yaml(/README.md", context: 8, order: random}
  test: {format: tokens, file: ")yaml" +
                            source_path() + R"yaml(/README.md", context: 8}
model: {layers: [{embedding: {num: 256, dim: 8, flat: false}}, {linear: {out: 256}}]}
batch: {global: 8}
optim: {name: adamw, lr: 0.01}
train: {stop: 4 steps}
)yaml";

const std::string kOfTable = R"yaml(version: 1
run: {name: table}
data: {train: {format: csv, file: t.csv, target: k, fill: mean}}
model: {layers: [{linear: {out: 2}}]}
batch: {global: 2}
optim: {name: sgd, lr: 0.01}
train: {stop: 4 steps}
)yaml";

TEST_CASE("docs/file_format.md names every key, tensor and file that a run writes, and no other key of metadata") {
  TempDir temp;
  write_file_atomically(temp.file("t.csv"), "x,c,k\n1,red,no\n,blue,yes\n3,red,no\n");
  const std::string text = page(), folder = temp.file("run");
  std::set<std::string> metadata, keys, parts, files;
  for (const std::string& yaml : {kLearned, kRecipes, kMasters, kOfText, kOfTable}) {
    std::filesystem::remove_all(folder);
    train_at(folder, yaml, temp);
    REQUIRE(cli({"convert", folder, "-o", temp.file("model"), "--force"}).code == 0);
    for (const std::string& path : {folder + "/last.safetensors", temp.file("model")}) {
      const SafetensorsFile file = SafetensorsFile::read(path);
      for (const auto& [key, value] : file.metadata()) {
        metadata.insert(key);
        if (value.front() == '{' && key != "bitgrad.tensors") collect_keys(Json::parse(value), {"attributes"}, keys);
        if (key != "bitgrad.tensors") continue;
        const Json records = Json::parse(value);  // by names of tensors
        for (const auto& [name, record] : records.members()) collect_keys(record, {}, keys);
      }
      for (const SafetensorsEntry& e : file.entries()) parts.insert(e.name.substr(e.name.rfind('.') + 1));
    }
    collect_keys(Json::parse(slurp(folder + "/summary.json")), {}, keys);
    std::istringstream lines(slurp(folder + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) collect_keys(Json::parse(line), {}, keys);
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files.insert(entry.path().filename().string());
  }
  metadata.insert("bitgrad.origin");  // of imported models alone
  CHECK(metadata.size() == 12);
  CHECK(keys.size() > 100);
  CHECK(parts.size() > 10);
  CHECK(files.size() == 11);
  for (const auto* names : {&metadata, &keys, &files})
    for (const std::string& name : *names) {
      INFO(name);
      CHECK(stands_in_page(text, name));
    }
  for (const std::string& part : parts) {
    INFO(part);
    CHECK((stands_in_page(text, part) || contains(text, '.' + part + '`')));
  }
  std::set<std::string> named;
  const std::regex key("`(bitgrad\\.[a-z0-9_]+)`");
  for (std::sregex_iterator at(text.begin(), text.end(), key), end; at != end; ++at) named.insert((*at)[1]);
  CHECK(named == metadata);
}
