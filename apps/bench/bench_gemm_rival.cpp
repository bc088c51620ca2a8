#include "bench_gemm_rival.h"

#if BITGRAD_WITH_ONEDNN
#include <omp.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "bench_gemm_operands.h"
#endif

namespace bitgrad::bench {

#if BITGRAD_WITH_ONEDNN
namespace {

// oneDNN fp32 with source and weights reordered to the formats that it likes best.
class Rival {
 public:
  explicit Rival(const Shape& s) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), c_(s.m * s.n * 4) {
    using Memory = dnnl::memory;
    const auto type = Memory::data_type::f32;
    const auto any = Memory::format_tag::any;
    const Memory::desc a({s.m, s.k}, type, any), b({s.k, s.n}, type, any), c({s.m, s.n}, type, Memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(engine_, a, b, c);
#else
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, b, c), engine_);
#endif
    Bytes numbers(std::max(s.m, s.n) * s.k * 4);
    for (int64_t i = 0; i < std::max(s.m, s.n) * s.k; ++i) numbers.floats()[i] = static_cast<float>(i % 17) - 8.0f;
    a_ = reordered({{s.m, s.k}, type, Memory::format_tag::ab}, desc.src_desc(), numbers);
    b_ = reordered({{s.k, s.n}, type, Memory::format_tag::ba}, desc.weights_desc(), numbers);
    c_memory_ = Memory(c, engine_, c_.data());
    product_ = dnnl::matmul(desc);
  }
  void run() {
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_memory_}});
    stream_.wait();
  }

 private:
  dnnl::memory reordered(const dnnl::memory::desc& from, const dnnl::memory::desc& to, Bytes& numbers) {
    dnnl::memory source(from, engine_, numbers.data()), out(to, engine_);
    dnnl::reorder(source, out).execute(stream_, source, out);
    stream_.wait();
    return out;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  Bytes c_;
  dnnl::memory a_, b_, c_memory_;
  dnnl::matmul product_;
};

}  // namespace

void add_rival(const Shape& shape, std::vector<Contestant>& all) {
  omp_set_num_threads(1);
  auto rival = std::make_shared<Rival>(shape);
  all.push_back({"oneDNN fp32, prepacked", [rival] { rival->run(); }, 1, false, {}});
}
#else
void add_rival(const Shape&, std::vector<Contestant>&) {}
#endif

}  // namespace bitgrad::bench
