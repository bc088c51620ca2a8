// Requantization: one pass that makes all codes of a low-bit parameter, in blocks of whole rows. For update rules and
// kernels that have the new values in blocks; Parameter::requantize is the pass over a master.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bitgrad/nn/parameter.h"

namespace bitgrad {

namespace kernels {
struct RowCodes;  // kernels/update_rows.h
}
namespace detail {
class KernelScales;
}

// Whether scales are row-local or independent of the values: channel(0), token, groups along a row, constant scales,
// learned scales. The parameter is low-bit.
bool scales_are_row_local(const Parameter& p);
// Number of rows that share a scale (groups along axis 0); 1 otherwise.
int64_t row_unit(const Parameter& p);

// The parameter keeps its old scales until finish; one pass over a parameter at a time.
class Requantization {
 public:
  // From the values of a master. Stochastic rounding is keyed by (seed, step); `seed` is that of initialize.
  Requantization(Parameter& parameter, uint64_t seed, int64_t step);
  // Without a master: stochastic rounding by `draws`, element = row-major index in the parameter; kind sign: by the
  // sign. Requires scales_are_row_local.
  Requantization(Parameter& parameter, const RandomStream& draws);

  // Makes the codes of rows begin, begin + 1, ... from x [rows, cols], their fp32 values. Call it exactly once for
  // every row, from several threads and in any order, for blocks that begin at multiples of row_unit; all rows at once
  // unless scales_are_row_local, or joined. Throws Error(kNonFinite) naming the parameter if x holds NaN or Inf; the
  // codes are unusable then.
  void put_rows(int64_t begin, const Tensor& x);
  // After put_rows of rows [begin, end): packs them into the layouts that are packed by rows (dtype/layout.h) while
  // their codes are in cache. `begin` is a multiple of 16. Call it for all rows or for none; in the latter case finish
  // packs them. On devices other than the CPU finish always packs them.
  void pack_rows(int64_t begin, int64_t end);
  // Whether one scale for all rows follows from the range, or the mean of abs x, of all values, so that ranks can fit
  // it together: scale_terms of all rows, then join_scales, before put_rows and share_rows.
  static bool scales_join(const Parameter& p);
  // The terms of x, consecutive rows (fp32, dense) from a multiple of scale_unit on: sums of abs x of its chunks
  // (docs/numerics.md section 8); or low and high, +Inf and -Inf without rows. scale_term_count: how many those are of
  // rows [begin, end). Throws as put_rows.
  static int64_t scale_unit(const Parameter& p);
  std::vector<float> scale_terms(const Tensor& x) const;
  static int64_t scale_term_count(const Parameter& p, int64_t begin, int64_t end);
  // `terms`: those of all rows, in their order. Sets the scale that a fit to all rows would give.
  void join_scales(std::vector<float> terms);
  // Fits learned steps of `p` that carry no signal again, as Parameter::requantize does before it makes codes. Returns
  // of how many it has warned since the parameter was made; tell_refit is that warning, on ranks that did not fit them.
  static int64_t refit_learned(Parameter& p, int64_t step);
  static void tell_refit(const Parameter& p, int64_t refitted);
  // In place of put_rows, for rows whose codes another rank makes: their codes and scales, as bytes. share_rows comes
  // first; give_rows after put_rows of these rows; take_rows counts as put_rows and pack_rows. Rows as there; unless
  // scales are row-local or joined, one rank puts all of them. On the CPU only.
  void share_rows();
  int64_t row_bytes(int64_t begin, int64_t end) const;
  void give_rows(int64_t begin, int64_t end, std::byte* to) const;
  void take_rows(int64_t begin, int64_t end, const std::byte* from);
  // Why a device kernel that updates the values in the same sweep (kernels/update_rows.h) cannot write the codes of all
  // rows; empty if it can, provided that scales_are_row_local.
  static std::string not_swept(const Parameter& p);
  // Used instead of put_rows where not_swept is empty: the destinations that this kernel writes until finish, layouts
  // transposed and frag64 included. Errors as in put_rows, when errors are polled.
  kernels::RowCodes sweep();
  // Ends the pass: the parameter gets the new scales, and its layouts are written.
  void finish();

 private:
  friend class Parameter;
  Requantization(Parameter& parameter, const QuantSpec& spec, const RandomStream& draws,
                 std::shared_ptr<const QuantParams> given);
  std::function<void(const std::exception&)> names_parameter(int64_t begin) const;
  void put_codes(int64_t begin, const Tensor& x);
  bool attach_transposed(Tensor& codes) const;
  template <typename Use>
  void each_part(int64_t begin, int64_t end, const Use& use) const;
  void put_all(const Parameter::Rows& fill);

  Parameter& p_;
  const Quantizer& quantizer_;
  QuantSpec spec_;
  RandomStream draws_;
  std::shared_ptr<const QuantParams> given_;  // learned or frozen scales; nullptr: fit scales to the rows
  std::shared_ptr<QuantParams> params_ = std::make_shared<QuantParams>();
  std::mutex mutex_;                  // guards params_
  std::atomic<int64_t> rows_ = 0;     // that have their codes
  std::atomic<bool> packed_ = false;  // layouts packed by rows have been written
  bool summed_ = false;               // the sums of all rows were written with the codes
  bool finished_ = false;
  std::vector<Layout> written_;                   // layouts the device kernel wrote with the codes, for all rows
  std::shared_ptr<detail::KernelScales> scales_;  // the scales that kernel reads
};

}  // namespace bitgrad
