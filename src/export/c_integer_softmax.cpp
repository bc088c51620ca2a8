// --softmax of a C file of integers: the text of softmax_codes (quant/fixed_softmax.h).
#include "bitgrad/base/text.h"
#include "export/c_integer.h"

namespace bitgrad::c_integer {
namespace {

constexpr const char* kSoftmax = R"c(
/* a * b * 2^-31, and x * 2^-bits, rounded. */
static int32_t high(int64_t a, int64_t b) { return (int32_t)((a * b + ((int64_t)1 << 30)) >> 31); }
static int32_t down(int64_t x, int bits) { return (int32_t)((x + ((int64_t)1 << (bits - 1)) - (x < 0)) >> bits); }

static int32_t up(int64_t x, int bits) {
  x *= (int64_t)1 << bits;
  return x < -2147483647 - 1 ? -2147483647 - 1 : x > 2147483647 ? 2147483647 : (int32_t)x;
}

/* exp(a * 2^-26) * 2^31, a <= 0. */
static int32_t exponential(int32_t a) {
  static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  const int32_t r = (a & 0xffffff) - 0x1000000, x = r * 32 + (1 << 28);
  const int32_t x2 = high(x, x), x3 = high(x2, x), x4 = high(x2, x2);
  const int32_t rest = down((int64_t)high((int64_t)down(x4, 2) + x3, 715827883) + x2, 1);
  int32_t i, y = 1895147668 + high(1895147668, (int64_t)x + rest);
  if (a == 0) return 2147483647;
  for (i = 0; i < 7; ++i)
    if (((r - a) & (0x1000000 << i)) != 0) y = high(y, factors[i]);
  return y;
}

/* 2^62 / (2^31 + a), 0 <= a. */
static int32_t reciprocal(int32_t a) {
  const int64_t half = (a + ((int64_t)1 << 31)) >> 1;
  int64_t x = 1515870810 + high(half, -1010580540);
  int step;
  for (step = 0; step < 3; ++step) x += up(high(x, ((int64_t)1 << 29) - high(half, x)), 2);
  return up(x, 1);
}

/* Rows of n codes become codes of probabilities, (code + 128) / 256. A difference of two codes times m * 2^(shift - 31)
   is its logarithm, in 2^-26. */
static void softmax(int8_t *x, int32_t rows, int32_t n, int32_t m, int32_t shift, int32_t least) {
  int32_t i;
  for (; rows > 0; --rows, x += n) {
    int32_t largest = x[0], sum = 0, zeros = 0, inverse;
    for (i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
    for (i = 0; i < n; ++i)
      if (x[i] - largest >= least) sum += down(exponential(high((x[i] - largest) * ((int64_t)1 << shift), m)), 12);
    while (((uint32_t)sum << zeros >> 31) == 0) ++zeros;
    inverse = reciprocal((int32_t)(((uint32_t)sum << zeros) - 0x80000000U));
    for (i = 0; i < n; ++i) {
      const int32_t d = x[i] - largest;
      const int32_t p = d < least ? 0 : down(high(inverse, exponential(high(d * ((int64_t)1 << shift), m))), 35 - zeros);
      x[i] = (int8_t)((p > 255 ? 255 : p) - 128);
    }
  }
}
)c";

}  // namespace

Softmax softmax_of(const Graph& graph, const ExportSpec& spec) {
  if (!spec.softmax) return {};
  const inference::Node& last = graph[graph[graph.output()].inputs[0]];
  const int64_t n = last.form.features();
  return {fixed_softmax(static_cast<double>(inference::code_scale(last).scale)), last.form.sample.numel() / n, n};
}

std::string Softmax::function() const { return rows == 0 ? "" : kSoftmax; }

std::string Softmax::call(const std::string& codes) const {
  if (rows == 0) return "";
  return concat("  softmax(", codes, ", ", rows, ", ", n, ", ", form.m, ", ", form.shift, ", ", form.least, ");\n");
}

}  // namespace bitgrad::c_integer
