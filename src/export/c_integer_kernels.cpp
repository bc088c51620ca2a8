// C text of the loops that files of integers call, and the order in which these read weights.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "export/c_integer.h"

namespace bitgrad::c_integer {
namespace {

// In texts, @ is the prefix of macros and @D the type of dimensions; in_rows replaces the words of files with rings.
constexpr const char* kHead = R"c(
#include <string.h>

#if (-1 >> 1) != -1
#error "signed numbers must shift arithmetically"
#endif
#if defined(__ARM_FEATURE_SIMD32) && !defined(@_PLAIN)
#include <arm_acle.h>
#define @_SIMD 1
#define @_WIDE 2 /* bytes of a code in the windows of products */
/* Bytes 0 and 2, and 1 and 3, as a pair. */
#define @_EVEN(q) __sxtb16((int8x4_t)(q))
#if defined(__GNUC__) && defined(__arm__)
static inline int16x2_t @_ODD(uint32_t q) {
  int16x2_t x;
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(x) : "r"(q));
  return x;
}
#else
#define @_ODD(q) __sxtb16((int8x4_t)(((q) >> 8) | ((q) << 24)))
#endif
#else
#define @_WIDE 1
#endif

)c";

constexpr const char* kStructs = R"c(
/* A product: an image [h,w,c], windows of kh x kw pixels at oh * ow places, o outputs; a vector is one pixel. Rows of
   weights have k columns. Sums b + w x become codes by m and e (one for all outputs where e is NULL: e0), z, lo, hi.@KEEPING@ */
struct product {
  const void *weights;
  const int32_t *b, *m;
  const int8_t *e;
  @D h, w, c, oh, ow, o, kh, kw, sy, sx, dy, dx, top, left, k, groups@KEEPS@;
  int16_t e0, zx, z, lo, hi;
};

)c";

constexpr const char* kSum = R"c(
/* The sum of two codes. */
struct sum {
  int32_t m[3];
  int16_t e[3], z[2], zero, lo, hi;
};

static int8_t add(const struct sum *s, int32_t a, int32_t b) {
@ADD@}

)c";
constexpr const char* kAddFixed =
    "  const int32_t x = scaled((a - s->z[0]) * 1048576, s->m[0], s->e[0]);\n"
    "  const int32_t y = scaled((b - s->z[1]) * 1048576, s->m[1], s->e[1]);\n"
    "  return clamped(scaled(x + y, s->m[2], s->e[2]) + s->zero, s->lo, s->hi);\n";
constexpr const char* kAddFloat =
    "  const int64_t x = (int64_t)((a - s->z[0]) * s->m[0] + (b - s->z[1]) * s->m[1]);\n"
    "  const int64_t y = (x + ((int64_t)1 << (s->e[2] - 1))) >> s->e[2];\n"
    "  return clamped((int32_t)y + s->zero, s->lo, s->hi);\n";

constexpr const char* kClamped = R"c(
static int8_t clamped(int32_t x, int32_t lo, int32_t hi) { return (int8_t)(x < lo ? lo : x > hi ? hi : x); }

)c";

// x * m * 2^(e - 31). Without `left`, e <= 0; without `wide`, |x| < 2^30.
constexpr const char* kDouble = R"c(
/* x * m * 2^(e-31), rounded to 2^e and from there to 1, ties away from zero. */
static int32_t scaled(int32_t x, int32_t m, int32_t e) {
  const int32_t h = (int32_t)(((int64_t)x * m + 0x40000000) >> 31);
  return e == 0 ? h : (h + (1 << (-e - 1)) - (h < 0)) >> -e;
}

)c";
constexpr const char* kDoubleWide = R"c(
/* x * m * 2^(e-31), rounded to 2^e and from there to 1, ties away from zero. */
static int32_t scaled(int32_t x, int32_t m, int32_t e) {
  int64_t s = x, h;
  if (e > 0) s *= (int64_t)1 << e;
  s = s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s;
  h = (s * m + 0x40000000) >> 31;
  return (int32_t)(e >= 0 ? h : (h + ((int64_t)1 << (-e - 1)) - (h < 0)) >> -e);
}

)c";
constexpr const char* kSingle = R"c(
/* x * m * 2^(e-31), ties up. */
static int32_t scaled(int32_t x, int32_t m, int32_t e) {
  const int64_t r = ((int64_t)x * m + ((int64_t)1 << (30 - e))) >> (31 - e);
  return (int32_t)(r > INT32_MAX ? INT32_MAX : r < INT32_MIN ? INT32_MIN : r);
}

)c";
constexpr const char* kFloat = R"c(
/* x / 2^s, ties to even. */
static uint64_t halved(uint64_t x, int32_t s) {
  if (s <= 0) return x << -s;
  return s > 62 ? 0 : (x + (((uint64_t)1 << (s - 1)) - 1) + ((x >> s) & 1)) >> s;
}

static int32_t bits_above_24(uint64_t x) {
  int32_t n = 0;
  uint32_t q = (uint32_t)(x >> 24);
  if (q >> 16) n += 16, q >>= 16;
  if (q >> 8) n += 8, q >>= 8;
  if (q >> 4) n += 4, q >>= 4;
  if (q >> 2) n += 2, q >>= 2;
  return n + (int32_t)(q >= 2 ? 2 : q);
}

/* x * m * 2^-e as a machine with numbers of 24 bits rounds it: x, the product, and to an integer. In integers alone. */
static int32_t scaled(int32_t x, int32_t m, int32_t e) {
  uint64_t p = x < 0 ? (uint64_t)(-(int64_t)x) : (uint64_t)x;
  int32_t t = bits_above_24(p), u;
  p = halved(p, t) * (uint64_t)m;
  u = bits_above_24(p);
  p = halved(p, u);
  t = e - t - u;
  p = t < -6 && p != 0 ? 0x40000000 : halved(p, t);
  if (p > 0x40000000) p = 0x40000000;
  return x < 0 ? -(int32_t)p : (int32_t)p;
}

)c";

constexpr const char* kGather = R"c(
/* The window of pixel p, k codes; z outside the image. */
static void window(const struct product *c, const int8_t *in, int32_t p, int8_t *to) {
  const int32_t n = c->c, kw = c->kw, dx = c->dx, w = c->w, zx = c->zx, run = dx == 1 ? kw : 1;
  const int32_t x0 = p % c->ow * c->sx - c->left;
  int32_t y = p / c->ow * c->sy - c->top, ky, kx;
#ifdef @_SIMD
  int8_t *wide = to;
  int32_t i;
  to += c->k; /* the upper half of what the codes fill at last */
#endif
  for (ky = c->kh; ky > 0; --ky, y += c->dy)
    for (kx = 0; kx < kw; kx += run) {
      const int32_t x = x0 + kx * dx;
      int32_t before = x < 0 ? -x : 0, after = x + run > w ? x + run - w : 0;
      if (y < 0 || y >= c->h || before >= run || after >= run) before = run, after = 0;
      if (before > 0) memset(to, zx, (size_t)(before * n));
      if (before < run) memcpy(to + before * n, in + (y@KEPT@ * w + x + before) * n, (size_t)((run - before - after) * n));
      if (after > 0) memset(to + (run - after) * n, zx, (size_t)(after * n));
      to += run * n;
    }
#ifdef @_SIMD
  for (i = c->k, to = wide + i; i > 0; i -= 4, wide += 8, to += 4) {
    uint32_t q;
    int16x2_t even, odd;
    memcpy(&q, to, 4);
    even = @_EVEN(q);
    odd = @_ODD(q);
    memcpy(wide, &even, 4);
    memcpy(wide + 4, &odd, 4);
  }
#endif
}

)c";

// The statements of the sums s of two rows of weights by columns x0 and x1: both by x0, both by x1. Words of the rows
// take turns. A word of weights
// becomes pairs of codes as a word of columns did: of bytes 0 and 2, 1 and 3. Nibbles are in the order 0, 4, 1, 5, 2,
// 6, 3, 7 from the lowest, so that the low ones of the bytes are the first four.
constexpr const char* kBytes = R"c(
    const int8_t *w = (const int8_t *)c->weights + j * k;
    int32_t a = c->b[j], d = c->b[j1], f = a, g = d;
    for (i = k; i > 0; i -= 8) {
#ifdef @_SIMD
#define @_STEP(t) { uint32_t q, r; int16x2_t s0, s1, t0, t1, u, v; \
    memcpy(&q, w + 2 * t, 4); memcpy(&r, w + 2 * t + 4, 4); \
    memcpy(&s0, x0 + 2 * t, 4); memcpy(&s1, x0 + 2 * t + 4, 4); memcpy(&t0, x1 + 2 * t, 4); memcpy(&t1, x1 + 2 * t + 4, 4); \
    u = @_EVEN(q); v = @_EVEN(r); \
    a = __smlad(u, s0, a); d = __smlad(v, s0, d); f = __smlad(u, t0, f); g = __smlad(v, t0, g); \
    u = @_ODD(q); v = @_ODD(r); \
    a = __smlad(u, s1, a); d = __smlad(v, s1, d); f = __smlad(u, t1, f); g = __smlad(v, t1, g); }
      @_STEP(0) @_STEP(4)
#else
#define @_STEP(t) { const int32_t u = w[t / 4 * 4 + t], v = w[t / 4 * 4 + t + 4], x = x0[t], y = x1[t]; a += u * x; d += v * x; f += u * y; g += v * y; }
      @_STEP(0) @_STEP(1) @_STEP(2) @_STEP(3) @_STEP(4) @_STEP(5) @_STEP(6) @_STEP(7)
#endif
#undef @_STEP
      w += 16, x0 += 8 * @_WIDE, x1 += 8 * @_WIDE;
    }
    s[0] = a, s[1] = d, s[2] = f, s[3] = g;
)c";
constexpr const char* kNibbles = R"c(
    const uint32_t *w = (const uint32_t *)c->weights + j * (k / 8);
    int32_t a = 0, d = 0, f = 0, g = 0;
    for (i = k; i > 0; i -= 8) {
      const uint32_t q = *w++, r = *w++;
#ifdef @_SIMD
      /* Codes times 16: the high halves of bytes with their signs. */
#define @_STEP(n, t) { const uint32_t qs = (q << n) & 0xf0f0f0f0U, rs = (r << n) & 0xf0f0f0f0U; int16x2_t s0, s1, t0, t1, u, v; \
    memcpy(&s0, x0 + 2 * t, 4); memcpy(&s1, x0 + 2 * t + 4, 4); memcpy(&t0, x1 + 2 * t, 4); memcpy(&t1, x1 + 2 * t + 4, 4); \
    u = @_EVEN(qs); v = @_EVEN(rs); \
    a = __smlad(u, s0, a); d = __smlad(v, s0, d); f = __smlad(u, t0, f); g = __smlad(v, t0, g); \
    u = @_ODD(qs); v = @_ODD(rs); \
    a = __smlad(u, s1, a); d = __smlad(v, s1, d); f = __smlad(u, t1, f); g = __smlad(v, t1, g); }
      @_STEP(4, 0) @_STEP(0, 4)
#else
#define @_STEP(n, t) { const int32_t u = (int32_t)(q << (28 - n)) >> 28, v = (int32_t)(r << (28 - n)) >> 28; \
    const int32_t x = x0[t], y = x1[t]; a += u * x; d += v * x; f += u * y; g += v * y; }
      @_STEP(0, 0) @_STEP(8, 1) @_STEP(16, 2) @_STEP(24, 3) @_STEP(4, 4) @_STEP(12, 5) @_STEP(20, 6) @_STEP(28, 7)
#endif
#undef @_STEP
      x0 += 8 * @_WIDE, x1 += 8 * @_WIDE;
    }
#ifdef @_SIMD
    a >>= 4, d >>= 4, f >>= 4, g >>= 4;
#endif
    s[0] = a + c->b[j], s[1] = d + c->b[j1], s[2] = f + c->b[j], s[3] = g + c->b[j1];
)c";

constexpr const char* kStore = R"c(
static int8_t code(const struct product *c, int32_t x, int32_t j) {
  return clamped(scaled(x, c->m[j], c->e ? c->e[j] : c->e0) + c->z, c->lo, c->hi);
}

)c";

// The output stage of a tile, and the loop over tiles of two pixels by two outputs.
constexpr const char* kStores = R"c(
/* The codes of sums of outputs j and j + 1 at a pixel, and at the next if there is one. */
static void store(const struct product *c, int32_t j, const int32_t *s, int8_t *to, int two@STORE_ARGS@) {
  const int32_t z = c->z, lo = c->lo, hi = c->hi, o = c->o, *m = c->m + j;
  const int8_t *e = c->e ? c->e + j : NULL;
  int32_t i;
  for (i = j + 1 < o ? 2 : 1; i > 0; --i, ++s, ++to@STORE_STEP@) {
    const int32_t mi = *m++, ei = e ? *e++ : c->e0;
    const int8_t x = clamped(scaled(s[0], mi, ei) + z, lo, hi);
    *to = @STORE_FIRST@;
    if (two) {
      const int8_t y = clamped(scaled(s[2], mi, ei) + z, lo, hi);
      to[o] = @STORE_SECOND@;
    }
  }
}

)c";
constexpr const char* kProduct = R"c(
static void @NAME@(const struct product *c, const int8_t *in, int8_t *out@ROWS@@ARGS@) {
  const int32_t n = @ALL@, k = c->k, o = c->o;
  int32_t p, j, i, s[4];
  for (p = @FIRST@; p < n; p += 2) {
    const int two = p + 1 < n;
    window(c, in, p, columns.x);
    if (two) window(c, in, p + 1, columns.x + k * @_WIDE);
    for (j = 0; j < o; j += 2) {
      const int32_t j1 = j + 1 < o ? j + 1 : j;
      const int8_t *x0 = columns.x, *x1 = two ? columns.x + k * @_WIDE : columns.x;
@DOT@
      store(c, j, s, out + @P@ * o + j, two@SUM@);
    }
  }
}

)c";

constexpr const char* kGrouped = R"c(
/* Outputs of groups of channels: weights [o, kh, kw, c / groups]. */
static void grouped(const struct product *c, const int8_t *in, int8_t *out@ROWS@) {
  const int32_t cg = c->c / c->groups, og = c->o / c->groups, n = @ALL@;
  int32_t p, j, ky, kx, i;
  for (p = @FIRST@; p < n; ++p) {
    const int32_t y0 = p / c->ow * c->sy - c->top, x0 = p % c->ow * c->sx - c->left;
    int32_t ky0 = 0, ky1 = c->kh, kx0 = 0, kx1 = c->kw;
    while (ky0 < ky1 && y0 + ky0 * c->dy < 0) ++ky0;
    while (ky1 > ky0 && y0 + (ky1 - 1) * c->dy >= c->h) --ky1;
    while (kx0 < kx1 && x0 + kx0 * c->dx < 0) ++kx0;
    while (kx1 > kx0 && x0 + (kx1 - 1) * c->dx >= c->w) --kx1;
    for (j = 0; j < c->o; ++j) {
      int32_t sum = c->b[j];
      for (ky = ky0; ky < ky1; ++ky)
        for (kx = kx0; kx < kx1; ++kx) {
          const int8_t *const x = in + ((y0 + ky * c->dy)@KEPT@ * c->w + x0 + kx * c->dx) * c->c + j / og * cg;
          const int8_t *const w = (const int8_t *)c->weights + ((j * c->kh + ky) * c->kw + kx) * cg;
          for (i = 0; i < cg; ++i) sum += w[i] * (x[i] - c->zx);
        }
      out[@P@ * c->o + j] = code(c, sum, j);
    }
  }
}

)c";

constexpr const char* kAdd = R"c(
static void sums(const struct sum *s, const int8_t *a, const int8_t *b, int8_t *out, int32_t n) {
  int32_t i;
  for (i = 0; i < n; ++i) out[i] = add(s, a[i], b[i]);
}

)c";

constexpr const char* kMultiply = R"c(
static void multiply(const int8_t *a, const int8_t *b, int8_t *out, int32_t n, int32_t za, int32_t zb, int32_t m,
                     int32_t e, int32_t z, int32_t lo, int32_t hi) {
  int32_t i;
  for (i = 0; i < n; ++i) out[i] = clamped(scaled((a[i] - za) * (b[i] - zb), m, e) + z, lo, hi);
}

)c";

constexpr const char* kPool = R"c(
/* Windows of an image [h,w,c]: kh x kw pixels, those inside. */
struct pool {
  int32_t h, w, c, oh, ow, kh, kw, sy, sx, top, left, lo, hi@KEEPS@;
};

)c";
constexpr const char* kMaxPool = R"c(
static void max_pool(const struct pool *c, const int8_t *in, int8_t *out@ROWS@) {
  int32_t p, j, y, x;
  for (p = @FIRST@; p < @ALL@; ++p)
    for (j = 0; j < c->c; ++j) {
      const int32_t y0 = p / c->ow * c->sy - c->top, x0 = p % c->ow * c->sx - c->left;
      int8_t best = -128;
      for (y = y0 < 0 ? 0 : y0; y < y0 + c->kh && y < c->h; ++y)
        for (x = x0 < 0 ? 0 : x0; x < x0 + c->kw && x < c->w; ++x) {
          const int8_t v = in[(y@KEPT@ * c->w + x) * c->c + j];
          if (v > best) best = v;
        }
      out[@P@ * c->c + j] = best;
    }
}

)c";
constexpr const char* kAvgPool = R"c(
static void avg_pool(const struct pool *c, const int8_t *in, int8_t *out@ROWS@) {
  int32_t p, j, y, x;
  for (p = @FIRST@; p < @ALL@; ++p)
    for (j = 0; j < c->c; ++j) {
      const int32_t y0 = p / c->ow * c->sy - c->top, x0 = p % c->ow * c->sx - c->left;
      int32_t sum = 0, n = 0;
      for (y = y0 < 0 ? 0 : y0; y < y0 + c->kh && y < c->h; ++y)
        for (x = x0 < 0 ? 0 : x0; x < x0 + c->kw && x < c->w; ++x, ++n) sum += in[(y@KEPT@ * c->w + x) * c->c + j];
      out[@P@ * c->c + j] = clamped(sum > 0 ? (sum + n / 2) / n : (sum - n / 2) / n, c->lo, c->hi);
    }
}

)c";
constexpr const char* kTable = R"c(
static void table(const int8_t *codes, const int8_t *in, int8_t *out, int32_t n) {
  int32_t i;
  for (i = 0; i < n; ++i) out[i] = codes[in[i] + 128];
}

)c";
constexpr const char* kConcat = R"c(
static void concat(const int8_t *in, int8_t *out, int32_t rows, int32_t features, int32_t all) {
  int32_t p, j;
  for (p = 0; p < rows; ++p)
    for (j = 0; j < features; ++j) out[p * all + j] = in[p * features + j];
}

)c";

// Without the line break that a raw string begins with.
std::string body(const char* text) { return text[0] == '\n' ? text + 1 : text; }

std::string stores(bool fused) {
  std::string text = replaced(body(kStores), "@STORE_ARGS@",
                              fused ? ",\n                  const struct sum *sum, const int8_t *a" : "");
  text = replaced(text, "@STORE_STEP@", fused ? ", ++a" : "");
  text = replaced(text, "@STORE_FIRST@", fused ? "sum ? add(sum, x, *a) : x" : "x");
  return replaced(text, "@STORE_SECOND@", fused ? "sum ? add(sum, y, a[o]) : y" : "y");
}

std::string product(const std::string& name, const char* dot, bool fused) {
  std::string text = replaced(body(kProduct), "@NAME@", name);
  text = replaced(text, "@ARGS@", fused ? ",\n                    const struct sum *sum, const int8_t *other" : "");
  text = replaced(text, "@SUM@", fused ? ", sum, sum ? other + @P@ * o + j : NULL" : "");
  text = replaced(text, "@DOT@\n", body(dot));
  return text;
}

}  // namespace

std::string functions(const Texts& t) {
  std::string out = body(kHead) + "@STORAGE@";
  const bool one_by_one = t.grouped || t.depthwise_taps > 0, products = t.bytes || t.nibbles || one_by_one;
  if (products) out += body(kStructs);
  out += body(kClamped);
  const bool scales = products || t.add || t.multiply;
  if (scales && (t.rule != OutputRounding::kFloat || products || t.multiply))
    out += body(t.rule == OutputRounding::kFloat    ? kFloat
                : t.rule == OutputRounding::kSingle ? kSingle
                : t.left || t.wide                  ? kDoubleWide
                                                    : kDouble);
  if (one_by_one) out += body(kStore);
  if (t.add || t.fused) out += replaced(body(kSum), "@ADD@", t.rule == OutputRounding::kFloat ? kAddFloat : kAddFixed);
  if (t.bytes || t.nibbles) out += body(kGather);
  if (t.bytes || t.nibbles) out += stores(t.fused);
  if (t.bytes) out += product("bytes", kBytes, t.fused);
  if (t.nibbles) out += product("nibbles", kNibbles, t.fused);
  if (t.grouped) out += body(kGrouped);
  if (t.depthwise_taps > 0) out += depthwise_function(t.depthwise_taps);
  if (t.add) out += body(kAdd);
  if (t.multiply) out += body(kMultiply);
  if (t.max_pool || t.avg_pool) out += body(kPool);
  if (t.max_pool) out += body(kMaxPool);
  if (t.avg_pool) out += body(kAvgPool);
  if (t.table) out += body(kTable);
  if (t.concat) out += body(kConcat);
  out = in_rows(out, t.stream);
  out = replaced(out, "@D ", t.long_dims ? "int32_t " : "int16_t ");
  std::string macros = t.prefix;
  for (char& c : macros) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return replaced(replaced(out, "@_", macros + '_'), "\n\n\n", "\n\n");
}

int64_t stored_columns(int64_t columns) { return (columns + 7) / 8 * 8; }

std::vector<int8_t> ordered_bytes(const std::vector<int64_t>& codes, int64_t rows, int64_t columns) {
  const int64_t k = stored_columns(columns);
  std::vector<int8_t> out(static_cast<size_t>((rows + 1) / 2 * 2 * k), 0);
  for (int64_t j = 0; j < rows; ++j)
    for (int64_t i = 0; i < columns; ++i)
      out[static_cast<size_t>(j / 2 * 2 * k + i / 4 * 8 + j % 2 * 4 + i % 4)] =
          static_cast<int8_t>(codes[static_cast<size_t>(j * columns + i)]);
  return out;
}

std::vector<uint32_t> ordered_nibbles(const std::vector<int64_t>& codes, int64_t rows, int64_t columns) {
  const int64_t words = stored_columns(columns) / 8;
  std::vector<uint32_t> out(static_cast<size_t>((rows + 1) / 2 * 2 * words), 0);
  constexpr int kShift[] = {0, 8, 16, 24, 4, 12, 20, 28};
  for (int64_t j = 0; j < rows; ++j)
    for (int64_t i = 0; i < columns; ++i)
      out[static_cast<size_t>(j / 2 * 2 * words + i / 8 * 2 + j % 2)] |=
          (static_cast<uint32_t>(codes[static_cast<size_t>(j * columns + i)]) & 15U) << kShift[i % 8];
  return out;
}

FixedPoint float_parts(float factor) {
  int e = 0;
  const float f = std::frexp(factor, &e);
  return {static_cast<int32_t>(std::ldexp(f, 24)), 24 - e};
}

}  // namespace bitgrad::c_integer
