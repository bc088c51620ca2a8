// Integer products with groups of B along k and with real offsets: every row against the definition of
// docs/numerics.md section 4, written once more in plain loops, bit for bit.
#include <algorithm>
#include <string>
#include <utility>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/panel_scales.h"
#include "support/catch.h"
#include "support/gemm_int_problem.h"
#include "support/gemm_reference.h"
#include "support/shape_count.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::CodeMatrix;
using test::Rng;
using test::uniform_int;

struct Shape {
  int64_t m, n, k;
};
// What parameters an operand has, and how many numbers share one.
struct Params {
  bool scale = true, zero = false, offset = false;
  bool per_free = true;    // A, and B without groups: one for each free index, else one for all
  int64_t group = 0;       // along k; 0: none
  int64_t free_group = 1;  // free indices that share a group (groups only)
  int32_t zero_range = 20;
};

// One product with everything that it points to.
struct Case {
  GemmArgs args;
  CodeMatrix a, b;
  std::vector<float> scale[2], offset[2], bias;
  std::vector<int32_t> zero[2];
  RandomStream stream{7, Purpose::kGradAccumulate, 11, 3};
  int64_t group = 0;
  bool blocks = false;  // A has groups, too

  Case(Rng& rng, DType da, DType db, Shape s, bool a_k_major, bool b_k_major, const Params& pa, const Params& pb) {
    args.m = s.m, args.n = s.n, args.k = s.k, args.ldc = s.n + uniform_int(rng, 0, 3);
    a = a_k_major ? test::random_codes(rng, da, s.k, s.m) : test::random_codes(rng, da, s.m, s.k);
    b = b_k_major ? test::random_codes(rng, db, s.k, s.n) : test::random_codes(rng, db, s.n, s.k);
    args.a = a.operand(a_k_major);
    args.b = b.operand(b_k_major);
    group = pb.group;
    blocks = pa.group != 0;
    if (blocks) group = pb.group == 0 ? pa.group : std::min(pa.group, pb.group);
    add(rng, args.a, s.m, s.k, pa, 0);
    add(rng, args.b, s.n, s.k, pb, 1);
  }
  Case(const Case&) = delete;

  void add(Rng& rng, GemmOperand& x, int64_t free, int64_t k, const Params& p, int which) {
    const int64_t groups = p.group == 0 ? 1 : (k + p.group - 1) / p.group;
    const int64_t frees = p.per_free ? std::max<int64_t>(1, (free + p.free_group - 1) / p.free_group) : 1;
    for (int64_t i = 0; i < std::max<int64_t>(1, groups * frees); ++i) {
      scale[which].push_back(std::ldexp(static_cast<float>(uniform_int(rng, -99, 999)), -12));
      offset[which].push_back(std::ldexp(static_cast<float>(uniform_int(rng, -999, 999)), -9));
      zero[which].push_back(static_cast<int32_t>(uniform_int(rng, -p.zero_range, p.zero_range)));
    }
    if (p.scale) x.scale.scale = scale[which].data();
    if (p.zero) x.scale.zero = zero[which].data();
    if (p.offset) x.scale.offset = offset[which].data();
    int64_t &free_step = x.k_major ? x.scale.col_step : x.scale.row_step,
            &k_step = x.k_major ? x.scale.row_step : x.scale.col_step;
    free_step = !p.per_free ? 0 : x.k_major ? 1 : groups;
    if (p.group == 0) return;
    k_step = x.k_major ? frees : 1;
    (x.k_major ? x.scale.row_group : x.scale.col_group) = p.group;
    (x.k_major ? x.scale.col_group : x.scale.row_group) = p.free_group;
  }

  void add_output(Rng& rng, DType dtype) {
    args.c_dtype = dtype;
    args.accumulate = uniform_int(rng, 0, 2) == 0;
    if (dtype == dtypes::fp64) return;
    if (uniform_int(rng, 0, 1) == 0) args.sr = &stream;
    if (uniform_int(rng, 0, 1) == 0) return;
    for (int64_t j = 0; j <= args.n; ++j)
      bias.push_back(std::ldexp(static_cast<float>(uniform_int(rng, -999, 999)), -5));
    args.bias = bias.data();
  }
};

// All integer rows that read canonical codes, or B in layout vnni64.
std::vector<const GemmKernel*> rows_for(const GemmArgs& args) {
  std::vector<const GemmKernel*> rows;
  for (const GemmKernel& kernel : gemm_kernels()) {
    const bool exact = kernel.order == SumOrder::kExact && kernel.a_layout == layouts::canonical &&
                       (kernel.b_layout == layouts::canonical || kernel.b_layout == layouts::vnni64);
    if (exact && kernel.usable(args)) rows.push_back(&kernel);
  }
  return rows;
}

// The scales of B in the order of layout vnni64, fp32 or fp16; none where another layout reads them or there are none.
class PanelScales {
 public:
  PanelScales(const Case& t, const GemmKernel& kernel, DType dtype, GemmOperand& b) {
    if (kernel.b_layout != layouts::vnni64 || b.scale.scale == nullptr || b.scale.col_step == 0 || t.args.n == 0)
      return;
    const int64_t groups = (t.args.k + t.group - 1) / t.group;
    floats_.resize(static_cast<size_t>(panel_scale_count(t.args.n, groups)));
    order_panel_scales(b.scale, t.args.n, t.args.k, floats_.data());
    for (const float x : floats_) halves_.push_back(fp16_from_float(x));
    for (size_t i = 0; i < floats_.size(); ++i) REQUIRE(fp16_to_float(halves_[i]) == floats_[i]);
    b.panel_dtype = dtype;
    b.panel_scales = dtype == dtypes::fp32 ? static_cast<const void*>(floats_.data()) : halves_.data();
    there_ = true;
  }
  bool there() const { return there_; }

 private:
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
  bool there_ = false;
};

// Returns the number of rows that read B in layout vnni64.
int check(Rng& rng, const Case& t) {
  const GemmArgs& args = t.args;
  const std::vector<int64_t> a = test::reference_codes(args.a, args.m, args.k);
  const std::vector<int64_t> b = test::reference_codes(args.b, args.n, args.k);
  const auto expected = [&](int64_t i, int64_t j, uint64_t old) {
    const int64_t *x = a.data() + i * args.k, *y = b.data() + j * args.k;
    const bool fp64 = args.c_dtype == dtypes::fp64;
    if (t.group == 0) {
      return fp64 ? test::reference_offsets<double>(args, i, j, x, y, old)
                  : test::reference_offsets<float>(args, i, j, x, y, old);
    }
    return fp64 ? test::reference_groups<double>(args, t.group, i, j, x, y, old, t.blocks)
                : test::reference_groups<float>(args, t.group, i, j, x, y, old, t.blocks);
  };
  const std::vector<const GemmKernel*> rows = rows_for(args);
  CHECK(gemm_is_integer(args));
  CHECK(!rows.empty());
  for (const GemmKernel* kernel : rows) {
    GemmArgs own = args;
    std::vector<uint64_t> packed;
    test::derive(rng, own.b, kernel->b_layout, args.n, args.k, packed);
    int64_t wrong = test::wrong_elements(rng, *kernel, own, expected);
    for (const DType dtype : {dtypes::fp32, dtypes::fp16}) {
      const PanelScales scales(t, *kernel, dtype, own.b);
      if (scales.there()) wrong += test::wrong_elements(rng, *kernel, own, expected);
      own.b.panel_scales = nullptr;
    }
    if (wrong != 0) {
      FAIL_CHECK(kernel->name << " on " << args.a.dtype << " x " << args.b.dtype << " m " << args.m << " n " << args.n
                              << " k " << args.k << " group " << t.group << " to " << args.c_dtype << ", k_major "
                              << args.a.k_major << args.b.k_major << ", zeros " << (args.a.scale.zero != nullptr)
                              << (args.b.scale.zero != nullptr) << ", offsets " << (args.a.scale.offset != nullptr)
                              << (args.b.scale.offset != nullptr) << ", blocks " << t.blocks << ": wrong elements "
                              << wrong);
    }
  }
  return static_cast<int>(std::count_if(rows.begin(), rows.end(),
                                        [](const GemmKernel* kernel) { return kernel->b_layout == layouts::vnni64; }));
}

std::vector<DType> integer_dtypes() {
  std::vector<DType> list;
  for (const DType d : all_dtypes())
    if (d.is_code() && d.kind() != DTypeKind::kCodebook) list.push_back(d);
  return list;
}

Shape random_shape(Rng& rng) {
  constexpr int64_t kSides[] = {0, 1, 5, 6, 7, 15, 16, 17, 31, 32, 33, 65, 97, 257};
  constexpr int64_t kDepths[] = {0, 1, 3, 31, 32, 33, 127, 511, 512, 513, 1023, 1024, 1025, 2050};
  if (uniform_int(rng, 0, 1) == 0)
    return {kSides[uniform_int(rng, 0, 13)], kSides[uniform_int(rng, 0, 13)], kDepths[uniform_int(rng, 0, 13)]};
  return {test::log_uniform(rng, 120), test::log_uniform(rng, 300), test::log_uniform(rng, 3000)};
}

constexpr DType kOutputs[] = {dtypes::fp32, dtypes::fp32, dtypes::bf16, dtypes::fp64};

// [cpu]: products of the CPU; those of devices are in tests/cuda/gemm_*
TEST_CASE("groups along k equal the definition for every dtype pair, order of storage, zeros and offsets", "[cpu]") {
  Rng rng(21);
  const std::vector<DType> types = integer_dtypes();
  constexpr int64_t kGroups[] = {1,   2,   3,   4,   7,   8,   16,  31,   32,   33,  64,
                                 100, 128, 255, 256, 257, 512, 513, 1024, 1025, 4096};
  const int threads = num_threads();
  for (int i = 0, count = test::shape_count(600); i < count; ++i) {
    set_num_threads(i % 16 == 0 ? 2 : 1);
    const DType da = types[static_cast<size_t>(uniform_int(rng, 0, static_cast<int64_t>(types.size()) - 1))];
    const DType db = types[static_cast<size_t>(i) % types.size()];
    Params a, b;
    a.scale = uniform_int(rng, 0, 4) != 0;
    a.per_free = uniform_int(rng, 0, 2) != 0;
    a.zero = uniform_int(rng, 0, 1) == 0;
    b.scale = uniform_int(rng, 0, 4) != 0;
    b.group = uniform_int(rng, 0, 1) == 0 ? kGroups[uniform_int(rng, 0, 20)] : 32;
    b.per_free = uniform_int(rng, 0, 5) != 0;
    b.free_group = uniform_int(rng, 0, 5) == 0 ? uniform_int(rng, 2, 40) : 1;
    const int64_t way = uniform_int(rng, 0, 2);
    b.zero = way == 1;
    b.offset = way == 2;
    if (!b.scale && way == 0) b.scale = true;
    a.zero_range = b.zero_range = uniform_int(rng, 0, 2) == 0 ? 512 : 20;
    Case t(rng, da, db, random_shape(rng), uniform_int(rng, 0, 2) == 0, uniform_int(rng, 0, 2) == 0, a, b);
    t.add_output(rng, kOutputs[uniform_int(rng, 0, 3)]);
    check(rng, t);
  }
  set_num_threads(threads);
}

TEST_CASE("rows of groups in layout vnni64 equal the definition for every dtype of B and number of rows", "[cpu]") {
  Rng rng(29);
  constexpr int64_t kDepths[] = {31, 32, 33, 64, 100, 127, 128, 256, 513, 1056, 2050};
  constexpr int64_t kColumns[] = {1, 16, 17, 47, 63, 64, 65, 90, 128, 200};
  size_t count = 0;
  for (const DType db : integer_dtypes()) {
    if (!layouts::vnni64.info().supports(db)) continue;
    for (const int64_t group : {32, 64, 128, 256, 4096}) {
      for (const int kind : {0, 1, 2}) {  // scales, zero points, offsets
        for (int64_t m = 1; m <= 14; m += group == 32 ? 1 : 4) {
          Params a, b;
          a.per_free = count % 3 != 0;
          b.group = group;
          b.zero = kind == 1;
          b.offset = kind == 2;
          b.free_group = count % 7 == 6 ? 20 : 1;
          const DType da = count % 4 == 3 ? (count % 8 == 3 ? dtypes::int4 : dtypes::bint1) : dtypes::int8;
          Case t(rng, da, db, {m, kColumns[count % 10], kDepths[count % 11]}, false, false, a, b);
          t.add_output(rng, kOutputs[count % 3]);
          const int rows = check(rng, t);
          CHECK(rows >= (da == dtypes::bint1 ? 0 : 1));
          ++count;
        }
      }
    }
  }
}

// Every code of m is the lowest or the highest of its dtype.
void fill(CodeMatrix& m, bool low) {
  const DTypeInfo& info = m.dtype.info();
  const auto raw = static_cast<uint32_t>(encode_int(info, low ? info.qmin : info.qmax));
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c)
      store_raw(reinterpret_cast<uint8_t*>(m.words.data()) + r * m.stride, c, info.bits, raw);
}

// Parameters of A in blocks and of B: groups of B are whole blocks, or blocks whole groups, or there are none of B.
std::pair<Params, Params> params_of_blocks(Rng& rng, int64_t block, int64_t group) {
  Params a, b;
  a.group = block;
  b.group = group;
  b.scale = uniform_int(rng, 0, 4) != 0;
  b.per_free = uniform_int(rng, 0, 5) != 0;
  if (group != 0) b.free_group = uniform_int(rng, 0, 5) == 0 ? uniform_int(rng, 2, 40) : 1;
  const int64_t way = uniform_int(rng, 0, 2);
  b.zero = way == 1;
  b.offset = way == 2;
  if (!b.scale && group != 0 && way == 0) b.scale = true;
  b.zero_range = uniform_int(rng, 0, 2) == 0 ? 512 : 20;
  return {a, b};
}

TEST_CASE("inputs in blocks equal the definition for every dtype pair, order of storage and groups of weights",
          "[cpu]") {
  Rng rng(31);
  const std::vector<DType> types = integer_dtypes();
  const std::pair<int64_t, int64_t> sizes[] = {{32, 32},  {32, 0},    {32, 256}, {256, 32}, {256, 0},    {256, 256},
                                               {32, 128}, {16, 64},   {2, 4},    {3, 9},    {1024, 512}, {64, 16},
                                               {7, 7},    {4096, 32}, {100, 0},  {32, 1}};
  const int threads = num_threads();
  for (int i = 0, count = test::shape_count(500); i < count; ++i) {
    set_num_threads(i % 16 == 0 ? 2 : 1);
    const DType da = types[static_cast<size_t>(uniform_int(rng, 0, static_cast<int64_t>(types.size()) - 1))];
    const DType db = types[static_cast<size_t>(i) % types.size()];
    const auto [block, group] = sizes[uniform_int(rng, 0, static_cast<int64_t>(std::size(sizes)) - 1)];
    const auto [a, b] = params_of_blocks(rng, block, group);
    Case t(rng, da, db, random_shape(rng), uniform_int(rng, 0, 2) == 0, uniform_int(rng, 0, 2) == 0, a, b);
    for (size_t s = 0; s < t.scale[0].size(); s += 5) t.scale[0][s] = 0;
    t.add_output(rng, kOutputs[uniform_int(rng, 0, 3)]);
    check(rng, t);
  }
  set_num_threads(threads);
}

TEST_CASE("inputs in blocks times weights in layout vnni64 equal the definition for every dtype and number of rows",
          "[cpu]") {
  Rng rng(37);
  constexpr int64_t kDepths[] = {31, 32, 33, 64, 96, 255, 256, 257, 512, 768, 1056};
  constexpr int64_t kColumns[] = {1, 16, 17, 47, 63, 64, 65, 90, 128, 200};
  size_t count = 0;
  for (const DType db : integer_dtypes()) {
    if (!layouts::vnni64.info().supports(db)) continue;
    for (const int64_t block : {32, 256})
      for (const int64_t group : {0, 32, 64, 128, 256})
        for (int64_t m = 1; m <= 14; m += block == group ? 1 : 4, ++count) {
          const auto [a, b] = params_of_blocks(rng, block, group);
          const DType da = count % 4 == 3 ? dtypes::int4 : dtypes::int8;
          Case t(rng, da, db, {m, kColumns[count % 10], kDepths[count % 11]}, false, false, a, b);
          if (count % 3 == 0)  // blocks of zeros
            for (float& s : t.scale[0]) s = 0;
          t.add_output(rng, kOutputs[count % 3]);
          CHECK(check(rng, t) >= 1);
        }
  }
}

TEST_CASE("blocks that cut groups of weights, and blocks with zero points, are products of floats", "[cpu]") {
  Rng rng(39);
  for (const auto& [block, group] : {std::pair<int64_t, int64_t>{32, 48}, {3, 2}, {256, 100}}) {
    Params a, b;
    a.group = block;
    b.group = group;
    CHECK_FALSE(gemm_is_integer(Case(rng, dtypes::int8, dtypes::int4, {3, 20, 600}, false, false, a, b).args));
  }
  Params a, b;
  a.group = b.group = 32;
  CHECK(gemm_is_integer(Case(rng, dtypes::int8, dtypes::int4, {3, 20, 64}, false, false, a, b).args));
  a.zero = true;
  CHECK_FALSE(gemm_is_integer(Case(rng, dtypes::int8, dtypes::int4, {3, 20, 64}, false, false, a, b).args));
  a.zero = false;
  a.offset = true;
  CHECK_FALSE(gemm_is_integer(Case(rng, dtypes::int8, dtypes::int4, {3, 20, 64}, false, false, a, b).args));
}

TEST_CASE("codes at their ends keep the sums of blocks exact", "[cpu]") {
  Rng rng(41);
  for (const DType db : {dtypes::int8, dtypes::uint8, dtypes::int4, dtypes::ternary, dtypes::bint1})
    for (const bool low : {false, true})
      for (const int64_t block : {32, 256, 512})
        for (const int64_t m : {1, 7}) {
          Params a, b;
          a.group = b.group = block;
          Case t(rng, dtypes::int8, db, {m, 70, 768}, false, false, a, b);
          fill(t.a, low);
          fill(t.b, db.kind() == DTypeKind::kSign ? low : !low);
          check(rng, t);
        }
}

TEST_CASE("rows times bits in several runs of columns equal the definition, by any number of threads", "[cpu]") {
  Rng rng(43);
  const int threads = num_threads();
  for (const int64_t m : {1, 2}) {
    Params a, b;
    b.group = 128;
    Case t(rng, dtypes::int8, dtypes::bint1, {m, 200, 32768}, false, false, a, b);
    for (const int n : {1, 3}) {
      set_num_threads(n);
      reset_memory_peaks();
      check(rng, t);
      CHECK(memory_peak_by_kind()[MemoryKind::kWorkspace] <= (int64_t{1} << 20) * n);
    }
  }
  set_num_threads(threads);
}

TEST_CASE("real offsets equal the definition for every dtype pair and granularity", "[cpu]") {
  Rng rng(22);
  const std::vector<DType> types = integer_dtypes();
  const int threads = num_threads();
  for (int i = 0, count = test::shape_count(400); i < count; ++i) {
    set_num_threads(i % 16 == 0 ? 2 : 1);
    const DType da = types[static_cast<size_t>(uniform_int(rng, 0, static_cast<int64_t>(types.size()) - 1))];
    const DType db = types[static_cast<size_t>(i) % types.size()];
    Params p[2];
    const int64_t sides = uniform_int(rng, 1, 3);
    for (int side = 0; side < 2; ++side) {
      p[side].scale = uniform_int(rng, 0, 4) != 0;
      p[side].per_free = uniform_int(rng, 0, 2) != 0;
      p[side].offset = (sides >> side & 1) != 0;
      p[side].zero = !p[side].offset && uniform_int(rng, 0, 1) == 0;
      p[side].zero_range = uniform_int(rng, 0, 2) == 0 ? 512 : 20;
    }
    Case t(rng, da, db, random_shape(rng), uniform_int(rng, 0, 2) == 0, uniform_int(rng, 0, 2) == 0, p[0], p[1]);
    t.add_output(rng, kOutputs[uniform_int(rng, 0, 3)]);
    check(rng, t);
  }
  set_num_threads(threads);
}

TEST_CASE("groups and offsets of int32 and int64 codes are products of integers too", "[cpu]") {
  Rng rng(23);
  for (const auto& [da, db] : {std::pair{dtypes::int32, dtypes::int4}, std::pair{dtypes::int8, dtypes::int32}}) {
    Params a, group, offset;
    a.zero = true;
    group.group = 24;
    offset.offset = true;
    for (const Params& b : {group, offset}) {
      Case t(rng, da, db, {9, 20, 100}, false, true, a, b);
      check(rng, t);
    }
  }
}

TEST_CASE("codes and zero points at their ends keep the sums of groups exact", "[cpu]") {
  Rng rng(24);
  for (const DType da : {dtypes::int8, dtypes::uint8, dtypes::bint1}) {
    for (const DType db : {dtypes::int8, dtypes::uint8, dtypes::int4, dtypes::ternary}) {
      for (const int64_t group : {4, 32, 127, 128, 129, 255, 256, 512, 1024, 70000}) {
        for (const int32_t zero : {0, 128, -128, 255, 512, -512, 40000, 1 << 20}) {
          // Beyond the limits of int32, where a sum walks many blocks: once with and once without zeros.
          if (group > 1024 && (da != dtypes::uint8 || (zero != 0 && zero != 512))) continue;
          Params a, b;
          a.zero = b.zero = zero != 0;
          a.per_free = zero != 255;
          b.group = group;
          Case t(rng, da, db, {7, 18, group > 1024 ? 70100 : 300}, false, group == 128, a, b);
          for (int32_t& z : t.zero[0]) z = zero;
          for (int32_t& z : t.zero[1]) z = -zero;
          fill(t.a, zero >= 0);
          fill(t.b, zero < 0);
          check(rng, t);
        }
      }
    }
  }
}

TEST_CASE("zero points whose sums may need more than 64 bits are exact in groups", "[cpu]") {
  Rng rng(25);
  Params a, b;
  a.zero = b.zero = true;
  b.group = 16;
  Case t(rng, dtypes::int8, dtypes::uint4, {5, 19, 77}, false, false, a, b);
  for (int32_t& z : t.zero[0]) z = INT32_MIN;
  for (int32_t& z : t.zero[1]) z = 1 << 27;  // 16 * 2^31 * 2^27 = 2^62
  check(rng, t);
}

TEST_CASE("groups of B do not depend on the number of threads and keep their scratch below 1 MiB a thread", "[cpu]") {
  const int threads = num_threads();
  for (const int64_t group : {1, 16, 32, 128, 600}) {
    for (const bool words : {false, true}) {
      Rng rng(26);
      Params a, b;
      a.zero = b.zero = true;
      b.group = group;
      Case t(rng, dtypes::int8, dtypes::int4, {500, 530, 1300}, false, false, a, b);
      for (const GemmKernel* kernel : rows_for(t.args)) {
        if (kernel->needs == isa::kScalar || (kernel->name.find("madd") != std::string_view::npos) != words) continue;
        std::vector<float> first(static_cast<size_t>(500 * t.args.ldc)), second = first;
        set_num_threads(1);
        t.args.c = first.data();
        reset_memory_peaks();
        kernel->run(t.args);
        CHECK(memory_peak_by_kind()[MemoryKind::kWorkspace] <= int64_t{1} << 20);
        set_num_threads(3);
        t.args.c = second.data();
        kernel->run(t.args);
        CHECK((first == second));
      }
    }
  }
  set_num_threads(threads);
}

TEST_CASE("a group product equals the product of its dequantized operands but for rounding", "[cpu]") {
  Rng rng(27);
  Params a, b;
  a.zero = true;
  b.group = 32;
  b.offset = true;
  Case t(rng, dtypes::int8, dtypes::int4, {11, 37, 203}, true, false, a, b);
  std::vector<float> c(static_cast<size_t>(11 * t.args.ldc));
  t.args.c = c.data();
  gemm(t.args);
  const std::vector<double> x = test::reference_values(t.args.a, 11, 203),
                            w = test::reference_values(t.args.b, 37, 203);
  for (int64_t i = 0; i < 11; ++i) {
    for (int64_t j = 0; j < 37; ++j) {
      double magnitude = 0;
      for (int64_t k = 0; k < 203; ++k)
        magnitude += std::abs(x[static_cast<size_t>(i * 203 + k)] * w[static_cast<size_t>(j * 203 + k)]);
      const double exact = test::reference_dot(x.data() + i * 203, w.data() + j * 203, 203);
      CHECK(std::abs(static_cast<double>(c[static_cast<size_t>(i * t.args.ldc + j)]) - exact) <= 1e-5 * magnitude);
    }
  }
}

}  // namespace
}  // namespace bitgrad
