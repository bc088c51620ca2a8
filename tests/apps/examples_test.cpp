// The examples are programs that a reader will copy: each is built with everything else and run here.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using namespace bitgrad::test;

namespace {

const std::string kBin = build_path("bin/");

}  // namespace

TEST_CASE("the programs in docs/library.md are those of apps/examples") {
  const std::string page = slurp(source_path("docs/library.md")), start = "```cpp\n";
  std::vector<std::string> programs;
  for (size_t begin = page.find(start); begin != std::string::npos; begin = page.find(start, begin + 1)) {
    const size_t text = begin + start.size(), end = page.find("```", text);
    REQUIRE(end != std::string::npos);
    programs.push_back(page.substr(text, end - text));
  }
  REQUIRE(programs.size() == 2);
  CHECK(programs[0] == slurp(source_path("apps/examples/first_program.cpp")));
  CHECK(programs[1] == slurp(source_path("apps/examples/csv_program.cpp")));
}

TEST_CASE("csv_program trains a table by a loss of its own, and every command opens its file") {
  const TempDir dir;
  const ProcessResult r = run_program({kBin + "csv_program"}, {}, dir.path());
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  double percent = 0;
  const size_t line = r.out.find("accuracy of 500 samples: ");
  REQUIRE(line != std::string::npos);
  REQUIRE(std::sscanf(r.out.c_str() + line, "accuracy of 500 samples: %lf", &percent) == 1);
  CHECK(percent > 90);
  CHECK(contains(r.out, "inside: yes, no\n"));
  const std::string file = dir.file("points.safetensors"), model = dir.file("model.safetensors");
  const std::vector<std::vector<std::string>> commands{
      {"inspect", file},
      {"convert", file, "-o", model},
      {"predict", model, "-", "--task", "classes"},
      {"diff", file, model, "data.train={format: csv, file: " + dir.file("train.csv") + ", target: inside}"},
      {"export", model, "-o", dir.file("points.onnx")},
      {"export", model, "-o", dir.file("points.c")}};
  std::ofstream(dir.file("points.csv")) << "0.1,0.2\n1.4,-1.4\n";
  for (const std::vector<std::string>& command : commands) {
    std::vector<std::string> words{kBin + "bitgrad"};
    words.insert(words.end(), command.begin(), command.end());
    std::replace(words.begin(), words.end(), std::string("-"), dir.file("points.csv"));
    const ProcessResult opened = run_program(words);
    INFO(command[0] << '\n' << opened.out << opened.err);
    CHECK(opened.code == 0);
  }
}

TEST_CASE("first_program trains and reads back what it saved") {
  const TempDir dir;
  const ProcessResult r = run_program({kBin + "first_program"}, {}, dir.path());
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "Tensor [10,784] int4, symmetric per channel(0)"));
  double percent = 0, at = 0, value = 0;
  const size_t line = r.out.find("accuracy");
  REQUIRE(line != std::string::npos);
  REQUIRE(std::sscanf(r.out.c_str() + line, "accuracy in epoch 5: %lf %%, w[3,400] = %lf = %lf", &percent, &at,
                      &value) == 3);
  CHECK(percent > 70);
  CHECK(at == value);
  CHECK(std::filesystem::exists(dir.file("w.safetensors")));
}

TEST_CASE("requantize_loop shows the dtypes, the bytes and a falling loss") {
  const ProcessResult r = run_program({kBin + "requantize_loop"});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "weight   int4"));
  CHECK(contains(r.out, "gradient bf16"));
  CHECK(contains(r.out, "master   fp32"));
  CHECK(contains(r.out, "Tensor [16,64] int4, symmetric per channel(0)"));
  CHECK(contains(r.out, "codes    512 bytes, scales 64 bytes"));
  CHECK(contains(r.out, "gradient 2048 bytes"));
  CHECK(contains(r.out, "master   4096 bytes"));
  CHECK(contains(r.out, "step 200"));
}

TEST_CASE("custom_dtype trains with dtypes that the library does not have") {
  const ProcessResult r = run_program({kBin + "custom_dtype"});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  for (const char* name : {"my_nf4", "my_ternary", "int4"})
    CHECK(contains(r.out, std::string("Tensor [64,784] ") + name));
}

TEST_CASE("custom_quantizer trains by the name of a scheme that the library does not have") {
  const ProcessResult r = run_program({kBin + "custom_quantizer"});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  for (const char* scheme : {"quantile_clip", "absmax"}) {
    CHECK(contains(r.out, std::string("Tensor [64,784] int2, ") + scheme + " per channel(0)"));
    const size_t line = r.out.find(std::string("\n") + scheme);
    REQUIRE(line != std::string::npos);
    double before = 0, after = 0, percent = 0;
    REQUIRE(std::sscanf(r.out.c_str() + line, "%*s loss %lf before, %lf after, accuracy %lf %%", &before, &after,
                        &percent) == 3);
    CHECK(after < 0.5 * before);
    CHECK(percent > 60);
  }
}

TEST_CASE("custom_module is prepared by rules, trains and converts to equal bits") {
  const ProcessResult r = run_program({kBin + "custom_module"});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "layers.up    gated  [64,784]  8da4w   int4 absmax group(32)   int8 affine token"));
  CHECK(contains(r.out, "layers.gate  gated  [64,784]  w8a8    int8 absmax channel(0)  int8 absmax token"));
  CHECK(contains(r.out, "logits equal bit for bit"));
}

TEST_CASE("a project of its own builds against an installed bitgrad, also from a moved prefix", "[slow]") {
  TempDir temp;
  const auto run = [](const std::vector<std::string>& arguments) {
    const ProcessResult r = run_program(arguments);
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    return r.out;
  };
  run({"cmake", "--install", build_path(), "--prefix", temp.file("first")});
  std::filesystem::rename(temp.file("first"), temp.file("moved"));
  CHECK(contains(run({temp.file("moved/bin/bitgrad"), "version"}), "bitgrad 0.1.0"));
  run({"cmake", "-S", source_path("apps/examples/library_use"), "-B", temp.file("build"),
       "-DCMAKE_PREFIX_PATH=" + temp.file("moved"), "-DCMAKE_BUILD_TYPE=Release"});
  run({"cmake", "--build", temp.file("build")});
  const std::string out = run({temp.file("build/library_use")});
  CHECK(contains(out, "int4, symmetric per channel(0)"));
  CHECK(contains(out, "accuracy"));
  // Nothing of the installed files points back to the source or to the first prefix.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(temp.file("moved/lib"))) {
    if (entry.path().extension() != ".cmake") continue;
    const std::string text = slurp(entry.path());
    INFO(entry.path().string());
    CHECK_FALSE(contains(text, source_path()));
    CHECK_FALSE(contains(text, temp.file("first")));
  }
}
