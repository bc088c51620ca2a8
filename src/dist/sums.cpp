// Sums over ranks: every rank adds its part of the elements in the tree of docs/numerics.md section 6, then all gather
// the parts.
#include <cstring>

#include "bitgrad/base/device.h"
#include "bitgrad/dist/communicator.h"
#include "dist/add.h"

namespace bitgrad {
namespace {

using Bytes = Communicator::Bytes;
using ConstBytes = Communicator::ConstBytes;

constexpr int64_t kBucket = int64_t{4} << 20;  // bytes that are summed at a time

// Sums `flat` (fp32 or bf16 [n] on the host). Rank r adds elements n*r/size .. n*(r+1)/size.
void sum_flat(Communicator& ranks, const Tensor& flat) {
  const int64_t size = ranks.size(), n = flat.numel(), each = flat.bytes() / n;
  const auto begin = [&](int64_t rank) { return n * rank / size; };
  const int64_t own = begin(ranks.rank() + 1) - begin(ranks.rank());
  const Tensor terms = Tensor::empty({size, own}, flat.dtype(), MemoryKind::kWorkspace);
  auto* const values = static_cast<std::byte*>(flat.data());
  auto* const place = static_cast<std::byte*>(terms.data());
  std::vector<Bytes> parts, places;
  parts.reserve(static_cast<size_t>(size));
  places.reserve(static_cast<size_t>(size));
  for (int64_t r = 0; r < size; ++r) {
    parts.emplace_back(values + begin(r) * each, static_cast<size_t>((begin(r + 1) - begin(r)) * each));
    places.emplace_back(place + r * own * each, static_cast<size_t>(own * each));
  }
  const Bytes mine = parts[static_cast<size_t>(ranks.rank())];
  std::copy(mine.begin(), mine.end(), places[static_cast<size_t>(ranks.rank())].begin());
  ranks.wait(ranks.exchange(std::vector<ConstBytes>(parts.begin(), parts.end()), places));
  if (own > 0) {
    const auto join = [](const Tensor& left, Tensor right) {
      detail::add_left(left, right);
      return right;
    };
    TreeSum<Tensor, decltype(join)> tree(join);
    for (int64_t r = 0; r < size; ++r) tree.add(terms.row_slice(r, r + 1));
    std::memcpy(mine.data(), tree.finish().data(), mine.size());
  }
  ranks.wait(ranks.gather(mine, parts));
}

// Copies elements [begin, begin + flat.numel()) of the tensors, one behind the other, to or from `flat`.
void copy(const std::vector<Tensor>& tensors, int64_t begin, const Tensor& flat, bool to_flat) {
  const int64_t end = begin + flat.numel(), each = flat.bytes() / flat.numel();
  int64_t at = 0;  // the first element of the tensor
  for (const Tensor& t : tensors) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + t.numel());
    if (from < to) {
      std::byte* const there = static_cast<std::byte*>(t.data()) + (from - at) * each;
      std::byte* const here = static_cast<std::byte*>(flat.data()) + (from - begin) * each;
      std::memcpy(to_flat ? here : there, to_flat ? there : here, static_cast<size_t>((to - from) * each));
    }
    at += t.numel();
  }
}

// All of one dtype and on the host.
void sum_alike(Communicator& ranks, const std::vector<Tensor>& tensors) {
  int64_t total = 0;
  for (const Tensor& t : tensors) total += t.numel();
  if (total == 0) return;
  const DType dtype = tensors[0].dtype();
  const int64_t most = kBucket / (dtype == dtypes::bf16 ? 2 : 4);
  for (int64_t begin = 0; begin < total; begin += most) {
    const Tensor flat = Tensor::empty({std::min(most, total - begin)}, dtype, MemoryKind::kWorkspace);
    copy(tensors, begin, flat, /*to_flat=*/true);
    sum_flat(ranks, flat);
    copy(tensors, begin, flat, /*to_flat=*/false);
  }
}

}  // namespace

void sum_over_ranks(Communicator& ranks, std::span<const Tensor> values) {
  for (const Tensor& t : values)
    require((t.dtype() == dtypes::fp32 || t.dtype() == dtypes::bf16) && t.contiguous(), "ranks", "sum: got ", t,
            ", expected contiguous fp32 or bf16");
  if (ranks.size() == 1) return;
  std::vector<Tensor> host;
  host.reserve(values.size());
  for (const Tensor& t : values) host.push_back(t.on_host());
  const DeviceGuard cpu(Device::cpu());
  for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
    std::vector<Tensor> alike;
    std::copy_if(host.begin(), host.end(), std::back_inserter(alike),
                 [&](const Tensor& t) { return t.dtype() == dtype; });
    sum_alike(ranks, alike);
  }
  for (size_t i = 0; i < host.size(); ++i)
    if (!values[i].device().is_cpu()) values[i].copy_from(host[i]);
}

void sum_over_ranks(Communicator& ranks, std::span<int64_t> counts) {
  const std::vector<int64_t> all = gather_values(ranks, std::span<const int64_t>(counts));
  std::fill(counts.begin(), counts.end(), 0);
  for (size_t i = 0; i < all.size(); ++i) counts[i % counts.size()] += all[i];
}

}  // namespace bitgrad
