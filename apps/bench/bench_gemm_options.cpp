#include "bench_gemm.h"

#include <algorithm>
#include <numeric>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad::bench {
namespace {

ProductShape parse_shape(const std::string& text) {
  constexpr int64_t kMaxSide = 1 << 20, kMaxElements = int64_t{1} << 30;
  const std::vector<int64_t> sizes = whole_numbers(text);
  require(sizes.size() == 3, "bench_gemm", "--shape: got '", text, "', expected M,N,K, such as 1024,1024,1024.");
  for (const int64_t size : sizes)
    require(size >= 1 && size <= kMaxSide, "bench_gemm", "--shape: got '", text,
            "', expected M,N,K, three whole numbers of 1 .. ", kMaxSide, '.');
  const ProductShape s{sizes[0], sizes[1], sizes[2]};
  require(std::max({s.m * s.n, s.m * s.k, s.n * s.k}) <= kMaxElements, "bench_gemm", "--shape: got '", text,
          "', expected matrices of at most ", kMaxElements, " elements.");
  return s;
}

void add_cases(Options& options, const std::vector<std::string>& dtypes, const std::vector<std::string>& products) {
  for (const std::string& product : products)
    for (const std::string& text : dtypes) {
      const std::vector<std::string> parts = split(text);
      require(parts.size() == 2, "bench_gemm", "--dtypes: got '", text, "', expected A,B, such as bint1,bint1.");
      options.cases.push_back({parse_dtype(parts[0]), parse_dtype(parts[1]), product});
    }
}

// The products of training: activations by weights (forward), and gradients by weights or activations (backward).
const std::vector<std::string> kForwardPairs{"bint1,bint1", "ternary,bint1", "ternary,ternary", "int2,bint1",
                                             "int8,bint1",  "int8,int2",     "int8,int4",       "int8,int8",
                                             "int2,int2",   "int4,int4",     "fp32,bint1",      "bf16,bint1",
                                             "fp32,int4",   "fp32,int8",     "fp32,fp32",       "bf16,bf16"};
const std::vector<std::string> kBackwardPairs{"fp32,bint1", "bf16,bint1", "int8,bint1", "fp32,int2", "fp32,int4",
                                              "fp32,int8",  "bf16,int4",  "int8,int2",  "int8,int4", "int8,int8"};
const std::vector<std::string> kAllShapes{"1024,1024,1024", "4096,4096,4096", "256,4096,4096",
                                          "512,4096,4096",  "64,512,4608",    "1,4096,4096"};
// Each takes less than 2 ms in fp32.
const std::vector<std::string> kGuardShapes{"128,512,1024", "64,512,4608"};

// Options that select kernels and operands.
void add_kernel_options(cli::Arguments& args, Options& options) {
  args.option("--kernel", options.kernel, "only kernels whose name contains this");
  args.flag("--fast-rows", options.fast_rows, "skip reference kernels and kernels that call libraries");
  args.option("--group", options.group, "group size of B's scales along k (0: codes without scales)").range(0, 1 << 20);
  args.flag("--offset", options.b_offset, "B has real offsets, one per row or group");
  args.flag("--a-zero", options.a_zero, "A has a zero point per row");
}

// Options of convolutions, and the defaults that --shape, --dtypes, --product and --rivals have there.
struct ConvWords {
  std::vector<std::string> grads{"fp32", "bf16", "int8"};

  cli::Argument add(cli::Arguments& args, Options& options) {
    const cli::Argument conv = args.flag("--conv", options.conv,
                                         "convolutions: --shape n,h,w,c,o,kernel,stride,pad, or the beginning of a "
                                         "name such as cnv2, cnv, resnet20 (all)");
    args.option("--grad", grads, "of convolutions, dtypes of the gradients in gx and gw: fp32, bf16, int8 (all)")
        .delimiter(',')
        .one_of({"fp32", "bf16", "int8"})
        .needs(conv);
    add_threads_option(args, options, "of convolutions ").needs(conv);
    return conv;
  }

  void take(const cli::Arguments& args, const std::vector<std::string>& shapes, std::vector<std::string> dtypes,
            std::vector<std::string> products, Options& options) const {
    options.convs = parse_conv_shapes(args.count("--shape") == 0 ? std::vector<std::string>{""} : shapes);
    if (args.count("--dtypes") == 0) dtypes = {"bint1,bint1", "int8,bint1", "uint4,int4", "fp32,bint1", "fp32,fp32"};
    if (args.count("--product") == 0) products = {"forward", "gx", "gw"};
    if (args.count("--rivals") == 0) options.rivals = conv_rival_ids();
    add_cases(options, dtypes, products);
    for (const std::string& name : grads)
      options.grads.push_back(name == "fp32"   ? ProductMode::kFp32
                              : name == "bf16" ? ProductMode::kBf16
                                               : ProductMode::kInt8);
  }
};

// The names of all rivals, of plain products and of convolutions.
std::vector<std::string> all_rivals() {
  std::vector<std::string> ids = rival_ids();
  for (const std::string& id : conv_rival_ids())
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  ids.emplace_back("none");
  return ids;
}

// CNV (FINN) on CIFAR-10 at batch 100 and ResNet-20 (He et al. 2016, section 4.2) at 128; each distinct shape once.
const ConvShape kConvShapes[] = {{"cnv1", 100, 32, 32, 3, 64, 3, 1, 0},
                                 {"cnv2", 100, 30, 30, 64, 64, 3, 1, 0},
                                 {"cnv3", 100, 14, 14, 64, 128, 3, 1, 0},
                                 {"cnv4", 100, 12, 12, 128, 128, 3, 1, 0},
                                 {"cnv5", 100, 5, 5, 128, 256, 3, 1, 0},
                                 {"cnv6", 100, 3, 3, 256, 256, 3, 1, 0},
                                 {"resnet20_first", 128, 32, 32, 3, 16, 3, 1, 1},
                                 {"resnet20_16", 128, 32, 32, 16, 16, 3, 1, 1},
                                 {"resnet20_16_32", 128, 32, 32, 16, 32, 3, 2, 1},
                                 {"resnet20_32", 128, 16, 16, 32, 32, 3, 1, 1},
                                 {"resnet20_32_64", 128, 16, 16, 32, 64, 3, 2, 1},
                                 {"resnet20_64", 128, 8, 8, 64, 64, 3, 1, 1}};

std::string known_names() { return joined(kConvShapes, ", ", &ConvShape::name); }

ConvShape parse_numbers(const std::string& text) {
  constexpr int64_t kMostPixels = int64_t{1} << 30;
  std::vector<int64_t> v = whole_numbers(text);
  bool good = v.size() == 8;
  v.resize(8);
  for (size_t i = 0; i < v.size(); ++i) good = good && v[i] >= (i + 1 < v.size() ? 1 : 0) && v[i] <= (1 << 16);
  ConvShape s{text, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
  require(good && s.n * s.h * s.w <= kMostPixels / s.c, "bench_gemm", "--shape: got '", text,
          "', expected n,h,w,c,o,kernel,stride,pad, or the beginning of one of ", known_names(), '.');
  static_cast<void>(s.output());
  return s;
}

}  // namespace

Options parse_options(cli::Arguments& args, int argc, char** argv) {
  Options options;
  std::vector<std::string> shapes{"1024,1024,1024"}, dtypes{"bint1,bint1"}, products{"forward"};
  bool all = false;
  options.rivals = rival_ids();
  args.option("--shape", shapes, "M,N,K; may be given several times (1024,1024,1024)").repeatable();
  args.option("--dtypes", dtypes, "A,B; may be given several times (bint1,bint1)").repeatable();
  args.option("--product", products, "forward | gx (B stored [k, free]) | gw (both stored [k, free], added to C)")
      .delimiter(',')
      .one_of({"forward", "gx", "gw"});
  args.flag("--a-k-major", options.a_k_major_flag, "A is stored [k, free]");
  args.flag("--b-k-major", options.b_k_major_flag, "B is stored [k, free]");
  ConvWords conv_words;
  const cli::Argument conv = conv_words.add(args, options);
  args.flag("--all", all, "the products of training, fast kernels only, at six shapes (or those of --shape)")
      .excludes(conv);
  args.option("--rivals", options.rivals, "libraries to compare with, of those built in; none for no library")
      .delimiter(',')
      .one_of(all_rivals());
  add_kernel_options(args, options);
  add_report_options(args, options, "x_onednn_f32");
  const cli::Argument guarded =
      args.option("--guard", options.guard,
                  "measure --all at small shapes and compare with the results of this machine "
                  "in this file")
          .excludes(conv);
  args.option("--record", options.record, "as --guard, but write the results of this machine to the file")
      .excludes(guarded)
      .excludes(conv);
  add_device_option(args, options,
                    "; cuda: products to bf16 with scales, compared with bf16; no libraries, guard or groups")
      .excludes(conv);
  parse(args, argc, argv, options);
  check_writable("--record", options.record);
  if (options.conv) {
    conv_words.take(args, shapes, dtypes, products, options);
    return options;
  }
  const bool short_run = !options.guard.empty() || !options.record.empty();
  if (all || short_run) {
    options.fast_rows = true;
    if (args.count("--shape") == 0) shapes = short_run ? kGuardShapes : kAllShapes;
  }
  if (short_run && args.count("--rivals") == 0) options.rivals = {"onednn_f32"};
  for (const std::string& text : shapes) options.shapes.push_back(parse_shape(text));
  if ((all || short_run) && args.count("--dtypes") == 0) {
    add_cases(options, kForwardPairs, {"forward"});
    add_cases(options, kBackwardPairs, {"gx", "gw"});
  } else {
    add_cases(options, dtypes, products);
  }
  return options;
}

Conv2dOptions ConvShape::options() const {
  Conv2dOptions options;
  options.kernel = {kernel, kernel};
  options.stride = {stride, stride};
  options.padding = {pad, pad, pad, pad};
  return options;
}

std::string ConvShape::text() const {
  std::string out = std::to_string(n);
  for (const int64_t v : {h, w, c, o, kernel, stride, pad}) out += ',' + std::to_string(v);
  return out;
}

std::vector<ConvShape> parse_conv_shapes(const std::vector<std::string>& words) {
  std::vector<ConvShape> shapes;
  for (const std::string& word : words) {
    const size_t before = shapes.size();
    for (const ConvShape& s : kConvShapes)
      if (s.name.compare(0, word.size(), word) == 0) shapes.push_back(s);
    if (shapes.size() == before) shapes.push_back(parse_numbers(word));
  }
  return shapes;
}

}  // namespace bitgrad::bench
