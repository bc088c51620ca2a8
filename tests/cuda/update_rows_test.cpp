// The sweep of an optimizer step over rows on an emulated device against the sequence of kernels that the CPU runs:
// equal bits.
#include "kernels/update_rows.h"

#include "bitgrad/dtype/codec.h"
#include "bitgrad/dtype/layout.h"
#include "cuda/both.h"
#include "support/catch.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::differing_on_device;
using test::Outcome;
using test::Placed;

// How a dtype is coded: rule of the codes and of the scales.
struct Coding {
  DType dtype;
  CodeRule rule;
  std::optional<RowFit::Rule> fit;
  int lo, hi;
};

std::vector<Coding> codings() {
  std::vector<Coding> all = {{dtypes::bint1, CodeRule::kSign, std::nullopt, -1, 1},
                             {dtypes::bint1, CodeRule::kSign, RowFit::kMeanAbs, -1, 1},
                             {dtypes::int1, CodeRule::kPositive, RowFit::kMeanPositive, 0, 1},
                             {dtypes::ternary, CodeRule::kDivide, RowFit::kMeanAbs, -1, 1},
                             {dtypes::int4, CodeRule::kOffset, std::nullopt, -8, 7},
                             {dtypes::uint4, CodeRule::kInverse, RowFit::kAffine, 0, 15}};
  for (const DType dtype : all_dtypes()) {
    if (dtype.kind() != DTypeKind::kInt || dtype.bits() > 8 || dtype.bits() < 2) continue;
    const int lo = static_cast<int>(dtype.info().qmin), hi = static_cast<int>(dtype.info().qmax);
    all.push_back({dtype, CodeRule::kInverse, RowFit::kAbsmax, -hi, hi});
    all.push_back({dtype, CodeRule::kDivide, RowFit::kSymmetric, lo, hi});
    all.push_back({dtype, CodeRule::kInverse, RowFit::kSymmetricNoClip, lo, hi});
    all.push_back({dtype, CodeRule::kInverse, RowFit::kAffine, lo, hi});
  }
  return all;
}

enum Update { kSgd, kMomentum, kNesterov, kAdam, kAdamW, kUpdates };

struct Problem {
  int64_t rows = 0, cols = 0;
  int update = kAdam;
  std::optional<Coding> coding;  // of the codes that the gradient is of
  bool due = true, fitted = true;
  SteRule ste = SteRule::kIdentity;
  bool bf16 = false, decay = false, clip_value = false, clamp = false, floor = false, times_scale = false;
  bool transposed = false, frag64 = false, stochastic = false, pow2 = false, fp16 = false, nonfinite = false;
  float divisor = 1, factor = 1;
  int64_t shift = 0, pad = 0;
  int scales = 0;  // of the codes before: per tensor, row, group of 3 columns, column
  uint32_t seed = 1;
};

std::string text_of(const Problem& p) {
  std::string out = concat(p.rows, " x ", p.cols, ", update ", p.update, ", due ", p.due, p.fitted, ", ste ",
                           static_cast<int>(p.ste), ", bf16 ", p.bf16, ", layouts ", p.transposed, p.frag64, ", sr ",
                           p.stochastic, ", nonfinite ", p.nonfinite, ", shift ", p.shift, ", scales ", p.scales);
  if (p.coding) out += concat(", ", p.coding->dtype, " by ", static_cast<int>(p.coding->rule));
  return out;
}

std::vector<float> positive(std::vector<float> x) {
  for (float& v : x) v = std::fabs(v);
  return x;
}
// Scales as fits give them, near the numbers of some_numbers.
std::vector<float> some_scales(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0.05f, 1.0f);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = uniform(random);
  return x;
}
Placed<uint8_t> garbage(int64_t bytes) {
  return Placed<uint8_t>(std::vector<uint8_t>(static_cast<size_t>(bytes), 0xA5));
}

// What lies in memory for one call.
struct Memory {
  Placed<float> w, m, v, sums, scale_before, offset_before, scale;
  Placed<uint16_t> narrow;
  Placed<int32_t> zero_before, zero;
  Placed<uint8_t> codes, transposed, frag64;
  Placed<uint32_t> flags;
  int64_t stride;

  static DType dtype(const Problem& p) { return p.coding ? p.coding->dtype : dtypes::int8; }
  static std::vector<uint16_t> halves(const std::vector<float>& x) {
    std::vector<uint16_t> out;
    for (const float v : x) out.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
    return out;
  }
  explicit Memory(const Problem& p)
      : w(test::some_numbers(p.rows * p.cols, p.seed, p.nonfinite), p.shift),
        m(test::some_numbers(p.rows * p.cols, p.seed + 1), p.shift),
        v(positive(test::some_numbers(p.rows * p.cols, p.seed + 2)), p.shift),
        sums(test::some_numbers(p.rows * p.cols, p.seed + 3, p.nonfinite), p.shift),
        scale_before(some_scales(p.rows * p.cols + 1, p.seed + 4)),
        offset_before(some_scales(p.rows * p.cols + 1, p.seed + 5)),
        scale(std::vector<float>(static_cast<size_t>(p.rows), 9.0f)),
        narrow(halves(test::some_numbers(p.rows * p.cols, p.seed + 3, p.nonfinite)), p.shift),
        zero_before(std::vector<int32_t>(static_cast<size_t>(p.rows * p.cols + 1), 1)),
        zero(std::vector<int32_t>(static_cast<size_t>(p.rows), 9)),
        codes(garbage(p.rows * (row_bytes_memory(dtype(p), p.cols) + p.pad))),
        transposed(garbage(layouts::transposed.info().bytes(dtype(p), p.rows, p.cols))),
        frag64(garbage(dtype(p).bits() < 8 ? layouts::frag64.info().bytes(dtype(p), p.rows, p.cols) : 0)),
        flags({8u}),
        stride(row_bytes_memory(dtype(p), p.cols) + p.pad) {}
};

// kind: of Problem::scales.
ScaleMap scales_before(const Problem& p, const Memory& at, int kind) {
  ScaleMap map;
  map.scale = at.scale_before.data();
  if (p.coding->rule == CodeRule::kOffset) map.offset = at.offset_before.data();
  if (p.coding->rule == CodeRule::kInverse) map.zero = at.zero_before.data();
  if (kind == 1) map.row_step = 1;
  if (kind == 2) map = {map.scale, map.zero, map.offset, (p.cols + 2) / 3, 1, 1, 3};
  if (kind == 3) map.col_step = 1;
  return map;
}

RowUpdate update_of(const Problem& p, const Memory& at) {
  const float decay = p.decay ? 0.03f : 0.0f;
  if (p.update >= kAdam) {
    AdamArgs adam;
    adam.m = at.m.data();
    adam.v = at.v.data();
    adam.lr = 0.02f;
    adam.c1 = 0.19f;
    adam.c2 = 0.002f;
    adam.weight_decay = decay;
    adam.decoupled = p.update == kAdamW;
    return adam;
  }
  SgdArgs sgd;
  sgd.momentum_buffer = p.update == kSgd ? nullptr : at.m.data();
  sgd.lr = 0.02f;
  sgd.mu = 0.9f;
  sgd.weight_decay = decay;
  sgd.nesterov = p.update == kNesterov;
  return sgd;
}

const RandomStream kDraws{5, Purpose::kUser, 3, 2};

RowCodes codes_of(const Problem& p, const Memory& at) {
  const Coding& coding = *p.coding;
  RowCodes to;
  to.codes.dtype = coding.dtype;
  to.codes.codes = at.codes.data();
  to.codes.stride = at.stride;
  to.codes.rule = coding.rule;
  to.codes.lo = coding.lo;
  to.codes.hi = coding.hi;
  if (p.stochastic) to.codes.sr = &kDraws;
  to.codes.first_element = 40;
  to.codes.flags = at.flags.data();
  if (coding.fit && p.fitted) {
    to.fit = RowFit{*coding.fit, static_cast<float>(coding.lo), static_cast<float>(coding.hi), 1e-5f, {p.pow2, p.fp16}};
    to.scale = at.scale.data();
    if (*coding.fit == RowFit::kAffine) to.zero = at.zero.data();
  } else {
    to.codes.scale = scales_before(p, at, p.scales % 2);
  }
  if (p.transposed) to.transposed = at.transposed.data();
  if (p.frag64) to.frag64 = at.frag64.data();
  return to;
}

void run(const Problem& p, Outcome& out) {
  const Memory at(p);
  UpdateRowsArgs args;
  args.rows = p.rows;
  args.cols = p.cols;
  args.w = at.w.data();
  RowGradient& g = args.gradient;
  g.sums = p.bf16 ? static_cast<const void*>(at.narrow.data()) : at.sums.data();
  g.bf16 = p.bf16;
  g.divisor = p.divisor;
  g.clip_value = p.clip_value ? 0.4f : 0.0f;
  g.factor = p.factor;
  g.ste = p.ste;
  g.times_scale = p.times_scale;
  if (p.coding) {
    g.dtype = p.coding->dtype;
    g.rule = p.coding->rule;
    g.lo = p.coding->lo;
    g.hi = p.coding->hi;
    g.scale = scales_before(p, at, p.scales);
  }
  args.update = update_of(p, at);
  if (p.clamp) args.latent_clamp = 1.5f;
  if (p.floor) args.floor = -0.25f;
  if (p.coding && p.due) args.codes = codes_of(p, at);
  update_rows(args);
  for (const auto* floats : {&at.w, &at.m, &at.v, &at.scale}) out.add(*floats);
  out.add(at.zero);
  for (const auto* bytes : {&at.codes, &at.transposed, &at.frag64}) out.add(*bytes);
  out.add(at.flags);
}

void check(const Problem& p) {
  INFO(text_of(p));
  CHECK(differing_on_device([&](Outcome& out) { run(p, out); }) == 0);
}

// Everything that is not given, drawn.
Problem drawn(int64_t rows, int64_t cols, const std::optional<Coding>& coding, std::mt19937& random) {
  const auto coin = [&] { return random() % 2 == 0; };
  Problem p;
  p.rows = rows;
  p.cols = cols;
  p.update = static_cast<int>(random() % kUpdates);
  p.coding = coding;
  p.due = random() % 4 != 0;
  p.fitted = random() % 5 != 0;
  constexpr SteRule kRules[] = {SteRule::kIdentity, SteRule::kClip, SteRule::kClip, SteRule::kNone,
                                SteRule::kApproxSign};
  p.ste = kRules[random() % std::size(kRules)];
  if (!coding && p.ste == SteRule::kClip) p.ste = SteRule::kIdentity;
  p.times_scale = coding && random() % 4 == 0;
  p.bf16 = coin();
  p.decay = coin();
  p.clip_value = coin();
  p.clamp = coin();
  p.floor = coin();
  p.transposed = coin();
  p.frag64 = coding && coding->dtype.bits() < 8 && coin();
  p.stochastic = coin();
  p.nonfinite = random() % 4 == 0;
  p.fp16 = coin();
  p.pow2 = coin();
  p.divisor = coin() ? 1.0f : 7.0f;
  p.factor = coin() ? 1.0f : 0.3f;
  p.shift = static_cast<int64_t>(random() % 3 == 0);
  p.pad = static_cast<int64_t>(random() % 2) * 8;
  p.scales = static_cast<int>(random() % 4);
  p.seed = static_cast<uint32_t>(random());
  return p;
}

}  // namespace

TEST_CASE("update_rows on CUDA has the bits of its kernels one after another: every update and coding") {
  constexpr int64_t kRows[] = {1, 7, 8, 9, 16, 63, 65}, kCols[] = {1, 3, 4, 63, 64, 65, 127, 128, 129, 260, 1024};
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round)
    for (const Coding& coding : codings())
      check(drawn(kRows[random() % std::size(kRows)], kCols[random() % std::size(kCols)], coding, random));
  for (int round = 0; round < 20; ++round)
    check(drawn(kRows[random() % std::size(kRows)], kCols[random() % std::size(kCols)], std::nullopt, random));
}

TEST_CASE("update_rows on CUDA: rows that fit a block, in pieces and past shared memory") {
  std::mt19937 random(2);
  const std::vector<Coding> all = codings();
  for (const int64_t cols : {1025, 1028, 2049, 3073, 4095, 4096, 4097, 4164, 8196, 16384, 16388, 17001})
    for (int round = 0; round < 5; ++round) {
      const int64_t rows = cols > 9000 ? 2 : 9;
      // Sums of several chunks, then any coding.
      Problem p =
          drawn(rows, cols, round < 3 ? all[static_cast<size_t>(1 + round)] : all[random() % all.size()], random);
      p.due = true;
      p.fitted = round != 4;
      check(p);
    }
  for (const int64_t n : {4096, 4097, 9000}) check(drawn(1, n, std::nullopt, random));
}

// 48 KiB with the 1024 bytes of its static arrays: what a launch has without asking for more ends at 12032 columns.
TEST_CASE("update_rows on CUDA: the widest rows of 48 KiB") {
  std::mt19937 random(4);
  for (const int64_t cols : {12032, 12033, 12288}) {
    Problem p = drawn(2, cols, codings()[1], random);
    p.due = p.fitted = true;
    check(p);
  }
}

TEST_CASE("update_rows on CUDA: no rows, no columns, flags") {
  std::mt19937 random(3);
  for (const Coding& coding : codings())
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 70}, {70, 0}, {0, 0}}) {
      Problem p = drawn(rows, cols, coding, random);
      p.due = true;
      check(p);
    }
  check(drawn(0, 5, std::nullopt, random));
  Problem infinite = drawn(3, 40, codings()[6], random);
  infinite.due = infinite.fitted = infinite.nonfinite = true;
  const Memory at(infinite);
  Outcome cpu;
  run(infinite, cpu);
  CHECK((cpu.bytes[cpu.bytes.size() - 4] & kFlagNonFinite) != 0);
}

}  // namespace bitgrad
