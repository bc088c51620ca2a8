// What every kernel family shares: the kernel record, the mode of the bits, and the choice by cost.
//
// A family is a list of kernels over one argument struct (src/kernels/<family>/kernels.inc; kernels of other devices
// are added by KernelList::add). A kernel is usable when it is of the current device's kind, the machine grants its ISA
// (under the cap), its order of summation is legal in the current mode, and supports(args) says yes; the cheapest
// usable kernel runs. The last kernels of a family are its references; together they support every legal argument.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/dtype/scale_map.h"

namespace bitgrad {

// The order in which a kernel adds floats (docs/numerics.md section 4).
enum class SumOrder : uint8_t {
  kExact,     // integers: any order gives the same number
  kChain512,  // one fma chain over ascending k per panel of 512, panel sums added in order
  kTable,     // sums of a few codes, a few of those a pass (tables of sums)
  kLanes,     // 16 lanes and chunks of 1024, section 8
  kFp64,      // the double reference
  kBlocks64,  // attention: ascending products, 16 lanes of the probabilities of 64 keys, blocks in ascending order
  kDigits3,   // fp32 as three int8 digits of a fixed point of the row
  kDigits2,   // as two
  kFree,      // the library's own
};
std::string_view order_name(SumOrder order);
// Whether kernels of this order may run in strict mode: it has kernels on every ISA.
constexpr bool legal_in_strict(SumOrder order) { return order < SumOrder::kDigits3; }

// fast: the same bits for any number of threads. strict: also on every ISA; only kernels whose order every ISA has are
// candidates.
enum class BitsMode : uint8_t { kFast, kStrict };
BitsMode bits_mode();
void set_bits_mode(BitsMode mode);

template <typename Args>
struct Kernel {
  std::string_view name;
  DeviceKind device;
  IsaMask needs;
  SumOrder order;
  bool (*supports)(const Args&);
  double (*cost)(const Args&);  // estimated nanoseconds on one thread; compares kernels of one family only
  void (*run)(const Args&);

  // Whether the current device has what the kernel needs.
  bool granted() const { return device == current_device().kind && (needs & ~device_isa()) == 0; }
  bool usable(const Args& args) const {
    return granted() && (legal_in_strict(order) || bits_mode() == BitsMode::kFast) && supports(args);
  }
};

// The cheapest usable kernel, or nullptr. Ties go to the earlier one.
template <typename Args>
const Kernel<Args>* cheapest(std::span<const Kernel<Args>> kernels, const Args& args) {
  const Kernel<Args>* best = nullptr;
  double best_cost = 0;
  for (const Kernel<Args>& kernel : kernels) {
    if (!kernel.usable(args)) continue;
    const double cost = kernel.cost(args);
    if (best == nullptr || cost < best_cost) {
      best = &kernel;
      best_cost = cost;
    }
  }
  return best;
}

// The kernels of a family: those of the CPU, and those that other devices add at start-up (before theirs are asked
// for; not while another thread looks up).
template <typename K>
class KernelList {
 public:
  explicit KernelList(std::span<const K> cpu) {
    kernels_.reserve(cpu.size() + kMaxAdded);
    kernels_.assign(cpu.begin(), cpu.end());
  }
  std::span<const K> kernels() const { return kernels_; }
  void add(std::span<const K> more) {
    ensure(kernels_.size() + more.size() <= kernels_.capacity(), "KernelList::add", "more than ", kMaxAdded,
           " kernels.");
    kernels_.insert(kernels_.end(), more.begin(), more.end());
  }

 private:
  static constexpr size_t kMaxAdded = 128;  // they do not move: choices point at them
  std::vector<K> kernels_;
};

// One line of `bitgrad kernels`.
struct KernelInfo {
  std::string_view family, name;
  IsaMask needs;
  SumOrder order;
  bool available;
  DeviceKind device = DeviceKind::kCpu;
};
std::vector<KernelInfo> all_kernels();
// Adds kernels of another device that are in no family's list; `available` is computed at each call.
void add_kernel_infos(std::span<const KernelInfo> kernels);

}  // namespace bitgrad
