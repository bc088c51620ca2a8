// The programs on emulated CUDA devices: what they measure on a device, and what they say of it. Nothing is fast here.
#include <filesystem>
#include <set>

#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

const std::string kFolder = build_path("bin/emulated");

ProcessResult emulated(const std::string& name, std::vector<std::string> arguments,
                       const Process::Environment& environment = {}) {
  arguments.insert(arguments.begin(), kFolder + "/bin/" + name);
  return run_program(arguments, environment);
}
Json report_of(const std::string& name, std::vector<std::string> arguments) {
  TempDir temp;
  const std::string file = temp.file("r.json");
  arguments.insert(arguments.end(), {"--device", "cuda", "--repeat", "1", "--json", file});
  const ProcessResult r = emulated(name, arguments);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return Json::parse(slurp(file));
}

}  // namespace

TEST_CASE("kernels lists devices and where their libraries were looked for") {
  const ProcessResult r = emulated("bitgrad", {"kernels"}, {{"BITGRAD_CUBLASLT", "/nonexistent/libmine.so"}});
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "\ncuda:0  emulated device 0, compute capability 9.0"));
  CHECK(contains(r.out, "cuBLASLt was not found: /nonexistent/libmine.so"));
}

TEST_CASE("bench_gemm measures products of codes beside bf16 on a device, and a copy") {
  for (const char* product : {"forward", "gw"}) {
    const Json report = report_of("bench_gemm", {"--shape", "64,32,128", "--dtypes", "int8,int8", "--dtypes",
                                                 "bint1,bint1", "--fast-rows", "--product", product});
    CHECK(contains(report.at("device").text(), "emulated device 0"));
    CHECK(report.at("copy_gb_s") > 0);
    std::set<std::string> kernels;
    for (const Json& row : report.at("rows")) {
      kernels.insert(row.at("kernel").get<std::string>().substr(0, 11));
      CHECK(row.at("product") == product);
      CHECK(row.at("us") > 0);
      CHECK(row.at("x_bf16") > 0);
    }
    CHECK(kernels.count("bf16 x bf16") == 1);
    CHECK(kernels.count("gemm_s8_s8_") == 1);
  }
}

TEST_CASE("bench_kernels measures every family on a device") {
  const Json report = report_of("bench_kernels", {"--shape", "33,70", "--dtypes", "int4", "--copy-mib", "1"});
  std::set<std::string> families, layouts;
  for (const Json& row : report.at("rows")) {
    families.insert(row.at("family").text());
    layouts.insert(row.at("layout").text());
    CHECK(row.at("us") > 0);
    CHECK(row.at("copy_share") > 0);
  }
  CHECK(families ==
        std::set<std::string>{"elementwise", "optimizer", "pack", "pointwise", "quantize", "reduce", "rowwise"});
  CHECK(layouts.count("frag64") == 1);
  CHECK(layouts.count("canonical, transposed, frag64") == 1);
  const Json signs =
      report_of("bench_kernels", {"--shape", "33,70", "--dtypes", "bint1", "--copy-mib", "1", "--what", "both orders"});
  CHECK(signs.at("rows").size() == 2);
}

TEST_CASE("bench_step measures a step on a device in parts, and whole as recorded graphs") {
  const Json parts = report_of("bench_step", {"--layer", "w8a8,binary", "--shape", "20,33,48", "--grad", "int8"});
  REQUIRE(parts.at("rows").size() == 2);
  for (const Json& row : parts.at("rows")) {
    CHECK(row.at("device") == "cuda:0");
    CHECK(row.at("fused") == false);
    CHECK(row.at("recorded") == false);
    for (const char* part : {"forward", "gx", "gw", "update", "requantize"}) CHECK(row.at("parts").contains(part));
  }
  for (const std::vector<std::string>& what :
       {std::vector<std::string>{"--shape", "20,33,48"}, {"--net", "tfc", "--batch", "8"}}) {
    std::vector<std::string> arguments{"--grad", "int8", "--recorded"};
    arguments.insert(arguments.end(), what.begin(), what.end());
    const Json report = report_of("bench_step", arguments);
    REQUIRE(report.at("rows").size() == 1);
    CHECK(report.at("rows")[0].at("recorded") == true);
    CHECK(report.at("rows")[0].at("ms") > 0);
    CHECK(report.at("rows")[0].at("parts").empty());
  }
}

TEST_CASE("bench_generate measures tokens on a device, and a build without NVTX says so") {
  const Json report = report_of("bench_generate", {"--layers", "1", "--heads", "2", "--dim", "8", "--context", "4",
                                                   "--tokens", "3", "--recipes", "none"});
  CHECK(report.at("rows").size() == 4);
  CHECK(contains(report.at("device").text(), "emulated device 0"));
  TempDir temp;
  const ProcessResult r =
      emulated("bitgrad",
               {"train", source_path("configs/digits_linear_fp32.yaml"), "device.kind=cuda", "train.stop=2 steps",
                "schedule.warmup=1 steps", "data.train.size=100", "data.test.size=100", "--out", temp.file("run")},
               {{"BITGRAD_NVTX", "1"}});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out + r.err, "BITGRAD_NVTX has no effect: this build was made without the CUDA Toolkit"));
}

TEST_CASE("gpu_check.sh runs its stages on emulated devices", "[slow]") {
  TempDir temp;
  const ProcessResult r = run_program({source_path("scripts/gpu_check.sh"), kFolder, "device", "bench", "train"},
                                      {{"BITGRAD_GPU_CHECK_SMALL", "1"}, {"BITGRAD_GPU_CHECK_OUT", temp.file("out")}});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  for (const char* name :
       {"bench_products", "bench_long", "bench_gx", "bench_gw", "bench_kernels", "bench_steps", "bench_nets"}) {
    INFO(name);
    REQUIRE(std::filesystem::exists(temp.file("out/" + std::string(name) + ".json")));
    CHECK_FALSE(Json::parse(slurp(temp.file("out/" + std::string(name) + ".json"))).at("rows").empty());
  }
}
