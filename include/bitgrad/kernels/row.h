// What every kernel family shares: the row, the mode of the bits, and the choice by cost.
//
// A family is a list of rows over one argument struct (src/kernels/<family>/kernels.inc; rows of other devices are
// added by RowList::add). A row is usable when it is of the current device's kind, the machine grants its ISA (under
// the cap), its order of summation is legal in the current mode, and supports(args) says yes; the cheapest usable row
// runs. The last rows of a family are its references; together they support every legal argument.
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

// The order in which a row adds floats (docs/numerics.md section 4).
enum class SumOrder : uint8_t {
  kExact,     // integers: any order gives the same number
  kChain512,  // one fma chain over ascending k per panel of 512, panel sums added in order
  kTable,     // sums of a few codes, a few of those a pass (tables of sums)
  kLanes,     // 16 lanes and chunks of 1024, section 8
  kFp64,      // the double reference
  kDigits3,   // fp32 as three int8 digits of a fixed point of the row
  kDigits2,   // as two
  kFree,      // the library's own
};
std::string_view order_name(SumOrder order);
// Whether rows of this order may run in strict mode: it has rows on every ISA.
constexpr bool legal_in_strict(SumOrder order) { return order < SumOrder::kDigits3; }

// fast: the same bits for any number of threads. strict: also on every ISA; only rows whose order every ISA has are
// candidates.
enum class BitsMode : uint8_t { kFast, kStrict };
BitsMode bits_mode();
void set_bits_mode(BitsMode mode);

template <typename Args>
struct KernelRow {
  std::string_view name;
  DeviceKind device;
  IsaMask needs;
  SumOrder order;
  bool (*supports)(const Args&);
  double (*cost)(const Args&);  // estimated nanoseconds on one thread; compares rows of one family only
  void (*run)(const Args&);

  // Whether the current device has what the row needs.
  bool granted() const { return device == current_device().kind && (needs & ~device_isa()) == 0; }
  bool usable(const Args& args) const {
    return granted() && (legal_in_strict(order) || bits_mode() == BitsMode::kFast) && supports(args);
  }
};

// The cheapest usable row, or nullptr. Ties go to the earlier row.
template <typename Args>
const KernelRow<Args>* cheapest(std::span<const KernelRow<Args>> rows, const Args& args) {
  const KernelRow<Args>* best = nullptr;
  double best_cost = 0;
  for (const KernelRow<Args>& row : rows) {
    if (!row.usable(args)) continue;
    const double cost = row.cost(args);
    if (best == nullptr || cost < best_cost) {
      best = &row;
      best_cost = cost;
    }
  }
  return best;
}

// The rows of a family: those of the CPU, and those that other devices add at start-up (before rows of theirs are asked
// for; not while another thread looks up).
template <typename Row>
class RowList {
 public:
  explicit RowList(std::span<const Row> cpu) {
    rows_.reserve(cpu.size() + kMostAdded);
    rows_.assign(cpu.begin(), cpu.end());
  }
  std::span<const Row> rows() const { return rows_; }
  void add(std::span<const Row> more) {
    ensure(rows_.size() + more.size() <= rows_.capacity(), "register_rows", "more than ", kMostAdded, " rows.");
    rows_.insert(rows_.end(), more.begin(), more.end());
  }

 private:
  static constexpr size_t kMostAdded = 128;  // rows do not move: choices point at them
  std::vector<Row> rows_;
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
// Adds kernels of another device that are no rows to that list; `available` is told anew whenever it is asked for.
void register_kernels(std::span<const KernelInfo> kernels);

}  // namespace bitgrad
