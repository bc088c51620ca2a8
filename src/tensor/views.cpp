// Row and column views, transposition, and reading elements of a tensor.
#include <algorithm>
#include <numeric>
#include <ostream>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {
namespace {

// Elements [begin * width, end * width) of a flat tensor, as a view.
Tensor cut_rows(const Tensor& flat, int64_t width, int64_t begin, int64_t end) {
  if (flat.numel() == 0) return flat;
  const Tensor part = flat.reshape({flat.numel() / width, width}).row_slice(begin, end);
  return part.reshape({part.numel()});
}

// The flat tensor of scales, sliced to rows (or columns) [begin, end) of a [rows, cols] matrix.
std::shared_ptr<const Tensor> cut_scales(const std::shared_ptr<const Tensor>& scales, const Granularity& g,
                                         int64_t rows, int64_t cols, bool along_rows, int64_t begin, int64_t end) {
  if (!scales || g.kind == Granularity::kTensor) return scales;
  const bool by_row = g.per_row();
  const bool by_column = g.kind == Granularity::kChannel && g.axis != 0;
  if ((by_row && !along_rows) || (by_column && along_rows)) return scales;
  if (by_row || by_column) return std::make_shared<const Tensor>(cut_rows(*scales, 1, begin, end));
  const int64_t groups_down = g.axis == 0 ? (rows + g.group - 1) / g.group : rows;
  const int64_t groups_across = g.axis == 0 ? cols : (cols + g.group - 1) / g.group;
  const int64_t unit = ((g.axis == 0) == along_rows) ? g.group : 1;
  const int64_t first = begin / unit, last = begin == end ? first : (end + unit - 1) / unit;
  if (along_rows) return std::make_shared<const Tensor>(cut_rows(*scales, groups_across, first, last));
  const Tensor part = scales->reshape({groups_down, groups_across}).column_slice(first, last);
  return std::make_shared<const Tensor>(part.clone(MemoryKind::kQuantState).reshape({part.numel()}));
}

std::shared_ptr<const QuantParams> cut_params(const Tensor& t, bool along_rows, int64_t begin, int64_t end) {
  if (!t.quant()) return nullptr;
  QuantParams p = *t.quant();
  const int64_t rows = t.rows(), cols = t.cols();
  p.scale = cut_scales(p.scale, p.granularity, rows, cols, along_rows, begin, end);
  p.statistic = cut_scales(p.statistic, p.granularity, rows, cols, along_rows, begin, end);
  p.zero = cut_scales(p.zero, p.granularity, rows, cols, along_rows, begin, end);
  p.offset = cut_scales(p.offset, p.granularity, rows, cols, along_rows, begin, end);
  return std::make_shared<const QuantParams>(std::move(p));
}

}  // namespace

Tensor Tensor::row_slice(int64_t begin, int64_t end) const {
  require(layout_ == layouts::canonical, "row_slice", "needs canonical codes, got layout ", layout_);
  require(shape_.rank() >= 1 && begin >= 0 && begin <= end && end <= shape_[0], "row_slice", "rows [", begin, ", ", end,
          ") of ", *this);
  std::vector<int64_t> dims = shape_.dims();
  if (dims.size() == 1) return column_slice(begin, end);
  const int64_t inner = dims[0] == 0 ? 0 : rows() / dims[0];
  dims[0] = end - begin;
  if (quant_ && quant_->granularity.kind == Granularity::kGroup && quant_->granularity.axis == 0)
    require(begin == end || (begin * inner % quant_->granularity.group == 0 &&
                             (end * inner % quant_->granularity.group == 0 || end * inner == rows())),
            "row_slice", "rows [", begin, ", ", end, ") cut a group of ", quant_->granularity.group, " rows of ",
            *this);
  Tensor t = *this;
  t.shape_ = Shape(dims);
  t.offset_ += begin * inner * stride_;
  t.quant_ = cut_params(*this, true, begin * inner, end * inner);
  t.derived_ = nullptr;
  return t;
}

Tensor Tensor::column_slice(int64_t begin, int64_t end) const {
  require(layout_ == layouts::canonical, "column_slice", "needs canonical codes, got layout ", layout_);
  require(shape_.rank() >= 1 && begin >= 0 && begin <= end && end <= cols(), "column_slice", "columns [", begin, ", ",
          end, ") of ", *this);
  const bool grouped = quant_ && quant_->granularity.kind == Granularity::kGroup && quant_->granularity.axis != 0;
  if (dtype_.is_code() || grouped) {
    const int64_t unit = std::lcm(grouped ? quant_->granularity.group : int64_t{1}, int64_t{dtype_.is_code() ? 64 : 1});
    require(begin == end || (begin % unit == 0 && (end % unit == 0 || end == cols())), "column_slice", "columns [",
            begin, ", ", end, ") of ", *this, " must start and end at multiples of ", unit,
            " (or at the edge): the axis is packed");
  }
  std::vector<int64_t> dims = shape_.dims();
  dims.back() = end - begin;
  Tensor t = *this;
  t.shape_ = Shape(dims);
  t.offset_ += begin * dtype_.bits() / 8;
  if (rows() == 1) t.stride_ = row_bytes_memory(dtype_, end - begin);  // a single row can be dense
  t.quant_ = cut_params(*this, false, begin, end);
  t.derived_ = nullptr;
  return t;
}

std::vector<double> Tensor::elements() const {
  if (!defined()) return {};
  if (!device().is_cpu()) return without_quant().on_host().elements();
  if (layout_ != layouts::canonical) {
    Tensor t = empty(shape_, dtype_, MemoryKind::kActivation, Device::cpu());
    layout_.info().unpack(dtype_, rows(), cols(), data(), t.data(), t.stride());
    return t.elements();
  }
  std::vector<double> out(static_cast<size_t>(numel()));
  for (int64_t r = 0; r < rows(); ++r)
    unpack_row(dtype_, static_cast<const char*>(data()) + r * stride_, 0, cols(), out.data() + r * cols());
  return out;
}

namespace {

// The value of element v at row r, column c, by the fp32 arithmetic of docs/numerics.md section 2.
double scaled(const ScaleMap& map, int64_t r, int64_t c, double v) {
  const int64_t i = map.index(r, c);
  float f = static_cast<float>(v);
  if (map.zero) f = f - static_cast<float>(map.zero[i]);
  if (map.scale) f = f * map.scale[i];
  if (map.offset) f = f + map.offset[i];
  return static_cast<double>(f);
}

}  // namespace

std::vector<double> Tensor::values() const {
  if (!device().is_cpu()) return on_host().values();
  std::vector<double> out = elements();
  if (!quant_) return out;
  const ScaleMap map = scale_map();
  for (int64_t r = 0; r < rows(); ++r)
    for (int64_t c = 0; c < cols(); ++c) {
      double& v = out[static_cast<size_t>(r * cols() + c)];
      v = scaled(map, r, c, v);
    }
  return out;
}

std::vector<float> Tensor::to_vector() const {
  if (!defined()) return {};
  if (dtype_ == dtypes::fp32 && !quant_ && device().is_cpu() && contiguous())
    return {as<float>(), as<float>() + numel()};
  const std::vector<double> all = values();
  std::vector<float> out(all.size());
  std::transform(all.begin(), all.end(), out.begin(), [](double v) { return static_cast<float>(v); });
  return out;
}

float Tensor::at(std::initializer_list<int64_t> index) const {
  require(defined(), "Tensor::at", "the tensor is undefined");
  if (!device().is_cpu()) return on_host().at(index);
  require(layout_ == layouts::canonical, "Tensor::at", "needs canonical codes, got layout ", layout_);
  require(static_cast<int64_t>(index.size()) == shape_.rank(), "Tensor::at", "got ", index.size(), " indices for ",
          *this, ", expected ", shape_.rank(), ": one an axis");
  int64_t flat = 0, axis = 0;
  for (const int64_t i : index) {
    const int64_t size = shape_[axis], at = i < 0 ? i + size : i;
    require(at >= 0 && at < size, "Tensor::at", "index ", i, " of axis ", axis, " of ", *this, ": expected ", -size,
            " .. ", size - 1);
    flat = flat * size + at;
    ++axis;
  }
  const int64_t r = flat / cols(), c = flat % cols();
  double number = 0;
  unpack_row(dtype_, static_cast<const char*>(data()) + r * stride_, c, 1, &number);
  return static_cast<float>(quant_ ? scaled(scale_map(), r, c, number) : number);
}

double Tensor::item() const {
  require(numel() == 1, "Tensor::item", "needs one element, got ", *this);
  return values()[0];
}

namespace {

// Formats 26624 as 26,624.
std::string grouped_digits(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace

std::string Tensor::describe() const {
  if (!defined()) return "Tensor undefined";
  std::string out = concat("Tensor ", shape_, ' ', dtype_, ", ");
  if (quant_) out += concat(quant_->scheme, " per ", quant_->granularity, ", ");
  out += concat(layout_, ", ", grouped_digits(bytes()), " bytes");
  if (quant_ && quant_->bytes() > 0) out += concat(" + ", grouped_digits(quant_->bytes()), " of scales");
  for (const Tensor& t : attached_layouts()) out += concat(" + ", grouped_digits(t.bytes()), " as ", t.layout());
  return out;
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t.defined()) return out << "undefined";
  return out << t.shape() << ' ' << t.dtype();
}

Tensor transpose(const Tensor& m, MemoryKind kind) {
  require(m.shape().rank() == 2, "transpose", "needs a matrix, got ", m);
  require(m.layout() == layouts::canonical, "transpose", "needs canonical codes, got layout ", m.layout());
  const DeviceGuard guard(m.device());
  Tensor t = Tensor::empty({m.cols(), m.rows()}, m.dtype(), kind);
  if (m.device().is_cpu()) {
    std::vector<uint8_t> buffer(static_cast<size_t>(layouts::transposed.info().bytes(m.dtype(), m.rows(), m.cols())));
    layouts::transposed.info().pack(m.dtype(), m.rows(), m.cols(), m.data(), m.stride(), buffer.data());
    std::copy(buffer.begin(), buffer.begin() + t.bytes(), static_cast<uint8_t*>(t.data()));
  } else {
    transpose_on_device({m.dtype().bits(), m.rows(), m.cols(), m.data(), m.stride(), t.data(), t.stride()});
  }
  if (!m.quant()) return t;
  QuantParams p = *m.quant();
  switch (p.granularity.kind) {
    case Granularity::kTensor:
      break;
    case Granularity::kToken:
      p.granularity = Granularity::channel(1);
      break;
    case Granularity::kChannel:
      p.granularity.axis = p.granularity.axis == 0 ? 1 : 0;
      break;
    case Granularity::kGroup: {
      const auto transposed_scales = [&](const std::shared_ptr<const Tensor>& s) -> std::shared_ptr<const Tensor> {
        if (!s) return s;
        const int64_t down =
            p.granularity.axis == 0 ? (m.rows() + p.granularity.group - 1) / p.granularity.group : m.rows();
        return std::make_shared<const Tensor>(
            transpose(s->reshape({down, down ? s->numel() / down : 0}), MemoryKind::kQuantState).reshape({s->numel()}));
      };
      p.scale = transposed_scales(p.scale);
      p.zero = transposed_scales(p.zero);
      p.offset = transposed_scales(p.offset);
      p.statistic = transposed_scales(p.statistic);
      p.granularity.axis = p.granularity.axis == 0 ? 1 : 0;
    }
  }
  return t.with_quant(std::make_shared<const QuantParams>(std::move(p)));
}

}  // namespace bitgrad
