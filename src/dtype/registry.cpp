// The dtype registry: built-ins from dtypes.inc, then dtypes added by programs and checkpoints.
#include "dtype/registry.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/dtype.h"

namespace bitgrad::detail {
namespace {

// Quantiles of the normal distribution, scaled to [-1, 1]. Dettmers et al. 2023, "QLoRA", arXiv 2305.14314, appendix E.
constexpr float kNf4Levels[] = {-1.0f,
                                -0.6961928009986877f,
                                -0.5250730514526367f,
                                -0.39491748809814453f,
                                -0.28444138169288635f,
                                -0.18477343022823334f,
                                -0.09105003625154495f,
                                0.0f,
                                0.07958029955625534f,
                                0.16093020141124725f,
                                0.24611230194568634f,
                                0.33791524171829224f,
                                0.44070982933044434f,
                                0.5626170039176941f,
                                0.7229568362236023f,
                                1.0f};
// Sign, two exponent bits (bias 1), one mantissa bit. OCP Microscaling Formats 1.0, table 5.
constexpr float kFp4Levels[] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

bool is_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || name.size() > 64 || !letter(name[0])) return false;
  for (const char c : name) {
    if (!letter(c) && !(c >= '0' && c <= '9')) return false;
  }
  return true;
}

std::string describe(const DTypeInfo& info) {
  std::string text =
      concat(info.bits, " bits, kind ", kind_name(info.kind), ", range [", info.qmin, ", ", info.qmax, ']');
  if (!info.levels.empty()) {
    text += ", levels";
    for (const float level : info.levels) text += concat(' ', level);
  }
  return text;
}

void check_range(const DTypeInfo& info, const std::string& who) {
  const bool is_signed = info.kind == DTypeKind::kInt;
  const int64_t low = is_signed ? -(int64_t{1} << (info.bits - 1)) : 0;
  const int64_t high = is_signed ? (int64_t{1} << (info.bits - 1)) - 1 : (int64_t{1} << info.bits) - 1;
  require(info.qmin < info.qmax && info.qmin >= low && info.qmax <= high, "register_dtype", who, "code range: got [",
          info.qmin, ", ", info.qmax, "], expected qmin < qmax within [", low, ", ", high, "] of ", info.bits,
          info.bits == 1 ? " bit" : " bits", " and kind ", kind_name(info.kind), '.');
}

void check_levels(const DTypeInfo& info, const std::string& who) {
  const int64_t levels = static_cast<int64_t>(info.levels.size());
  require(info.bits >= 2 && info.bits <= 8, "register_dtype", who, "bits of a codebook: got ", info.bits,
          ", expected 2 to 8.");
  require(levels >= 2 && levels <= (int64_t{1} << info.bits), "register_dtype", who, "number of levels: got ", levels,
          ", expected 2 to ", int64_t{1} << info.bits, " for ", info.bits, " bits.");
  for (int64_t i = 0; i < levels; ++i) {
    const float level = info.levels[static_cast<size_t>(i)];
    require(std::isfinite(level), "register_dtype", who, "level ", i, ": got ", level, ", expected a finite number.");
  }
}

}  // namespace

void check_registrable(const DTypeInfo& info) {
  require(is_name(info.name), "register_dtype", "name: got \"", info.name,
          "\", expected 1 to 64 letters, digits and underscores, the first not a digit.");
  const std::string who = concat("dtype ", info.name, ", ");
  if (info.kind == DTypeKind::kCodebook) return check_levels(info, who);
  require(info.levels.empty(), "register_dtype", who, "number of levels: got ", info.levels.size(),
          ", expected none for kind ", kind_name(info.kind), ". Use kind codebook for a table of levels.");
  if (info.kind == DTypeKind::kInt || info.kind == DTypeKind::kUint) {
    require(info.bits >= 1 && info.bits <= 8, "register_dtype", who, "bits: got ", info.bits, ", expected 1 to 8.");
    return check_range(info, who);
  }
  if (info.kind == DTypeKind::kSign) {
    require(info.bits == 1 && info.qmin == -1 && info.qmax == 1, "register_dtype", who, "kind sign: got ",
            describe(info), ", expected 1 bit and range [-1, 1].");
    return;
  }
  fail("register_dtype", who, "kind: got ", kind_name(info.kind), ", expected int, uint, sign or codebook.");
}

DTypeRegistry::DTypeRegistry() {
  const auto levels = [](const auto& table) { return std::vector<float>(std::begin(table), std::end(table)); };
#define BITGRAD_DTYPE(symbol, text, bits, kind, qmin, qmax) append({text, bits, DTypeKind::kind, qmin, qmax, {}});
#define BITGRAD_DTYPE_CODEBOOK(symbol, text, bits, table) \
  append({text, bits, DTypeKind::kCodebook, 0, static_cast<int64_t>(std::size(table)) - 1, levels(table)});
#include "bitgrad/dtype/dtypes.inc"
#undef BITGRAD_DTYPE
#undef BITGRAD_DTYPE_CODEBOOK
}

void DTypeRegistry::append(DTypeInfo info) {
  const int index = count_.load(std::memory_order_relaxed);
  records_[static_cast<size_t>(index)] = std::move(info);
  count_.store(index + 1, std::memory_order_release);
}

const DTypeInfo& DTypeRegistry::info(uint8_t id) const {
  ensure(id < count(), "dtype", "handle: got ", int{id}, ", expected one below ", count(), '.');
  return records_[id];
}

std::optional<DType> DTypeRegistry::find(std::string_view name) const {
  const int n = count();
  for (int i = 0; i < n; ++i) {
    if (records_[static_cast<size_t>(i)].name == name) return DType(static_cast<uint8_t>(i));
  }
  return std::nullopt;
}

DType DTypeRegistry::add(DTypeInfo info) {
  if (info.kind == DTypeKind::kCodebook) {
    info.qmin = 0;
    info.qmax = static_cast<int64_t>(info.levels.size()) - 1;
  }
  const std::lock_guard lock(mutex_);
  if (const auto known = find(info.name)) {
    const DTypeInfo& old = records_[known->id()];
    require(old == info, "register_dtype", "dtype ", info.name, " is taken: got ", describe(info), ", expected ",
            describe(old), ". Choose another name.");
    return *known;
  }
  check_registrable(info);
  require(count() < kCapacity, "register_dtype", "number of dtypes: got ", kCapacity + 1, " with ", info.name,
          ", expected at most ", kCapacity, '.');
  append(std::move(info));
  return DType(static_cast<uint8_t>(count() - 1));
}

// Never destroyed: handles stay usable in destructors that run after main.
DTypeRegistry& dtype_registry() {
  static DTypeRegistry& registry = *new DTypeRegistry;
  return registry;
}

}  // namespace bitgrad::detail

// ---- the public interface: names, lookup, printing.
namespace bitgrad {
namespace {

struct KindName {
  DTypeKind kind;
  std::string_view name;
};
constexpr KindName kKinds[] = {{DTypeKind::kFloat, "float"},
                               {DTypeKind::kInt, "int"},
                               {DTypeKind::kUint, "uint"},
                               {DTypeKind::kSign, "sign"},
                               {DTypeKind::kCodebook, "codebook"}};

// Levenshtein distance.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1] ? 1u : 0u)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view kind_name(DTypeKind kind) {
  for (const KindName& k : kKinds) {
    if (k.kind == kind) return k.name;
  }
  fail_with(ErrorCode::kBug, "kind_name", "unknown kind: got ", static_cast<int>(kind), ", expected 0 to 4.");
}

std::optional<DTypeKind> find_kind(std::string_view name) {
  for (const KindName& k : kKinds) {
    if (k.name == name) return k.kind;
  }
  return std::nullopt;
}

const DTypeInfo& DType::info() const { return detail::dtype_registry().info(id_); }

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << dtype.name(); }

DType register_dtype(DTypeInfo info) { return detail::dtype_registry().add(std::move(info)); }

std::optional<DType> find_dtype(std::string_view name) { return detail::dtype_registry().find(name); }

DType parse_dtype(std::string_view name) {
  if (const auto dtype = find_dtype(name)) return *dtype;
  std::string list;
  std::string_view nearest;
  size_t best = SIZE_MAX;
  const std::string_view start = name.substr(0, 64);  // bounds the cost for long input
  for (const DType dtype : all_dtypes()) {
    if (!list.empty()) list += ", ";
    list += dtype.name();
    if (const size_t distance = edit_distance(start, dtype.name()); distance < best) {
      best = distance;
      nearest = dtype.name();
    }
  }
  fail("parse_dtype", "unknown dtype: got \"", name, "\", expected one of ", list, ". The nearest name is ", nearest,
       '.');
}

std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  const int n = detail::dtype_registry().count();
  for (int i = 0; i < n; ++i) all.push_back(DType(static_cast<uint8_t>(i)));
  return all;
}

}  // namespace bitgrad
