// C text of convolutions of each channel by itself, four channels at once.
#include "bitgrad/base/text.h"
#include "export/c_integer.h"

namespace bitgrad::c_integer {
namespace {

constexpr int64_t kMostTaps = 64;  // of whose pixels the function holds the places

// @_ as in c_integer_kernels.cpp, @TAPS@: of the largest window.
constexpr const char* kDepthwise = R"c(
/* Each channel by itself: weights [kh, kw, c], c a multiple of 4. Pixels outside the image have the codes `outside`. */
static void depthwise(const struct product *c, const int8_t *in, int8_t *out@ROWS@, const int8_t *outside) {
  const int8_t *at[@TAPS@];
  const int32_t n = c->c, taps = c->kh * c->kw;
  int32_t p, j, t, ky, kx;
  for (p = @FIRST@; p < @ALL@; ++p) {
    const int32_t y0 = p / c->ow * c->sy - c->top, x0 = p % c->ow * c->sx - c->left;
    for (ky = 0, t = 0; ky < c->kh; ++ky)
      for (kx = 0; kx < c->kw; ++kx, ++t) {
        const int32_t y = y0 + ky * c->dy, x = x0 + kx * c->dx;
        at[t] = y >= 0 && y < c->h && x >= 0 && x < c->w ? in + (y@KEPT@ * c->w + x) * n : outside;
      }
    for (j = 0; j < n; j += 4) {
      const int8_t *w = (const int8_t *)c->weights + j;
      int32_t s0 = c->b[j], s1 = c->b[j + 1], s2 = c->b[j + 2], s3 = c->b[j + 3];
      for (t = 0; t < taps; ++t, w += n) {
        const int8_t *const x = at[t] + j;
#ifdef @_SIMD
        uint32_t q, r;
        int32_t u, v;
        memcpy(&q, w, 4);
        memcpy(&r, x, 4);
        u = (int32_t)@_EVEN(q), v = (int32_t)@_EVEN(r);
        s0 += (int16_t)u * (int16_t)v, s2 += (u >> 16) * (v >> 16);
        u = (int32_t)@_ODD(q), v = (int32_t)@_ODD(r);
        s1 += (int16_t)u * (int16_t)v, s3 += (u >> 16) * (v >> 16);
#else
        s0 += w[0] * x[0], s1 += w[1] * x[1], s2 += w[2] * x[2], s3 += w[3] * x[3];
#endif
      }
      *out++ = code(c, s0, j);
      *out++ = code(c, s1, j + 1);
      *out++ = code(c, s2, j + 2);
      *out++ = code(c, s3, j + 3);
    }
  }
}

)c";

}  // namespace

bool is_depthwise(const inference::Product& op) {
  if (!op.conv || op.conv->groups == 1 || op.conv->groups != op.weight.rows() || op.weight.rows() % 4 != 0)
    return false;
  const int64_t taps = op.conv->kernel[0] * op.conv->kernel[1];
  return op.weight.cols() == taps && taps <= kMostTaps;
}

std::string depthwise_function(int64_t most_taps) {
  std::string text = kDepthwise + 1;  // behind the line break that a raw string begins with
  const std::string mark = "@TAPS@";
  return text.replace(text.find(mark), mark.size(), std::to_string(most_taps));
}

std::vector<int8_t> taps_first(const std::vector<int64_t>& codes, int64_t channels) {
  const int64_t taps = std::ssize(codes) / channels;
  std::vector<int8_t> out;
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t j = 0; j < channels; ++j) out.push_back(static_cast<int8_t>(codes[static_cast<size_t>(j * taps + t)]));
  return out;
}

}  // namespace bitgrad::c_integer
