#include "shared/onednn.h"

#if BITGRAD_WITH_ONEDNN
#include <omp.h>

#include <algorithm>
#include <limits>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "shared/measure.h"

namespace bitgrad::bench::onednn {

namespace {

using Memory = dnnl::memory;
using Tag = Memory::format_tag;

Memory::data_type data_type(Number x) {
  using enum Memory::data_type;
  constexpr Memory::data_type kTypes[] = {f32, bf16, s8, u8, s32};  // in the order of Number
  return kTypes[static_cast<size_t>(x)];
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

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// Memory descriptors of a convolution: the two operands have dtype `number`, the result is fp32.
struct ConvolutionForms {
  Memory::desc x, w, y;
  Memory::dims strides, before, behind;

  ConvolutionForms(const ConvolutionSpec& s, Memory::data_type x_type, Memory::data_type w_type,
                   Memory::data_type y_type)
      : strides{s.stride, s.stride}, before{s.pad, s.pad} {
    const auto windows = [&](int64_t size) { return (size + 2 * s.pad - s.kernel) / s.stride + 1; };
    const auto rest = [&](int64_t size) { return (windows(size) - 1) * s.stride + s.kernel - size - s.pad; };
    const Tag image = s.nhwc ? Tag::nhwc : Tag::any;
    x = Memory::desc({s.n, s.c, s.h, s.w}, x_type, image);
    w = Memory::desc({s.o, s.c, s.kernel, s.kernel}, w_type, Tag::any);
    y = Memory::desc({s.n, s.o, windows(s.h), windows(s.w)}, y_type, image);
    behind = {rest(s.h), rest(s.w)};
  }
};

dnnl::convolution_forward::primitive_desc forward_desc(const dnnl::engine& engine, const ConvolutionForms& f) {
  constexpr auto kKind = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kKind, kDirect, f.x, f.w, f.y, f.strides, f.before, f.behind};
#else
  return {dnnl::convolution_forward::desc(kKind, kDirect, f.x, f.w, f.y, f.strides, f.before, f.behind), engine};
#endif
}

// Of the gradient of an operand.
template <typename Gradient>
typename Gradient::primitive_desc gradient_desc(const dnnl::engine& engine, const ConvolutionForms& f,
                                                const dnnl::convolution_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kDirect, f.x, f.w, f.y, f.strides, f.before, f.behind, forward};
#else
  return {typename Gradient::desc(kDirect, f.x, f.w, f.y, f.strides, f.before, f.behind), engine, forward};
#endif
}

class Convolution {
 public:
  Convolution(const ConvolutionSpec& s, ConvolutionPass pass) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    constexpr auto kOut = Memory::data_type::f32;
    const Memory::data_type in = data_type(s.number);
    const auto forward = forward_desc(engine_, {s, in, in, kOut});
    if (pass == ConvolutionPass::kForward) {
      primitive_ = dnnl::convolution_forward(forward);
      put(DNNL_ARG_SRC, forward.src_desc());
      put(DNNL_ARG_WEIGHTS, forward.weights_desc());
      put(DNNL_ARG_DST, forward.dst_desc());
    } else if (pass == ConvolutionPass::kInput) {
      const auto desc = gradient_desc<dnnl::convolution_backward_data>(engine_, {s, kOut, in, in}, forward);
      primitive_ = dnnl::convolution_backward_data(desc);
      put(DNNL_ARG_DIFF_DST, desc.diff_dst_desc());
      put(DNNL_ARG_WEIGHTS, desc.weights_desc());
      put(DNNL_ARG_DIFF_SRC, desc.diff_src_desc());
    } else {
      const auto desc = gradient_desc<dnnl::convolution_backward_weights>(engine_, {s, in, kOut, in}, forward);
      primitive_ = dnnl::convolution_backward_weights(desc);
      put(DNNL_ARG_DIFF_DST, desc.diff_dst_desc());
      put(DNNL_ARG_SRC, desc.src_desc());
      put(DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc());
    }
  }

  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  // Memory of ones. Two bf16 ones read as one float are close to 1.
  void put(int argument, const Memory::desc& desc) {
    constexpr uint32_t kOnes = 0x3F803F80;
    const Memory memory(desc, engine_);
    std::fill_n(static_cast<uint32_t*>(memory.get_data_handle()), desc.get_size() / sizeof(kOnes), kOnes);
    arguments_.emplace(argument, memory);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::unordered_map<int, Memory> arguments_;
};

template <typename Runs, typename... Arguments>
std::function<void()> run_of(const Arguments&... arguments) {
  try {
    return [made = std::make_shared<Runs>(arguments...)] { made->run(); };
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

}  // namespace

std::function<void()> convolution(const ConvolutionSpec& spec, ConvolutionPass pass) {
  return run_of<Convolution>(spec, pass);
}

std::function<void()> product(const Spec& spec, const void* a, const void* b, void* c, Packing packing) {
  return run_of<Product>(spec, a, b, c, packing);
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
