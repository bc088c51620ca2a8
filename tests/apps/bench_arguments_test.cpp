// What the benchmark programs say of arguments that they cannot take.
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using namespace bitgrad::test;

TEST_CASE("wrong arguments of the benchmark programs end with 2 and the expected form") {
  const auto bench = [](const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), build_path("bin/") + name);
    return run_program(arguments);
  };
  const auto refused = [&](const std::string& program, const std::vector<std::string>& arguments,
                           const std::string& text) {
    const ProcessResult r = bench(program, arguments);
    INFO(program << ": " << r.out << r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, text));
  };
  refused("bench_gemm", {"--shape", "1,2"}, "--shape: got '1,2', expected M,N,K");
  refused("bench_gemm", {"--shape", "0,2,3"}, "three whole numbers");
  refused("bench_gemm", {"--dtypes", "bint1"}, "--dtypes: got 'bint1', expected A,B");
  refused("bench_gemm", {"--product", "backward"}, "--product");
  refused("bench_gemm", {"--rivals", "mkl"}, "--rivals");
  refused("bench_gemm", {"--guard", "x", "--record", "y"}, "excludes");
  refused("bench_gemm", {"--conv", "--shape", "1,2,3"}, "--shape: got '1,2,3', expected n,h,w,c,o,kernel,stride,pad");
  refused("bench_gemm", {"--conv", "--shape", "vgg1"}, "the beginning of one of cnv1, cnv2");
  refused("bench_gemm", {"--conv", "--shape", "1,2,2,1,1,3,1,0"}, "no window fits");
  refused("bench_gemm", {"--conv", "--shape", "1,2,2,1,1,3,1,-1"}, "expected n,h,w,c,o,kernel,stride,pad");
  refused("bench_gemm", {"--conv", "--guard", "x"}, "excludes");
  refused("bench_gemm", {"--grad", "int8"}, "--conv");
  refused("bench_gemm", {"--json", "/no/such/folder/x.json"}, "--json: cannot write '/no/such/folder/x.json'");
  refused("bench_step", {"--shape", "5,6"}, "--shape: got '5,6', expected BATCH,IN,OUT");
  refused("bench_step", {"--shape", "5,6,"}, "three whole numbers");
  refused("bench_step", {"--layer", "w3a3"}, "unknown layer 'w3a3', known are binary, w1a8, w2a2, w4a8, w8a8");
  refused("bench_step", {"--net", "vgg"}, "unknown net 'vgg', known are tfc, sfc, lfc, mlp4096");
  refused("bench_step", {"--net", "/no/such/net.yaml"}, "/no/such/net.yaml");
  refused("bench_step", {"--net", "cnv", "--batch", "2", "--set", "optim.lr"}, "optim.lr");
  refused("bench_step", {"--net", "cnv", "--classes", "1"}, "--classes");
  refused("bench_step", {"--net", "gpt-int3"}, "unknown net 'gpt-int3'");
  refused("bench_step", {"--net", "gpt", "--grad", "int8"}, "gx int8 multiplies codes");
  refused("bench_step", {"--grad", "fp64"}, "--grad");
  refused("bench_step", {"--accumulate", "0"}, "--accumulate");
  refused("bench_kernels", {"--shape", "5"}, "--shape: got '5', expected ROWS,COLS");
  refused("bench_kernels", {"--dtypes", "fp32"}, "--dtypes: got fp32, expected codes of an int, uint or sign dtype");
  refused("bench_kernels", {"--dtypes", "nf4"}, "--dtypes: got nf4, expected codes");
  refused("bench_kernels", {"--family", "gemm"}, "--family");
  refused("bench_kernels", {"--shape", "1,1", "--what", "zip", "--copy-mib", "1"}, "no name contains 'zip'.");
  refused("bench_kernels", {"--shape", "1,1", "--kernel", "mma", "--copy-mib", "1"},
          "no name contains '' with a kernel like 'mma'.");
  refused("bench_step", {"--recorded"}, "--recorded: got --device cpu, expected --device cuda");
  for (const char* program : {"bench_gemm", "bench_step", "bench_kernels", "bench_ranks"}) {
    const ProcessResult help = bench(program, {"--help"});
    CHECK(help.code == 0);
    CHECK(contains(help.out, "--compare"));
  }
}
