// Maps: the gradients of LSQ and LSQ+ with respect to x, and the terms of the gradients of learned values (LSQ, LSQ+,
// PACT: src/quant/lsq.cpp, pact.cpp), one call per element; and the sum over pieces.
#pragma once

#include "kernels/map/numbers.h"
#include "quant/map/list.h"

namespace bitgrad::maps {
namespace q {

// Rows of a matrix, their gradients and the destination of the terms. Blocks are found by elements.map.
struct LearnedPiece {
  Elements elements;
  const float* statistic = nullptr;
  const float *x = nullptr, *g = nullptr;
  float* out = nullptr;

  // The same piece advanced by `e` elements and `j` blocks, writing to `to`.
  LearnedPiece from(int64_t e, int64_t j, float* to) const {
    LearnedPiece p = *this;
    p.x += e;
    p.g += e;
    p.out = to;
    for (const float** part : {&p.elements.map.scale, &p.elements.map.offset, &p.statistic})
      if (*part != nullptr) *part += j;
    return p;
  }
  // (x - m) / s
  BITGRAD_HD float number(int64_t e, int64_t j) const {
    const ScaleMap& map = elements.map;
    return (map.offset == nullptr ? x[e] : x[e] - map.offset[j]) / map.scale[j];
  }
};

}  // namespace q

// gx = g inside, qmin < u < qmax, else +0; NaN and Inf are outside.
struct LsqGradient {
  q::LearnedPiece piece;
  float qmin, qmax;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const float u = piece.number(e, j), g = piece.g[e];  // loaded unconditionally, to avoid a data-dependent branch
    piece.out[e] = (u > qmin) & (u < qmax) ? g : 0.0f;
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, piece.elements.block(e)); }
};

// Terms of the gradient of the step; outside: g * qmin or g * qmax.
struct LsqStepTerms {
  q::LearnedPiece piece;
  float qmin, qmax;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const float u = piece.number(e, j), g = piece.g[e];  // inside, adding 1.5 * 2^23 rounds to an integer, as rint
    piece.out[e] = u <= qmin ? g * qmin : (u >= qmax ? g * qmax : g * (((u + 0x1.8p23f) - 0x1.8p23f) - u));
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, piece.elements.block(e)); }
};

// Terms of the gradient of the offset: g outside.
struct LsqOffsetTerms {
  q::LearnedPiece piece;
  float qmin, qmax;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const float u = piece.number(e, j), g = piece.g[e];
    piece.out[e] = (u > qmin) & (u < qmax) ? 0.0f : g;
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, piece.elements.block(e)); }
};

struct PactTerms {
  q::LearnedPiece piece;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const float x = piece.x[e], g = piece.g[e];
    piece.out[e] = x >= piece.statistic[j] ? g : 0.0f;
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, piece.elements.block(e)); }
};

// to[j] += part[0][j], part[1][j], ... in this order.
struct AddPieces {
  const float* part;  // [pieces, blocks]
  int64_t pieces, blocks;
  float* to;
  BITGRAD_HD void operator()(int64_t j) const {
    float sum = to[j];
    for (int64_t p = 0; p < pieces; ++p) sum += part[p * blocks + j];
    to[j] = sum;
  }
};

}  // namespace bitgrad::maps
