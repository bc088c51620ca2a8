// Codes of parameters in blocks of rows. If the scales of a row depend on that row only, no fp32 copy of a whole bf16
// master is made.
#include <algorithm>
#include <cstring>
#include <utility>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/parameter.h"
#include "kernels/elementwise.h"
#include "kernels/flag.h"
#include "kernels/quantize.h"
#include "nn/requantization.h"
#include "nn/row_params.h"
#include "quant/values.h"

namespace bitgrad {

using detail::as_matrix;

namespace {

constexpr int64_t kCodeBlock = 32768;  // elements quantized at a time, at least one row

// Copies the scales of a block of rows into those of the whole, allocating parts that are missing.
void put_params(const QuantParams& part, QuantParams& full, int64_t rows, int64_t cols, int64_t begin) {
  const auto put = [&](const std::shared_ptr<const Tensor>& from, std::shared_ptr<const Tensor>& to) {
    if (!from) return;
    if (!to)
      to = std::make_shared<const Tensor>(
          Tensor::empty({scale_count(part.granularity, rows, cols)}, from->dtype(), MemoryKind::kQuantState));
    const int64_t first = detail::first_scale(part.granularity, cols, begin);
    to->column_slice(first, first + from->numel()).copy_from(*from);
  };
  full.scheme = part.scheme;
  full.granularity = part.granularity;
  put(part.scale, full.scale);
  put(part.zero, full.zero);
  put(part.offset, full.offset);
  put(part.statistic, full.statistic);
}

// Copies the values of `from` into the tensors of `to`. Returns false and copies nothing if their forms differ.
bool copy_params(const QuantParams& from, const std::shared_ptr<const QuantParams>& to) {
  if (!to || to.get() == &from) return to != nullptr;
  using Part = std::shared_ptr<const Tensor> QuantParams::*;
  constexpr Part kParts[] = {&QuantParams::scale, &QuantParams::zero, &QuantParams::offset, &QuantParams::statistic};
  bool same = from.scheme == to->scheme && from.granularity == to->granularity;
  for (const Part part : kParts)
    same = same && (from.*part == nullptr) == ((*to).*part == nullptr) &&
           (from.*part == nullptr || (from.*part)->shape() == ((*to).*part)->shape());
  if (!same) return false;
  for (const Part part : kParts)
    if (from.*part && from.*part != (*to).*part) ((*to).*part)->copy_from(*(from.*part));
  return true;
}

// Dequantizes codes into rows of fp32.
void write_values(const Tensor& codes, const Tensor& to) {
  kernels::DequantizeArgs args;
  args.rows = codes.rows();
  args.cols = args.ldy = codes.cols();
  args.dtype = codes.dtype();
  args.codes = codes.data();
  args.stride = codes.stride();
  args.scale = codes.scale_map();
  args.y = to.as<float>();
  if (codes.numel() > 0) kernels::dequantize(args);
}

}  // namespace

Tensor Parameter::value_rows(int64_t begin, int64_t end) const {
  const Tensor codes = as_matrix(value_.without_quant()).row_slice(begin, end);
  return codes.with_quant(detail::params_of_rows(value_.quant(), shape_->cols(), begin, end));
}

bool Parameter::scales_are_row_local() const {
  const QuantSpec& quant = *spec_.quant;
  return scales_given() || !learned_.empty() || quantizer_->constant_params(quant) ||
         detail::scales_within_rows(quant.granularity);
}

int64_t Parameter::row_unit() const {
  if (!low_bit()) return 1;
  const Granularity& g = spec_.quant->granularity;
  return g.kind == Granularity::kGroup && g.axis == 0 ? g.group : 1;
}

void Parameter::begin_codes(const QuantSpec& spec, const RandomStream& draws,
                            std::shared_ptr<const QuantParams> given) {
  next_ = std::make_shared<Requantization>();
  next_->spec = spec;
  next_->draws = draws;
  next_->given = std::move(given);
}

void Parameter::begin_requantize(uint64_t seed, int64_t step) {
  require(low_bit() && has_master(), "requantize", "parameter '", path_, "' ", value_, " has no master to requantize");
  require_ready("requantize");
  require(seed == seed_, "requantize", "the seed of '", path_, "': got ", seed, ", expected that of initialize, ",
          seed_);
  begin_codes(*spec_.quant, live_by_step({seed, Purpose::kRequantize, site_id(path_), static_cast<uint32_t>(step)}),
              given_params(step));
}

void Parameter::begin_masterless_codes(const RandomStream& draws) {
  require(low_bit() && !has_master() && scales_are_row_local(), "update", "parameter '", path_,
          "' has a master, or scales that span rows: update it with requantize");
  QuantSpec spec = *spec_.quant;
  if (spec.dtype.kind() != DTypeKind::kSign) spec.rounding = Rounding::kStochastic;
  begin_codes(spec, draws, given_params(0));
}

void Parameter::put_rows(int64_t begin, const Tensor& x) {
  const int64_t rows = shape_->rows(), cols = shape_->cols(), end = begin + x.rows();
  require(next_ != nullptr && x.dtype() == dtypes::fp32 && x.cols() == cols && begin >= 0 && end <= rows, "put_rows",
          "rows of '", path_, "' ", value_, " from ", begin, " on: got ", x, next_ ? "" : " without begin_requantize");
  std::optional<ErrorContext> scope;
  if (!current_device().is_cpu()) scope.emplace(detail::names_parameter(*this, begin, step_now(next_->draws)));
  try {
    put_codes(begin, x);
  } catch (const Error& e) {
    detail::names_parameter(*this, begin, step_now(next_->draws))(e);
    throw;
  }
}

// Attaches the buffer of layout transposed, which a device writes together with the codes. Returns whether there is
// one.
bool Parameter::attach_transposed(Tensor& codes) const {
  if (value_.device().is_cpu() || codes.shape() != value_.shape()) return false;
  const Tensor transposed = value_.in_layout(layouts::transposed);
  if (!transposed.defined()) return false;
  codes.attach_layout(transposed.without_quant());
  return true;
}

void Parameter::put_codes(int64_t begin, const Tensor& x) {
  const int64_t rows = shape_->rows(), cols = shape_->cols(), end = begin + x.rows();
  Tensor codes = as_matrix(value_.without_quant()).row_slice(begin, end), made;
  QuantizeOptions options;
  options.sr = &next_->draws;
  options.first_element = begin * cols;
  options.into = &codes;
  if (attach_transposed(codes)) {
    options.transposed = true;
    next_->written.push_back(layouts::transposed);
  }
  const bool whole = codes.shape() == value_.shape();
  if (whole) {  // value_ gets them when its codes are written
    codes.attach_row_sums(value_.row_sums());
    row_sums_place(codes, true);
  }
  std::shared_ptr<const QuantParams> params;
  if (next_->given) {
    params = detail::params_of_rows(next_->given, cols, begin, end);
  } else {
    made = detail::quantize_fused_on_device(*quantizer_, next_->spec, x, options);
    params = made.defined() ? made.quant() : std::make_shared<const QuantParams>(quantizer_->fit(next_->spec, x));
    const std::lock_guard lock(next_->mutex);
    put_params(*params, *next_->params, rows, cols, begin);
  }
  if (!made.defined()) made = quantize_tensor(next_->spec, x, params, options);
  if (whole && made.row_sums().defined()) {
    value_.attach_row_sums(made.row_sums());
    next_->summed = true;
  }
  if (dequantized_.defined()) write_values(made, as_matrix(dequantized_).row_slice(begin, end));
}

// New scales get memory of their own, so that tensors with the old codes keep the old ones; after
// keep_params_in_place(true) they overwrite them.
void Parameter::end_codes() {
  ensure(next_ != nullptr, "end_codes", "parameter '", path_, "' has no open requantization session");
  if (shape_->rows() == 0) put_rows(0, Tensor::empty({0, shape_->cols()}, dtypes::fp32));
  const std::shared_ptr<const QuantParams> made = next_->given ? next_->given : next_->params;
  if (!params_stay_ || !copy_params(*made, value_.quant())) value_ = value_.with_quant(made);
  const std::shared_ptr<Requantization> done = std::exchange(next_, nullptr);
  if (!done->summed) value_.attach_row_sums({});
  write_layouts([&](Layout layout) {
    return (done->packed && layout.rows() != nullptr) ||
           std::find(done->written.begin(), done->written.end(), layout) != done->written.end();
  });
}

void Parameter::pack_rows(int64_t begin, int64_t end) {
  ensure(next_ != nullptr, "pack_rows", "parameter '", path_, "' has no open requantization session");
  if (!value_.device().is_cpu()) return;  // a device packs the whole value in end_codes
  for (const Layout layout : planned_)
    if (const RowPacking* rows = layout.rows()) {
      ensure(begin % rows->unit == 0, "pack_rows", "row ", begin, " of layout ", layout);
      rows->pack(value_.dtype(), value_.rows(), value_.cols(), value_.data(), value_.stride(),
                 value_.in_layout(layout).data(), begin, end);
    }
  next_->packed = true;
}

// Rows to read or write values: a view of an fp32 master, or a copy.
Tensor Parameter::block_of_rows(int64_t begin, int64_t end, bool copies) const {
  if (copies) return Tensor::empty({end - begin, shape_->cols()}, dtypes::fp32, MemoryKind::kWorkspace);
  return as_matrix(master_).row_slice(begin, end);
}

// Calls put_rows for all rows; `numbers` fills the copies.
void Parameter::put_all(const Numbers& numbers, bool copies) {
  const int64_t rows = shape_->rows(), unit = row_unit(),
                wanted = (kCodeBlock / std::max<int64_t>(shape_->cols(), 1) + unit - 1) / unit * unit;
  const bool blocks = scales_are_row_local() && value_.device().is_cpu();  // a device handles all rows in one sweep
  const int64_t step = blocks ? std::max(wanted, unit) : std::max<int64_t>(rows, 1);
  parallel_for(std::max<int64_t>((rows + step - 1) / step, 1), [&](int64_t block) {
    const int64_t begin = block * step;
    const Tensor x = block_of_rows(begin, std::min(begin + step, rows), copies);
    numbers(begin, x);
    put_rows(begin, x);
  });
}

void Parameter::requantize(uint64_t seed, int64_t step) {
  if (!low_bit()) return;
  require_ready("requantize");
  if (!master_.defined()) return;
  refit_learned(step);
  begin_requantize(seed, step);
  const bool narrow = master_.dtype() != dtypes::fp32;
  put_all(
      [&](int64_t begin, const Tensor& x) {
        if (narrow) kernels::from_bf16(x.numel(), master_.as<uint16_t>() + begin * shape_->cols(), x.as<float>());
      },
      narrow);
  end_codes();
}

// Sets the value from fp32 values of all rows: in place if the parameter is fp32, otherwise as master, learned parts
// and codes, which are drawn for `step`.
void Parameter::requantize_from(const Numbers& numbers, int64_t step) {
  const int64_t rows = shape_->rows(), cols = shape_->cols();
  ready_ = true;
  if (!low_bit()) return numbers(0, as_matrix(value_));
  if (master_.defined()) {
    const int64_t rows_per_pass = master_.dtype() == dtypes::fp32 || !master_.device().is_cpu()
                                      ? std::max<int64_t>(rows, 1)
                                      : std::max(kCodeBlock / std::max<int64_t>(cols, 1), int64_t{1});
    for (int64_t begin = 0; begin < rows; begin += rows_per_pass) {
      const Tensor part = as_matrix(master_).row_slice(begin, std::min(begin + rows_per_pass, rows));
      if (master_.dtype() == dtypes::fp32) {
        numbers(begin, part);
        continue;
      }
      const Tensor x = Tensor::empty(part.shape(), dtypes::fp32, MemoryKind::kWorkspace);
      numbers(begin, x);
      kernels::to_bf16(x.numel(), x.as<float>(), part.as<uint16_t>());
    }
  }
  if (!learned_.empty()) {
    Tensor x = master_;
    if (!x.defined() || x.dtype() != dtypes::fp32) {
      x = Tensor::empty(*shape_, dtypes::fp32, MemoryKind::kWorkspace);
      if (master_.defined())
        kernels::from_bf16(x.numel(), master_.as<uint16_t>(), x.as<float>());
      else
        numbers(0, as_matrix(x));
    }
    make_learned(x);
  }
  if (master_.defined()) return requantize(seed_, step);
  begin_codes(*spec_.quant, {seed_, Purpose::kRequantize, site_id(path_), static_cast<uint32_t>(step)},
              learned_params(step));
  put_all(numbers, /*copies=*/true);
  end_codes();
}

}  // namespace bitgrad
