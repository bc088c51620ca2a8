// CUDA's vector types with their alignments, and make_*.
#pragma once

#define BITGRAD_VECTOR_TYPES(T, name, align2, align4)                \
  struct name##1 {                                                   \
    T x;                                                             \
  };                                                                 \
  struct alignas(align2) name##2 {                                   \
    T x, y;                                                          \
  };                                                                 \
  struct name##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct alignas(align4) name##4 {                                   \
    T x, y, z, w;                                                    \
  };                                                                 \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

BITGRAD_VECTOR_TYPES(signed char, char, 2, 4)
BITGRAD_VECTOR_TYPES(unsigned char, uchar, 2, 4)
BITGRAD_VECTOR_TYPES(short, short, 4, 8)
BITGRAD_VECTOR_TYPES(unsigned short, ushort, 4, 8)
BITGRAD_VECTOR_TYPES(int, int, 8, 16)
BITGRAD_VECTOR_TYPES(unsigned, uint, 8, 16)
BITGRAD_VECTOR_TYPES(long long, longlong, 16, 16)
BITGRAD_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
BITGRAD_VECTOR_TYPES(float, float, 8, 16)
BITGRAD_VECTOR_TYPES(double, double, 16, 16)

#undef BITGRAD_VECTOR_TYPES

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
