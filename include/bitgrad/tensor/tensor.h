// Tensor: storage + offset + shape + dtype + layout (+ QuantParams). A value, cheap to copy; copies share the bytes.
//
// A matrix of codes has rows that start on 8 bytes; pad bits are zero. Wider dtypes (fp32, int32, ...) are dense.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/dtype/layout.h"
#include "bitgrad/dtype/scale_map.h"
#include "bitgrad/tensor/quant_params.h"
#include "bitgrad/tensor/shape.h"
#include "bitgrad/tensor/storage.h"

namespace bitgrad {

class Tensor {
 public:
  Tensor() = default;  // undefined
  // Uninitialised numbers; pad bits of code dtypes are not set either, the writer sets whole rows.
  static Tensor empty(const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::kActivation,
                      Device device = current_device());
  static Tensor zeros(const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::kActivation,
                      Device device = current_device());
  // Numbers (fp32, int32, ...: dense rows, no codes) that lie somewhere else, row-major, without a copy; `owner` keeps
  // them alive.
  static Tensor external(void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner,
                         Device device = Device::cpu());
  // Row-major fp32 values as a tensor of `dtype`: floats are rounded to nearest even, integers and codes must be
  // representable and get no scale (quantize_dynamic of quant/quantizer.h finds one). On the current device.
  //   Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3})
  // Throws Error when the shape needs another number of values.
  static Tensor from(std::span<const float> values, const Shape& shape, DType dtype = dtypes::fp32,
                     MemoryKind kind = MemoryKind::kActivation);
  static Tensor from(std::initializer_list<float> values, const Shape& shape, DType dtype = dtypes::fp32,
                     MemoryKind kind = MemoryKind::kActivation);
  // Row-major numbers (not values: no scale is applied). Integers must be representable, floats are rounded to nearest
  // even. On the current device, as all of these.
  static Tensor from_elements(const Shape& shape, DType dtype, std::span<const double> numbers,
                              MemoryKind kind = MemoryKind::kActivation);
  static Tensor full(const Shape& shape, DType dtype, double number, MemoryKind kind = MemoryKind::kActivation);
  // One number, shape [].
  static Tensor scalar(double number, DType dtype = dtypes::fp32) { return full(Shape{}, dtype, number); }
  // Codes of [rows, cols] in a derived layout; filled by the pack family.
  static Tensor empty_layout(const Shape& shape, DType dtype, Layout layout, MemoryKind kind,
                             Device device = current_device());

  bool defined() const { return storage_.defined(); }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Layout layout() const { return layout_; }
  Device device() const { return storage_.device(); }
  int64_t rows() const { return shape_.rows(); }
  int64_t cols() const { return shape_.cols(); }
  int64_t numel() const { return shape_.numel(); }
  int64_t stride() const { return stride_; }  // bytes between rows (canonical)
  bool contiguous() const;                    // canonical rows with nothing between them
  const Storage& storage() const { return storage_; }
  MemoryKind kind() const { return storage_.kind(); }
  // Bytes of the codes or numbers in this layout, without scales.
  int64_t bytes() const;

  void* data() const { return static_cast<uint8_t*>(storage_.data()) + offset_; }
  // Typed pointer; throws Error when the dtype is not T's (float, double, int32_t, int64_t; uint16_t for bf16 and fp16;
  // int8_t, uint8_t for 8-bit codes).
  template <typename T>
  T* as() const;

  const std::shared_ptr<const QuantParams>& quant() const { return quant_; }
  Tensor with_quant(std::shared_ptr<const QuantParams> quant) const;
  // The same codes as bare numbers.
  Tensor without_quant() const { return with_quant(nullptr); }
  // Scales as kernels read them, in coordinates of the matrix.
  ScaleMap scale_map() const;

  // Views share the bytes. Row views are free; a column view of a code dtype starts and ends (unless at the edge) at
  // multiples of lcm(group, 64). Scales follow. Both throw Error when out of range.
  Tensor row_slice(int64_t begin, int64_t end) const;
  Tensor column_slice(int64_t begin, int64_t end) const;
  // Same bytes, other shape: numel equal, and the last axis too unless rows are dense.
  Tensor reshape(const Shape& shape) const;

  Tensor clone(MemoryKind kind) const;  // canonical, dense rows; scales are shared
  // Copies numbers or codes of an equal shape and dtype.
  void copy_from(const Tensor& other) const;
  // The same numbers or codes, in the same layout, with the parts of its QuantParams, on another device; a copy also
  // where it is there already. Layouts beside the canonical codes are not copied.
  Tensor to_device(Device device, MemoryKind kind) const;
  // This tensor where the host may read it: itself on the CPU, else a copy.
  Tensor on_host() const;

  // Derived layouts that travel beside the canonical codes (written together by requantize).
  void attach_layout(Tensor derived);
  // This tensor in `layout`, undefined when it has none.
  Tensor in_layout(Layout layout) const;
  const std::vector<Tensor>& attached_layouts() const;
  // The sums of the rows of codes (kernels::GemmOperand::row_sums), int32 [rows], made with them on a device; undefined
  // where there are none. Views, other shapes and copies have none. Who writes codes in place attaches their new sums,
  // or undefined ones. Throws Error for another shape or dtype.
  void attach_row_sums(Tensor sums);
  Tensor row_sums() const;

  // Row-major numbers (codes' values without scales), and values (with them).
  std::vector<double> elements() const;
  std::vector<double> values() const;
  double item() const;  // the one value of a one-element tensor
  // The values as fp32 (wider ones are rounded to nearest even), row-major, of any dtype, layout and device. A copy.
  std::vector<float> to_vector() const;
  // The value of one element, such as t.at({2, -1}): an index an axis, negative ones count from the end. Canonical
  // layout; from a device the whole tensor is copied. Throws Error for a wrong number of indices, or one out of range.
  float at(std::initializer_list<int64_t> index) const;

  // "Tensor [256,784] bint1, binary per tensor, canonical, 26,624 bytes + 4 of scales".
  std::string describe() const;

 private:
  Storage storage_;
  int64_t offset_ = 0;
  Shape shape_{std::vector<int64_t>{0}};
  DType dtype_ = dtypes::fp32;
  Layout layout_;
  int64_t stride_ = 0;
  std::shared_ptr<const QuantParams> quant_;
  struct Derived;  // what travels beside the codes
  std::shared_ptr<Derived> derived_;
};

// Short form for errors: "[3,5] fp32", "[256,784] bint1".
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// A new tensor [cols, rows] with the axis of the scales moved too.
Tensor transpose(const Tensor& matrix, MemoryKind kind = MemoryKind::kActivation);

}  // namespace bitgrad
