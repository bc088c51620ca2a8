// The step of one parameter in blocks of whole rows: gradient -> finish -> rule -> master -> codes -> layouts, one
// L2-sized chunk after another, so that each value is read from memory once. docs/numerics.md section 6, steps 1 to 8.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "bitgrad/nn/requantization.h"
#include "bitgrad/optim/optimizer.h"
#include "kernels/update_rows.h"
#include "nn/row_params.h"
#include "optim/moments.h"
#include "quant/values.h"

namespace bitgrad::detail {

class RowStep {
 public:
  // Scalars of one optimizer step.
  struct Now {
    float lr = 0;
    double count = 1;
    int64_t step = 0;  // optimizer steps done
    float factor = 1;  // factor of the global-norm clip
    RuleFactors factors = {};
    const RequantKey* due = nullptr;  // set if requantization is due after this step
    UpdateAge age = {};
    std::function<void()> refuse{};  // called for a non-finite sum, before its chunk is updated; {}: all are finite
    bool directed = false;           // the gradient is a direction: clipped by the norm, and then directed by the rule
  };

  // lr_factor: of the rule, besides that of the parameter.
  RowStep(Parameter& parameter, const UpdateRule& rule, Moments& moments, MomentKind kind, const OptimizerSpec& spec,
          float lr_factor);

  // Rows per block. Depends on shape, scheme and moments only: a multiple of kRowBlock (or all rows), about 512 KiB of
  // fp32, at most 64 rows if possible, whole groups of rows, and whole blocks of moments (in 8 and 4 bits).
  int64_t block_rows() const { return block_; }
  // True if whole blocks of moments (256 elements) would make row blocks too large: row blocks must then come in
  // order, one after another. Otherwise they may come in any order and from several threads.
  bool in_order() const { return in_order_; }
  // Whether this sweep makes the codes when they are due.
  bool makes_codes(const RequantKey* due) const;

  // Call begin, then rows() such that every row is covered once, then end.
  void begin(const Now& now);
  // g [end - begin, cols]: sums over the window's samples in fp32, overwritten if `scratch`, or bf16. `finished`:
  // already divided, passed through the quantizer and clipped by value. begin is a multiple of block_rows(); end is
  // too, or is the number of rows.
  void rows(int64_t begin, int64_t end, const Tensor& g, bool finished, bool scratch);
  void end();
  // For ranks that update some of the rows each, on the CPU: begin_rows in place of begin, then sweep_rows of slices
  // [first, last) of what it returns, where both are as in rows. end follows once the rows of the others are here.
  // `owner`: of all rows, which rules of whole matrices need; other ranks then have none to sweep.
  struct Gradient {
    Tensor matrix;
    bool finished;
  };
  Gradient begin_rows(const Now& now, const Tensor& g, bool finished, bool owner);
  void sweep_rows(const Gradient& g, int64_t first, int64_t last) { sweep_rows(g.matrix, g.finished, first, last); }
  // The codes that this sweep makes; nullptr: none.
  Requantization* codes() { return codes_ ? &*codes_ : nullptr; }
  // The whole sweep. On a device other than the CPU it takes one kernel, or several (not_one_kernel), and may overwrite
  // an fp32 g.
  void run(const Now& now, const Tensor& g, bool finished);
  // Why a device needs several kernels for a step in which codes are due; empty: it needs one.
  std::string not_one_kernel() const;

 private:
  // For devices (row_step_device.cpp): why parts of the step cannot be in the common kernel; empty if they can.
  struct Apart {
    std::string gradient, update, codes;
  };
  Apart apart() const;
  void run_whole(const Tensor& sums, bool finished);
  void gradient_args(const Tensor& x, kernels::UpdateRowsArgs& args, std::optional<KernelScales>& scales) const;

  // What the sweep updates together with the values: nothing of a rule of whole matrices, whose state `direction`
  // updates.
  Moments& swept() { return rule_.whole_matrix() ? none_ : moments_; }
  std::vector<UpdateRule::Moment> swept_moments() const;
  // For rules of whole matrices: the direction fp32 [rows, cols] from the sums of a window, in their memory if
  // `finished`.
  Tensor direction(const Tensor& sums, bool finished);
  void sweep(const Tensor& matrix, bool finished);
  void sweep_rows(const Tensor& matrix, bool finished, int64_t first, int64_t last);

  void chunk(int64_t begin, const Tensor& g, const Tensor& x, bool finished);
  void update(int64_t begin, const Tensor& g, const Tensor& x);
  // Multiplies g by the factor of the global-norm clip.
  void scale_by_norm(int64_t n, float* g) const;
  UpdatePiece piece(int64_t n, float* w, float* g, std::span<float* const> state) const;
  RandomStream draws(Purpose purpose) const;
  bool narrow_master() const;
  // Rounds w, starting at element `at`, into the bf16 master, and updates w to the rounded values if codes or a check
  // follow.
  void round_master(int64_t at, int64_t n, float* w) const;
  // Throws Error(kNonFinite) if a new value is not finite.
  void check_numbers(int64_t n, const float* w) const;

  Parameter& p_;
  const UpdateRule& rule_;
  Moments& moments_;
  Moments none_;
  MomentKind kind_;
  const OptimizerSpec& spec_;
  float lr_factor_;
  int64_t chunk_ = 1, block_ = 1;
  bool in_order_ = false;
  Now now_;
  std::optional<Requantization> codes_;  // while this sweep makes codes
  bool checks_ = false;  // on the CPU: check new values that do not become codes now; quantizers check the others
};

}  // namespace bitgrad::detail
