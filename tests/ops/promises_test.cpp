// What ops promise, over promises.inc and shapes that are drawn: bf16 is fp32 rounded once, at each end of an op, and
// no number of threads, no instruction set and no device changes a bit in strict mode.
#include <random>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/kernel.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/ops/unary.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/device_difference.h"
#include "support/device_run.h"
#include "support/expect_error.h"
#include "support/inner_edges.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

class StrictModes {
 public:
  StrictModes() { set_bits_mode(BitsMode::kStrict); }
  ~StrictModes() {
    set_bits_mode(bits_);
    set_num_threads(threads_);
    set_isa_cap(cap_);
  }

 private:
  BitsMode bits_ = bits_mode();
  int threads_ = num_threads();
  IsaLevel cap_ = isa_cap();
};

// The shapes of x and of the parameters that an op takes.
struct OpForm {
  std::vector<int64_t> ranks{1, 2, 3};
  int64_t columns = 1;  // a multiple of this
  int64_t rows = 1;     // of a matrix, at least
  bool bf16 = true;     // takes it
  bool fp32_y = false;  // of bf16 too
  bool keeps = false;   // backward reads y as it was rounded
  std::vector<std::function<Shape(const Shape&)>> parameters = {};

  OpForm with(std::function<Shape(const Shape&)> shape) {
    parameters.push_back(std::move(shape));
    return *this;
  }
  OpForm of_rows(int64_t least) {
    rows = least;
    return *this;
  }
  OpForm with_columns(int count) {
    for (int i = 0; i < count; ++i) with([](const Shape& x) { return Shape{x.cols()}; });
    return *this;
  }
  OpForm with_numbers(int64_t n) {
    return with([n](const Shape&) { return Shape{n}; });
  }
  OpForm with_weights(int64_t n) {
    return with([n](const Shape& x) { return Shape{n, x.cols()}; });
  }
  OpForm with_kernels(int64_t n) {
    return with([n](const Shape& x) { return Shape{n, 9 * x.cols()}; });
  }
  OpForm rank(int64_t r) { return ranks = {r}, *this; }
  OpForm keeping_y() { return keeps = true, *this; }
  OpForm writing_fp32() { return fp32_y = true, *this; }
  OpForm of_fp32() { return bf16 = false, *this; }
};
OpForm any() { return {}; }
OpForm matrices() {
  OpForm form;
  form.ranks = {2, 3};
  return form;
}
OpForm rank_2() { return OpForm{}.rank(2); }
OpForm images() { return OpForm{}.rank(4); }
OpForm columns_of(int64_t n) {
  OpForm form;
  form.columns = n;
  return form;
}

DropoutOptions drop(double p) { return {.p = p, .stream = {3, Purpose::kDropout, 1, 0}}; }
NormOptions norm(const Var& gamma, bool training) {
  NormOptions options;
  options.training = training;
  options.running_mean = Tensor::full(gamma.shape(), dtypes::fp32, 0.125);
  options.running_var = Tensor::full(gamma.shape(), dtypes::fp32, 1.5);
  return options;
}
RopeOptions six(bool interleaved) {
  RopeOptions options;
  options.dim = 6;
  options.interleaved = interleaved;
  return options;
}
Tensor turns(bool interleaved) { return rope_table(80, six(interleaved)); }
Conv2dOptions windows(int64_t groups) { return {.kernel = {3, 3}, .padding = {1, 1, 1, 1}, .groups = groups}; }
Tensor weights(DType dtype, const Shape& shape) {
  return dtype.is_code() ? random_codes(shape, dtype, 5, Granularity::channel(0)) : random_tensor(shape, dtype, 5);
}
ProductModes into(const Var& x) {
  ProductModes modes;
  modes.y = x.dtype();
  return modes;
}
Tensor labels(const Var& x) {
  std::vector<double> out;
  for (int64_t i = 0; i < x.shape().rows(); ++i) out.push_back(static_cast<double>(i * 7 % x.shape().cols()));
  return Tensor::from_elements({x.shape().rows()}, dtypes::int32, out);
}
Tensor target(const Var& x) { return random_tensor(x.shape(), dtypes::fp32, 6, 0, 1); }
Tensor class_weights(const Var& x) { return random_tensor({x.shape().cols()}, dtypes::fp32, 7, 0.5, 2); }

struct OpPromise {
  std::string name;
  OpForm form;
  std::function<Var(const Var&, const std::vector<Var>&)> op;
};

std::vector<OpPromise> op_promises() {
  std::vector<OpPromise> list = {
#define OP(name, form, result) \
  {name, form, []([[maybe_unused]] const Var& x, [[maybe_unused]] const std::vector<Var>& p) -> Var { return result; }},
#include "ops/promises.inc"
#undef OP
  };
  for (int f = 0; f < static_cast<int>(UnaryOp::kCount); ++f)
    list.push_back({std::string(unary_name(static_cast<UnaryOp>(f))), any(),
                    [f](const Var& x, const auto&) { return unary(static_cast<UnaryOp>(f), x); }});
  for (const DType d : code_dtypes())
    list.push_back({concat("linear, weights ", d), rank_2(), [d](const Var& x, const auto&) {
                      return linear(x, weights(d, {70, x.shape().cols()}), {}, into(x));
                    }});
  std::vector<QuantSpec> specs = all_specs();
  for (QuantSpec spec : special_specs()) {
    spec.granularity = spec.scheme == "standardized_binary" ? Granularity::token() : Granularity::tensor();
    specs.push_back(spec);
  }
  for (const QuantSpec& spec : specs) {
    const size_t learned = find_quantizer(spec.scheme).learned(spec).size();
    OpForm form = rank_2();
    for (size_t i = 0; i < learned; ++i) form.with_numbers(1);
    list.push_back({concat("quantize ", spec.scheme, ' ', spec.dtype), form, [spec](const Var& x, const auto& p) {
                      return p.empty() ? quantize(x, spec) : quantize_learned(x, spec, p);
                    }});
  }
  return list;
}

// Small ones, and past every block of work, as far as the rank goes.
std::vector<Shape> shapes_for(const OpForm& form, std::mt19937& random) {
  std::vector<Shape> out;
  const auto up = [&](int64_t n) { return (n + form.columns - 1) / form.columns * form.columns; };
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (const int64_t rank : form.ranks) {
    if (rank == 1) out.push_back({up(1 + below(90))});
    if (rank == 2) {
      out.push_back({form.rows, up(1)});
      out.push_back({2 + below(40), up(1 + below(300))});
      if (runs_on_device()) continue;  // emulated: a small one will do
      out.push_back({130 + below(3), up(257)});
      out.push_back({1030, up(16)});
    }
    if (rank == 3) {
      out.push_back({3, 5, up(65)});
      out.push_back({form.rows + below(4), 1 + below(40), up(1 + below(100))});
    }
    if (rank == 4) {
      out.push_back({2, 5, 7, 3 + below(5)});
      if (runs_on_device()) continue;
      out.push_back({3, 12 + below(6), 17, 16 + below(20)});
    }
  }
  return out;
}

Tensor rounded(const Tensor& x) { return cast(Var(x), dtypes::bf16).value(); }

// "": the bits of `a`, an array that a bf16 edge may have rounded, are those of `b`.
std::string rounded_difference(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return "it is missing";
  if (!a.defined()) return "";
  const Tensor& expected = a.dtype() == dtypes::bf16 && b.dtype() == dtypes::fp32 ? rounded(b) : b;
  if (a.shape() != expected.shape()) return concat(a.shape(), ", not ", expected.shape());
  const std::vector<uint32_t> x = bits_of(a), y = bits_of(expected);
  const auto at = std::mismatch(x.begin(), x.end(), y.begin()).first - x.begin();
  if (at == std::ssize(x)) return "";
  const auto i = static_cast<size_t>(at);
  return concat("element ", at, " of ", a.shape(), " is ", a.elements()[i], ", not ", expected.elements()[i]);
}

std::string difference(const InnerRun& a, const InnerRun& b, bool with_y = true) {
  if (const std::string text = with_y ? rounded_difference(a.y, b.y) : ""; !text.empty()) return "y: " + text;
  if (const std::string text = rounded_difference(a.gx, b.gx); !text.empty()) return "gx: " + text;
  for (size_t i = 0; i < a.gradients.size(); ++i)
    if (const std::string text = rounded_difference(a.gradients[i], b.gradients[i]); !text.empty())
      return concat("gradient of parameter ", i, ": ", text);
  return "";
}

struct OpCase {
  const OpPromise& promise;
  Tensor x;  // bf16
  std::vector<Tensor> parameters;
  std::shared_ptr<const Tensor> y = {};  // a result, for its shape
  OpCase here() const {
    OpCase moved{promise, test::here(x), {}, y};
    for (const Tensor& p : parameters) moved.parameters.push_back(test::here(p));
    return moved;
  }
  Tensor x_of_any_dtype() const { return promise.form.bf16 ? x : wide(); }
  Tensor wide() const { return cast(Var(x), dtypes::fp32).value(); }
  // `twice`: two readers of x, whose gradients are summed in fp32.
  InnerRun run(const Tensor& from, DType gx, DType gy, bool twice = false) const {
    const auto once = promise.op;
    const auto two = [&](const Var& v, const std::vector<Var>& p) { return add(once(v, p), once(v, p)); };
    if (twice && y->dtype().is_code()) return run(from, gx, gy);
    return run_inner(twice ? std::function<Var(const Var&, const std::vector<Var>&)>(two) : once, from, gx, parameters,
                     random_tensor(y->shape(), gy, 77));
  }
};

template <typename Body>
void for_every_case(Body&& body) {
  std::mt19937 random(3);
  for (const OpPromise& promise : op_promises())
    for (const Shape& shape : shapes_for(promise.form, random)) {
      OpCase c{promise, random_tensor(shape, dtypes::bf16, 4, -2, 2), {}};
      for (const auto& of : promise.form.parameters)
        c.parameters.push_back(random_tensor(of(shape), dtypes::fp32, 5 + c.parameters.size(), 0.05, 1));
      const auto fail = [&](const std::string& axis, const std::string& text) {
        if (!text.empty()) FAIL_CHECK(promise.name << " of " << shape << ", " << axis << ": " << text);
      };
      try {
        c.y = std::make_shared<Tensor>(run_inner(promise.op, c.x_of_any_dtype(), dtypes::fp32, c.parameters, {}).y);
        body(c, fail);
      } catch (const Error& error) {
        fail("error", error.what());
      }
    }
}

}  // namespace

TEST_CASE("bf16 is fp32 rounded once: results, and gradients at edges of either dtype, of each op listed", "[bits]") {
  const StrictModes strict;
  set_num_threads(1);
  for_every_case([](const OpCase& c, const auto& fail) {
    const OpForm& form = c.promise.form;
    const Tensor wide = c.wide();
    for (const DType gy : {dtypes::fp32, dtypes::bf16})
      for (const bool twice : {false, true}) {
        const InnerRun full = c.run(wide, dtypes::fp32, gy, twice);
        const std::string axis = concat("gy ", gy, twice ? ", two readers" : "");
        const InnerRun edge = c.run(wide, dtypes::bf16, gy, twice);
        if (edge.gx.dtype() != dtypes::bf16) fail(axis, "the edge is not bf16");
        fail(axis + ", x fp32, gx bf16", difference(edge, full));
        if (!form.bf16) continue;
        for (const DType gx : {dtypes::fp32, dtypes::bf16}) {
          const InnerRun narrow = c.run(c.x, gx, gy, twice);
          if (narrow.y.dtype() == dtypes::fp32 && full.y.dtype() == dtypes::fp32 && !form.fp32_y)
            fail(axis, "y is fp32");
          const std::string at = concat(axis, ", x bf16, gx ", gx);
          if (form.keeps)
            fail(at, twice ? "" : rounded_difference(narrow.y, full.y));
          else
            fail(at, difference(narrow, full, !twice));
        }
      }
  });
}

// [caps]: it sets them itself
TEST_CASE(
    "any number of threads, every instruction set and a device give the same bits, in fp32 and bf16, of each op "
    "listed",
    "[caps]") {
  const StrictModes strict;
  const IsaLevel most = isa_cap();
  for_every_case([&](const OpCase& c, const auto& fail) {
    for (const bool narrow : {false, true}) {
      if (narrow && !c.promise.form.bf16) continue;
      const Tensor from = narrow ? c.x : c.wide();
      const auto run = [&] { return c.run(from, from.dtype(), from.dtype()); };
      set_num_threads(1);
      const InnerRun expected = run();
      const std::string dtype = narrow ? "bf16" : "fp32";
      if (runs_on_device()) {
        const InnerRun cpu = on_cpu([&] { return c.here().run(here(from), from.dtype(), from.dtype()); });
        fail("a device, " + dtype, difference(expected, cpu));
        continue;
      }
      for (const int threads : {2, 7}) {
        set_num_threads(threads);
        fail(concat(threads, " threads, ", dtype), difference(run(), expected));
      }
      for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
        set_isa_cap(std::min(level, most));
        fail(concat("instructions ", isa_names(cpu_isa()), ", ", dtype), difference(run(), expected));
      }
      set_isa_cap(most);
    }
  });
}
