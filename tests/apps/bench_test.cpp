// The benchmark programs as their users run them: arguments, reports, comparison with older reports. Shapes are small:
// no figure is judged here but by files that the test writes.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "bitgrad/base/json.h"
#include "bitgrad/kernels/gemm.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/needs.h"
#include "support/paths.h"
#include "support/subprocess.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

ProcessResult bench(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), build_path("bin/") + name);
  return run_program(arguments);
}

Json read(const std::string& path) { return Json::parse(slurp(path)); }
Json rows_of(const std::string& path) { return read(path).at("rows"); }
void write(const std::string& path, const Json& json) { std::ofstream(path) << json.dump(); }

const std::vector<std::string> kGemm{"--shape",  "33,48,70",  "--dtypes", "bint1,bint1",
                                     "--dtypes", "fp32,int4", "--repeat", "2"};
const std::vector<std::string> kStep{"--shape", "20,48,33", "--repeat", "2"};
const std::vector<std::string> kKernels{"--shape", "20,100", "--dtypes", "int4", "--copy-mib", "1", "--repeat", "1"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void scale_ratios(Json& report, const std::string& field, double factor) {
  for (Json& row : report.at("rows"))
    if (row.at(field).is_number()) row[field] = row[field].get<double>() * factor;
}

// A run against its own report passes, against one with ratios a thousand times better it fails, against one with
// nothing to compare it fails too.
void check_compare(const std::string& program, const std::vector<std::string>& arguments, const std::string& field) {
  TempDir temp;
  const std::string file = temp.file("old.json");
  const ProcessResult first = bench(program, with(arguments, {"--json", file}));
  INFO(first.err);
  REQUIRE(first.code == 0);
  const Json report = read(file);
  // A line for each member and each row; three more for the brackets.
  const std::string text = slurp(file);
  CHECK(std::count(text.begin(), text.end(), '\n') ==
        std::ssize(report.members()) + std::ssize(report.at("rows").items()) + 3);
  CHECK(report.at("threads") == 1);
  for (const char* key : {"machine", "cpu", "isa"}) CHECK_FALSE(report.at(key).get<std::string>().empty());
  bool ratios = true;
  for (const Json& row : report.at("rows")) ratios = ratios && row.contains(field) && row.at(field).is_number();
  if (!ratios) {
    WARN("skipped: built without oneDNN");
    return;
  }
  Json slower = report, faster = report, other = report;
  scale_ratios(slower, field, 1e-3);
  scale_ratios(faster, field, 1e3);
  for (Json& row : other["rows"]) row.erase(field);
  write(temp.file("slower.json"), slower);
  write(temp.file("faster.json"), faster);
  write(temp.file("other.json"), other);
  const ProcessResult good = bench(program, with(arguments, {"--compare", temp.file("slower.json")}));
  INFO(good.err);
  CHECK(good.code == 0);
  CHECK(contains(good.out, std::to_string(report.at("rows").size()) + " results compared, 0 lost"));
  const ProcessResult bad = bench(program, with(arguments, {"--compare", temp.file("faster.json")}));
  CHECK(bad.code == 1);
  CHECK(contains(bad.out, "LOST"));
  CHECK(bench(program, with(arguments, {"--compare", temp.file("faster.json"), "--slack", "0"})).code == 0);
  const ProcessResult nothing = bench(program, with(arguments, {"--compare", temp.file("other.json")}));
  CHECK(nothing.code == 1);
  CHECK(contains(nothing.out, "0 results compared"));
  write(temp.file("no_report.json"), Json::array());
  const ProcessResult refused = bench(program, with(arguments, {"--compare", temp.file("no_report.json")}));
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "is not a report"));
}

#if BITGRAD_WITH_ONEDNN
// Whether our kernel that calls oneDNN in bf16 takes a plain product here: with AVX-512, unless oneDNN is capped lower.
bool our_onednn_takes_bf16() {
  using namespace bitgrad;
  kernels::GemmArgs args;
  args.m = args.n = args.ldc = args.k = 64;
  args.a.dtype = args.b.dtype = dtypes::bf16;
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels())
    if (kernel.name == "gemm_bf16_onednn") return kernel.usable(args);
  return false;
}
// Whether oneDNN gives the benchmarks a product in bf16: bench_gemm leaves out a rival that it refuses.
bool onednn_has_bf16() {
  TempDir temp;
  const ProcessResult r = bench("bench_gemm", {"--shape", "20,48,33", "--rivals", "onednn_f32,onednn_bf16", "--repeat",
                                               "1", "--json", temp.file("r.json")});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const bool has = rows_of(temp.file("r.json"))[0].contains("x_onednn_bf16");
  if (our_onednn_takes_bf16()) CHECK(has);
  return has;
}
#endif

}  // namespace

TEST_CASE("bench_gemm compares the ratio of each row with an older report") {
  check_compare("bench_gemm", kGemm, "x_onednn_f32");
}
TEST_CASE("bench_step compares the ratio of each row with an older report") {
  check_compare("bench_step", kStep, "x_onednn_f32");
}
TEST_CASE("bench_kernels compares the share of each row with an older report") {
  check_compare("bench_kernels", with(kKernels, {"--family", "pack"}), "copy_share");
  check_compare("bench_kernels", with(kKernels, {"--family", "quantize", "--kernel", "_", "--in-cache"}), "copy_share");
}

TEST_CASE("bench_kernels reports bytes, speed and share of the copy of every family") {
  TempDir temp;
  const std::string file = temp.file("r.json");
  const ProcessResult r = bench("bench_kernels", {"--shape", "20,100", "--dtypes", "bint1,int8", "--copy-mib", "1",
                                                  "--repeat", "1", "--json", file});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json report = read(file);
  CHECK(report.at("copy_gb_s") > 0);
  CHECK_FALSE(report.at("device").get<std::string>().empty());
  std::map<std::string, double> bytes;
  std::set<std::string> families;
  for (const Json& row : report.at("rows")) {
    INFO(row.dump());
    families.insert(row.at("family").text());
    CHECK(row.at("rows") == 20);
    CHECK(row.at("cols") == 100);
    CHECK(row.at("us") > 0);
    CHECK(row.at("copy_share") > 0);
    const double moved = row.at("gb_s").get<double>() * row.at("us").get<double>() * 1000;
    CHECK(std::abs(moved / row.at("bytes").get<double>() - 1) < 1e-6);
    bytes[row.at("what").get<std::string>() + " " + row.at("dtype").get<std::string>()] = row.at("bytes").get<double>();
  }
  CHECK(families ==
        std::set<std::string>{"elementwise", "optimizer", "pack", "pointwise", "quantize", "reduce", "rowwise"});
  const double n = 20 * 100;
  CHECK(bytes.at("add fp32") == 12 * n);
  CHECK(bytes.at("adamw fp32") == 28 * n);
  CHECK(bytes.at("quantize int8") == 4 * n + 20 * 104);
  CHECK(bytes.at("quantize bint1") == 4 * n + 20 * 16);
  CHECK(bytes.at("signs of a norm bint1") == 4 * n + 20 * 16);
  CHECK(bytes.at("gradients bf16 stochastically by row and column int8") == 2 * n + 2 * 20 * 104);
  CHECK(bytes.at("step of adamw, moments fp32 int8") > 28 * n + 20 * 104);
  CHECK(bytes.at("means to 8 bits fp32") == (5 + 4.0 / 256) * n);
  CHECK(bytes.at("squares from 4 bits fp32") == (4.5 + 4.0 / 256) * n);
  const ProcessResult one =
      bench("bench_kernels", with(kKernels, {"--family", "optimizer", "--what", "sgd", "--json", file}));
  REQUIRE(one.code == 0);
  CHECK(rows_of(file).size() == 2);
}

TEST_CASE("bench_kernels accepts matrices that are smaller than a line of any layout") {
  for (const char* shape : {"1,1", "1,8", "2,3"}) {
    const ProcessResult r =
        bench("bench_kernels", {"--shape", shape, "--dtypes", "int8,int4,bint1", "--copy-mib", "1", "--repeat", "1"});
    INFO(shape << ' ' << r.err);
    CHECK(r.code == 0);
  }
}

TEST_CASE("bench_kernels reports every layout there and back, and each usable kernel") {
  TempDir temp;
  const std::string file = temp.file("r.json");
  const auto rows = [&](const std::vector<std::string>& more) {
    const ProcessResult r = bench(
        "bench_kernels",
        with({"--shape", "20,100", "--dtypes", "bint1,uint4", "--repeat", "1", "--in-cache", "--json", file}, more));
    INFO(r.err);
    REQUIRE(r.code == 0);
    return rows_of(file);
  };
  std::set<std::string> what, layouts;
  for (const Json& row : rows({"--family", "pack,quantize"})) {
    what.insert(row.at("what").text());
    layouts.insert(row.at("layout").text());
    CHECK(std::abs(row.at("ns_per_element").get<double>() * 20 * 100 / 1000 / row.at("us").get<double>() - 1) < 1e-6);
  }
  for (const char* name :
       {"dequantize", "pack", "quantize", "quantize stochastically", "quantize, clip mask", "unpack"})
    CHECK(what.count(name) == 1);
  for (const char* layout : {"canonical", "panels16", "planes", "transposed"}) CHECK(layouts.count(layout) == 1);
  std::map<std::string, std::set<std::string>> kernels;
  for (const Json& row : rows({"--kernel", "_scalar"}))
    kernels[row.at("what").text() + " " + row.at("dtype").text()].insert(row.at("kernel").text());
  CHECK(kernels.at("quantize bint1") == std::set<std::string>{"quantize_any_scalar", "quantize_sign_scalar"});
  CHECK(kernels.at("quantize uint4") == std::set<std::string>{"quantize_any_scalar"});
  CHECK(kernels.at("pack uint4") == std::set<std::string>{"pack_layout_scalar"});
  CHECK(kernels.count("add fp32") == 0);
}

TEST_CASE("bench_gemm reports each row, its share of the unit and every rival, for products in backward order too") {
  TempDir temp;
  const std::string file = temp.file("r.json");
  const ProcessResult r = bench("bench_gemm", with(kGemm, {"--product", "forward,gx,gw", "--json", file}));
  INFO(r.err);
  REQUIRE(r.code == 0);
  std::set<std::string> products;
#if BITGRAD_WITH_ONEDNN
  const bool bf16 = onednn_has_bf16();
#endif
  for (const Json& row : rows_of(file)) {
    products.insert(row.at("product").text());
    CHECK(row.at("gmacs") > 0);
    CHECK(row.at("m") == 33);
    CHECK(row.at("a_k_major") == (row.at("product") == "gw"));
    CHECK(row.at("b_k_major") == (row.at("product") != "forward"));
    CHECK((row.at("peak_fraction").is_null() || row.at("peak_fraction") > 0));
#if BITGRAD_WITH_ONEDNN
    for (const char* rival : {"x_onednn_f32", "x_onednn_u8s8", "x_onednn_s8s8"}) CHECK(row.at(rival) > 0);
    CHECK(row.contains("x_onednn_bf16") == bf16);
    if (bf16) CHECK(row.at("x_onednn_bf16") > 0);
#endif
  }
  CHECK(products == std::set<std::string>{"forward", "gw", "gx"});
  const ProcessResult none = bench("bench_gemm", with(kGemm, {"--rivals", "none", "--b-k-major", "--json", file}));
  REQUIRE(none.code == 0);
  for (const Json& row : rows_of(file)) {
    CHECK_FALSE(row.contains("x_onednn_f32"));
    CHECK(row.at("b_k_major") == true);
  }
}

TEST_CASE("bench_gemm reports every product and mode of a convolution, its moves and every rival") {
  TempDir temp;
  const std::string file = temp.file("r.json");
  const std::vector<std::string> conv{
      "--conv",   "--shape",    "2,6,5,3,4,3,2,1", "--dtypes", "bint1,bint1", "--dtypes", "uint4,int4",
      "--dtypes", "fp32,bint1", "--repeat",        "2",        "--json",      file};
  const ProcessResult r = bench("bench_gemm", conv);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "2 images 6 x 5 x 3 -> 3 x 3 x 4, kernel 3, stride 2, pad 1"));
  std::set<std::string> products;
  for (const Json& row : rows_of(file)) {
    CHECK(products.insert(row.at("product").text() + ' ' + row.at("a").text() + ' ' + row.at("b").text()).second);
    CHECK(row.at("shape") == "2,6,5,3,4,3,2,1");
    CHECK(row.at("ms") > 0);
    CHECK(row.at("moves_share") > 0);
    const double macs = 2 * 3 * 3 * 4 * (3 * 3 * 3);
    CHECK(std::abs(row.at("gmacs").get<double>() * row.at("ms").get<double>() * 1e6 / macs - 1) < 1e-6);
#if BITGRAD_WITH_ONEDNN
    for (const char* rival : {"x_onednn_f32", "x_onednn_f32_nhwc"}) CHECK(row.at(rival) > 0);
#endif
  }
  // gx does not read the images, gw not the weights; floats have no int8 gradient.
  CHECK(products == std::set<std::string>{"forward bint1 bint1", "forward fp32 bint1", "forward uint4 int4",
                                          "gw bf16 bint1", "gw bf16 fp32", "gw bf16 uint4", "gw fp32 bint1",
                                          "gw fp32 fp32", "gw fp32 uint4", "gw int8 bint1", "gw int8 uint4",
                                          "gx bf16 bint1", "gx bf16 int4", "gx fp32 bint1", "gx fp32 int4",
                                          "gx int8 bint1", "gx int8 int4"});
  check_compare("bench_gemm", {"--conv", "--shape", "1,4,4,2,2,2,1,0", "--product", "forward", "--repeat", "2"},
                "x_onednn_f32");
}

TEST_CASE("the guard knows its machine, sees a slower row and a row that is gone, and passes on other machines") {
  TempDir temp;
  const std::string file = temp.file("guard.json");
  const std::vector<std::string> few{"--shape", "40,48,64", "--dtypes", "bint1,bint1", "--repeat", "2"};
  const auto guarded = [&] { return bench("bench_gemm", with(few, {"--guard", file, "--slack", "0.001"})); };
  const ProcessResult recorded = bench("bench_gemm", with(few, {"--record", file}));
  INFO(recorded.out << recorded.err);
#if !BITGRAD_WITH_ONEDNN
  CHECK(recorded.code == 2);
  return;
#endif
  if (skipped_without(bitgrad::isa::kAvx2)) {  // no fast row to record
    CHECK(recorded.code == 2);
    CHECK(contains(recorded.err, "no result has a rival"));
    return;
  }
  REQUIRE(recorded.code == 0);
  const Json good = read(file);
  REQUIRE(good.at("machines").size() == 1);
  CHECK(guarded().code == 0);

  Json bad = good;
  Json& ratios = bad["machines"][0]["ratios"];
  const Json before = ratios;
  for (const auto& [key, ratio] : before.members()) ratios[key] = ratio.get<double>() * 1e6;
  write(file, bad);
  const ProcessResult lost = guarded();
  CHECK(lost.code == 1);
  CHECK(contains(lost.out, "LOST"));

  bad = good;
  bad["machines"][0]["ratios"]["bint1 bint1 40 48 64 forward a_row_of_old"] = 2.0;
  write(file, bad);
  const ProcessResult gone = guarded();
  CHECK(gone.code == 1);
  CHECK(contains(gone.out, "a_row_of_old: recorded, but missing now"));

  bad = good;
  bad["machines"][0]["cpu"] = "another 1/2";
  write(file, bad);
  const ProcessResult other = guarded();
  CHECK(other.code == 0);
  CHECK(contains(other.out, "no results of this machine"));
  REQUIRE(bench("bench_gemm", with(few, {"--record", file})).code == 0);
  CHECK(read(file).at("machines").size() == 2);
  CHECK(bench("bench_gemm", with(few, {"--record", file})).code == 0);
  CHECK(read(file).at("machines").size() == 2);
  CHECK(bench("bench_gemm", with(few, {"--guard", temp.file("none.json")})).code == 2);
}

TEST_CASE("bench_step reports the whole step, its parts, both rivals and the bytes by kind") {
  TempDir temp;
  const std::string file = temp.file("r.json");
  const ProcessResult r = bench("bench_step", with(kStep, {"--layer", "binary,w4a8", "--net", "tfc", "--batch", "4",
                                                           "--grad", "int8", "--moments", "bf16", "--json", file}));
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json rows = read(file).at("rows");
  REQUIRE(rows.size() == 4);
#if BITGRAD_WITH_ONEDNN
  const bool bf16 = onednn_has_bf16();
#endif
  for (const Json& row : rows) {
    const bool net = row.contains("net");
    CHECK(row.at("shape") == (net ? "4,784,64,64,64,10" : "20,48,33"));
    CHECK(row.at("grad") == "int8");
    CHECK(row.at("moments") == "bf16");
    CHECK(row.at("master") == "fp32");
    CHECK(row.at("ms") > 0);
    CHECK(row.at("fused").is_bool());
    CHECK(row.at("parts").contains("forward"));
    CHECK(row.at("parts").contains("gx") == !net);
    CHECK(row.at("parts").contains("requantize"));
#if BITGRAD_WITH_ONEDNN
    CHECK(row.at("x_onednn_f32") > 0);
    CHECK(row.at("onednn_f32_parts").at("gw") > 0);
    CHECK(row.contains("onednn_bf16_ms") == bf16);
    CHECK(row.contains("onednn_bf16_parts") == bf16);
    CHECK(row.at("x_onednn_bf16").is_number() == bf16);  // null where oneDNN has no bf16
    if (bf16) CHECK(row.at("x_onednn_bf16") > 0);
#endif
    const int64_t weights = net ? 784 * 64 + 2 * 64 * 64 + 64 * 10 : 48 * 33;
    CHECK(row.at("bytes").at("master") >= weights * 4);
    CHECK(row.at("bytes").at("optimizer") >= weights * 4);
    CHECK(row.at("bytes").at("total") > row.at("bytes").at("master"));
    CHECK(row.at("rss_growth") > 0);
  }
  CHECK(rows[0].at("layer") == "binary");
  CHECK(rows[2].at("layer") == "w4a8");
}

TEST_CASE("bench_step runs every layer, gradient, master, a window of microbatches, the norm clip and two threads") {
  const auto run = [](const std::vector<std::string>& more) {
    const ProcessResult r = bench("bench_step", with(with(kStep, {"--no-parts"}), more));
    INFO(r.err);
    CHECK(r.code == 0);
    return r.out;
  };
  run({"--layer", "w1a8,w2a2,w8a8", "--grad", "bf16"});
  run({"--master", "bf16", "--moments", "int8", "--accumulate", "4"});
  run({"--master", "none", "--grad", "int8", "--rounding", "nearest", "--moments", "int4"});
  run({"--layer", "w4a8", "--master", "none", "--no-memory"});
  CHECK_FALSE(contains(run({"--norm-clip"}), "fused"));
  CHECK(contains(run({"--threads", "2"}), "threads 2"));
  CHECK_FALSE(contains(run({"--no-rivals"}), "onednn"));
}

TEST_CASE("bench_step measures a net of a configuration, its parts, its layers by kind and what it saves") {
  TempDir temp;
  const std::string net = temp.file("net.yaml"), file = temp.file("r.json");
  std::ofstream(net) << R"yaml(version: 1
run: {name: net, seed: 1}
data: {train: {format: digits, size: 100}}
model:
  layers:
    - quantize: {}
    - conv2d: {out: 8, kernel: 3, bias: false}
    - batch_norm: {}
    - quantize: {}
    - max_pool: {size: 2}
    - flatten: {}
    - linear: {out: 5, bias: false}
quant:
  weights: {dtype: bint1, scheme: binary, ste: identity, init: "uniform(-1,1)"}
  activations: {dtype: bint1, scheme: binary, ste: clip}
batch: {global: 6, micro: 2}
loss: softmax_cross_entropy
optim: {name: sgd, lr: 0.1}
train: {stop: 2 epochs}
)yaml";
  const auto run = [&](const std::vector<std::string>& more) {
    const ProcessResult r =
        bench("bench_step",
              with({"--net", net, "--sample", "8,8,3", "--classes", "5", "--repeat", "2", "--json", file}, more));
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    const Json rows = rows_of(file);
    REQUIRE(rows.size() == 1);
    return rows[0];
  };
  const Json row = run({});
  CHECK(row.at("net") == net);
  CHECK(row.at("batch") == 6);
  CHECK(row.at("grad") == "config");
  CHECK(row.at("ms") > 0);
  CHECK(std::abs(row.at("images_s").get<double>() * row.at("ms").get<double>() / 6000 - 1) < 1e-9);
  for (const char* part : {"forward", "backward", "update"}) CHECK(row.at("parts").contains(part));
  for (const char* kind : {"quantize", "conv2d", "batch_norm", "max_pool", "linear"}) {
    const double ms = row.at("forward_by_kind").at(kind).get<double>();
    CHECK(ms > 0);
    CHECK(ms <= row.at("parts").at("forward").get<double>());  // medians over the same steps
  }
  // x as bits, and the mask of its quantizer, of three microbatches one by one.
  CHECK(row.at("saved_bytes") >= 2 * 8 * 8 * 8);
  CHECK(row.at("bytes").at("total") > row.at("saved_bytes").get<double>());
  const Json other = run({"--grad", "int8", "--batch", "4", "--set", "batch.micro=4", "--no-parts", "--no-memory"});
  CHECK(other.at("batch") == 4);
  CHECK(other.at("grad") == "int8");
  CHECK_FALSE(other.contains("parts"));
  CHECK_FALSE(other.contains("saved_bytes"));
  for (const char* known : {"cnv", "resnet20"}) {
    const ProcessResult r = bench("bench_step", {"--net", known, "--batch", "2", "--repeat", "1", "--no-parts"});
    INFO(r.out << r.err);
    CHECK(r.code == 0);
    CHECK(contains(r.out, std::string(known) + ", batch 2: "));
  }
}

TEST_CASE("bench_step measures language models: built in by weights, and of a configuration with stored ids") {
  TempDir temp;
  const std::string file = temp.file("r.json");
  const std::vector<std::string> small{"--set", "model.keys.layers=1", "--set", "data.train.context=8",
                                       "--set", "model.keys.context=8"};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--repeat", "1", "--json", file});
    const ProcessResult r = bench("bench_step", arguments);
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    return rows_of(file);
  };
  const Json rows = run(with({"--net", "gpt,gpt-int8,gpt-int4,gpt-ternary,gpt-bint1", "--batch", "3"}, small));
  REQUIRE(rows.size() == 5);
  for (const Json& row : rows) {
    CHECK(row.at("batch") == 3);
    CHECK(std::abs(row.at("tokens_s").get<double>() * row.at("ms").get<double>() / (3 * 8 * 1000) - 1) < 1e-9);
    for (const char* kind : {"embedding", "attention", "linear", "gelu", "head"})
      CHECK(row.at("forward_by_kind").at(kind) > 0);
    CHECK(row.at("saved_bytes") > 0);
  }
  // int4 in 4 bits beside int8 in 8, in two orders: what the account holds follows the weights.
  CHECK(rows[2].at("bytes").at("value").get<int64_t>() < rows[1].at("bytes").at("value").get<int64_t>());
  const Json lean = run(with(
      {"--net", "gpt-ternary", "--batch", "2", "--grad", "int8", "--no-parts", "--set",
       "quant.rules.0.weights.master=bf16", "--set", "quant.rules.0.weights.grad=bf16", "--set", "optim.moments=int8"},
      small))[0];
  CHECK(lean.at("bytes").at("master").get<int64_t>() < rows[3].at("bytes").at("master").get<int64_t>());
  CHECK(lean.at("bytes").at("optimizer").get<int64_t>() < rows[3].at("bytes").at("optimizer").get<int64_t>() / 2);
  const std::string config = temp.file("lm.yaml");
  std::ofstream(config) << R"yaml(version: 1
run: {name: lm, seed: 1}
data: {train: {format: tokens, file: ids.bin, stored: uint16, vocabulary: 300, context: 6}}
model: {preset: gpt, keys: {vocabulary: 300, context: 6, layers: 1, heads: 2, dim: 16}}
batch: {global: 4, micro: 2}
optim: {name: adamw, lr: 1e-3}
train: {stop: 10 steps}
)yaml";
  const Json stored = run({"--net", config, "--no-parts", "--no-memory"})[0];
  CHECK(stored.at("batch") == 4);
  CHECK(stored.contains("tokens_s"));
}
