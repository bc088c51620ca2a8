// Sum tables: the loops shared by the instruction sets. A kernel's file includes this inside its target region and its
// own anonymous namespace, and provides lines V: Number, kLanes, Reg, load, store, add, times (by a small integer). No
// std:: in here: a library template instantiated for one target could be linked into the code of another.
#pragma once

// lines[0 .. N) hold the sums for some codes; extends them to [0 .. N * Base), the sums with one more code.
template <class V, int Base, int N>
inline __attribute__((always_inline)) void grow(typename V::Reg* lines, const typename V::Number* a,
                                                const gemm_detail::TableShape& shape) {
  const typename V::Reg x = V::load(a);
#pragma GCC unroll 4
  for (int digit = Base - 1; digit >= 0; --digit) {
    const typename V::Reg term = V::times(x, shape.number(digit));
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) lines[digit * N + i] = V::add(lines[i], term);
  }
}

// The sums for a group's first codes, in registers if there are enough.
template <class V, int Base>
inline __attribute__((always_inline)) void low_lines(typename V::Reg* lines, const typename V::Number* a,
                                                     const gemm_detail::TableShape& shape) {
  const typename V::Reg x = V::load(a);
#pragma GCC unroll 4
  for (int digit = 0; digit < Base; ++digit) lines[digit] = V::times(x, shape.number(digit));
  grow<V, Base, Base>(lines, a + V::kLanes, shape);
  if constexpr (Base == 2) {
    grow<V, Base, 4>(lines, a + 2 * V::kLanes, shape);
    grow<V, Base, 8>(lines, a + 3 * V::kLanes, shape);
  }
}

// Builds one table of a whole group: every line is stored once.
template <class V, int Base>
void build_table(const gemm_detail::TableShape& shape, const typename V::Number* a, char* table) {
  constexpr int kLowCodes = Base == 2 ? 4 : 2, kLow = Base == 3 ? 9 : 16;
  constexpr bool kTwo = Base != 4;  // whether the high part has two codes, or one
  typename V::Reg low[kLow], last[Base];
  low_lines<V, Base>(low, a, shape);
  const typename V::Reg x = V::load(a + kLowCodes * V::kLanes);
  if constexpr (kTwo) {
    const typename V::Reg y = V::load(a + (kLowCodes + 1) * V::kLanes);
#pragma GCC unroll 4
    for (int digit = 0; digit < Base; ++digit) last[digit] = V::times(y, shape.number(digit));
  }
  for (int digit = 0; digit < Base; ++digit, table += kLow * gemm_detail::kTableLine) {
    const typename V::Reg term = V::times(x, shape.number(digit));
#pragma GCC unroll 16
    for (int i = 0; i < kLow; ++i) {
      const typename V::Reg sum = V::add(low[i], term);
      char* to = table + i * gemm_detail::kTableLine;
      if constexpr (!kTwo) V::store(to, sum);
      if constexpr (kTwo) {
#pragma GCC unroll 4
        for (int top = 0; top < Base; ++top)
          V::store(to + top * Base * kLow * gemm_detail::kTableLine, V::add(sum, last[top]));
      }
    }
  }
}

// Builds one table for the `codes` codes that remain at the end of K.
template <class V>
void build_tail(const gemm_detail::TableShape& shape, const typename V::Number* a, int64_t codes, char* table) {
  for (int digit = 0; digit < shape.base; ++digit)
    V::store(table + digit * gemm_detail::kTableLine, V::times(V::load(a), shape.number(digit)));
  int64_t lines = shape.base;
  for (int64_t k = 1; k < codes; ++k, lines *= shape.base) {
    const typename V::Reg x = V::load(a + k * V::kLanes);
    for (int digit = shape.base - 1; digit >= 0; --digit) {
      const typename V::Reg term = V::times(x, shape.number(digit));
      char* to = table + digit * lines * gemm_detail::kTableLine;
      for (int64_t i = 0; i < lines; ++i) {
        V::store(to + i * gemm_detail::kTableLine, V::add(V::load(table + i * gemm_detail::kTableLine), term));
      }
    }
  }
}

template <class V>
void build_tables(const gemm_detail::TableShape& shape, const typename V::Number* a, int64_t depth, char* tables) {
  static constexpr void (*kBuild[])(const gemm_detail::TableShape&, const typename V::Number*, char*) = {
      nullptr, nullptr, build_table<V, 2>, build_table<V, 3>, build_table<V, 4>};
  const auto build = kBuild[shape.base];
  for (; depth >= shape.codes; depth -= shape.codes, a += shape.codes * V::kLanes, tables += shape.table_bytes())
    build(shape, a, tables);
  if (depth > 0) build_tail<V>(shape, a, depth, tables);
  _mm256_zeroupper();
}

// P of one column: G groups, whose tables are `Bytes` apart. Offsets are loaded as two words, because a separate load
// for each costs more than shifting.
template <class V, int G, int Bytes>
inline __attribute__((always_inline)) typename V::Reg pass_sum(const char* tables, const uint16_t* offsets) {
  uint64_t word;
  __builtin_memcpy(&word, offsets, 8);
  typename V::Reg sum = V::load(tables + static_cast<uint16_t>(word));
  if constexpr (G > 1) sum = V::add(sum, V::load(tables + Bytes + (static_cast<uint32_t>(word) >> 16)));
  word >>= 32;
  if constexpr (G > 2) sum = V::add(sum, V::load(tables + 2 * Bytes + static_cast<uint16_t>(word)));
  if constexpr (G > 3) sum = V::add(sum, V::load(tables + 3 * Bytes + (word >> 16)));
  if constexpr (G > 4) {
    __builtin_memcpy(&word, offsets + 4, 8);
    sum = V::add(sum, V::load(tables + 4 * Bytes + static_cast<uint16_t>(word)));
    if constexpr (G > 5) sum = V::add(sum, V::load(tables + 5 * Bytes + (static_cast<uint32_t>(word) >> 16)));
    if constexpr (G > 6) sum = V::add(sum, V::load(tables + 6 * Bytes + (word >> 32)));
  }
  return sum;
}

template <class V, int G, int Bytes, bool First>
void add_columns(const char* tables, const uint16_t* offsets, int64_t columns, typename V::Number* sums) {
  constexpr int kFields = static_cast<int>(gemm_detail::kTableFields);
  int64_t j = 0;
  for (; j + 2 <= columns; j += 2, offsets += 2 * kFields, sums += 2 * V::kLanes) {
    typename V::Reg x = pass_sum<V, G, Bytes>(tables, offsets), y = pass_sum<V, G, Bytes>(tables, offsets + kFields);
    if constexpr (!First) {
      x = V::add(V::load(sums), x);
      y = V::add(V::load(sums + V::kLanes), y);
    }
    V::store(sums, x);
    V::store(sums + V::kLanes, y);
  }
  if (j < columns) {
    typename V::Reg x = pass_sum<V, G, Bytes>(tables, offsets);
    if constexpr (!First) x = V::add(V::load(sums), x);
    V::store(sums, x);
  }
  _mm256_zeroupper();
}

template <class V>
void add_tables(const gemm_detail::TableShape& shape, int64_t groups, bool first, const char* tables,
                const uint16_t* offsets, int64_t columns, typename V::Number* sums) {
  using Add = void (*)(const char*, const uint16_t*, int64_t, typename V::Number*);
#define BITGRAD_TABLE_ADD(G)                                                 \
  {                                                                          \
    {add_columns<V, G, 64 * 64, false>, add_columns<V, G, 64 * 64, true>}, { \
      add_columns<V, G, 81 * 64, false>, add_columns<V, G, 81 * 64, true>    \
    }                                                                        \
  }
  static constexpr Add kAdd[7][2][2] = {BITGRAD_TABLE_ADD(1), BITGRAD_TABLE_ADD(2), BITGRAD_TABLE_ADD(3),
                                        BITGRAD_TABLE_ADD(4), BITGRAD_TABLE_ADD(5), BITGRAD_TABLE_ADD(6),
                                        BITGRAD_TABLE_ADD(7)};
#undef BITGRAD_TABLE_ADD
  kAdd[groups - 1][shape.lines == 81 ? 1 : 0][first ? 1 : 0](tables, offsets, columns, sums);
}
