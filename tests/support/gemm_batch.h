// A batch of products with its own memory, for kernels of every device: members of A, B and C at random steps, and each
// member as a single product, addressed by the test's own arithmetic.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/dtype/codec.h"
#include "kernels/gemm_float_problem.h"

namespace bitgrad::test {

struct BatchPair {
  DType a, b;
  bool a_k_major = false, b_k_major = false;
};

// Codes of B along k that share a scale, if its parameters are "groups" (stored [free, k]).
inline constexpr int64_t kBatchGroup = 32;

// One side: `count` matrices of free x k in a layout, `step` bytes apart.
class BatchSide {
 public:
  BatchSide(std::mt19937& rng, DType dtype, bool k_major, Layout layout, int64_t free, int64_t k, int64_t count,
            const std::string& parameters, int64_t unit) {
    const auto round_up = [unit](int64_t bytes) { return (bytes + unit - 1) / unit * unit; };
    const int64_t rows = k_major ? k : free, cols = k_major ? free : k;
    for (int64_t i = 0; i < count; ++i) {
      StoredMatrix m(dtype, rows, cols, rng);
      if (i == 0) stride_ = round_up(m.stride);
      std::vector<uint64_t> words;
      repack(m, layout, words);
      if (i == 0) step_ = round_up(static_cast<int64_t>(words.size()) * 8) + unit * static_cast<int64_t>(rng() % 3);
      words.resize(static_cast<size_t>(step_ / 8), 0x5A5A5A5A5A5A5A5Au);
      words_.insert(words_.end(), words.begin(), words.end());
      if (parameters.empty()) continue;
      if (parameters == "groups")
        m.add_parameters("scale", 1, (k + kBatchGroup - 1) / kBatchGroup, kBatchGroup, 1, rng);
      else
        m.add_parameters(parameters, 1, k_major ? 0 : 1, 1, k_major ? 1 : 0, rng);
      if (i == 0) map_ = m.map, scale_step_ = static_cast<int64_t>(m.scale.size());
      scale_.insert(scale_.end(), m.scale.begin(), m.scale.end());
      zero_.insert(zero_.end(), m.zero.begin(), m.zero.end());
      offset_.insert(offset_.end(), m.offset.begin(), m.offset.end());
    }
    operand_ = {words_.data(), dtype, layout, stride_, k_major, {}};
    if (parameters.empty()) return;
    operand_.scale = map_;
    operand_.scale.scale = scale_.data();
    operand_.scale.zero = map_.zero == nullptr ? nullptr : zero_.data();
    operand_.scale.offset = map_.offset == nullptr ? nullptr : offset_.data();
  }
  BatchSide(const BatchSide&) = delete;
  BatchSide& operator=(const BatchSide&) = delete;

  const kernels::GemmOperand& operand() const { return operand_; }
  int64_t step() const { return step_; }
  int64_t scale_step() const { return scale_step_; }
  int64_t bytes() const { return static_cast<int64_t>(words_.size()) * 8; }
  int64_t parameters() const { return static_cast<int64_t>(scale_.size()); }
  // Operand `i`, given the operand at `first`.
  kernels::GemmOperand member(kernels::GemmOperand first, int64_t i) const {
    first.data = static_cast<const uint8_t*>(first.data) + i * step_;
    if (first.scale.scale != nullptr) first.scale.scale += i * scale_step_;
    if (first.scale.zero != nullptr) first.scale.zero += i * scale_step_;
    if (first.scale.offset != nullptr) first.scale.offset += i * scale_step_;
    return first;
  }

 private:
  // Stores the matrix in `layout` as whole words, with the strides of the first member.
  void repack(const StoredMatrix& m, Layout layout, std::vector<uint64_t>& words) const {
    std::vector<uint64_t> canonical(static_cast<size_t>(m.rows * stride_ / 8 + 2), 0);
    const auto row_bytes = static_cast<size_t>(row_bytes_memory(m.dtype, m.cols));
    for (int64_t r = 0; r < m.rows; ++r)
      std::memcpy(reinterpret_cast<uint8_t*>(canonical.data()) + r * stride_, m.bytes.data() + r * m.stride, row_bytes);
    if (layout == layouts::canonical) {
      words = std::move(canonical);
      return;
    }
    const LayoutInfo& info = layout.info();
    words.assign(static_cast<size_t>(info.bytes(m.dtype, m.rows, m.cols) / 8 + 1), 0);
    info.pack(m.dtype, m.rows, m.cols, canonical.data(), stride_, words.data());
  }

  int64_t stride_ = 0, step_ = 0, scale_step_ = 0;
  std::vector<uint64_t> words_;
  std::vector<float> scale_, offset_;
  std::vector<int32_t> zero_;
  ScaleMap map_;
  kernels::GemmOperand operand_;
};

// What is requested of a kernel; the same for all members.
struct BatchForm {
  BatchPair pair;
  int64_t m = 0, n = 0, k = 0, count = 0;
  DType c_dtype = dtypes::fp32;
  std::string a_parameters = {}, b_parameters = {};
  bool bias = false, row_minus = false, accumulate = false, stochastic = false, fold = false;
  bool beside = false;  // members of C side by side, as attention heads are
  bool shared_b = false;
  int64_t unit = 8;  // strides and steps of A and B are multiples of this number of bytes
};

// Arguments without memory, for queries of `supports`.
inline kernels::GemmArgs form_args(const BatchForm& form) {
  static const float kUnread = 1;
  static const int32_t kZero = 0;
  static const int64_t kMinus = 0;
  static const RandomStream kStream{};
  const auto operand = [](DType dtype, bool k_major, int64_t free, int64_t k, const std::string& parameters) {
    kernels::GemmOperand x;
    x.dtype = dtype;
    x.k_major = k_major;
    x.stride = row_bytes_memory(dtype, k_major ? free : k);
    if (parameters.empty()) return x;
    x.scale.scale = &kUnread;
    if (parameters == "zero") x.scale.zero = &kZero;
    if (parameters == "offset") x.scale.offset = &kUnread;
    (k_major ? x.scale.col_step : x.scale.row_step) = 1;
    if (parameters != "groups") return x;
    x.scale.row_step = (k + kBatchGroup - 1) / kBatchGroup;
    x.scale.col_step = 1;
    x.scale.col_group = kBatchGroup;
    return x;
  };
  kernels::GemmArgs args;
  args.m = form.m, args.n = args.ldc = form.n, args.k = form.k;
  args.a = operand(form.pair.a, form.pair.a_k_major, form.m, form.k, form.a_parameters);
  args.b = operand(form.pair.b, form.pair.b_k_major, form.n, form.k, form.b_parameters);
  args.c_dtype = form.c_dtype;
  args.bias = form.bias ? &kUnread : nullptr;
  args.row_minus = form.row_minus ? &kMinus : nullptr;
  args.accumulate = form.accumulate;
  args.fold_b_scale = form.fold;
  args.sr = form.stochastic ? &kStream : nullptr;
  return args;
}

class BatchProblem {
 public:
  BatchProblem(std::mt19937& rng, const BatchForm& form, Layout a_layout, Layout b_layout)
      : form_(form),
        a(rng, form.pair.a, form.pair.a_k_major, a_layout, form.m, form.k, held(form), form.a_parameters, form.unit),
        b(rng, form.pair.b, form.pair.b_k_major, b_layout, form.n, form.k, form.shared_b ? 1 : held(form),
          form.b_parameters, form.unit) {
    const int64_t gap = static_cast<int64_t>(rng() % 4);
    c_step = form.beside ? form.n + gap : form.m * (form.n + gap) + gap;
    ldc = form.beside ? held(form) * c_step : form.n + gap;
    const int64_t elements = held(form) * c_step + form.m * ldc + 8;
    c_before.resize(static_cast<size_t>(elements * (form.c_dtype.bits() / 8)));
    for (uint8_t& byte : c_before) byte = static_cast<uint8_t>(0x30 + (rng() & 15));
    for (int64_t i = 0; i < held(form) * (form.n + 1); ++i) bias.push_back(static_cast<float>(rng() % 2000) / 512 - 2);
    for (int64_t i = 0; i < held(form) * (form.m + 2); ++i) minus.push_back(static_cast<int64_t>(rng() % 2001) - 1000);
    first_element = static_cast<int64_t>(rng() % 5000);
  }

  // Arguments of the whole batch, reading from the given addresses.
  kernels::GemmArgs args(const kernels::GemmOperand& at_a, const kernels::GemmOperand& at_b, const float* at_bias,
                         const int64_t* at_minus, void* c) const {
    kernels::GemmArgs out;
    out.m = form_.m, out.n = form_.n, out.k = form_.k;
    out.a = at_a, out.b = at_b;
    out.c = c, out.c_dtype = form_.c_dtype, out.ldc = ldc;
    out.bias = form_.bias ? at_bias : nullptr;
    out.row_minus = form_.row_minus ? at_minus : nullptr;
    out.accumulate = form_.accumulate;
    out.fold_b_scale = form_.fold;
    out.sr = form_.stochastic ? &stream : nullptr;
    out.first_element = first_element;
    out.batch = {form_.count, a.step(),       form_.shared_b ? 0 : b.step(),
                 c_step,      a.scale_step(), form_.shared_b ? 0 : b.scale_step(),
                 form_.n + 1, form_.m + 2};
    return out;
  }
  // Member i of those arguments.
  kernels::GemmArgs member(const kernels::GemmArgs& full, int64_t i) const {
    kernels::GemmArgs out = full;
    out.batch = {};
    out.a = a.member(full.a, i);
    if (!form_.shared_b) out.b = b.member(full.b, i);
    out.c = static_cast<uint8_t*>(full.c) + i * c_step * (form_.c_dtype.bits() / 8);
    if (form_.bias) out.bias = full.bias + i * (form_.n + 1);
    if (form_.row_minus) out.row_minus = full.row_minus + i * (form_.m + 2);
    out.first_element = first_element + i * form_.m * form_.n;
    return out;
  }
  kernels::GemmArgs host_args(void* c) const { return args(a.operand(), b.operand(), bias.data(), minus.data(), c); }

  // The bytes of C after `run` on the whole batch, and after `run` on each member.
  template <typename Run>
  std::vector<uint8_t> as_batch(Run&& run) const {
    std::vector<uint8_t> c = c_before;
    run(host_args(c.data()));
    return c;
  }
  template <typename Run>
  std::vector<uint8_t> one_by_one(Run&& run) const {
    std::vector<uint8_t> c = c_before;
    const kernels::GemmArgs full = host_args(c.data());
    for (int64_t i = 0; i < form_.count; ++i) run(member(full, i));
    return c;
  }

 private:
  static int64_t held(const BatchForm& form) { return std::max<int64_t>(1, form.count); }
  BatchForm form_;

 public:
  BatchSide a, b;
  int64_t c_step = 0, ldc = 0, first_element = 0;
  std::vector<uint8_t> c_before;
  std::vector<float> bias;
  std::vector<int64_t> minus;
  RandomStream stream{5, Purpose::kGradAccumulate, 8, 2};
};

// Pairs of dtypes and storage orders that together reach every kernel of the tables.
inline std::vector<BatchPair> batch_pairs() {
  using namespace dtypes;
  return {{bint1, bint1},
          {ternary, bint1},
          {ternary, ternary},
          {int2, bint1},
          {uint2, bint1},
          {int8, bint1},
          {int8, int2},
          {int8, int4},
          {uint8, int8},
          {int8, int8},
          {int4, int4},
          {int32, int8},
          {int8, int8, true, true},
          {int8, ternary, false, true},
          {int8, bint1, true, true},
          {int8, int4, false, true},
          {fp32, fp32},
          {fp32, fp32, true, true},
          {fp32, fp32, false, true},
          {fp32, int4},
          {fp32, bint1},
          {fp32, int8},
          {fp32, nf4, false, true},
          {fp32, ternary, true, true},
          {bf16, bf16},
          {bf16, bint1},
          {bf16, int8},
          {fp64, fp64}};
}

// Random shapes at edges, outputs and parameters for a pair.
inline BatchForm random_form(std::mt19937& rng, const BatchPair& pair, int64_t count) {
  constexpr int64_t kFree[] = {1, 2, 5, 8, 16, 17, 31, 33, 64, 65}, kDeep[] = {1, 7, 32, 63, 64, 65, 130, 513};
  const auto draw = [&](uint32_t of) { return rng() % of == 0; };
  BatchForm form;
  form.pair = pair;
  form.m = kFree[rng() % 10], form.n = kFree[rng() % 10], form.k = kDeep[rng() % 8], form.count = count;
  const bool codes = pair.a.is_code() && pair.b.is_code(), wide = pair.a == dtypes::fp64 || pair.b == dtypes::fp64;
  constexpr DType kOut[] = {dtypes::fp32, dtypes::fp32, dtypes::bf16, dtypes::int32, dtypes::int64};
  form.c_dtype = wide ? dtypes::fp64 : kOut[rng() % (codes ? 5 : 3)];
  form.beside = draw(2);
  form.shared_b = draw(3);
  if (form.c_dtype == dtypes::int32 || form.c_dtype == dtypes::int64) return form;
  form.accumulate = draw(3);
  if (wide) return form;
  form.bias = draw(2);
  form.stochastic = draw(2);
  if (codes && draw(2)) form.a_parameters = draw(2) ? "zero" : "scale";
  if (pair.b.is_code() && draw(2)) form.b_parameters = draw(3) ? "offset" : draw(2) ? "zero" : "scale";
  if (pair.b.is_code() && !pair.b_k_major && draw(4)) form.b_parameters = "groups";
  form.row_minus = codes && form.b_parameters != "offset" && form.b_parameters != "groups" && draw(3);
  form.fold = !codes && form.b_parameters == "scale" && draw(2);
  return form;
}

}  // namespace bitgrad::test
