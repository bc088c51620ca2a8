// If the scales of a row depend on that row only, no fp32 copy of a whole bf16 master is made.
#include "bitgrad/nn/requantization.h"

#include <algorithm>
#include <utility>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/flag.h"
#include "nn/learned_parts.h"
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

const QuantSpec& spec_of_master(const Parameter& p, uint64_t seed) {
  require(p.low_bit() && p.has_master(), "requantize", "parameter '", p.path(), "' ", p.value(),
          " has no master to requantize");
  require(seed == p.seed(), "requantize", "the seed of '", p.path(), "': got ", seed, ", expected that of initialize, ",
          p.seed());
  return *p.spec().quant;
}

QuantSpec spec_without_master(const Parameter& p) {
  require(p.low_bit() && !p.has_master() && scales_are_row_local(p), "update", "parameter '", p.path(),
          "' has a master, or scales that span rows: update it with requantize");
  QuantSpec spec = *p.spec().quant;
  if (spec.dtype.kind() != DTypeKind::kSign) spec.rounding = Rounding::kStochastic;
  return spec;
}

}  // namespace

bool detail::scales_given(const Parameter& p) { return p.spec().scales_frozen && p.value().quant() != nullptr; }

bool scales_are_row_local(const Parameter& p) {
  const QuantSpec& quant = *p.spec().quant;
  return detail::scales_given(p) || !p.learned().empty() || find_quantizer(quant.scheme).constant_params(quant) ||
         detail::scales_within_rows(quant.granularity);
}

int64_t row_unit(const Parameter& p) {
  if (!p.low_bit()) return 1;
  const Granularity& g = p.spec().quant->granularity;
  return g.kind == Granularity::kGroup && g.axis == 0 ? g.group : 1;
}

Requantization::Requantization(Parameter& parameter, const QuantSpec& spec, const RandomStream& draws,
                               std::shared_ptr<const QuantParams> given)
    : p_(parameter), quantizer_(find_quantizer(spec.scheme)), spec_(spec), draws_(draws), given_(std::move(given)) {}

Requantization::Requantization(Parameter& parameter, uint64_t seed, int64_t step)
    : Requantization(parameter, spec_of_master(parameter, seed),
                     live_by_step({seed, Purpose::kRequantize, site_id(parameter.path()), static_cast<uint32_t>(step)}),
                     parameter.given_params(step)) {}

Requantization::Requantization(Parameter& parameter, const RandomStream& draws)
    : Requantization(parameter, spec_without_master(parameter), draws, parameter.given_params(0)) {}

// Turns NaN and Inf in new codes into an error that names the parameter. On a device it is thrown when errors are
// polled.
std::function<void(const std::exception&)> Requantization::names_parameter(int64_t begin) const {
  const int64_t step = step_now(draws_);
  const std::string text =
      p_.has_master()
          ? concat("[requantize] the master of '", p_.path(), "' (", p_.master(),
                   ") holds NaN or Inf at optimizer step ", step)
          : concat("[update] the new values of '", p_.path(), "' (", p_.value(), ", no master), rows from ", begin,
                   " on, hold NaN or Inf at optimizer step ", step, ". A smaller learning rate may help.");
  return [text](const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (error != nullptr && error->code() == ErrorCode::kNonFinite) throw Error(text, ErrorCode::kNonFinite);
  };
}

void Requantization::put_rows(int64_t begin, const Tensor& x) {
  const Shape& shape = p_.shape();
  require(!finished_ && x.dtype() == dtypes::fp32 && x.cols() == shape.cols() && begin >= 0 &&
              begin + x.rows() <= shape.rows(),
          "put_rows", "rows of '", p_.path(), "' ", p_.value(), " from ", begin, " on: got ", x,
          finished_ ? " after finish" : "");
  std::optional<ErrorContext> scope;
  if (!current_device().is_cpu()) scope.emplace(names_parameter(begin));
  try {
    put_codes(begin, x);
  } catch (const Error& e) {
    names_parameter(begin)(e);
    throw;
  }
  rows_ += x.rows();
}

// Attaches the buffer of layout transposed, which a device writes together with the codes. Returns whether there is
// one.
bool Requantization::attach_transposed(Tensor& codes) const {
  const Tensor& value = p_.value();
  if (value.device().is_cpu() || codes.shape() != value.shape()) return false;
  const Tensor transposed = value.in_layout(layouts::transposed);
  if (!transposed.defined()) return false;
  codes.attach_layout(transposed.without_quant());
  return true;
}

void Requantization::put_codes(int64_t begin, const Tensor& x) {
  Tensor& value = p_.memory_.value_;
  const int64_t rows = p_.shape().rows(), cols = p_.shape().cols(), end = begin + x.rows();
  Tensor codes = as_matrix(value.without_quant()).row_slice(begin, end), made;
  QuantizeOptions options;
  options.sr = &draws_;
  options.first_element = begin * cols;
  options.into = &codes;
  if (attach_transposed(codes)) {
    options.transposed = true;
    written_.push_back(layouts::transposed);
  }
  const bool whole = codes.shape() == value.shape();
  if (whole) {  // the value gets them when its codes are written
    codes.attach_row_sums(value.row_sums());
    row_sums_place(codes, true);
  }
  std::shared_ptr<const QuantParams> params;
  if (given_) {
    params = detail::params_of_rows(given_, cols, begin, end);
  } else {
    made = detail::quantize_fused_on_device(quantizer_, spec_, x, options);
    params = made.defined() ? made.quant() : std::make_shared<const QuantParams>(quantizer_.fit(spec_, x));
    const std::lock_guard lock(mutex_);
    put_params(*params, *params_, rows, cols, begin);
  }
  if (!made.defined()) made = quantize_tensor(spec_, x, params, options);
  if (whole && made.row_sums().defined()) {
    value.attach_row_sums(made.row_sums());
    summed_ = true;
  }
  if (p_.dequantized_.defined()) detail::dequantize_rows(made, as_matrix(p_.dequantized_).row_slice(begin, end));
}

void Requantization::finish() {
  const int64_t rows = p_.shape().rows();
  if (rows == 0) put_rows(0, Tensor::empty({0, p_.shape().cols()}, dtypes::fp32));
  ensure(!finished_ && rows_ == rows, "finish", "codes of parameter '", p_.path(), "': ", rows_.load(), " of ", rows,
         " rows", finished_ ? ", finished before" : "");
  finished_ = true;
  p_.memory_.set_params(given_ ? given_ : params_);
  if (!summed_) p_.memory_.value_.attach_row_sums({});
  p_.memory_.write_layouts([&](Layout layout) {
    return (packed_ && layout.rows() != nullptr) ||
           std::find(written_.begin(), written_.end(), layout) != written_.end();
  });
}

void Requantization::pack_rows(int64_t begin, int64_t end) {
  const Tensor& value = p_.value();
  if (!value.device().is_cpu()) return;  // a device packs the whole value in finish
  for (const Layout layout : p_.memory_.planned_)
    if (const RowPacking* rows = layout.rows()) {
      ensure(begin % rows->unit == 0, "pack_rows", "row ", begin, " of layout ", layout);
      rows->pack(value.dtype(), value.rows(), value.cols(), value.data(), value.stride(),
                 value.in_layout(layout).data(), begin, end);
    }
  packed_ = true;
}

// Calls put_rows for all rows, which `fill` provides; those of an fp32 master are used where they lie.
void Requantization::put_all(const Parameter::Rows& fill) {
  const int64_t rows = p_.shape().rows(), cols = p_.shape().cols(), unit = row_unit(p_),
                wanted = (kCodeBlock / std::max<int64_t>(cols, 1) + unit - 1) / unit * unit;
  const bool blocks = scales_are_row_local(p_) && p_.value().device().is_cpu();  // a device: all rows in one sweep
  const int64_t step = blocks ? std::max(wanted, unit) : std::max<int64_t>(rows, 1);
  parallel_for(std::max<int64_t>((rows + step - 1) / step, 1), [&](int64_t block) {
    const int64_t begin = block * step, end = std::min(begin + step, rows);
    const Tensor x = fill ? Tensor::empty({end - begin, cols}, dtypes::fp32, MemoryKind::kWorkspace)
                          : as_matrix(p_.master()).row_slice(begin, end);
    if (fill) fill(begin, x);
    put_rows(begin, x);
  });
  finish();
}

}  // namespace bitgrad
