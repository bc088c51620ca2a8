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

// Sums `flat` (fp32 or bf16 [n] on the current device). Rank r adds elements n*r/size .. n*(r+1)/size.
void sum_flat(const Mover& mover, const Tensor& flat) {
  const Communicator& ranks = mover.ranks;
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
  copy_bytes(places[static_cast<size_t>(ranks.rank())].data(), mine.data(), std::ssize(mine));
  mover.exchange(std::vector<ConstBytes>(parts.begin(), parts.end()), places);
  if (own > 0) {
    const auto join = [](const Tensor& left, Tensor right) {
      detail::add_left(left, right);
      return right;
    };
    TreeSum<Tensor, decltype(join)> tree(join);
    for (int64_t r = 0; r < size; ++r) tree.add(terms.row_slice(r, r + 1));
    copy_bytes(mine.data(), tree.finish().data(), std::ssize(mine));
  }
  mover.gather(mine, parts);
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

// All of one dtype and on the current device.
void sum_alike(const Mover& mover, const std::vector<Tensor>& tensors) {
  const int64_t total = numel_of(tensors);
  if (total == 0) return;
  const DType dtype = tensors[0].dtype();
  const int64_t most = mover.bucket_bytes() / (dtype == dtypes::bf16 ? 2 : 4);
  for (int64_t begin = 0; begin < total; begin += most) {
    const Tensor flat = Tensor::empty({std::min(most, total - begin)}, dtype, MemoryKind::kWorkspace);
    copy(tensors, begin, flat, /*to_flat=*/true);
    sum_flat(mover, flat);
    copy(tensors, begin, flat, /*to_flat=*/false);
  }
}

// On the current device.
void sum_all(const Mover& mover, const std::vector<Tensor>& tensors) {
  std::array<std::vector<Tensor>, 2> alike;
  for (const Tensor& t : tensors) alike[t.dtype() == dtypes::fp32 ? 0 : 1].push_back(t);
  if (mover.link != nullptr) {  // which compares no lengths
    const std::array<int64_t, 2> own{numel_of(alike[0]), numel_of(alike[1])};
    const std::vector<int64_t> all = gather_values(mover.ranks, std::span<const int64_t>(own));
    for (size_t i = 2; i < all.size(); ++i)
      if (all[i] != all[i % 2])
        fail_with(ErrorCode::kDevice, "ranks", "sum: rank 0 has ", all[i % 2], " values of ",
                  i % 2 == 0 ? "fp32" : "bf16", ", rank ", i / 2, " has ", all[i], ", expected as many");
  }
  for (const std::vector<Tensor>& tensors_of_dtype : alike) sum_alike(mover, tensors_of_dtype);
  if (mover.link != nullptr) mover.link->wait(mover.ranks);
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
