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

// `g`: a part whose first element is `first` of its gradient.
void encode(const Tensor& g, int64_t first, const RandomStream& draws, WireFormat wire, std::byte* to) {
  const int64_t n = g.numel();
  if (n == 0) return;
  if (travels_as_it_is(g.dtype(), wire)) {
    std::memcpy(to, g.data(), static_cast<size_t>(g.bytes()));
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
  options.sr = &draws;
  options.first_element = first;
  options.kind = MemoryKind::kWorkspace;
  const Tensor made = quantize_dynamic(wire_int8(), blocks, options);
  std::copy_n(made.quant()->scale->as<float>(), blocks.rows(), scales);
  std::memcpy(codes, made.data(), static_cast<size_t>(n));
}

// The part of another rank in fp32, from a wire that rounds.
Tensor decode(int64_t n, WireFormat wire, const std::byte* from) {
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

// A term of a sum: its own memory, or that of a gradient or a bucket.
struct Term {
  void* data = nullptr;
  Tensor own = {};
};
Term in_own_memory(Tensor t) {
  void* const data = t.data();
  return {data, std::move(t)};
}

}  // namespace

// A slice of a gradient for every rank: rows [begin, end) of each.
struct RowSums::Slice {
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
  int64_t bytes(int64_t rank, WireFormat wire) const { return wire_bytes(of->gradient.dtype(), elements(rank), wire); }
};

// What travels together: to each rank its rows, from each its part of the own rows.
struct RowSums::Bucket {
  std::vector<Slice> slices;
  std::vector<Tensor> to = {}, from = {};  // bytes; none where rows leave from the gradient itself
  int64_t bytes = 0;                       // of these
  Transfer transfer{};
};

int64_t wire_bytes(DType gradient, int64_t elements, WireFormat wire) {
  constexpr int64_t kWord = sizeof(float);  // what comes next is aligned
  const auto words = [](int64_t bytes) { return (bytes + kWord - 1) / kWord * kWord; };
  if (travels_as_it_is(gradient, wire)) return words(elements * (gradient == dtypes::bf16 ? 2 : 4));
  if (wire == WireFormat::kBf16) return words(elements * 2);
  return words(elements) + (elements + kWireBlock - 1) / kWireBlock * kWord;
}

RowSums::RowSums(Communicator& ranks, WireFormat wire) : ranks_(ranks), wire_(wire) {}

RowSums::~RowSums() {
  if (!gradients_.empty()) ranks_.cancel(Error("[ranks] sums of gradients were given up", ErrorCode::kBug));
}

// Small slices travel together.
void RowSums::add(SharedGradient gradient) {
  const SharedGradient& g = gradients_.emplace_back(std::move(gradient));
  const int64_t row = std::max<int64_t>(g.gradient.cols() * 4, 1);
  for (RowShares::Slice& rows : g.shares->slices(kBucketBytes / row)) {
    int64_t most = 0;
    for (const auto& [begin, end] : rows) most = std::max(most, (end - begin) * row);
    if (waiting_.empty() || most > room_) {
      waiting_.emplace_back();
      room_ = kBucketBytes;
    }
    room_ -= most;
    if (room_ < kBucketBytes / 8) room_ = 0;
    waiting_.back().slices.push_back({&g, std::move(rows)});
  }
  poll();
}

void RowSums::poll() {
  while (true) {
    while (!flying_.empty() && ranks_.done(flying_.front().transfer)) land();
    if (waiting_.empty() || (waiting_.size() == 1 && room_ > 0) || !has_room()) return;
    start_first();
  }
}

void RowSums::finish() {
  room_ = 0;  // nothing joins the last bucket any more
  for (poll(); !flying_.empty(); poll()) land();
  gradients_.clear();
}

bool RowSums::has_room() const {
  return flying_.size() < gradient_buckets_in_flight || flying_bytes_ < gradient_bytes_in_flight;
}

void RowSums::start_first() {
  Bucket& bucket = flying_.emplace_back(std::move(waiting_.front()));
  waiting_.pop_front();
  const int64_t own = ranks_.rank();
  const SharedGradient& first = *bucket.slices.front().of;
  const bool from_gradient = bucket.slices.size() == 1 && travels_as_it_is(first.gradient.dtype(), wire_);
  std::vector<ConstBytes> to;
  std::vector<Bytes> from;
  const auto memory = [&](std::vector<Tensor>& parts, int64_t bytes) {
    const Tensor& part = parts.emplace_back(Tensor::empty({bytes}, dtypes::uint8, MemoryKind::kWorkspace));
    bucket.bytes += bytes;
    return Bytes(static_cast<std::byte*>(part.data()), static_cast<size_t>(bytes));
  };
  for (int64_t r = 0; r < ranks_.size(); ++r) {
    int64_t there = 0, here = 0;
    for (const Slice& s : bucket.slices) {
      there += r == own ? 0 : s.bytes(r, wire_);
      here += r == own ? 0 : s.bytes(own, wire_);
    }
    from.push_back(memory(bucket.from, here));
    if (from_gradient && r != own) {
      const Tensor part = bucket.slices.front().part(r);
      if (part.bytes() == there) {
        to.emplace_back(static_cast<const std::byte*>(part.data()), static_cast<size_t>(there));
        continue;
      }
    }
    const Bytes copy = memory(bucket.to, there);
    to.emplace_back(copy);
    std::fill(copy.begin(), copy.end(), std::byte{0});  // the words that end the parts, too
    std::byte* at = copy.data();
    for (const Slice& s : bucket.slices) {
      if (r == own) break;
      encode(s.part(r), s.rows[static_cast<size_t>(r)].first * s.of->gradient.cols(), s.of->draws, wire_, at);
      at += s.bytes(r, wire_);
    }
  }
  bucket.transfer = ranks_.exchange(to, from);
  flying_bytes_ += bucket.bytes;
}

void RowSums::land() {
  const Bucket& bucket = flying_.front();
  ranks_.wait(bucket.transfer);
  int64_t at = 0;
  for (const Slice& s : bucket.slices) {
    add_slice(bucket, s, at);
    at += s.bytes(ranks_.rank(), wire_);
  }
  flying_bytes_ -= bucket.bytes;
  flying_.pop_front();
}

// Adds the parts of a slice that came, from `at` on in what each rank sent, to the own rows.
void RowSums::add_slice(const Bucket& bucket, const Slice& slice, int64_t at) const {
  const int64_t own = ranks_.rank(), n = slice.elements(own);
  if (n == 0) return;
  const Tensor rows = slice.part(own);
  const bool as_it_is = travels_as_it_is(rows.dtype(), wire_);
  const DType dtype = as_it_is ? rows.dtype() : dtypes::fp32;
  const auto join = [&](const Term& left, Term right) {
    add_left(dtype, n, left.data, right.data);
    return right;
  };
  TreeSum<Term, decltype(join)> tree(join);
  for (int64_t r = 0; r < ranks_.size(); ++r) {
    if (r == own) {
      tree.add(dtype == rows.dtype() ? Term{rows.data()} : in_own_memory(widened_part(rows)));
      continue;
    }
    std::byte* const came = static_cast<std::byte*>(bucket.from[static_cast<size_t>(r)].data()) + at;
    tree.add(as_it_is ? Term{came} : in_own_memory(decode(n, wire_, came)));
  }
  const Term sum = tree.finish();
  if (dtype != rows.dtype())
    kernels::to_bf16(n, static_cast<const float*>(sum.data), rows.as<uint16_t>());
  else if (sum.data != rows.data())
    std::memcpy(rows.data(), sum.data, static_cast<size_t>(rows.bytes()));
}

}  // namespace bitgrad::detail
