#include "bench_gemm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>

#include "bitgrad/autograd/op.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/ops/product.h"
#include "kernels/conv.h"
#include "kernels/pack.h"
#include "shared/given_gradient.h"

namespace bitgrad::bench {

namespace {

Tensor random_codes(const Shape& shape, DType dtype, uint32_t seed) {
  std::mt19937 rng(seed);
  Matrix matrix(dtype, shape.rows(), shape.cols(), rng);
  Tensor out = Tensor::empty(shape, dtype, MemoryKind::kBatch);
  ensure(out.stride() == matrix.stride, "bench_gemm", "rows of ", out, " are ", out.stride(), " bytes apart");
  std::memcpy(out.data(), matrix.bytes.data(), static_cast<size_t>(matrix.rows * matrix.stride));
  if (dtype.kind() != DTypeKind::kInt && dtype.kind() != DTypeKind::kUint) return out;
  QuantParams params;
  params.scheme = "symmetric";
  params.scale = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::fp32, 1.0 / 128));
  return out.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

Tensor random_images(const ConvShape& s, DType dtype) { return random_codes({s.n, s.h, s.w, s.c}, dtype, 1); }

ProductForm product_form(const ConvProduct& what, const Tensor& x, const Tensor& w) {
  ProductForm form;
  form.x = windows_form(form_of(x), x.shape(), what.shape.options());
  form.w = form_of(w);
  form.gx = what.product == "gx";
  form.gw = what.product == "gw";
  form.modes.gx = form.modes.gw = what.mode;
  form.taps = what.shape.kernel * what.shape.kernel;
  return form;
}

Tensor random_weights(const ConvProduct& what, const Tensor& x) {
  Tensor w = random_codes({what.shape.o, what.shape.k()}, what.w, 2);
  const Layout layout = plan_product(product_form(what, x, w)).w_layout;
  if (layout == layouts::canonical) return w;
  const Tensor there = Tensor::empty_layout(w.shape(), w.dtype(), layout, MemoryKind::kDerived);
  kernels::pack({w.dtype(), w.rows(), w.cols(), w.data(), w.stride(), layout, there.data()});
  w.attach_layout(there);
  return w;
}

// Supplies images that require a gradient and consumes that gradient without a copy, as a preceding layer would.
struct GivenImages {
  static constexpr std::string_view kName = "given_images";
  struct Saved {};
  static Tensor forward(Saved&, std::span<const Tensor>, const Tensor& images) { return images; }
  static void backward(Saved&, std::span<const Tensor>, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set(Tensor::zeros({1}, dtypes::fp32));
  }
};

// The state of one call. The tape lives from the call's preparation to its end.
struct Call {
  Conv2dOptions options;
  Tensor x, w, gy;
  ProductModes modes;
  RandomStream draws{1, Purpose::kGradient, site_id("conv"), 0};
  bool gx = false;
  AccumulateSink sink;
  std::optional<Tape> tape;
  Var y;

  void forward() { static_cast<void>(conv2d(x, w, {}, options, modes)); }
  void record() {
    sink.clear();
    tape.emplace();
    if (gx) {
      const Var leaf = tape->leaf(Tensor::zeros({1}, dtypes::fp32), &sink, dtypes::fp32);
      y = conv2d(apply<GivenImages>({leaf}, x), w, {}, options, modes);
    } else {
      y = conv2d(x, tape->leaf(w, &sink, dtypes::fp32), {}, options, modes);
    }
    y = apply<GivenGradient>({y}, gy, Shape{1});
  }
  void backward() {
    tape->backward(y);
    y = {};
    tape.reset();
  }
};

kernels::WindowGeometry geometry(const ConvShape& s) {
  kernels::WindowGeometry g;
  const auto [oh, ow] = s.output();
  g.h = s.h, g.w = s.w, g.oh = oh, g.ow = ow;
  g.kh = g.kw = s.kernel;
  g.stride_y = g.stride_x = s.stride;
  g.top = g.left = s.pad;
  return g;
}

// Windows per block of conv2d.
int64_t block_rows(const std::string& product, int64_t row_bytes, int64_t k) {
  constexpr int64_t kContracted = 4032, kMostSums = 448, kSums = 1 << 18, kMostFree = 512, kFreeBytes = 256 << 10;
  if (product == "gw") return kContracted;
  if (product == "gx") return std::clamp<int64_t>(kSums / k, 32, kMostSums);
  return std::clamp<int64_t>(kFreeBytes / row_bytes / 16 * 16, 64, kMostFree);
}

std::function<void()> gathers(const ConvProduct& what) {
  const ConvShape& s = what.shape;
  const Tensor stored = random_images(s, what.x);
  const DType dtype = windows_form(form_of(stored), stored.shape(), s.options()).dtype;
  const Tensor image = dtype == what.x ? stored : random_codes(stored.shape(), dtype, 1);
  const Tensor pad = Tensor::zeros({1, s.c}, dtype);
  const int64_t rows = block_rows(what.product, row_bytes_memory(dtype, s.k()), s.k());
  const Tensor block = Tensor::empty({rows, s.k()}, dtype);
  kernels::GatherWindowsArgs args;
  args.geometry = geometry(s);
  args.image = image.data(), args.stride = image.stride(), args.bits = s.c * dtype.bits();
  args.pad = pad.data(), args.rows = block.data(), args.row_stride = block.stride();
  return [image, pad, block, rows, args, all = s.rows()]() mutable {
    for (args.begin = 0; args.begin < all; args.begin += rows) {
      args.end = std::min(args.begin + rows, all);
      kernels::gather_windows(args);
    }
  };
}

std::function<void()> additions(const ConvProduct& what) {
  const ConvShape& s = what.shape;
  const DType dtype = what.mode == ProductMode::kInt8 ? dtypes::int32 : dtypes::fp32;
  const int64_t rows = block_rows(what.product, 0, s.k());
  const Tensor block = Tensor::zeros({rows, s.k()}, dtype), image = Tensor::empty({s.n * s.h * s.w, s.c}, dtype);
  kernels::AddWindowsArgs args;
  args.geometry = geometry(s);
  args.rows = block.data(), args.channels = args.pixel = s.c;
  args.image = image.data(), args.dtype = dtype;
  return [block, image, rows, args, all = s.rows()]() mutable {
    std::memset(image.data(), 0, static_cast<size_t>(image.rows() * image.stride()));
    for (args.begin = 0; args.begin < all; args.begin += rows) {
      args.end = std::min(args.begin + rows, all);
      kernels::add_windows(args);
    }
  };
}

}  // namespace

DType ConvProduct::a() const {
  if (product == "forward") return x;
  if (mode == ProductMode::kFp32) return dtypes::fp32;
  return mode == ProductMode::kBf16 ? dtypes::bf16 : dtypes::int8;
}

bool takes(const ConvProduct& what) {
  ConvProduct small = what;
  small.shape.n = 1;
  const Tensor x = random_images(small.shape, what.x), w = random_codes({what.shape.o, what.shape.k()}, what.w, 2);
  try {
    check_modes(product_form(small, x, w));
  } catch (const Error&) {
    return false;
  }
  return true;
}

Contestant conv_contestant(const ConvProduct& what) {
  const auto call = std::make_shared<Call>();
  const ConvShape& s = what.shape;
  const auto [oh, ow] = s.output();
  call->options = s.options();
  call->x = random_images(s, what.x);
  call->w = random_weights(what, call->x);
  call->modes.gx = call->modes.gw = what.mode;
  call->modes.sr = &call->draws;
  call->gx = what.product == "gx";
  if (what.product == "forward") return {"", [call] { call->forward(); }, 1, false, {}};
  call->gy = random_codes({s.n, oh, ow, s.o}, dtypes::fp32, 3);
  Contestant out{"", [call] { call->backward(); }, 1, false, {}};
  out.before = [call] { call->record(); };
  return out;
}

Contestant conv_moves(const ConvProduct& what) {
  const ConvShape& s = what.shape;
  if (s.kernel == 1 && s.stride == 1 && s.pad == 0) return {"", [] {}, 1, false, {}};
  return {"", what.product == "gx" ? additions(what) : gathers(what), 1, false, {}};
}

}  // namespace bitgrad::bench
