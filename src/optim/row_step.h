// The step of one parameter in blocks of whole rows: gradient -> finish -> rule -> master -> codes -> layouts, one
// L2-sized chunk after another, so that each value is read from memory once. docs/numerics.md section 6, steps 1 to 8.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "bitgrad/kernels/update_rows.h"
#include "bitgrad/optim/optimizer.h"
#include "optim/moments.h"
#include "quant/kernel_scales.h"

namespace bitgrad::detail {

class RowStep {
 public:
  // Numbers of one optimizer step.
  struct Now {
    float lr = 0;
    int64_t count = 1;
    int64_t step = 0;                 // optimizer steps done
    float factor = 1;                 // of the global-norm clip
    const RequantKey* due = nullptr;  // the masters become codes after this step
    std::function<void()> refuse{};   // called where a sum is not finite, before its chunk moves; none: all are
  };

  RowStep(Parameter& parameter, const UpdateRule& rule, Moments& moments, MomentKind kind, const OptimizerSpec& spec);

  // Rows of a block, by shape, scheme and moments alone: a multiple of kRowBlock (or all rows), about 512 KiB of fp32,
  // at most 64 rows where it can be, whole groups of rows, and whole blocks of 8-bit moments.
  int64_t block_rows() const { return block_; }
  // Blocks of 8-bit moments (256 numbers) lie across rows so that a block of rows would hold too many numbers: blocks
  // come one after another, in order. Else they may come in any order and from several threads.
  bool in_order() const { return in_order_; }
  // Whether codes are made in this sweep when they are due.
  bool makes_codes(const RequantKey* due) const;

  // begin, then rows() once for every row, then end.
  void begin(const Now& now);
  // g [end - begin, cols]: fp32, overwritten if `scratch`, or bf16: sums over the window's samples; `finished`:
  // divided, through the quantizer and clipped by value already. begin is a multiple of block_rows(), and end is too,
  // or the last row.
  void rows(int64_t begin, int64_t end, const Tensor& g, bool finished, bool scratch);
  void end();
  // The whole sweep. On a device other than the CPU it is one kernel, or some (not_one_kernel), and g in fp32 may be
  // overwritten.
  void run(const Now& now, const Tensor& g, bool finished);
  // Why a device takes several kernels for a step whose codes are due; empty: one.
  std::string not_one_kernel() const;

 private:
  // Of a device (row_step_device.cpp): why parts of the step are no parts of one sweep; empty: they are.
  struct Apart {
    std::string gradient, update, codes;
  };
  Apart apart() const;
  void run_whole(const Tensor& sums, bool finished);
  void gradient_args(const Tensor& x, kernels::UpdateRowsArgs& args, std::optional<KernelScales>& scales) const;

  void chunk(int64_t begin, const Tensor& g, const Tensor& x, bool finished);
  void update(int64_t begin, const Tensor& g, const Tensor& x);
  UpdatePiece piece(int64_t n, float* w, float* g, std::span<float* const> state) const;
  RandomStream draws(Purpose purpose) const;
  bool narrow_master() const;
  // Numbers w from element `at` on become those of a bf16 master, and w what it holds where codes or a check follow.
  void round_master(int64_t at, int64_t n, float* w) const;
  // Throws Error(kNonFinite) where new numbers are not finite.
  void check_numbers(int64_t n, const float* w) const;

  Parameter& p_;
  const UpdateRule& rule_;
  Moments& moments_;
  MomentKind kind_;
  const OptimizerSpec& spec_;
  int64_t chunk_ = 1, block_ = 1;
  bool in_order_ = false;
  Now now_;
  bool codes_ = false;
  bool checks_ = false;  // the CPU's numbers that do not become codes in this step: quantizers look at the others
};

}  // namespace bitgrad::detail
