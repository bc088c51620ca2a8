// Parts of the descriptions of data files: numbers, counts, tables, folders of CIFAR.
#pragma once

#include <algorithm>
#include <cmath>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"

namespace bitgrad::data {

// All elements of an idx file of any type.
struct IdxValues {
  std::string type;            // e.g. uint8
  std::vector<int64_t> shape;  // 1 to 4 axes
  std::vector<float> values;   // float64 is rounded; int32 values must be exact in fp32
};
// Throws as read_idx_samples.
IdxValues read_idx_values(const std::string& path, InputFile& file);

// Statistics of the elements first, first + step, ...
struct Spread {
  double least = 0, largest = 0, mean = 0, deviation = 0;
  bool finite = true;
};
inline Spread spread_of(std::span<const float> values, size_t first, size_t step) {
  Spread s;
  double sum = 0, squares = 0, count = 0;
  for (size_t i = first; i < values.size(); i += step) {
    const auto x = static_cast<double>(values[i]);
    s.finite = s.finite && std::isfinite(x);
    s.least = count == 0 ? x : std::min(s.least, x);
    s.largest = count == 0 ? x : std::max(s.largest, x);
    sum += x;
    ++count;
  }
  s.mean = sum / std::max(count, 1.0);
  for (size_t i = first; i < values.size(); i += step) {
    const double d = static_cast<double>(values[i]) - s.mean;
    squares += d * d;
  }
  s.deviation = std::sqrt(squares / std::max(count, 1.0));
  return s;
}

inline void add_spread(Json& to, const Spread& s) {
  to["least"] = s.least;
  to["largest"] = s.largest;
  to["mean"] = s.mean;
  to["std"] = s.deviation;
}

// "a (3) b (1)"; for an array, the indices serve as names.
std::string counts_text(const Json& counts);
std::string spread_text(const Json& j);

// A folder of CIFAR: its samples by split, and of each file of names of classes those that it has, none if it is
// absent. nullopt: it is no such folder.
std::optional<Json> describe_cifar(const std::string& folder);
void write_cifar(std::ostream& out, const Json& j);

// A text table, its first line and each of its columns.
Json describe_table(const std::string& path, std::string text);
void write_table(std::ostream& out, const Json& j);

}  // namespace bitgrad::data
