// C code of products with weights of one bit. Signs times signs: the window of a pixel is gathered as one row of bits,
// and bits that differ are counted three words at a time. Codes times signs: the sums of four taps with all sixteen
// patterns of signs are tabled for four pixels at once, so that a channel adds one entry for four taps.
#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "export/c_writer.h"
#include "export/targets.h"

namespace bitgrad::c_target {
namespace {

constexpr int64_t kMostTabledTaps = 128;  // 4 KiB of tables
constexpr int64_t kMostUnrolled = 12;     // words of a row
constexpr int64_t kManySums = 1024;       // for which code without loops is worth its flash

constexpr const char* kGather =
    R"(/* Appends n words of signs to the row of bits at out; the last `used` bits are not yet there, but in *row. */
static uint32_t *append_signs(uint32_t *out, uint32_t *row, int32_t *used, const uint32_t *a, int32_t n, int32_t bits) {
  uint32_t r = *row;
  int32_t u = *used;
  for (; n > 0; --n) {
    const uint32_t v = *a++;
    r |= v << u;
    u += bits;
    if (u >= 32) {
      u -= 32;
      *out++ = r;
      r = u > 0 ? v >> (bits - u) : 0U;
    }
  }
  *row = r;
  *used = u;
  return out;
}

/* The signs of the window of pixel p as one row of bits. Pixels outside count as the sign c->pad; if that is 0, as -1
   here and as 1 in a second row behind. Returns whether that was written. */
static int32_t gather_signs(const uint32_t *x, const struct conv *c, int32_t p) {
  const int32_t words = (c->c + 31) / 32, last = c->c - 32 * (words - 1);
  const int32_t y0 = p / c->ow * c->sy - c->top, x0 = p % c->ow * c->sx - c->left;
  const int32_t whole = c->dx == 1 && (words == 1 || last == 32) && x0 >= 0 && x0 + c->kw <= c->w;
  uint32_t *out = window, row = 0, outside = c->pad > 0 ? 0xffffffffU : 0U;
  int32_t ky, kx, used = 0, missing = 0;
  for (;;) {
    for (ky = 0; ky < c->kh; ++ky) {
      const int32_t y = y0 + ky * c->dy, inside = y >= 0 && y < c->h;
      if (inside && whole) {
        out = append_signs(out, &row, &used, x + (y * c->w + x0) * words, c->kw * words, last);
        continue;
      }
      for (kx = 0; kx < c->kw; ++kx) {
        const int32_t xx = x0 + kx * c->dx;
        if (inside && xx >= 0 && xx < c->w) {
          const uint32_t *const a = x + (y * c->w + xx) * words;
          out = append_signs(out, &row, &used, a, words - 1, 32);
          out = append_signs(out, &row, &used, a + words - 1, 1, last);
        } else {
          const uint32_t end = outside >> (32 - last);
          int32_t i;
          for (i = 1; i < words; ++i) out = append_signs(out, &row, &used, &outside, 1, 32);
          out = append_signs(out, &row, &used, &end, 1, last);
          missing = 1;
        }
      }
    }
    if (used > 0) *out++ = row;
    if (!missing || c->pad != 0) return 0;
    if (outside != 0) return 1;
    row = 0, used = 0, outside = 0xffffffffU;
  }
}

)";

// 2-bit fields of three words hold two counts of up to 3, nibbles up to 12, bytes up to 24.
constexpr const char* kThree =
    "u = u - ((u >> 1) & fives) + (v & fives);\n"
    "    w = w - ((w >> 1) & fives) + ((v >> 1) & fives);\n"
    "    u = (u & threes) + ((u >> 2) & threes) + (w & threes) + ((w >> 2) & threes);\n"
    "    bytes += (u & 0x0f0f0f0fU) + ((u >> 4) & 0x0f0f0f0fU);\n";
constexpr const char* kOne =
    "u = u - ((u >> 1) & fives);\n    u = (u & threes) + ((u >> 2) & threes);\n"
    "    bytes += (u + (u >> 4)) & 0x0f0f0f0fU;\n";
// Of two words, of which the second has bits in its lower half alone: these fill one bit of each field.
constexpr const char* kOneAndHalf =
    "u = u - ((u >> 1) & fives) + (v & fives) + (((v >> 1) & fives) << 16);\n"
    "    u = (u & threes) + ((u >> 2) & threes);\n    bytes += (u + (u >> 4)) & 0x0f0f0f0fU;\n";
constexpr const char* kSumOfBytes = "bytes = (bytes & 0x00ff00ffU) + ((bytes >> 8) & 0x00ff00ffU);\n";

// Every number of words.
std::string differ_any() {
  return concat(
      "/* How many bits of two rows of n words differ. */\n"
      "static int32_t differ(const uint32_t *a, const uint32_t *b, int32_t n, uint32_t fives, uint32_t threes) {\n"
      "  uint32_t bytes = 0, u, v, w;\n"
      "  int32_t sum = 0, i = 0;\n  for (; n >= 3; n -= 3, a += 3, b += 3) {\n"
      "    u = a[0] ^ b[0], v = a[1] ^ b[1], w = a[2] ^ b[2];\n    ",
      kThree, "    if (++i < 9) continue;\n    ", kSumOfBytes,
      "    sum += (int32_t)((bytes + (bytes << 16)) >> 16), bytes = 0, i = 0;\n  }\n  for (; n > 0; --n) {\n"
      "    u = *a++ ^ *b++;\n    ",
      kOne, "  }\n  ", kSumOfBytes, "  return sum + (int32_t)((bytes + (bytes << 16)) >> 16);\n}\n\n");
}

// Whether of the words of a row that are not counted by threes the last has its lower half alone.
bool ends_in_half(int64_t cols) { return (cols + 31) / 32 % 3 == 2 && cols % 32 > 0 && cols % 32 <= 16; }
// Of the words and their last in functions without a loop.
std::string row_name(int64_t cols) { return concat((cols + 31) / 32, ends_in_half(cols) ? "_half" : ""); }

// Of rows of `cols` bits, without a loop.
std::string differ_n(int64_t cols) {
  const int64_t n = (cols + 31) / 32;
  std::string out =
      concat("static inline int32_t differ_", row_name(cols),
             "(const uint32_t *a, const uint32_t *b, uint32_t fives, uint32_t threes) {\n  uint32_t bytes = "
             "0, u",
             n < 3 ? "" : ", v, w", ";\n");
  const auto word = [](const char* name, int64_t i) { return concat(name, " = a[", i, "] ^ b[", i, ']'); };
  int64_t i = 0;
  for (; i + 3 <= n; i += 3)
    out += concat("  ", word("u", i), ", ", word("v", i + 1), ", ", word("w", i + 2), ";\n    ", kThree);
  if (ends_in_half(cols)) {
    out += concat("  ", word("u", i),
                  n < 3 ? concat(";\n  const uint32_t ", word("v", i + 1)) : concat(", ", word("v", i + 1)), ";\n    ",
                  kOneAndHalf);
    i += 2;
  }
  for (; i < n; ++i) out += concat("  ", word("u", i), ";\n    ", kOne);
  if (n < 8) return out + "  return (int32_t)((bytes * 0x01010101U) >> 24);\n}\n\n";
  return concat(out, "  ", kSumOfBytes, "  return (int32_t)((bytes + (bytes << 16)) >> 16);\n}\n\n");
}

// Read from memory: a compiler then keeps them in registers, and Thumb-2 shifts and masks by a register in one
// instruction, by a constant in two.
constexpr const char* kMasks = "static const uint32_t masks[2] = {0x55555555U, 0x33333333U};\n\n";

// WORDS: of a row; DIFFER: how many signs differ; TWICE: that number, or of two rows the sum. Its difference to the
// limit is a sign, which moves in from the top.
constexpr const char* kSignsToSigns = R"(/* A product of signs to signs: 1 where fewer than limit[j] signs differ. */
static void NAME(const uint32_t *x, const uint32_t *w, const int32_t *limit, const struct conv *c, uint32_t *out) {
  const int32_t n = WORDS, pixels = c->oh * c->ow;
  const volatile uint32_t *const read = masks;
  const uint32_t fives = read[0], threes = read[1];
  int32_t p, j, end;
  for (p = 0; p < pixels; ++p) {
    const int32_t two = gather_signs(x, c, p);
    const uint32_t *b = w;
    (void)two;
    for (j = 0; j < c->o;) {
      const int32_t count = c->o - j < 32 ? c->o - j : 32;
      uint32_t signs = 0;
      for (end = j + count; j < end; ++j, b += n) {
        const int32_t d = DIFFER;
        signs = (signs >> 1) | ((uint32_t)(TWICE - limit[j]) & 0x80000000U);
      }
      *out++ = signs >> (32 - count);
    }
  }
}

)";

// TYPE: int8_t or uint8_t.
constexpr const char* kCodesToSigns =
    R"(/* The taps of the windows of pixels p and p + 1, less zx: sums in the halves of a word, which borrow. */
static void gather_two_NAME(const TYPE *x, const struct conv *c, int32_t p, int32_t zx) {
  const int32_t pixels = c->oh * c->ow, n = c->kw * c->c;
  const int32_t y0 = p / c->ow * c->sy - c->top, x0 = p % c->ow * c->sx - c->left;
  uint32_t *out = taps;
  int32_t half, ky, kx, k;
  if (p + 1 < pixels && p % c->ow + 1 < c->ow && c->dx == 1 && x0 >= 0 && x0 + c->sx + c->kw <= c->w && y0 >= 0 &&
      y0 + (c->kh - 1) * c->dy < c->h) {
    const TYPE *a = x + (y0 * c->w + x0) * c->c;
    const uint32_t zeros = (uint32_t)zx * 0x10001U;
    for (ky = c->kh; ky > 0; --ky, a += c->dy * c->w * c->c) {
      const TYPE *const b = a + c->sx * c->c;
      for (k = 0; k < n; ++k) *out++ = (uint32_t)a[k] + ((uint32_t)b[k] << 16) - zeros;
    }
    return;
  }
  for (k = 0; k < c->kh * n; ++k) out[k] = 0;
  for (half = 0; half < 2 && p + half < pixels; ++half, out = taps)
    for (ky = 0; ky < c->kh; ++ky)
      for (kx = 0; kx < c->kw; ++kx, out += c->c) {
        const int32_t y = (p + half) / c->ow * c->sy - c->top + ky * c->dy;
        const int32_t xx = (p + half) % c->ow * c->sx - c->left + kx * c->dx;
        if (y < 0 || y >= c->h || xx < 0 || xx >= c->w) continue;
        for (k = 0; k < c->c; ++k) out[k] += (uint32_t)((int32_t)x[(y * c->w + xx) * c->c + k] - zx) << (16 * half);
      }
}

/* A product of codes and signs to signs: 1 where the sum is not negative, which starts at start[j] in both halves of a
   word. Of each four taps the sums with all signs are in table, [taps / 4][16][2], for two pixels a word. */
static void NAME_to_signs(const TYPE *x, const uint32_t *w, const uint32_t *start, const struct conv *c, int32_t zx,
                          uint32_t *out) {
  const int32_t n = (c->kh * c->kw * c->c + 31) / 32, pixels = c->oh * c->ow, words = (c->o + 31) / 32;
  int32_t p, first, j, k;
  for (k = c->kh * c->kw * c->c; k < 32 * n; ++k) taps[k] = 0;
  for (p = 0; p < pixels; p += 4) {
    const uint32_t *b = w;
    for (k = 0; k < 2; ++k) {
      gather_two_NAME(x, c, p + 2 * k, zx);
      fill_table(taps, table + k, 8 * n);
    }
    for (first = 0; first < words; ++first, ++out) {
      const int32_t end = c->o - 32 * first < 32 ? c->o - 32 * first : 32;
      uint32_t signs0 = 0, signs1 = 0, signs2 = 0, signs3 = 0, bit = 1;
      for (j = 0; j < end; ++j, bit += bit) {
        const uint32_t *t = table;
        uint32_t s = start[32 * first + j], u = s;
        for (k = 0; k < n; ++k, t += 256) {
          const uint32_t bits = *b++;
          const uint32_t *e;
#define ADD(i) e = t + 2 * ((bits >> (4 * i)) & 15U), s += e[32 * i], u += e[32 * i + 1]
          ADD(0), ADD(1), ADD(2), ADD(3), ADD(4), ADD(5), ADD(6), ADD(7);
#undef ADD
        }
        if ((s & 0x8000U) == 0) signs0 += bit;
        if (((s + 0x8000U) & 0x80000000U) == 0) signs1 += bit;
        if ((u & 0x8000U) == 0) signs2 += bit;
        if (((u + 0x8000U) & 0x80000000U) == 0) signs3 += bit;
      }
      out[0] = signs0;
      if (p + 1 < pixels) out[words] = signs1;
      if (p + 2 < pixels) out[2 * words] = signs2;
      if (p + 3 < pixels) out[3 * words] = signs3;
    }
    out += 3 * words;
  }
}

)";

constexpr const char* kTable =
    R"(/* The sums of each four taps with the signs of all numbers of four bits, every other word of t. */
static void fill_table(const uint32_t *x, uint32_t *t, int32_t groups) {
  for (; groups > 0; --groups, x += 4, t += 32) {
    const uint32_t a = x[0] + x[0], b = x[1] + x[1], c = x[2] + x[2], d = x[3] + x[3];
    const uint32_t e0 = 0U - x[0] - x[1] - x[2] - x[3], e1 = e0 + a, e2 = e0 + b, e3 = e1 + b;
    const uint32_t e4 = e0 + c, e5 = e1 + c, e6 = e2 + c, e7 = e3 + c;
    t[0] = e0, t[2] = e1, t[4] = e2, t[6] = e3, t[8] = e4, t[10] = e5, t[12] = e6, t[14] = e7;
    t[16] = e0 + d, t[18] = e1 + d, t[20] = e2 + d, t[22] = e3 + d;
    t[24] = e4 + d, t[26] = e5 + d, t[28] = e6 + d, t[30] = e7 + d;
  }
}

)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Signs in rows of whole words, bit 1 is +1. Rows of `inverted` are the other way round.
std::vector<uint32_t> rows_of_signs(const std::vector<int64_t>& codes, size_t cols, const std::vector<bool>& inverted) {
  std::vector<uint32_t> out;
  for (size_t row = 0; row < codes.size() / cols; ++row)
    for (size_t i = 0; i < cols; ++i) {
      if (i % 32 == 0) out.push_back(0);
      const bool one = (codes[row * cols + i] > 0) != (!inverted.empty() && inverted[row]);
      out.back() |= static_cast<uint32_t>(one) << (i % 32);
    }
  return out;
}

constexpr int64_t kAlways = -0x7fffffff;

// Thresholds from which on the sign is 1, after the rows of `inverted` changed the sign of their sums.
std::vector<int64_t> rising(const Thresholds& t, std::vector<bool>& inverted) {
  std::vector<int64_t> at = t.at;
  for (size_t j = 0; j < at.size(); ++j) {
    const bool below = t.base[j] > 0, above = t.base[j] + t.direction[j] > 0;
    inverted.push_back(below && !above);
    if (below && above) at[j] = kAlways;
    if (inverted[j]) at[j] = 1 - at[j];
  }
  return at;
}

int64_t words_of(const inference::Product& op) { return (op.weight.cols() + 31) / 32; }

// Whether windows may have pixels outside that count as 0.
bool zeros_outside(const inference::Product& op) {
  if (!op.conv || op.conv->pad_value != 0) return false;
  const auto& padding = op.conv->padding;
  return std::any_of(padding.begin(), padding.end(), [](auto each) { return each != 0; });
}

}  // namespace

void Writer::need(const std::string& name, const std::string& text) {
  if (functions_of_.insert(name).second) functions_.push_back(text);
}

void Writer::sign_weights(const Node& node, const inference::Product& op, const std::vector<bool>& inverted) {
  const std::string name = concat("w", now_);
  array("uint32_t", name, rows_of_signs(codes_of(op.weight), static_cast<size_t>(op.weight.cols()), inverted));
  report_.tensors.push_back(
      {.name = name, .parameter = concat(node.layer, ".weight"), .shape = op.weight.shape(), .type = "1 bit"});
}

void Writer::gathers_signs(const inference::Product& op) {
  window_words_ = std::max(window_words_, words_of(op) * (zeros_outside(op) ? 2 : 1));
  need("gather_signs", kGather);
}

std::string Writer::signs_function(const Node& node, const inference::Product& op) {
  const int64_t n = words_of(op);
  const bool unrolled = n <= kMostUnrolled && node.form.sample.numel() >= kManySums, zeros = zeros_outside(op);
  const std::string row = row_name(op.weight.cols());
  const std::string differ = unrolled ? concat("differ_", row, "(window, b, fives, threes)")
                                      : std::string("differ(window, b, n, fives, threes)");
  std::string name = "signs_to_signs", twice = "d";
  if (unrolled) name += concat('_', row);
  if (zeros) {
    name += "_padded";
    twice = concat("d + (two ? ", replaced(differ, "window", "window + n"), " : d)");
  }
  gathers_signs(op);
  need("masks", kMasks);
  unrolled ? need(concat("differ_", row), differ_n(op.weight.cols())) : need("differ", differ_any());
  std::string text = replaced(kSignsToSigns, "NAME", name);
  text = replaced(text, "WORDS", unrolled ? std::to_string(n) : "(c->kh * c->kw * c->c + 31) / 32");
  need(name, replaced(replaced(text, "DIFFER", differ), "TWICE", twice));
  return name;
}

std::string Writer::codes_function(const Node& node, const inference::Product& op) {
  const Held x = held(node.inputs[0]);
  const std::string type = x == Held::kInt8 ? "int8" : "uint8";
  std::string name = type + "_to_signs";
  table_words_ = std::max(table_words_, words_of(op) * 256);
  need("fill_table", kTable);
  need(name, replaced(replaced(kCodesToSigns, "NAME", type), "TYPE", type_of(x)));
  return name;
}

bool Writer::signs_to_signs(const Node& node, const inference::Product& op) {
  const Value end = plan_.ends[static_cast<size_t>(now_)];
  if (end < 0 || held(end) != Held::kBits || op.weight.dtype() != dtypes::bint1) return false;
  const Thresholds& t = plan_.thresholds[static_cast<size_t>(now_)];
  const Node& in = graph_[node.inputs[0]];
  const Held x = held(node.inputs[0]);
  const bool signs = x == Held::kBits, codes = x == Held::kInt8 || x == Held::kUint8;
  const int64_t most = largest_sum(in, op);  // sums less their threshold fill half a word
  const bool plain = !op.conv || (op.conv->groups == 1 && op.conv->pad_value == 0);
  const bool tabled = codes && plain && op.weight.cols() <= kMostTabledTaps && 2 * most < 0x7fff;
  if (t.count != 1 || (!signs && !tabled)) return false;
  std::vector<bool> inverted;
  std::vector<int64_t> at = rising(t, inverted);
  sign_weights(node, op, inverted);
  const std::string weights = concat("w", now_, ", t", now_, ", &c", now_);
  if (signs) {
    for (int64_t& each : at) {
      each = std::clamp(op.weight.cols() - each, int64_t{-2}, 2 * op.weight.cols());
      if (!zeros_outside(op)) each >>= 1;
      ++each;
    }
    array("int32_t", concat("t", now_), at);
    body_ << "  " << signs_function(node, op) << '(' << buffer(node.inputs[0]) << ", " << weights << ", " << buffer(end)
          << ");\n";
    return true;
  }
  std::vector<uint32_t> start;
  start.reserve(at.size());
  for (const int64_t each : at)
    start.push_back(0U - static_cast<uint32_t>(std::clamp(each, -most, most + 1)) * 0x10001U);
  array("uint32_t", concat("t", now_), start);
  const int64_t zx = in.params && in.params->zero ? static_cast<int64_t>(in.params->zero->elements()[0]) : 0;
  body_ << "  " << codes_function(node, op) << '(' << buffer(node.inputs[0]) << ", " << weights << ", " << zx << ", "
        << buffer(end) << ");\n";
  return true;
}

void Writer::sums_of_signs(const Node& node, const inference::Product& op) {
  sign_weights(node, op, {});
  gathers_signs(op);
  need("differ", differ_any());
  const int64_t n = words_of(op);
  const auto differ = [&](const std::string& row) {
    return concat("differ(", row, ", w", now_, " + j * ", n, ", ", n, ", 0x55555555U, 0x33333333U)");
  };
  body_ << "    for (p = 0; p < " << node.form.sample_rows() << "; ++p) {\n      const int32_t two = gather_signs("
        << buffer(node.inputs[0]) << ", &c" << now_ << ", p);\n      for (j = 0; j < " << node.form.features()
        << "; ++j) {\n      const int32_t d = " << differ("window")
        << ";\n      const int32_t sum = " << op.weight.cols() << " - d - (two ? " << differ(concat("window + ", n))
        << " : d);\n";
}

std::string Writer::scratch() const {
  std::string out;
  if (window_words_ > 0) out += concat("static uint32_t window[", window_words_, "];\n");
  if (table_words_ > 0) out += concat("static uint32_t taps[", table_words_ / 8, "], table[", table_words_, "];\n");
  return out;
}

int64_t Writer::scratch_bytes() const { return 4 * (window_words_ + table_words_ + table_words_ / 8); }

}  // namespace bitgrad::c_target
