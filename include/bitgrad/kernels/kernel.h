// Common to all kernel families: the kernel record and selection by cost.
//
// Where there are alternatives, a family is a list of kernels over one argument struct (src/kernels/<family>/; other
// devices add theirs with KernelList::add). A kernel is usable if it is for the current kind of device, the machine and
// the cap grant its ISA, its order of summation is legal in the current mode, and supports(args) returns true. The
// cheapest usable kernel runs. The last kernels of a family are its references, which together support every legal
// argument. Where each device has one kernel, it is a line of src/kernels/kernel_table.inc.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/dtype.h"

namespace bitgrad {

// The order in which a kernel sums floats (docs/numerics.md section 4).
enum class SumOrder : uint8_t {
  kExact,     // integers: the result does not depend on the order
  kChain512,  // one fma chain over ascending k per panel of 512; panel sums added in order
  kTable,     // sums of a few codes looked up in tables, a few of those per pass
  kLanes,     // 16 lanes and chunks of 1024, section 8
  kFp64,      // double-precision reference
  kBlocks64,  // attention: ascending products, 16 lanes for probabilities of 64 keys, blocks in ascending order
  kDigits3,   // fp32 as three int8 digits in a fixed point per row
  kDigits2,   // as two digits
  kFree,      // unspecified, such as that of an external library
};
std::string_view order_name(SumOrder order);
// Whether kernels of this order may run in strict mode, which requires that every ISA has such kernels.
constexpr bool legal_in_strict(SumOrder order) { return order < SumOrder::kDigits3; }

// A kernel as `bitgrad kernels` lists it.
struct KernelInfo {
  std::string_view family, name;
  DeviceKind device;
  IsaMask needs;
  SumOrder order;

  // Whether the current device provides what the kernel needs.
  bool granted() const { return device == current_device().kind && (needs & ~device_isa()) == 0; }
  // And whether its order of summation is legal in the current mode.
  bool available() const { return granted() && (legal_in_strict(order) || bits_mode() == BitsMode::kFast); }
};

template <typename Args>
struct Kernel : KernelInfo {
  bool (*supports)(const Args&);
  double (*cost)(const Args&);  // estimated nanoseconds on one thread; comparable within a family only
  void (*run)(const Args&);

  bool usable(const Args& args) const { return available() && supports(args); }
};
// For kernels that support every legal argument, and for those that win by their place in the list.
template <typename Args>
bool supports_all(const Args&) {
  return true;
}
template <typename Args>
double no_cost(const Args&) {
  return 0;
}

// The kernels of a family: those of the CPU, and those that other devices add at startup (before first use, and never
// concurrently with a lookup). A family that has alternatives has one, which is never destroyed, because destructors
// of static objects may still run kernels.
template <typename K>
class KernelList {
 public:
  explicit KernelList(std::span<const K> cpu) {
    kernels_.reserve(cpu.size() + kMaxAdded);
    kernels_.assign(cpu.begin(), cpu.end());
  }
  void add(std::span<const K> more) {
    ensure(kernels_.size() + more.size() <= kernels_.capacity(), "KernelList::add", "more than ", kMaxAdded,
           " kernels.");
    kernels_.insert(kernels_.end(), more.begin(), more.end());
  }
  const K* data() const { return kernels_.data(); }
  size_t size() const { return kernels_.size(); }
  const K* begin() const { return data(); }
  const K* end() const { return data() + size(); }
  const K& operator[](size_t i) const { return kernels_[i]; }
  const K& back() const { return kernels_.back(); }

  // Returns the cheapest usable kernel, or nullptr. The earlier kernel wins ties.
  template <typename Args>
  const K* cheapest(const Args& args) const {
    const K* best = nullptr;
    double best_cost = 0;
    for (const K& kernel : kernels_) {
      if (!kernel.usable(args)) continue;
      const double cost = kernel.cost(args);
      if (best == nullptr || cost < best_cost) {
        best = &kernel;
        best_cost = cost;
      }
    }
    return best;
  }

 private:
  static constexpr size_t kMaxAdded = 128;  // storage never moves: cached choices point into it
  std::vector<K> kernels_;
};

// Every kernel of every device, by family: the alternatives, the kernels of which each device has one, and the loops
// of the CPU, once per ISA. Then the maps of devices.
std::vector<KernelInfo> all_kernels();
void add_map_info(const KernelInfo& kernel);

}  // namespace bitgrad
