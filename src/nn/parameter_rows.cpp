// Parameters in blocks of rows: no master, or one that must be widened first. No fp32 copy of the whole is made where
// the scales of a row follow from that row.
#include <algorithm>
#include <cstring>

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/nn/parameter.h"
#include "nn/row_params.h"

namespace bitgrad {

using detail::as_matrix;

namespace {

constexpr int64_t kBlock = 65536;  // numbers that are widened at a time, at least one row

// The scales of a block of rows become those of the whole. Parts that the whole lacks are made.
void put_params(const QuantParams& part, QuantParams& whole, int64_t rows, int64_t cols, int64_t begin) {
  const auto put = [&](const std::shared_ptr<const Tensor>& from, std::shared_ptr<const Tensor>& to) {
    if (!from) return;
    if (!to)
      to = std::make_shared<const Tensor>(
          Tensor::empty({scale_count(part.granularity, rows, cols)}, from->dtype(), MemoryKind::kQuantState));
    const int64_t first = detail::first_scale(part.granularity, cols, begin);
    to->column_slice(first, first + from->numel()).copy_from(*from);
  };
  whole.scheme = part.scheme;
  whole.granularity = part.granularity;
  put(part.scale, whole.scale);
  put(part.zero, whole.zero);
  put(part.offset, whole.offset);
  put(part.statistic, whole.statistic);
}

}  // namespace

Tensor Parameter::value_rows(int64_t begin, int64_t end) const {
  const Tensor codes = as_matrix(value_.without_quant()).row_slice(begin, end);
  return codes.with_quant(detail::params_of_rows(value_.quant(), shape_.cols(), begin, end));
}

bool Parameter::rows_are_apart() const {
  const QuantSpec& quant = *spec_.quant;
  return !learned_.empty() || quantizer_->constant_params(quant) || detail::scales_within_rows(quant.granularity);
}

void Parameter::put_rows(const QuantSpec& spec, int64_t begin, const Tensor& x, const RandomStream& draws) {
  const int64_t rows = shape_.rows(), cols = shape_.cols(), end = begin + x.rows();
  std::shared_ptr<const QuantParams> params;
  if (learned_.empty()) {
    params = std::make_shared<const QuantParams>(quantizer_->fit(spec, x));
    auto whole = std::make_shared<QuantParams>(value_.quant() ? *value_.quant() : QuantParams{});
    put_params(*params, *whole, rows, cols, begin);
    value_ = value_.with_quant(std::move(whole));
  } else {
    params = detail::params_of_rows(value_.quant(), cols, begin, end);
  }
  Tensor codes = as_matrix(value_.without_quant()).row_slice(begin, end);
  QuantizeOptions options;
  options.sr = &draws;
  options.first_element = begin * cols;
  options.into = &codes;
  quantize_tensor(spec, x, params, options);
}

void Parameter::quantize_all(const Numbers& numbers, const RandomStream& draws,
                             std::shared_ptr<const QuantParams> learned) {
  const int64_t rows = shape_.rows(), cols = shape_.cols();
  // Tensors that hold the old codes keep the old scales.
  value_ = value_.with_quant(std::move(learned));
  const int64_t step = rows_are_apart() ? std::max(kBlock / std::max<int64_t>(cols, 1), int64_t{1}) : rows;
  for (int64_t begin = 0; begin == 0 || begin < rows; begin += step) {
    const Tensor x = Tensor::empty({std::min(step, rows - begin), cols}, dtypes::fp32, MemoryKind::kWorkspace);
    numbers(begin, x);
    put_rows(*spec_.quant, begin, x, draws);
    if (rows == 0) break;
  }
}

void Parameter::draw_values() {
  const auto drawn = [&](int64_t begin, const Tensor& x) {
    initialize_part(spec_.init, seed_, path_, shape_, begin * shape_.cols(), x);
  };
  const int64_t rows = shape_.rows(), cols = shape_.cols();
  if (master_.defined()) {
    const int64_t step =
        master_.dtype() == dtypes::fp32 ? rows : std::max(kBlock / std::max<int64_t>(cols, 1), int64_t{1});
    for (int64_t begin = 0; begin < rows; begin += step) {
      const Tensor part = as_matrix(master_).row_slice(begin, std::min(begin + step, rows));
      if (master_.dtype() == dtypes::fp32) {
        drawn(begin, part);
        continue;
      }
      const Tensor x = Tensor::empty(part.shape(), dtypes::fp32, MemoryKind::kWorkspace);
      drawn(begin, x);
      to_bf16(x.numel(), x.as<float>(), part.as<uint16_t>());
    }
  }
  if (!learned_.empty()) {
    Tensor x = master_;
    if (!x.defined() || x.dtype() != dtypes::fp32) {
      x = Tensor::empty(shape_, dtypes::fp32, MemoryKind::kWorkspace);
      if (master_.defined())
        from_bf16(x.numel(), master_.as<uint16_t>(), x.as<float>());
      else
        drawn(0, x);
    }
    make_learned(x);
  }
  if (master_.defined()) return requantize(seed_, 0);
  quantize_all(drawn, {seed_, Purpose::kRequantize, site_id(path_), 0}, learned_params(0));
  write_layouts();
}

void Parameter::write_rows(int64_t begin, const Tensor& x, const RandomStream& draws) {
  require(low_bit() && !has_master() && rows_are_apart(), "write_rows", "parameter '", path_,
          "' has a master, or scales that span rows: its codes are made by requantize");
  require(x.dtype() == dtypes::fp32 && x.cols() == shape_.cols() && begin >= 0 && begin + x.rows() <= shape_.rows(),
          "write_rows", "rows of '", path_, "' ", value_, " from ", begin, " on: got ", x);
  QuantSpec spec = *spec_.quant;
  if (spec.dtype.kind() != DTypeKind::kSign) spec.rounding = Rounding::kStochastic;
  try {
    put_rows(spec, begin, as_matrix(x), draws);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNonFinite) throw;
    fail_with(ErrorCode::kNonFinite, "update", "the new numbers of '", path_, "' (", value_, ", no master), rows from ",
              begin, " on, hold NaN or Inf at optimizer step ", draws.step, ". A smaller learning rate may help.");
  }
}

}  // namespace bitgrad
