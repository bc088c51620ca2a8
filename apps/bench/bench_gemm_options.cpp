#include "bench_gemm_options.h"

#include <algorithm>
#include <filesystem>

#include "bitgrad/base/error.h"

namespace bitgrad::bench {

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

int64_t parse_size(const std::string& text, const std::string& whole) {
  constexpr int64_t kMaxSide = 1 << 20;
  const bool digits = !text.empty() && text.size() <= 8 &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const int64_t size = digits ? std::stoll(text) : 0;
  require(size >= 1 && size <= kMaxSide, "bench_gemm", "--shape: got '", whole,
          "', expected M,N,K, three whole numbers of 1 .. ", kMaxSide, '.');
  return size;
}

Shape parse_shape(const std::string& text) {
  constexpr int64_t kMaxElements = int64_t{1} << 30;
  const std::vector<std::string> parts = split(text);
  require(parts.size() == 3, "bench_gemm", "--shape: got '", text, "', expected M,N,K, such as 1024,1024,1024.");
  const Shape s{parse_size(parts[0], text), parse_size(parts[1], text), parse_size(parts[2], text)};
  require(std::max({s.m * s.n, s.m * s.k, s.n * s.k}) <= kMaxElements, "bench_gemm", "--shape: got '", text,
          "', expected matrices of at most ", kMaxElements, " elements.");
  return s;
}

std::pair<DType, DType> parse_pair(const std::string& text) {
  const std::vector<std::string> parts = split(text);
  require(parts.size() == 2, "bench_gemm", "--dtypes: got '", text, "', expected A,B, such as bint1,bint1.");
  return {parse_dtype(parts[0]), parse_dtype(parts[1])};
}

}  // namespace

Options parse_options(CLI::App& app, int argc, char** argv) {
  Options options;
  std::vector<std::string> shapes{"1024,1024,1024"}, dtypes{"bint1,bint1"};
  const auto one_each = [](CLI::Option* option) {
    option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  };
  one_each(app.add_option("--shape", shapes, "M,N,K; may be given several times (1024,1024,1024)"));
  one_each(app.add_option("--dtypes", dtypes, "A,B; may be given several times (bint1,bint1)"));
  app.add_option("--product", options.product,
                 "forward | gx (B stored [k, free]) | gw (both stored [k, free], added to C)")
      ->check(CLI::IsMember({"forward", "gx", "gw"}));
  app.add_option("--kernel", options.kernel, "only rows whose name holds this");
  app.add_option("--repeat", options.repeat, "measurements of each row; the median counts (11)")
      ->check(CLI::Range(1, 100000));
  app.add_option("--group", options.group, "B's scales lie in groups of this size along k (0: bare codes)")
      ->check(CLI::Range(0, 1 << 20));
  app.add_flag("--offset", options.b_offset, "B has real offsets, for each row or group");
  app.add_flag("--a-zero", options.a_zero, "A has a zero point for each row");
  app.add_option("--json", options.json, "writes the rows to this file");
  app.parse(argc, argv);
  for (const std::string& text : shapes) options.shapes.push_back(parse_shape(text));
  for (const std::string& text : dtypes) options.dtypes.push_back(parse_pair(text));
  if (!options.json.empty()) {
    const std::filesystem::path folder = std::filesystem::absolute(options.json).parent_path();
    require(std::filesystem::is_directory(folder) && !std::filesystem::is_directory(options.json), "bench_gemm",
            "--json: cannot write '", options.json, "', expected a file in a folder that exists.");
  }
  return options;
}

}  // namespace bitgrad::bench
