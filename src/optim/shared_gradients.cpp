// Gradients of rows that have owners: how they travel, and their sums. docs/numerics.md section 6.
#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

#include "bitgrad/base/parallel.h"
#include "bitgrad/quant/quantizer.h"
#include "dist/add.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "optim/shards.h"

namespace bitgrad::detail {
namespace {

using Bytes = Communicator::Bytes;
using ConstBytes = Communicator::ConstBytes;

constexpr int64_t kWireBlock = 256;  // elements that share a scale in int8

// A slice of a gradient for every rank: rows [begin, end) of each.
struct Slice {
  const SharedGradient* of;
  RowShares::Slice rows;
  int64_t elements(int64_t rank) const {
    const auto [begin, end] = rows[static_cast<size_t>(rank)];
    return (end - begin) * of->gradient.cols();
  }
  Tensor part(int64_t rank) const {
    const auto [begin, end] = rows[static_cast<size_t>(rank)];
    return of->gradient.row_slice(begin, end);
  }
};

// docs/numerics.md section 6: s = max(a / 127, 2^-126), a = max abs x of a block.
const QuantSpec& wire_int8() {
  static const QuantSpec spec = [] {
    QuantSpec s;
    s.dtype = dtypes::int8;
    s.scheme = "absmax";
    s.granularity = Granularity::channel(0);
    s.rounding = Rounding::kStochastic;
    s.eps = std::numeric_limits<float>::min();  // gradients may be small
    s.div = true;
    return s;
  }();
  return spec;
}

bool travels_as_it_is(DType gradient, WireFormat wire) {
  return wire == WireFormat::kExact || (wire == WireFormat::kBf16 && gradient == dtypes::bf16);
}

// x [n] fp32, padded with zeros to whole blocks.
Tensor in_wire_blocks(const float* x, int64_t n) {
  const int64_t blocks = (n + kWireBlock - 1) / kWireBlock;
  Tensor wide = Tensor::empty({blocks, kWireBlock}, dtypes::fp32, MemoryKind::kWorkspace);
  std::copy_n(x, n, wide.as<float>());
  std::fill(wide.as<float>() + n, wide.as<float>() + wide.numel(), 0.0f);
  return wide;
}

// The values of a gradient part as fp32: its own memory, or a copy.
Tensor widened_part(const Tensor& g) {
  if (g.dtype() == dtypes::fp32) return g;
  Tensor wide = Tensor::empty(g.shape(), dtypes::fp32, MemoryKind::kWorkspace);
  kernels::from_bf16(g.numel(), g.as<uint16_t>(), wide.as<float>());
  return wide;
}

void encode(const Slice& slice, int64_t rank, WireFormat wire, std::byte* to) {
  const int64_t n = slice.elements(rank);
  if (n == 0) return;
  const Tensor g = slice.part(rank);
  if (travels_as_it_is(g.dtype(), wire)) {
    std::memcpy(to, g.data(), static_cast<size_t>(wire_bytes(g.dtype(), n, wire)));
    return;
  }
  const Tensor x = widened_part(g);
  if (wire == WireFormat::kBf16) return kernels::to_bf16(n, x.as<float>(), reinterpret_cast<uint16_t*>(to));
  const Tensor blocks = in_wire_blocks(x.as<float>(), n);
  auto* const scales = reinterpret_cast<float*>(to);
  std::byte* const codes = to + blocks.rows() * static_cast<int64_t>(sizeof(float));
  if (!kernels::all_finite(x.as<float>(), n)) {  // the owner finds NaN and refuses the step
    std::fill_n(scales, blocks.rows(), std::numeric_limits<float>::quiet_NaN());
    std::memset(codes, 1, static_cast<size_t>(n));
    return;
  }
  QuantizeOptions options;
  options.sr = &slice.of->draws;
  options.first_element = slice.rows[static_cast<size_t>(rank)].first * g.cols();
  options.kind = MemoryKind::kWorkspace;
  const Tensor made = quantize_dynamic(wire_int8(), blocks, options);
  std::copy_n(made.quant()->scale->as<float>(), blocks.rows(), scales);
  std::memcpy(codes, made.data(), static_cast<size_t>(n));
}

// The part of another rank, in a form in which it can be added: fp32 unless it travels as it is.
Tensor decode(const Slice& slice, int64_t rank, WireFormat wire, const std::byte* from) {
  const Tensor& g = slice.of->gradient;
  const int64_t n = slice.elements(rank);
  if (travels_as_it_is(g.dtype(), wire)) {
    Tensor part = Tensor::empty({n}, g.dtype(), MemoryKind::kWorkspace);
    std::memcpy(part.data(), from, static_cast<size_t>(part.bytes()));
    return part;
  }
  Tensor part = Tensor::empty({n}, dtypes::fp32, MemoryKind::kWorkspace);
  if (wire == WireFormat::kBf16) {
    kernels::from_bf16(n, reinterpret_cast<const uint16_t*>(from), part.as<float>());
    return part;
  }
  const int64_t blocks = (n + kWireBlock - 1) / kWireBlock;
  const auto* const scales = reinterpret_cast<const float*>(from);
  const auto* const codes = reinterpret_cast<const int8_t*>(from + blocks * static_cast<int64_t>(sizeof(float)));
  parallel_ranges(n, kWireBlock * 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) part.as<float>()[i] = scales[i / kWireBlock] * static_cast<float>(codes[i]);
  });
  return part;
}

// A bucket on its way: what this rank sends to each, and what comes for its own rows from each.
struct Bucket {
  std::vector<Slice> slices;
  std::vector<std::vector<std::byte>> to, from;
  Transfer transfer{};
};

int64_t bytes_to(const Bucket& bucket, int64_t rank, WireFormat wire) {
  int64_t bytes = 0;
  for (const Slice& s : bucket.slices) bytes += wire_bytes(s.of->gradient.dtype(), s.elements(rank), wire);
  return bytes;
}

void start(Communicator& ranks, Bucket& bucket, WireFormat wire) {
  const int64_t own = ranks.rank();
  std::vector<ConstBytes> to;
  std::vector<Bytes> from;
  for (int64_t r = 0; r < ranks.size(); ++r) {
    bucket.to.emplace_back(r == own ? 0 : static_cast<size_t>(bytes_to(bucket, r, wire)));
    bucket.from.emplace_back(r == own ? 0 : static_cast<size_t>(bytes_to(bucket, own, wire)));
    std::byte* at = bucket.to.back().data();
    for (const Slice& s : bucket.slices) {
      if (r == own) break;
      encode(s, r, wire, at);
      at += wire_bytes(s.of->gradient.dtype(), s.elements(r), wire);
    }
  }
  for (size_t r = 0; r < bucket.to.size(); ++r) {
    to.emplace_back(bucket.to[r]);
    from.emplace_back(bucket.from[r]);
  }
  bucket.transfer = ranks.exchange(to, from);
}

// Adds the parts of a slice that came, from `at` on in what each rank sent, to the own rows.
void add_slice(Communicator& ranks, const Bucket& bucket, const Slice& slice, int64_t at, WireFormat wire) {
  const int64_t own = ranks.rank(), n = slice.elements(own);
  if (n == 0) return;
  const Tensor rows = slice.part(own);
  const bool as_it_is = travels_as_it_is(rows.dtype(), wire);
  const auto join = [](const Tensor& left, Tensor right) {
    add_left(left, right);
    return right;
  };
  TreeSum<Tensor, decltype(join)> tree(join);
  for (int64_t r = 0; r < ranks.size(); ++r) {
    if (r != own) {
      tree.add(decode(slice, own, wire, bucket.from[static_cast<size_t>(r)].data() + at));
    } else {
      Tensor mine = Tensor::empty({n}, as_it_is ? rows.dtype() : dtypes::fp32, MemoryKind::kWorkspace);
      if (mine.dtype() == rows.dtype())
        std::memcpy(mine.data(), rows.data(), static_cast<size_t>(mine.bytes()));
      else
        kernels::from_bf16(n, rows.as<uint16_t>(), mine.as<float>());
      tree.add(std::move(mine));
    }
  }
  const Tensor sum = tree.finish();
  if (sum.dtype() == rows.dtype())
    std::memcpy(rows.data(), sum.data(), static_cast<size_t>(sum.bytes()));
  else
    kernels::to_bf16(n, sum.as<float>(), rows.as<uint16_t>());
}

void land(Communicator& ranks, Bucket& bucket, WireFormat wire) {
  ranks.wait(bucket.transfer);
  bucket.to.clear();
  int64_t at = 0;
  for (const Slice& s : bucket.slices) {
    add_slice(ranks, bucket, s, at, wire);
    at += wire_bytes(s.of->gradient.dtype(), s.elements(ranks.rank()), wire);
  }
}

// The gradients in slices of about kBucketBytes to each rank, small ones together.
std::deque<Bucket> buckets_of(std::span<const SharedGradient> gradients) {
  std::deque<Bucket> buckets;
  int64_t room = 0;
  for (const SharedGradient& g : gradients) {
    const int64_t row = std::max<int64_t>(g.gradient.cols() * 4, 1);
    for (RowShares::Slice& rows : g.shares->slices(kBucketBytes / row)) {
      int64_t most = 0;
      for (const auto& [begin, end] : rows) most = std::max(most, end - begin);
      if (buckets.empty() || most * row > room) {
        buckets.emplace_back();
        room = kBucketBytes;
      }
      room -= most * row;
      buckets.back().slices.push_back({&g, std::move(rows)});
    }
  }
  return buckets;
}

}  // namespace

int64_t wire_bytes(DType gradient, int64_t elements, WireFormat wire) {
  if (travels_as_it_is(gradient, wire)) return elements * (gradient == dtypes::bf16 ? 2 : 4);
  if (wire == WireFormat::kBf16) return elements * 2;
  constexpr int64_t kScale = sizeof(float);  // the scales of the next part are aligned
  return ((elements + kScale - 1) / kScale + (elements + kWireBlock - 1) / kWireBlock) * kScale;
}

void sum_own_rows(Communicator& ranks, std::span<const SharedGradient> gradients, WireFormat wire) {
  std::deque<Bucket> waiting = buckets_of(gradients), flying;
  with_transfers(ranks, [&] {
    while (!waiting.empty() || !flying.empty()) {
      while (!waiting.empty() && flying.size() < kInFlight) {
        flying.push_back(std::move(waiting.front()));
        waiting.pop_front();
        start(ranks, flying.back(), wire);
      }
      land(ranks, flying.front(), wire);
      flying.pop_front();
    }
  });
}

}  // namespace bitgrad::detail
