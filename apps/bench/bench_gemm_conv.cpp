#include "bench_gemm.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <set>

#include "bitgrad/base/parallel.h"
#include "shared/onednn.h"

namespace bitgrad::bench {

namespace {

struct ConvRival {
  const char* id;
  const char* text;
#if BITGRAD_WITH_ONEDNN
  onednn::Number number;
#endif
  bool nhwc;
};
#if BITGRAD_WITH_ONEDNN
constexpr ConvRival kConvRivals[] = {
    {"onednn_f32", "oneDNN fp32, its own formats", onednn::Number::kF32, false},
    {"onednn_bf16", "oneDNN bf16, its own formats", onednn::Number::kBf16, false},
    {"onednn_f32_nhwc", "oneDNN fp32, NHWC", onednn::Number::kF32, true},
    {"onednn_bf16_nhwc", "oneDNN bf16, NHWC", onednn::Number::kBf16, true},
};

std::function<void()> rival_run(const ConvRival& rival, const ConvShape& s, const std::string& product) {
  using onednn::ConvolutionPass;
  const ConvolutionPass pass = product == "forward" ? ConvolutionPass::kForward
                               : product == "gx"    ? ConvolutionPass::kInput
                                                    : ConvolutionPass::kWeights;
  return onednn::convolution({s.n, s.h, s.w, s.c, s.o, s.kernel, s.stride, s.pad, rival.number, rival.nhwc}, pass);
}
#else
const std::vector<ConvRival> kConvRivals;
std::function<void()> rival_run(const ConvRival&, const ConvShape&, const std::string&) { return nullptr; }
#endif

// One product of one shape: the rivals, then for each of ours its window moves and the whole op.
class ConvTurns {
 public:
  ConvTurns(const Options& options, const ConvShape& shape, const std::string& product)
      : options_(options), shape_(shape), product_(product) {
    for (const ConvRival& rival : kConvRivals) {
      if (std::find(options.rivals.begin(), options.rivals.end(), rival.id) == options.rivals.end()) continue;
      std::function<void()> run = rival_run(rival, shape, product);
      if (!run) continue;
      rivals_.push_back(&rival);
      all_.push_back({rival.text, std::move(run), 1, false, {}});
    }
    for (const Case& what : options.cases)
      if (what.product == product) add_pair(what.a, what.b);
  }

  bool empty() const { return ours_.empty(); }

  void run() { measure(all_, options_.repeat, time_base(options_.threads)); }

  void print() const {
    std::cout << "  " << product_ << '\n' << std::fixed;
    for (size_t r = 0; r < rivals_.size(); ++r) {
      line(all_[r]);
      std::cout << '\n';
    }
    for (size_t i = 0; i < ours_.size(); ++i) {
      line(timed(i));
      std::cout << ", " << (product_ == "gx" ? "adding" : "gather") << ' ' << std::setprecision(3)
                << moves(i).median() / 1e6 << " ms (" << std::setprecision(0) << 100 * share(i) << " %)"
                << std::setprecision(2);
      for (size_t r = 0; r < rivals_.size(); ++r)
        std::cout << (r == 0 ? ", x " : ", ") << rivals_[r]->id << ' ' << all_[r].median() / timed(i).median();
      std::cout << '\n';
    }
    std::cout << std::flush;
  }

  void report(Json& rows) const {
    for (size_t i = 0; i < ours_.size(); ++i) {
      Json row{{"conv", shape_.name},           {"shape", shape_.text()},   {"product", product_},
               {"a", ours_[i].a().name()},      {"b", ours_[i].b().name()}, {"threads", options_.threads},
               {"ms", timed(i).median() / 1e6}, {"gmacs", speed(timed(i))}, {"moves_ms", moves(i).median() / 1e6},
               {"moves_share", share(i)}};
      for (size_t r = 0; r < rivals_.size(); ++r)
        row[std::string("x_") + rivals_[r]->id] = all_[r].median() / timed(i).median();
      rows.push_back(row);
    }
  }

 private:
  // Adds a contestant for each mode that conv2d supports, and skips pairs of operand dtypes that are already present.
  void add_pair(DType x, DType w) {
    std::vector<ProductMode> modes{ProductMode::kFp32};
    if (product_ != "forward") modes = options_.grads;
    for (const ProductMode mode : modes) {
      const ConvProduct what{shape_, product_, x, w, mode};
      if (!known_.insert({what.a().name(), what.b().name()}).second || !takes(what)) continue;
      ours_.push_back(what);
      all_.push_back(conv_moves(what));
      all_.push_back(conv_contestant(what));
      all_.back().name = std::string(what.a().name()) + " x " + std::string(what.b().name());
    }
  }

  const Contestant& moves(size_t i) const { return all_[rivals_.size() + 2 * i]; }
  const Contestant& timed(size_t i) const { return all_[rivals_.size() + 2 * i + 1]; }
  double share(size_t i) const { return moves(i).median() / timed(i).median(); }
  double speed(const Contestant& x) const { return shape_.gmacs() * 1e9 / x.median(); }
  void line(const Contestant& x) const {
    std::cout << "    " << std::left << std::setw(30) << x.name << std::right << std::setprecision(3) << std::setw(10)
              << x.median() / 1e6 << " ms" << std::setprecision(1) << std::setw(9) << speed(x) << " GMAC/s";
  }

  const Options& options_;
  const ConvShape& shape_;
  const std::string product_;
  std::vector<const ConvRival*> rivals_;
  std::vector<ConvProduct> ours_;
  std::set<std::pair<std::string_view, std::string_view>> known_;
  std::vector<Contestant> all_;
};

void print_shape(const ConvShape& s) {
  const auto [oh, ow] = s.output();
  std::cout << '\n'
            << s.name << ": " << s.n << " images " << s.h << " x " << s.w << " x " << s.c << " -> " << oh << " x " << ow
            << " x " << s.o << ", kernel " << s.kernel << ", stride " << s.stride << ", pad " << s.pad << std::fixed
            << std::setprecision(3) << ", " << s.gmacs() << " GMAC\n";
}

}  // namespace

std::vector<std::string> conv_rival_ids() {
  std::vector<std::string> ids;
  for (const ConvRival& rival : kConvRivals) ids.emplace_back(rival.id);
  return ids;
}

namespace {

// Contestants alternate and allocate blocks of many sizes. The allocator caches freed blocks up to the largest number
// of bytes ever in use. This large block raises that limit so that all are cached, as in training, where every step
// allocates the same sizes.
void keep_freed_blocks() { static_cast<void>(Tensor::empty({int64_t{1} << 32}, dtypes::uint8)); }

}  // namespace

int run_conv(const Options& options) {
  keep_freed_blocks();
  set_num_threads(options.threads);
  Json report = new_report(options.threads);
#if BITGRAD_WITH_ONEDNN
  onednn::set_threads(options.threads);
  std::cout << "oneDNN " << onednn::version() << ": operands in place, reorders not timed\n";
#endif
  std::cout << "machine: " << machine_of(report) << ", " << options.threads << " threads, medians of " << options.repeat
            << '\n';
  for (const ConvShape& shape : options.convs) {
    print_shape(shape);
    for (const char* product : {"forward", "gx", "gw"}) {
      ConvTurns turns(options, shape, product);
      if (turns.empty()) continue;
      turns.run();
      turns.print();
      turns.report(report["rows"]);
    }
  }
  return finish(report, options, {{"conv", "shape", "product", "a", "b", "threads"}, "x_onednn_f32"});
}

}  // namespace bitgrad::bench
