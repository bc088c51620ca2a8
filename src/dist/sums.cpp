// Sums over ranks: every rank adds its part of the elements in the tree of docs/numerics.md section 6, then all gather
// the parts.
#include <array>

#include "bitgrad/base/device.h"
#include "bitgrad/dist/communicator.h"
#include "bitgrad/dist/device_link.h"
#include "dist/add.h"

namespace bitgrad {
namespace {

using Bytes = Communicator::Bytes;
using ConstBytes = Communicator::ConstBytes;

constexpr int64_t kBucket = int64_t{4} << 20;  // bytes of hosts that are summed at a time

// Moves bytes between the memories of the ranks' current devices: of hosts (`link` is nullptr), or of others, where
// that is queued.
struct Mover {
  Communicator& ranks;
  DeviceLink* link = nullptr;

  int64_t bucket_bytes() const { return link != nullptr ? detail::device_bucket_bytes : kBucket; }
  void exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) const {
    if (link != nullptr)
      link->exchange(ranks, to, from);
    else
      ranks.wait(ranks.exchange(to, from));
  }
  void gather(ConstBytes own, std::span<const Bytes> all) const {
    if (link != nullptr)
      link->gather(ranks, own, all);
    else
      ranks.wait(ranks.gather(own, all));
  }
};

// Within the current device.
void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) device_backend(current_device()).copy(CopyWay::kOnDevice, to, bytes, from, bytes, bytes, 1);
}

// Where buckets of a dtype are summed: all memory is there before the first byte moves, since to allocate on a device
// may wait for others, whose movements wait for this rank.
struct Buffers {
  Tensor flat = {}, terms = {};  // of one bucket; the terms of all ranks for the part that this rank adds
};

// Sums the first n elements of buffers.flat. Rank r adds elements n*r/size .. n*(r+1)/size.
void sum_flat(const Mover& mover, const Buffers& buffers, int64_t n) {
  const DType dtype = buffers.flat.dtype();
  const int64_t size = mover.ranks.size(), each = dtype == dtypes::bf16 ? 2 : 4;
  const auto begin = [&](int64_t rank) { return n * rank / size; };
  const int64_t own = begin(mover.ranks.rank() + 1) - begin(mover.ranks.rank());
  auto* const values = static_cast<std::byte*>(buffers.flat.data());
  auto* const place = static_cast<std::byte*>(buffers.terms.data());
  std::vector<Bytes> parts, places;
  parts.reserve(static_cast<size_t>(size));
  places.reserve(static_cast<size_t>(size));
  for (int64_t r = 0; r < size; ++r) {
    parts.emplace_back(values + begin(r) * each, static_cast<size_t>((begin(r + 1) - begin(r)) * each));
    places.emplace_back(place + r * own * each, static_cast<size_t>(own * each));
  }
  const auto rank = static_cast<size_t>(mover.ranks.rank());
  const Bytes mine = parts[rank];
  copy_bytes(places[rank].data(), mine.data(), std::ssize(mine));
  mover.exchange(std::vector<ConstBytes>(parts.begin(), parts.end()), places);
  if (own > 0) {
    const auto join = [&](std::byte* left, std::byte* right) {
      detail::add_left(dtype, own, left, right);
      return right;
    };
    TreeSum<std::byte*, decltype(join)> tree(join);
    for (const Bytes& term : places) tree.add(term.data());
    copy_bytes(mine.data(), tree.finish(), std::ssize(mine));
  }
  mover.gather(mine, parts);
}

// Copies elements [begin, begin + n) of the tensors, one behind the other, to or from `flat`.
void copy(const std::vector<Tensor>& tensors, int64_t begin, int64_t n, const Tensor& flat, bool to_flat) {
  const int64_t end = begin + n, each = flat.bytes() / flat.numel();
  int64_t at = 0;  // the first element of the tensor
  for (const Tensor& t : tensors) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + t.numel());
    if (from < to) {
      std::byte* const there = static_cast<std::byte*>(t.data()) + (from - at) * each;
      std::byte* const here = static_cast<std::byte*>(flat.data()) + (from - begin) * each;
      copy_bytes(to_flat ? here : there, to_flat ? there : here, (to - from) * each);
    }
    at += t.numel();
  }
}

int64_t numel_of(const std::vector<Tensor>& tensors) {
  int64_t total = 0;
  for (const Tensor& t : tensors) total += t.numel();
  return total;
}

Buffers buffers_for(const Mover& mover, const std::vector<Tensor>& tensors) {
  const int64_t total = numel_of(tensors), size = mover.ranks.size();
  if (total == 0) return {};
  const DType dtype = tensors[0].dtype();
  const int64_t n = std::min(total, mover.bucket_bytes() / (dtype == dtypes::bf16 ? 2 : 4));
  return {Tensor::empty({n}, dtype, MemoryKind::kWorkspace),
          Tensor::empty({size * ((n + size - 1) / size)}, dtype, MemoryKind::kWorkspace)};
}

// All of one dtype and on the current device.
void sum_alike(const Mover& mover, const Buffers& buffers, const std::vector<Tensor>& tensors) {
  const int64_t total = numel_of(tensors);
  for (int64_t begin = 0; begin < total; begin += buffers.flat.numel()) {
    const int64_t n = std::min(buffers.flat.numel(), total - begin);
    copy(tensors, begin, n, buffers.flat, /*to_flat=*/true);
    sum_flat(mover, buffers, n);
    copy(tensors, begin, n, buffers.flat, /*to_flat=*/false);
  }
}

// A link compares no lengths.
void compare_lengths(Communicator& ranks, const std::array<std::vector<Tensor>, 2>& alike) {
  const std::array<int64_t, 2> own{numel_of(alike[0]), numel_of(alike[1])};
  const std::vector<int64_t> all = gather_values(ranks, std::span<const int64_t>(own));
  for (size_t i = 2; i < all.size(); ++i)
    if (all[i] != all[i % 2])
      fail_with(ErrorCode::kDevice, "ranks", "sum: rank 0 has ", all[i % 2], " values of ",
                i % 2 == 0 ? "fp32" : "bf16", ", rank ", i / 2, " has ", all[i], ", expected as many");
}

// On the current device.
void sum_all(const Mover& mover, const std::vector<Tensor>& tensors) {
  std::array<std::vector<Tensor>, 2> alike;
  for (const Tensor& t : tensors) alike[t.dtype() == dtypes::fp32 ? 0 : 1].push_back(t);
  const std::array<Buffers, 2> buffers{buffers_for(mover, alike[0]), buffers_for(mover, alike[1])};
  if (mover.link != nullptr) compare_lengths(mover.ranks, alike);
  try {
    for (size_t i = 0; i < alike.size(); ++i) sum_alike(mover, buffers[i], alike[i]);
    if (mover.link != nullptr) mover.link->wait(mover.ranks);
  } catch (...) {
    if (mover.link != nullptr) mover.link->end();  // before the memory is given to others
    throw;
  }
}

}  // namespace

void sum_over_ranks(Communicator& ranks, std::span<const Tensor> values) {
  for (const Tensor& t : values)
    require((t.dtype() == dtypes::fp32 || t.dtype() == dtypes::bf16) && t.contiguous(), "ranks", "sum: got ", t,
            ", expected contiguous fp32 or bf16");
  if (ranks.size() == 1) return;
  std::vector<Tensor> host, own, on_device;  // own: of the device, where they go by the host
  for (const Tensor& t : values) {
    DeviceLink* const link = t.device().is_cpu() ? nullptr : DeviceLink::between(ranks, t.device());
    if (link != nullptr) {
      on_device.push_back(t);
      continue;
    }
    own.push_back(t);
    host.push_back(t.on_host());
  }
  if (!on_device.empty()) {
    const Device device = on_device[0].device();
    const DeviceGuard guard(device);
    sum_all({ranks, DeviceLink::between(ranks, device)}, on_device);
  }
  const DeviceGuard cpu(Device::cpu());
  sum_all({ranks}, host);
  for (size_t i = 0; i < host.size(); ++i)
    if (!own[i].device().is_cpu()) own[i].copy_from(host[i]);
}

void sum_over_ranks(Communicator& ranks, std::span<int64_t> counts) {
  const std::vector<int64_t> all = gather_values(ranks, std::span<const int64_t>(counts));
  std::fill(counts.begin(), counts.end(), 0);
  for (size_t i = 0; i < all.size(); ++i) counts[i % counts.size()] += all[i];
}

}  // namespace bitgrad
