#include "bitgrad/tensor/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <ostream>
#include <utility>

#include "bitgrad/dtype/codec.h"
#include "tensor/narrow.h"

namespace bitgrad {
namespace {

// Whether T is the element type of dtype d.
template <typename T>
bool holds(DType d);
template <>
bool holds<float>(DType d) {
  return d == dtypes::fp32;
}
template <>
bool holds<double>(DType d) {
  return d == dtypes::fp64;
}
template <>
bool holds<int32_t>(DType d) {
  return d == dtypes::int32;
}
template <>
bool holds<int64_t>(DType d) {
  return d == dtypes::int64;
}
template <>
bool holds<uint16_t>(DType d) {
  return d == dtypes::bf16 || d == dtypes::fp16;
}
template <>
bool holds<int8_t>(DType d) {
  return d.bits() == 8;
}
template <>
bool holds<uint8_t>(DType d) {
  return d.bits() == 8;
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, MemoryKind kind, Device device) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.stride_ = row_bytes_memory(dtype, shape.cols());
  t.storage_ = Storage(t.stride_ * shape.rows(), kind, device);
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, MemoryKind kind, Device device) {
  Tensor t = empty(shape, dtype, kind, device);
  const DeviceGuard guard(device);
  device_backend(device).fill_zero(t.data(), t.storage_.bytes());
  return t;
}

Tensor Tensor::from(std::span<const float> values, const Shape& shape, DType dtype, MemoryKind kind) {
  require(static_cast<int64_t>(values.size()) == shape.numel(), "Tensor::from", "shape ", shape, " needs ",
          shape.numel(), " values, got ", values.size());
  const Device device = current_device();
  const Tensor t = zeros(shape, dtype, device.is_cpu() ? kind : MemoryKind::kWorkspace, Device::cpu());
  if (dtype == dtypes::fp32) {
    std::copy(values.begin(), values.end(), t.as<float>());
  } else {
    std::vector<double> row(static_cast<size_t>(t.cols()));
    for (int64_t r = 0; r < t.rows(); ++r) {
      std::copy_n(values.begin() + r * t.cols(), t.cols(), row.begin());
      pack_row(dtype, row.data(), t.cols(), static_cast<char*>(t.data()) + r * t.stride_);
    }
  }
  return device.is_cpu() ? t : t.to_device(device, kind);
}

Tensor Tensor::from(std::initializer_list<float> values, const Shape& shape, DType dtype, MemoryKind kind) {
  return from(std::span(values.begin(), values.size()), shape, dtype, kind);
}

Tensor Tensor::from_elements(const Shape& shape, DType dtype, std::span<const double> numbers, MemoryKind kind) {
  require(static_cast<int64_t>(numbers.size()) == shape.numel(), "Tensor::from_elements", "shape ", shape, " needs ",
          shape.numel(), " elements, got ", numbers.size());
  const Device device = current_device();
  const Tensor t = zeros(shape, dtype, device.is_cpu() ? kind : MemoryKind::kWorkspace, Device::cpu());
  for (int64_t r = 0; r < t.rows(); ++r)
    pack_row(dtype, numbers.data() + r * t.cols(), t.cols(), static_cast<char*>(t.data()) + r * t.stride_);
  return device.is_cpu() ? t : t.to_device(device, kind);
}

Tensor Tensor::full(const Shape& shape, DType dtype, double number, MemoryKind kind) {
  return from_elements(shape, dtype, std::vector<double>(static_cast<size_t>(shape.numel()), number), kind);
}

Tensor Tensor::external(void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner, Device device) {
  const int64_t row = row_bytes_memory(dtype, shape.cols());
  require(row * 8 == shape.cols() * dtype.bits() && dtype.bits() >= 32, "tensor", "external: got ", dtype,
          ", expected numbers of 4 or 8 bytes, whose rows have nothing between them");
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.layout_ = layouts::canonical;
  t.stride_ = row;
  t.storage_ = Storage::external(data, row * shape.rows(), std::move(owner), device);
  return t;
}
Tensor Tensor::empty_layout(const Shape& shape, DType dtype, Layout layout, MemoryKind kind, Device device) {
  if (layout == layouts::canonical) return empty(shape, dtype, kind, device);
  require(layout.info().supports(dtype), "Tensor", "dtype ", dtype, " has no layout '", layout, "'");
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.layout_ = layout;
  t.storage_ = Storage(layout.info().bytes(dtype, shape.rows(), shape.cols()), kind, device);
  return t;
}

bool Tensor::contiguous() const { return layout_ == layouts::canonical && stride_ == row_bytes_memory(dtype_, cols()); }

int64_t Tensor::bytes() const {
  if (!defined()) return 0;
  return layout_ == layouts::canonical ? row_bytes_memory(dtype_, cols()) * rows() : storage_.bytes();
}

template <typename T>
T* Tensor::as() const {
  require(holds<T>(dtype_), "Tensor::as", "the tensor is ", *this, ", whose elements are not ", sizeof(T),
          "-byte values of the requested type");
  return static_cast<T*>(data());
}
template float* Tensor::as<float>() const;
template double* Tensor::as<double>() const;
template int32_t* Tensor::as<int32_t>() const;
template int64_t* Tensor::as<int64_t>() const;
template uint16_t* Tensor::as<uint16_t>() const;
template int8_t* Tensor::as<int8_t>() const;
template uint8_t* Tensor::as<uint8_t>() const;

Tensor Tensor::with_quant(std::shared_ptr<const QuantParams> quant) const {
  if (quant) {
    const int64_t count = scale_count(quant->granularity, rows(), cols());
    for (const auto& part : {quant->scale, quant->zero, quant->offset, quant->statistic})
      require(!part || part->numel() == count, "Tensor::with_quant", "granularity ", quant->granularity, " of ", *this,
              " needs ", count, " scales, got ", part ? part->numel() : 0);
    require(!(quant->zero && quant->offset), "Tensor::with_quant", "a zero point and a real offset exclude each other");
  }
  Tensor t = *this;
  t.quant_ = std::move(quant);
  return t;
}

ScaleMap Tensor::scale_map() const {
  if (!quant_) return {};
  ScaleMap map = scale_steps(quant_->granularity, cols());
  if (quant_->scale) map.scale = quant_->scale->as<float>();
  if (quant_->zero) map.zero = quant_->zero->as<int32_t>();
  if (quant_->offset) map.offset = quant_->offset->as<float>();
  return map;
}

Tensor Tensor::reshape(const Shape& shape) const {
  require(layout_ == layouts::canonical, "reshape", "needs canonical codes, got layout ", layout_);
  require(shape.numel() == numel(), "reshape", "shape ", shape, " has ", shape.numel(), " elements, the tensor ", *this,
          " has ", numel());
  const bool dense_rows = contiguous() && stride_ * 8 == cols() * dtype_.bits();
  require(shape.cols() == cols() ||
              (dense_rows && row_bytes_memory(dtype_, shape.cols()) * 8 == shape.cols() * dtype_.bits()),
          "reshape", "the packed last axis cannot change from ", cols(), " to ", shape.cols(), " for ", *this,
          ", whose rows are padded to whole words. Unpack first.");
  require(!quant_ || quant_->granularity.kind == Granularity::kTensor || shape.cols() == cols(), "reshape",
          "the scales of ", *this, " are per ", quant_ ? quant_->granularity : Granularity{},
          "; only per tensor scales allow another last axis");
  Tensor t = *this;
  t.shape_ = shape;
  if (shape.cols() != cols()) t.stride_ = row_bytes_memory(dtype_, shape.cols());
  t.derived_ = nullptr;
  return t;
}

Tensor Tensor::clone(MemoryKind kind) const {
  require(layout_ == layouts::canonical, "clone", "needs canonical codes, got layout ", layout_);
  Tensor t = empty(shape_, dtype_, kind, device());
  t.quant_ = quant_;
  t.copy_from(*this);
  return t;
}

void Tensor::copy_from(const Tensor& other) const {
  require(shape_ == other.shape_ && dtype_ == other.dtype_, "copy_from", "shapes and dtypes differ: got ", other,
          ", expected ", *this);
  require(layout_ == layouts::canonical && other.layout_ == layouts::canonical, "copy_from",
          "needs canonical operands, got ", layout_, " and ", other.layout_);
  require(device() == other.device() || device().is_cpu() || other.device().is_cpu(), "copy_from", "operands are on ",
          to_string(device()), " and ", to_string(other.device()), ". Copy through the CPU: to_device.");
  const Device on = device().is_cpu() ? other.device() : device();
  const CopyWay way = device() == other.device() ? CopyWay::kOnDevice
                      : device().is_cpu()        ? CopyWay::kToHost
                                                 : CopyWay::kFromHost;
  const int64_t row = row_bytes_memory(dtype_, cols());
  if (row == 0 || rows() == 0) return;
  const DeviceGuard guard(on);
  device_backend(on).copy(way, data(), stride_, other.data(), other.stride_, row, rows());
}

Tensor Tensor::to_device(Device to, MemoryKind kind) const {
  require(device() == to || device().is_cpu() || to.is_cpu(), "to_device", "from ", to_string(device()), " to ",
          to_string(to), ": copy through the CPU");
  Tensor t = empty_layout(shape_, dtype_, layout_, kind, to);
  if (layout_ == layouts::canonical) {
    t.copy_from(*this);
  } else {
    const Device on = to.is_cpu() ? device() : to;
    const DeviceGuard guard(on);
    device_backend(on).copy(device() == to ? CopyWay::kOnDevice
                            : to.is_cpu()  ? CopyWay::kToHost
                                           : CopyWay::kFromHost,
                            t.data(), bytes(), data(), bytes(), bytes(), 1);
  }
  if (!quant_) return t;
  const auto part = [&](const std::shared_ptr<const Tensor>& p) {
    return p ? std::make_shared<const Tensor>(p->to_device(to, MemoryKind::kQuantState)) : p;
  };
  QuantParams params = *quant_;
  params.scale = part(params.scale);
  params.zero = part(params.zero);
  params.offset = part(params.offset);
  params.statistic = part(params.statistic);
  t.quant_ = std::make_shared<const QuantParams>(std::move(params));
  return t;
}

Tensor Tensor::on_host() const {
  return !defined() || device().is_cpu() ? *this : to_device(Device::cpu(), MemoryKind::kWorkspace);
}

struct Tensor::Derived {
  std::vector<Tensor> layouts;
  Tensor row_sums, panel_scales;
  std::shared_ptr<const Tensor> panel_scales_of;
};

void Tensor::attach_layout(Tensor derived) {
  const bool narrow = dtype_ == dtypes::fp32 && detail::is_narrow(derived.dtype_);
  require((derived.dtype_ == dtype_ || narrow) && derived.shape_ == shape_, "attach_layout",
          "a derived layout has the same codes: got ", derived, ", expected ", *this);
  if (!derived_) derived_ = std::make_shared<Derived>();
  for (Tensor& t : derived_->layouts)
    if (t.layout_ == derived.layout_) {
      t = std::move(derived);
      return;
    }
  derived_->layouts.push_back(std::move(derived));
}

Tensor Tensor::in_layout(Layout layout) const {
  if (layout == layout_) return *this;
  if (derived_)
    for (const Tensor& t : derived_->layouts)
      if (t.layout_ == layout) return t.with_quant(quant_);
  return {};
}

const std::vector<Tensor>& Tensor::attached_layouts() const {
  static const std::vector<Tensor> none;
  return derived_ ? derived_->layouts : none;
}

namespace {

// Rows [begin, end) of what a derived layout, or narrower floats, hold, to canonical rows of `dtype`.
void restore_rows(const Tensor& from, DType dtype, int64_t begin, int64_t end, void* out, int64_t stride) {
  if (from.dtype() == dtype)
    return from.layout().rows()->unpack(dtype, from.rows(), from.cols(), from.data(), out, stride, begin, end);
  for (int64_t r = begin; r < end; ++r)
    unpack_row(from.dtype(), static_cast<const char*>(from.data()) + r * from.stride(), 0, from.cols(),
               reinterpret_cast<float*>(static_cast<char*>(out) + (r - begin) * stride));
}

}  // namespace

void Tensor::keep_only(Layout layout) {
  Tensor from;
  if (derived_)
    for (const Tensor& t : derived_->layouts)
      if (t.layout_ == layout) from = t;
  require(layout_ == layouts::canonical && from.defined() && (layout.rows() != nullptr || from.dtype_ != dtype_) &&
              device().is_cpu() && offset_ == 0 && storage_.bytes() == bytes(),
          "keep_only", "needs a whole dense matrix on the CPU with an attached layout of blocks of rows: got ", *this,
          " and layout ", layout);
  // The free block would stay resident, and the next matrix, packed with its sums, is too large for it.
  if (!storage_.shared()) storage_.give_back(0, storage_.bytes());
  const MemoryKind held = from.dtype_ == dtype_ ? kind() : from.kind();
  storage_ = Storage::on_demand(bytes(), held, [from, dtype = dtype_, stride = stride_](void* out) {
    if (from.dtype_ != dtype) return restore_rows(from, dtype, 0, from.rows(), out, stride);
    from.layout_.info().unpack(dtype, from.rows(), from.cols(), from.data(), out, stride);
  });
}

Tensor Tensor::canonical_rows(int64_t begin, int64_t end, MemoryKind kind) const {
  if (present() || !derived_) return without_quant().row_slice(begin, end);
  for (const Tensor& t : derived_->layouts) {
    if (t.layout_.rows() == nullptr && t.dtype_ == dtype_) continue;
    require(begin >= 0 && begin <= end && end <= rows(), "canonical_rows", "got rows ", begin, " to ", end, " of ",
            *this);
    const Tensor out = empty({end - begin, cols()}, dtype_, kind, device());
    restore_rows(t, dtype_, begin, end, out.data(), out.stride());
    return out;
  }
  return without_quant().row_slice(begin, end);
}

void Tensor::attach_row_sums(Tensor sums) {
  if (!sums.defined() && !derived_) return;
  require(!sums.defined() || (sums.dtype_ == dtypes::int32 && sums.shape_ == Shape{rows()}), "attach_row_sums", "got ",
          sums, ", expected ", Shape{rows()}, " int32, the sums of rows of ", *this);
  if (!derived_) derived_ = std::make_shared<Derived>();
  derived_->row_sums = std::move(sums);
}

Tensor Tensor::row_sums() const { return derived_ ? derived_->row_sums : Tensor(); }

void Tensor::attach_panel_scales(Tensor scales) {
  if (!derived_) derived_ = std::make_shared<Derived>();
  derived_->panel_scales = std::move(scales);
  derived_->panel_scales_of = quant_ ? quant_->scale : nullptr;
}

Tensor Tensor::panel_scales() const {
  const bool own = derived_ && quant_ && quant_->scale && quant_->scale == derived_->panel_scales_of;
  return own ? derived_->panel_scales : Tensor();
}

Storage::Block::Block(int64_t size, MemoryKind memory_kind, Device where)
    : bytes(size), kind(memory_kind), device(where), data(tracked_allocate(size, memory_kind, where)) {}
Storage::Block::Block(void* bytes_of, int64_t size, std::shared_ptr<const void> keeps, Device where)
    : bytes(size), kind(MemoryKind::kBatch), device(where), data(bytes_of), counted(false), owner(std::move(keeps)) {}
Storage::Block::~Block() {
  if (!counted || absent()) return;
  tracked_release(data, bytes, kind, device);
  tracked_add(given_back, kind);
}

struct Storage::Block::Demand {
  std::mutex mutex;
  std::function<void(void*)> make;
};

void Storage::Block::make() {
  const std::lock_guard lock(demand->mutex);
  if (!absent()) return;
  void* const memory = tracked_allocate(bytes, kind, device);
  try {
    demand->make(memory);
  } catch (...) {
    tracked_release(memory, bytes, kind, device);
    throw;
  }
  demand->make = nullptr;
  data.store(memory, std::memory_order_release);
}

void Storage::give_back(int64_t begin, int64_t end) const {
  if (!block_ || !block_->counted || block_->demand || !block_->device.is_cpu()) return;
  const int64_t page = sysconf(_SC_PAGESIZE),
                past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data()) % static_cast<uintptr_t>(page));
  const int64_t first = (begin + past + page - 1) / page * page - past, last = (end + past) / page * page - past;
  const int64_t bytes = last - first;
  if (bytes <= 0 || madvise(static_cast<std::byte*>(data()) + first, static_cast<size_t>(bytes), MADV_DONTNEED) != 0)
    return;
  block_->given_back += bytes;
  tracked_add(-bytes, block_->kind);
}

void Storage::use_all() const {
  if (block_) tracked_add(std::exchange(block_->given_back, 0), block_->kind);
}

Storage Storage::external(void* data, int64_t bytes, std::shared_ptr<const void> owner, Device device) {
  Storage out;
  out.block_ = std::make_shared<Block>(data, bytes, std::move(owner), device);
  return out;
}

Storage Storage::on_demand(int64_t bytes, MemoryKind kind, std::function<void(void*)> make) {
  Storage out;
  out.block_ = std::make_shared<Block>(nullptr, bytes, nullptr, Device::cpu());
  out.block_->kind = kind;
  out.block_->counted = true;
  out.block_->demand = std::make_shared<Block::Demand>();
  out.block_->demand->make = std::move(make);
  return out;
}

Storage::Storage(int64_t bytes, MemoryKind kind, Device device)
    : block_(std::make_shared<Block>(bytes, kind, device)) {}

void Storage::set_kind(MemoryKind kind) const {
  if (!block_ || block_->kind == kind) return;
  if (block_->counted && present()) tracked_move(block_->bytes, block_->kind, kind);
  block_->kind = kind;
}

}  // namespace bitgrad
