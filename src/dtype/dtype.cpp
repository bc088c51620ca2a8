// Public interface of the dtype registry: names, lookup, printing.
#include "bitgrad/dtype/dtype.h"

#include <algorithm>
#include <ostream>

#include "bitgrad/base/error.h"
#include "dtype/registry.h"

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
