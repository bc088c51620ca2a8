#include "export/c_writer.h"

#include "bitgrad/base/error.h"

namespace bitgrad::c_target {
namespace {

std::string element_of_weight(const WeightForm& w) {
  if (w.held != Held::kInt32) return "(int32_t)w[i]";
  const int per = 32 / w.bits;
  const std::string raw =
      concat("(w[i / ", per, "] >> (", w.bits, " * (uint32_t)(i % ", per, "))) & ", (1 << w.bits) - 1, "U");
  if (w.code == WeightForm::Code::kSign) return concat("(int32_t)(2U * (", raw, ")) - 1");
  if (w.code == WeightForm::Code::kUnsigned) return concat("(int32_t)(", raw, ")");
  const int half = 1 << (w.bits - 1);
  return concat("(int32_t)((", raw, ") ^ ", half, "U) - ", half);
}

std::string weight_name(const WeightForm& w) {
  if (w.held == Held::kFloat) return "float";
  if (w.held == Held::kInt8) return "int8";
  if (w.held == Held::kUint8) return "uint8";
  if (w.held == Held::kBits) return "signs";
  const char* const kind = w.code == WeightForm::Code::kSign       ? "sign"
                           : w.code == WeightForm::Code::kUnsigned ? "u"
                                                                   : "s";
  return concat("packed_", kind, w.bits);
}

std::string held_name(Held held) {
  constexpr const char* kNames[] = {"float", "int32", "int8", "uint8", "signs"};
  return kNames[static_cast<size_t>(held)];
}

// The loop over the taps of a window. `inside` and `outside` are statements that add to sum, for taps within the image
// and in its padding.
std::string tap_loop(const std::string& inside, const std::string& outside) {
  return "  int32_t ky, kx;\n"
         "  const int32_t y0 = p / c->ow * c->sy - c->top, x0 = p % c->ow * c->sx - c->left;\n"
         "  for (ky = 0; ky < c->kh; ++ky)\n"
         "    for (kx = 0; kx < c->kw; ++kx) {\n"
         "      const int32_t y = y0 + ky * c->dy, xx = x0 + kx * c->dx;\n"
         "      const int32_t tap = (j * c->kh + ky) * c->kw + kx;\n"
         "      if (y >= 0 && y < c->h && xx >= 0 && xx < c->w) {\n" +
         inside + "      } else if (c->pad != 0) {\n" + outside + "      }\n    }\n  return sum;\n}\n\n";
}

std::string popcount_dot() {
  return "/* Sums of signs: channels less twice those that differ. */\n"
         "static int32_t dot_signs_signs(const uint32_t *x, const uint32_t *w, const struct conv *c, int32_t p, "
         "int32_t j) {\n"
         "  const int32_t words = (c->c + 31) / 32;\n  int32_t sum = 0, i;\n" +
         tap_loop(
             "        const uint32_t *const a = x + (y * c->w + xx) * words, *const b = w + tap * words;\n"
             "        int32_t differ = 0;\n"
             "        for (i = 0; i < words; ++i) differ += popcount(a[i] ^ b[i]);\n"
             "        sum += c->c - 2 * differ;\n",
             "        const uint32_t *const b = w + tap * words;\n"
             "        int32_t ones = 0;\n"
             "        for (i = 0; i < words; ++i) ones += popcount(b[i]);\n"
             "        sum += c->pad * (2 * ones - c->c);\n");
}

}  // namespace

std::string type_of(Held held) {
  constexpr const char* kTypes[] = {"float", "int32_t", "int8_t", "uint8_t", "uint32_t"};
  return kTypes[static_cast<size_t>(held)];
}

std::string c_head(const std::string& header) {
  return "/* Written by bitgrad export. C99, no library, no memory but the arrays below. */\n"
         "#include \"" +
         header +
         "\"\n\n#include <float.h>\n\n"
         "#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0\n"
         "#error \"float must be computed in float: FLT_EVAL_METHOD 0\"\n#endif\n"
         "#ifdef __FAST_MATH__\n#error \"-ffast-math changes results\"\n#endif\n"
         "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
         "#elif defined(__GNUC__)\n#pragma GCC optimize(\"fp-contract=off\")\n#endif\n\n";
}

std::string c_common(bool popcount, bool rounds) {
  std::string out =
      "/* A product: an image [h,w,c], windows of kh x kw pixels at oh * ow places, o outputs; a vector is one pixel. "
      "*/\n"
      "struct conv {\n  int32_t h, w, c, oh, ow, o, kh, kw, sy, sx, dy, dx, top, left, groups, pad;\n};\n\n";
  if (popcount)
    out +=
        "static int32_t popcount(uint32_t x) {\n  x = x - ((x >> 1) & 0x55555555U);\n"
        "  x = (x & 0x33333333U) + ((x >> 2) & 0x33333333U);\n  x = (x + (x >> 4)) & 0x0f0f0f0fU;\n"
        "  return (int32_t)((x * 0x01010101U) >> 24);\n}\n\n";
  if (rounds)
    out +=
        "/* To the nearest integer, of two the even one, within [lo, hi], then + z within it. */\n"
        "static int32_t to_code(float u, float z, int32_t lo, int32_t hi) {\n"
        "  float r = u < -65536.0f ? -65536.0f : u > 65536.0f ? 65536.0f : u;\n"
        "  const volatile float big = r + 12582912.0f;\n"
        "  r = big - 12582912.0f;\n  r = r + z;\n"
        "  return r <= (float)lo ? lo : r >= (float)hi ? hi : (int32_t)r;\n}\n\n";
  return out;
}

std::string dot_name(Held x, const WeightForm& w) { return concat("dot_", held_name(x), '_', weight_name(w)); }

std::string dot_function(Held x, const WeightForm& w) {
  if (x == Held::kBits) return popcount_dot();
  const bool float_x = x == Held::kFloat, float_w = w.held == Held::kFloat, floats = float_x || float_w;
  const std::string sum = floats ? "float" : "int32_t";
  const std::string code = concat("(", float_w ? "" : element_of_weight(w), " - zw)");
  const std::string each = float_w ? "w[i]" : floats ? concat("(float)", code) : code;
  const std::string type = w.held == Held::kInt32 ? "uint32_t" : type_of(w.held);
  std::string out =
      concat("static ", sum, ' ', dot_name(x, w), "(const ", type_of(x), " *x, const ", type,
             " *w, const struct conv *c, int32_t p, int32_t j, int32_t zx, int32_t zw) {\n",
             "  const int32_t cg = c->c / c->groups, first = j / (c->o / c->groups) * cg;\n  int32_t k;\n  ", sum,
             " sum = 0;\n");
  if (float_x) out += "  (void)zx;\n";
  if (float_w) out += "  (void)zw;\n";
  const std::string factor = float_x ? "a[k]" : concat(floats ? "(float)" : "", "((int32_t)a[k] - zx)");
  return out +
         tap_loop(
             concat("        const ", type_of(x), " *const a = x + (y * c->w + xx) * c->c + first;\n",
                    "        for (k = 0; k < cg; ++k) {\n          const int32_t i = tap * cg + k;\n          ", sum,
                    " t = ", factor, " * ", each, ";\n          sum += t;\n        }\n"),
             concat("        for (k = 0; k < cg; ++k) {\n          const int32_t i = tap * cg + k;\n          ", sum,
                    " t = ", floats ? "(float)c->pad" : "c->pad", " * ", each, ";\n          sum += t;\n        }\n"));
}

}  // namespace bitgrad::c_target
