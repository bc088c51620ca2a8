#include "bitgrad/io/safetensors.h"

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/dtype/codec.h"
#include "io/metadata.h"

namespace bitgrad {
namespace {

using namespace detail;

constexpr std::string_view kSave = "save_tensors", kLoad = "load_tensors";

struct PlainDtype {
  DType dtype;
  std::string_view name;
};
constexpr PlainDtype kPlain[] = {{dtypes::fp64, "F64"}, {dtypes::fp32, "F32"},  {dtypes::bf16, "BF16"},
                                 {dtypes::fp16, "F16"}, {dtypes::int64, "I64"}, {dtypes::int32, "I32"},
                                 {dtypes::int8, "I8"},  {dtypes::uint8, "U8"}};

const PlainDtype* plain_dtype(DType dtype) {
  for (const PlainDtype& p : kPlain)
    if (p.dtype == dtype) return &p;
  return nullptr;
}

// Rows of a tensor in a file are contiguous.
void copy_rows(DType dtype, int64_t rows, int64_t cols, void* to, int64_t to_stride, const void* from,
               int64_t from_stride) {
  const auto row = static_cast<size_t>(row_bytes_file(dtype, cols));
  if (row == 0) return;
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(static_cast<char*>(to) + r * to_stride, static_cast<const char*>(from) + r * from_stride, row);
}

// ---- writing

class Writer {
 public:
  void add(const std::string& name, const Tensor& tensor) {
    require(tensor.defined(), kSave, "tensor '", name, "' is undefined");
    require(tensor.layout() == layouts::canonical, kSave, "tensor '", name, "' (", tensor, ") is in layout ",
            tensor.layout(), ", expected canonical");
    const PlainDtype* const plain = tensor.quant() ? nullptr : plain_dtype(tensor.dtype());
    if (plain != nullptr) return put(name, std::string(plain->name), tensor.shape().dims(), tensor);
    const std::string codes = concat(name, kCodesEnd);
    records_.emplace_back(codes, codes_record(tensor));
    put(codes, "U8", {tensor.rows(), row_bytes_file(tensor.dtype(), tensor.cols())}, tensor);
    if (const auto& quant = tensor.quant()) {
      part(name, kScaleEnd, quant->scale);
      part(name, kZeroEnd, quant->zero);
      part(name, kOffsetEnd, quant->offset);
      part(name, kStatisticEnd, quant->statistic);
    }
  }

  void write(const std::string& path, std::map<std::string, std::string> metadata) {
    require(metadata.count(std::string(kCodesKey)) == 0, kSave, "the metadata key ", kCodesKey,
            " is written by the library itself");
    if (!records_.empty()) metadata[std::string(kCodesKey)] = codes_records_text(records_);
    write_safetensors(path, items_, metadata);
  }

 private:
  void part(const std::string& name, std::string_view end, const std::shared_ptr<const Tensor>& tensor) {
    if (tensor)
      put(concat(name, end), std::string(plain_dtype(tensor->dtype())->name), tensor->shape().dims(), *tensor);
  }

  void put(const std::string& name, std::string dtype, std::vector<int64_t> shape, const Tensor& tensor) {
    const Tensor& t = held_.emplace_back(tensor.without_quant().on_host());
    const int64_t row = row_bytes_file(t.dtype(), t.cols());
    std::vector<uint8_t>& bytes = bytes_.emplace_back(static_cast<size_t>(row * t.rows()));
    const bool dense = t.stride() == row;
    if (!dense) copy_rows(t.dtype(), t.rows(), t.cols(), bytes.data(), row, t.data(), t.stride());
    items_.push_back({name, std::move(dtype), std::move(shape), dense ? t.data() : bytes.data(), row * t.rows()});
  }

  std::deque<Tensor> held_;
  std::deque<std::vector<uint8_t>> bytes_;
  std::vector<SafetensorsItem> items_;
  CodesRecords records_;
};

// Refuses names by which part of a tensor of codes would be read as part of another tensor.
void check_names(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors)
    for (const std::string_view end : {kCodesEnd, kScaleEnd, kZeroEnd, kOffsetEnd, kStatisticEnd}) {
      const auto other = tensors.find(concat(name, end));
      const bool plain = !tensor.quant() && plain_dtype(tensor.dtype()) != nullptr;
      require(plain || other == tensors.end(), kSave, "the name '", name, end, "' belongs to a part of '", name, "' (",
              tensor, "). Rename one of the two");
    }
}

// ---- reading

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(SafetensorsFile::read(path)) {}

  NamedTensors all() {
    NamedTensors out;
    if (const auto text = file_.metadata().find(std::string(kCodesKey)); text != file_.metadata().end())
      for (const auto& [codes, record] : parse_codes_records(text->second)) {
        check(codes.size() > kCodesEnd.size() && codes.ends_with(kCodesEnd) && file_.contains(codes), "the metadata '",
              kCodesKey, "' describes '", codes, "', which is not a tensor of codes in the file");
        const std::string name = codes.substr(0, codes.size() - kCodesEnd.size());
        out[name] = packed(name, record);
      }
    for (const SafetensorsEntry& entry : file_.entries()) {
      if (used_.count(entry.name) != 0) continue;
      check(out.count(entry.name) == 0, "there are two tensors of the name '", entry.name, "'");
      out[entry.name] = plain(entry);
    }
    return out;
  }

 private:
  template <typename... Parts>
  void check(bool ok, const Parts&... parts) const {
    if (!ok) fail_with(ErrorCode::kData, kLoad, printable(concat("'", file_.path(), "': ", parts...)));
  }

  // Rows of the file (dense) as a tensor on the host.
  Tensor rows(const std::string& name, DType dtype, const Shape& shape) {
    used_.insert(name);
    Tensor t = Tensor::zeros(shape, dtype, MemoryKind::kBuffer, Device::cpu());
    copy_rows(dtype, t.rows(), t.cols(), t.data(), t.stride(), file_.data(name), row_bytes_file(dtype, t.cols()));
    return t;
  }

  Tensor plain(const SafetensorsEntry& entry) {
    for (const PlainDtype& p : kPlain)
      if (p.name == entry.dtype) return rows(entry.name, p.dtype, Shape(entry.shape));
    fail_with(ErrorCode::kData, kLoad, "'", file_.path(), "': tensor '", entry.name, "' is ", Shape(entry.shape), ' ',
              entry.dtype, ", expected one of ", joined(kPlain, ", ", &PlainDtype::name));
  }

  void check_form(const std::string& name, std::string_view dtype, const Shape& shape) const {
    const SafetensorsEntry& entry = file_.entry(name);
    check(entry.dtype == dtype && Shape(entry.shape) == shape, "tensor '", name, "' is ", Shape(entry.shape), ' ',
          entry.dtype, ", expected ", shape, ' ', dtype);
  }

  // The stored bytes are checked against the record before they are used.
  Tensor packed(const std::string& name, const CodesRecord& record) {
    const std::string codes = concat(name, kCodesEnd);
    const Shape& shape = record.shape;
    check(record.dtype.is_code(), "tensor '", codes, "' is of ", record.dtype, ", which is not a dtype of codes");
    constexpr int64_t kMostColumns = int64_t{1} << 58;
    check(shape.cols() <= kMostColumns, "tensor '", codes, "' has ", shape.cols(), " columns, expected at most ",
          kMostColumns);
    check_form(codes, "U8", {shape.rows(), row_bytes_file(record.dtype, shape.cols())});
    const Tensor t = rows(codes, record.dtype, shape);
    const std::string wrong = wrong_codes(t);
    check(wrong.empty(), "tensor '", codes, "', ", wrong);
    QuantParams params{.scheme = record.scheme, .granularity = record.granularity};
    const Shape count{scale_count(record.granularity, shape.rows(), shape.cols())};
    params.scale = part(name, kScaleEnd, dtypes::fp32, count);
    params.zero = part(name, kZeroEnd, dtypes::int32, count);
    params.offset = part(name, kOffsetEnd, dtypes::fp32, count);
    params.statistic = part(name, kStatisticEnd, dtypes::fp32, count);
    const bool bare = params.scheme.empty() && params.bytes() == 0;
    return bare ? t : t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
  }

  std::shared_ptr<const Tensor> part(const std::string& name, std::string_view end, DType dtype, const Shape& count) {
    const std::string full = concat(name, end);
    if (!file_.contains(full)) return nullptr;
    check_form(full, plain_dtype(dtype)->name, count);
    return std::make_shared<const Tensor>(rows(full, dtype, count));
  }

  SafetensorsFile file_;
  std::set<std::string> used_;
};

}  // namespace

void save_tensors(const std::string& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata) {
  check_names(tensors);
  Writer writer;
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  writer.write(path, metadata);
}

NamedTensors load_tensors(const std::string& path) {
  const Device device = current_device();
  const DeviceGuard host(Device::cpu());
  try {
    NamedTensors tensors = Reader(path).all();
    if (!device.is_cpu())
      for (auto& [name, tensor] : tensors) tensor = tensor.to_device(device, MemoryKind::kBuffer);
    return tensors;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUsage) throw;
    fail_with(ErrorCode::kData, kLoad, "'", path, "': ", e.what());
  }
}

}  // namespace bitgrad
