#include "shared/onednn.h"

#if BITGRAD_WITH_ONEDNN
#include <omp.h>

#include <limits>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "shared/measure.h"

namespace bitgrad::bench::onednn {

namespace {

using Memory = dnnl::memory;
using Tag = Memory::format_tag;

Memory::data_type data_type(Number x) {
  switch (x) {
    case Number::kF32:
      return Memory::data_type::f32;
    case Number::kBf16:
      return Memory::data_type::bf16;
    case Number::kS8:
      return Memory::data_type::s8;
    case Number::kU8:
      return Memory::data_type::u8;
    case Number::kS32:
      return Memory::data_type::s32;
  }
  return Memory::data_type::undef;
}

class Product {
 public:
  Product(const Spec& s, const void* a, const void* b, void* c, Packing packing)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), packing_(packing) {
    const Memory::desc as({s.m, s.k}, data_type(s.a), s.a_k_major ? Tag::ba : Tag::ab),
        bs({s.k, s.n}, data_type(s.b), s.b_k_major ? Tag::ab : Tag::ba), cs({s.m, s.n}, data_type(s.c), Tag::ab);
    const bool any_a = packing == Packing::kBefore || packing == Packing::kOperands, any_b = packing != Packing::kPlain;
    const Memory::desc ad = any_a ? Memory::desc({s.m, s.k}, data_type(s.a), Tag::any) : as,
                       bd = any_b ? Memory::desc({s.k, s.n}, data_type(s.b), Tag::any) : bs;
    dnnl::primitive_attr attributes;
    if (s.add) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attributes.set_post_ops(ops);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(engine_, ad, bd, cs, attributes);
#else
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(ad, bd, cs), attributes, engine_);
#endif
    prepare(as, a, desc.src_desc(), stored_a_, a_, reorder_a_);
    prepare(bs, b, desc.weights_desc(), stored_b_, b_, reorder_b_);
    product_ = dnnl::matmul(desc);
    arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, Memory(cs, engine_, c)}};
    pack();
    stream_.wait();
  }

  void run() {
    if (packing_ != Packing::kBefore) pack();
    product_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  void prepare(const Memory::desc& stored, const void* data, const Memory::desc& liked, Memory& from, Memory& to,
               dnnl::reorder& reorder) {
    from = Memory(stored, engine_, const_cast<void*>(data));
    to = from;
    if (liked == stored) return;
    to = Memory(liked, engine_);
    reorder = dnnl::reorder(from, to);
  }
  void pack() {
    if (reorder_a_) reorder_a_.execute(stream_, stored_a_, a_);
    if (reorder_b_) reorder_b_.execute(stream_, stored_b_, b_);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  Packing packing_;
  Memory stored_a_, stored_b_, a_, b_;
  dnnl::reorder reorder_a_, reorder_b_;
  dnnl::matmul product_;
  std::unordered_map<int, Memory> arguments_;
};

}  // namespace

std::function<void()> product(const Spec& spec, const void* a, const void* b, void* c, Packing packing) {
  try {
    auto made = std::make_shared<Product>(spec, a, b, c, packing);
    return [made] { made->run(); };
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

std::function<void()> fastest_product(const Spec& spec, const void* a, const void* b, void* c) {
  std::function<void()> best;
  double best_ns = std::numeric_limits<double>::infinity();
  for (const Packing packing : {Packing::kPlain, Packing::kWeights, Packing::kOperands}) {
    std::function<void()> run = product(spec, a, b, c, packing);
    if (!run) continue;
    run();
    for (int i = 0; i < 2; ++i) {
      const double start = now_ns(TimeBase::kWall);
      run();
      const double ns = now_ns(TimeBase::kWall) - start;
      if (ns >= best_ns) continue;
      best_ns = ns;
      best = run;
    }
  }
  return best;
}

std::string version() {
  const dnnl::version_t* v = dnnl::version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}
void set_threads(int threads) { omp_set_num_threads(threads); }

}  // namespace bitgrad::bench::onednn
#endif
