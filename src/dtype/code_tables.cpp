// Values of raw codes as tables, per code and per byte of codes.
#include "dtype/code_tables.h"

#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"

namespace bitgrad::detail {
namespace {

template <typename T>
std::vector<T> byte_groups(int bits, const T* table) {
  if (8 % bits != 0 || bits == 8) return {};
  const int group = 8 / bits;
  std::vector<T> out;
  for (int byte = 0; byte < 256; ++byte) {
    for (int j = 0; j < group; ++j) out.push_back(table[(byte >> (j * bits)) & ((1 << bits) - 1)]);
  }
  return out;
}

std::unique_ptr<CodeTables> build(const DTypeInfo& info) {
  auto t = std::make_unique<CodeTables>();
  t->kind = info.kind;
  t->bits = info.bits;
  t->integer = info.kind != DTypeKind::kCodebook;
  t->shift = info.kind == DTypeKind::kUint && info.bits == 8 ? 128 : 0;
  const DTypeInfo twos_complement{"", info.bits, DTypeKind::kInt, 0, 0, {}};
  for (int i = 0; i < 256; ++i) {
    const int raw = i & ((1 << info.bits) - 1);
    if (t->integer) {
      const int64_t number = decode_int(info, static_cast<uint64_t>(raw));
      t->values[i] = static_cast<float>(number);
      t->s8[i] = static_cast<int8_t>(number - t->shift);
    } else {
      const size_t k = static_cast<size_t>(raw);
      t->values[i] = k < info.levels.size()
                         ? info.levels[k]
                         : static_cast<float>(decode_int(twos_complement, static_cast<uint64_t>(raw)));
    }
  }
  t->value_groups = byte_groups(info.bits, t->values);
  if (t->integer) t->s8_groups = byte_groups(info.bits, t->s8);
  t->s8_rule = {t->s8, static_cast<uint8_t>(info.kind == DTypeKind::kInt ? 1 << (info.bits - 1) : 0)};
  t->value_rule = {t->values, info.kind == DTypeKind::kInt    ? FloatSource::kInt
                              : info.kind == DTypeKind::kUint ? FloatSource::kUint
                                                              : FloatSource::kTable};
  return t;
}

}  // namespace

constinit std::atomic<const CodeTables*> known_code_tables[256] = {};

const CodeTables& build_code_tables(DType dtype, const char* where) {
  std::atomic<const CodeTables*>& slot = known_code_tables[dtype.id()];
  const DTypeInfo& info = dtype.info();
  require(info.bits <= 8, where, "dtype: got ", dtype, " of ", info.bits, " bits, expected one of at most 8 bits.");
  std::unique_ptr<CodeTables> made = build(info);
  const CodeTables* expected = nullptr;
  // Two threads may build the same table; the first to publish wins and the other copy is discarded.
  if (slot.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *expected;
}

}  // namespace bitgrad::detail
