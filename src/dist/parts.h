// What the calls of every engine must be given: a part for each rank. Both throw Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "bitgrad/base/error.h"

namespace bitgrad::detail {

inline void check_exchange(size_t to, size_t from, int64_t ranks) {
  require(std::cmp_equal(to, ranks) && std::cmp_equal(from, ranks), "ranks", "exchange: got ", to,
          " parts to send and ", from, " to receive, expected one for each of ", ranks, " ranks");
}

inline void check_gather(size_t parts, int64_t ranks) {
  require(std::cmp_equal(parts, ranks), "ranks", "gather: got ", parts, " parts, expected one for each of ", ranks,
          " ranks");
}

}  // namespace bitgrad::detail
