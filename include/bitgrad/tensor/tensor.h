// Tensor: storage + offset + shape + dtype + layout (+ QuantParams). A cheap value type; copies share the bytes.
//
// Rows of a matrix of codes are 8-byte aligned, with zero pad bits. Wider dtypes (fp32, int32, ...) are dense.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/dtype/layout.h"
#include "bitgrad/tensor/quant_params.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

// Storage: reference-counted bytes on one device, accounted under a memory kind. It knows no dtype.
class Storage {
 public:
  Storage() = default;
  Storage(int64_t bytes, MemoryKind kind, Device device = current_device());  // uninitialized
  // Wraps memory owned by someone else, kept alive by `owner`. It is not accounted.
  static Storage external(void* data, int64_t bytes, std::shared_ptr<const void> owner, Device device = Device::cpu());
  // Bytes on the CPU that can be made from others: they exist, and count, from the first call of data() on, in which
  // `make` writes them. Threads may call data() at once.
  static Storage on_demand(int64_t bytes, MemoryKind kind, std::function<void(void*)> make);

  bool defined() const { return block_ != nullptr; }
  void* data() const { return block_ ? block_->bytes_made() : nullptr; }
  // Whether the bytes exist; those of on_demand may not yet.
  bool present() const { return block_ && !block_->absent(); }
  int64_t bytes() const { return block_ ? block_->bytes : 0; }
  Device device() const { return block_ ? block_->device : Device{}; }
  MemoryKind kind() const { return block_ ? block_->kind : MemoryKind::kActivation; }
  // Whether other Storage objects, on any thread, refer to the same bytes.
  bool shared() const { return block_.use_count() > 1; }
  // Reclassifies the bytes in the account (an activation that backward needs becomes `saved`).
  void set_kind(MemoryKind kind) const;
  // Gives the whole pages of bytes [begin, end) back to the system, off the account; they read as zeros until they are
  // written again, which takes them back. Without effect on a device other than the CPU.
  void give_back(int64_t begin, int64_t end) const;
  // Call before given bytes are written again: all count.
  void use_all() const;
  // Number of Storage objects that share the bytes; 0 if undefined.
  int64_t owners() const { return block_.use_count(); }
  friend bool operator==(const Storage& a, const Storage& b) { return a.block_ == b.block_; }

 private:
  struct Block {
    Block(int64_t bytes, MemoryKind kind, Device device);
    Block(void* data, int64_t bytes, std::shared_ptr<const void> owner, Device device);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    bool absent() const { return demand != nullptr && data.load(std::memory_order_acquire) == nullptr; }
    void* bytes_made() {
      if (absent()) make();
      return data.load(std::memory_order_acquire);
    }
    void make();
    int64_t bytes;
    MemoryKind kind;
    Device device;
    std::atomic<void*> data;
    bool counted = true;
    int64_t given_back = 0;
    std::shared_ptr<const void> owner;  // of external bytes, which are not accounted
    struct Demand;
    std::shared_ptr<Demand> demand = nullptr;  // of bytes that are made on demand
  };
  std::shared_ptr<Block> block_;
};

class Tensor {
 public:
  Tensor() = default;  // undefined
  // Uninitialized, including the pad bits of code dtypes: the writer must write whole rows.
  static Tensor empty(const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::kActivation,
                      Device device = current_device());
  static Tensor zeros(const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::kActivation,
                      Device device = current_device());
  // Wraps dense row-major memory without a copy; `owner` keeps it alive. Throws Error unless elements have 4 or 8
  // bytes.
  static Tensor external(void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner,
                         Device device = Device::cpu());
  // Row-major fp32 values as a tensor of `dtype` on the current device. Floats are rounded to nearest even. Integers
  // and codes must be exactly representable and get no scale (quantize_dynamic in quant/quantizer.h computes one).
  //   Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3})
  // Throws Error if the number of values does not match the shape.
  static Tensor from(std::span<const float> values, const Shape& shape, DType dtype = dtypes::fp32,
                     MemoryKind kind = MemoryKind::kActivation);
  static Tensor from(std::initializer_list<float> values, const Shape& shape, DType dtype = dtypes::fp32,
                     MemoryKind kind = MemoryKind::kActivation);
  // Row-major elements, to which no scale applies, on the current device. Floats are rounded to nearest even; integers
  // must be exactly representable. Throws Error if the number of elements does not match the shape.
  static Tensor from_elements(const Shape& shape, DType dtype, std::span<const double> numbers,
                              MemoryKind kind = MemoryKind::kActivation);
  static Tensor full(const Shape& shape, DType dtype, double number, MemoryKind kind = MemoryKind::kActivation);
  // A single element, shape [].
  static Tensor scalar(double number, DType dtype = dtypes::fp32) { return full(Shape{}, dtype, number); }
  // Uninitialized codes of a [rows, cols] matrix in a derived layout, to be filled by kernels::pack. Throws Error if
  // the layout does not support the dtype.
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
  bool contiguous() const;                    // canonical, with no gaps between rows
  const Storage& storage() const { return storage_; }
  MemoryKind kind() const { return storage_.kind(); }
  // Size in bytes of the elements in this layout, without scales.
  int64_t bytes() const;

  void* data() const { return static_cast<uint8_t*>(storage_.data()) + offset_; }
  // Typed pointer. Throws Error unless T matches the dtype (float, double, int32_t, int64_t; uint16_t for bf16 and
  // fp16; int8_t or uint8_t for 8-bit codes).
  template <typename T>
  T* as() const;

  const std::shared_ptr<const QuantParams>& quant() const { return quant_; }
  Tensor with_quant(std::shared_ptr<const QuantParams> quant) const;
  // The same codes without QuantParams.
  Tensor without_quant() const { return with_quant(nullptr); }
  // Scales as kernels read them, in coordinates of the matrix.
  ScaleMap scale_map() const;

  // Views share the bytes; scales are sliced along. A row view (of axis 0) is free, but must not split groups of scales
  // along axis 0. A column view of a code dtype must start and end (unless at the edge) at multiples of lcm(group, 64).
  // Canonical layout only. Both throw Error if out of range.
  Tensor row_slice(int64_t begin, int64_t end) const;
  Tensor column_slice(int64_t begin, int64_t end) const;
  // The same bytes under another shape. Throws Error unless numel is equal, and the last axis unless rows are dense.
  Tensor reshape(const Shape& shape) const;

  Tensor clone(MemoryKind kind) const;  // dense canonical copy; scales are shared
  // Copies elements from a tensor of equal shape and dtype; both canonical. Copies between host and device too.
  void copy_from(const Tensor& other) const;
  // Copies the elements, in the same layout, and the parts of QuantParams to a device; copies even if they are there
  // already. Attached layouts are not copied. Copies between two devices must go through the CPU.
  Tensor to_device(Device device, MemoryKind kind) const;
  // This tensor readable by the host: itself if on the CPU, else a copy.
  Tensor on_host() const;

  // Attaches a derived layout that travels with the canonical elements (requantize writes codes in both together).
  void attach_layout(Tensor derived);
  // This tensor in `layout`; undefined if it has no such layout.
  Tensor in_layout(Layout layout) const;
  const std::vector<Tensor>& attached_layouts() const;
  // Leaves the elements only in this attached layout, to which this tensor belongs: codes in blocks of rows
  // (Layout::rows), or fp32 values as fp16 or bf16, in which they are exact. The canonical ones are freed, and made
  // again from it, with the same bytes, as soon as data() is called. For elements that are read in that layout. Throws
  // Error unless this is a whole dense matrix on the CPU.
  void keep_only(Layout layout);
  // Whether data() need not make the canonical elements first.
  bool present() const { return storage_.present(); }
  // The elements of rows [begin, end), canonical, without scales: this tensor's, or a copy where they are not present.
  Tensor canonical_rows(int64_t begin, int64_t end, MemoryKind kind) const;
  // The sums of the rows of codes (kernels::GemmOperand::row_sums), int32 [rows], made with them on a device; undefined
  // where there are none. Views, other shapes and copies have none. Who writes codes in place attaches their new sums,
  // or undefined ones. Throws Error for another shape or dtype.
  void attach_row_sums(Tensor sums);
  Tensor row_sums() const;
  // The scales of this tensor, which has some, in the order of its layout's kernels
  // (kernels::GemmOperand::panel_scales), fp32 or fp16; undefined where there are none or where with_quant gave the
  // codes other scales. Who writes scales in place attaches them anew.
  void attach_panel_scales(Tensor scales);
  Tensor panel_scales() const;

  // Row-major elements (codes decoded without scales), and values (with scales).
  std::vector<double> elements() const;
  std::vector<double> values() const;
  double item() const;  // the value of a one-element tensor
  // A copy of the values as fp32 (wider ones rounded to nearest even), row-major; any dtype, layout and device.
  std::vector<float> to_vector() const;
  // Value of one element, as in t.at({2, -1}); negative indices count from the end. Canonical layout; copies the whole
  // tensor if it is on another device. Throws Error for a wrong number of indices or an index out of range.
  float at(std::initializer_list<int64_t> index) const;

  // For example "Tensor [256,784] bint1, binary per tensor, canonical, 26,624 bytes + 4 of scales".
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

// Short form for error messages: "[3,5] fp32", "[256,784] bint1".
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// Returns a new [cols, rows] tensor, with the axis of the scales swapped as well. Throws Error unless rank is 2.
Tensor transpose(const Tensor& matrix, MemoryKind kind = MemoryKind::kActivation);

}  // namespace bitgrad
