#include "checkpoint/restorer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/nn/form.h"
#include "kernels/reduce.h"
#include "tensor/narrow.h"
#include "train/averages.h"
#include "train/pieces.h"

namespace bitgrad::checkpoint {

OpenFile open_verified(const std::string& path) {
  auto file = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path));
  file->check_data();
  return file;
}

Restorer::Restorer(const std::string& path, std::optional<SavedKind> kind) : Restorer(open_verified(path), kind) {}

Restorer::Restorer(OpenFile file, std::optional<SavedKind> kind)
    : file_(std::move(file)), tensors_(read_tensors(*file_)) {
  const std::string& path = file_->path();
  if (!file_->has_checksums())
    bad(path, "has no checksums: it was not written by bitgrad, or another program rewrote it");
  const SavedKind got = kind_of(*file_);
  if (kind ? got == *kind : got != SavedKind::kPart) return;
  if (got == SavedKind::kPart || kind == SavedKind::kPart)
    bad(path, concat("is of kind ", enum_name(got), ", expected a ", kind ? enum_name(*kind) : "model or checkpoint",
                     ". A part of a model belongs to adapters: set adapters.init_from to its folder"));
  bad(path,
      got == SavedKind::kModel
          ? "is a converted model, without masters and optimizer: got a model, expected a checkpoint. A run resumes "
            "from its last.safetensors; model.init_from starts a new one from the model's weights"
          : "is a checkpoint: got masters and codes, expected a converted model. Make one with bitgrad convert");
}

Tensor Restorer::plain(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind) {
  entry(name, file_dtype(dtype), shape);
  Tensor t = room(shape, dtype, kind);
  fill(name, t);
  Pieces piece;
  piece.add_tensor(name, t);
  if (!not_finite(piece).empty())
    fail_with(ErrorCode::kNonFinite, "checkpoint", file_->path(), ": '", name,
              "' holds NaN or Inf: expected finite values. Resume from a file of an earlier "
              "step");
  return t;
}

Tensor Restorer::floats(const std::string& name, const Shape& shape, MemoryKind kind, bool as_stored) {
  DType dtype = dtypes::fp32;
  for (const DType narrow : {dtypes::bf16, dtypes::fp16})
    if (file_->contains(name) && file_->entry(name).dtype == file_dtype(narrow)) dtype = narrow;
  Tensor t = plain(name, dtype, shape, kind);
  if (dtype == dtypes::fp32 || as_stored) return t;
  return detail::widened_on_demand(t).canonical_rows(0, t.rows(), kind).reshape(shape);
}

void Restorer::into(const std::string& name, const Tensor& t) {
  t.copy_from(plain(name, t.dtype(), t.shape(), MemoryKind::kWorkspace));
}

void Restorer::parameter(Parameter& p) {
  const std::string master = p.path() + ".master";
  const DType wide = p.spec().master == MasterKind::kBf16 ? dtypes::bf16 : dtypes::fp32;
  ParameterState state;
  if (p.read_only() && p.low_bit() && !p.spec().frozen && p.spec().master != MasterKind::kNone)
    entry(master, file_dtype(wide), p.shape());
  else if (!p.low_bit() || p.has_master())
    state.master = plain(master, wide, p.shape(), p.has_values() ? MemoryKind::kWorkspace : MemoryKind::kValue);
  if (p.low_bit()) state.value = codes(p, p.path());
  p.restore(state);
}

void Restorer::converted(Parameter& p) {
  if (p.low_bit())
    p.restore({{}, codes(p, p.path())});
  else
    p.restore({floats(p.path() + ".value", p.shape(), p.has_values() ? MemoryKind::kWorkspace : MemoryKind::kValue,
                      p.read_only() && !p.has_values()),
               {}});
}

bool Restorer::same_codes(Parameter& p, const std::string& path) {
  const auto found = tensors_.find(path + ".codes");
  if (!p.low_bit() || found == tensors_.end()) return false;
  const CodesRecord& r = found->second;
  const QuantParams& params = *p.value().quant();
  if (r.dtype != p.spec().dtype() || r.shape != p.shape() || r.scheme != params.scheme ||
      !(r.granularity == params.granularity))
    return false;
  for (const auto& [part, ours] : {std::pair<const char*, bool>{".scale", params.scale != nullptr},
                                   {".zero", params.zero != nullptr},
                                   {".offset", params.offset != nullptr},
                                   {".statistic", params.statistic != nullptr}})
    if (file_->contains(path + part) != ours) return false;
  Tensor master;
  if (p.has_master()) {
    master = numbers(path, p.shape());
    const DeviceGuard cpu(Device::cpu());
    if (p.master().dtype() != master.dtype())
      master = Tensor::from_elements(p.shape(), p.master().dtype(), master.elements(), MemoryKind::kWorkspace);
  }
  p.restore({master, codes(p, path)});
  return true;
}

Tensor Restorer::numbers(const std::string& path, const Shape& shape) {
  const DeviceGuard cpu(Device::cpu());
  for (const char* form : {".master", ".value"}) {
    const std::string name = path + form;
    if (!file_->contains(name)) continue;
    return floats(name, shape, MemoryKind::kWorkspace);
  }
  if (!file_->contains(path + ".codes"))
    bad(file_->path(), concat("has no values for parameter '", path, "' ", shape, " of this model"));
  return values_of_codes(path, shape);
}

namespace {

// Whether what training keeps of a parameter of the model has this name: moments (<path>.<rule>.<part>), learned parts
// (<path>.<part>.master), codes of a window. Parts of its value append one name, and a master as well.
bool of_training(const std::string& name, const std::set<std::string>& parameters) {
  size_t dots = 0;
  for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.', dot - 1)) {
    ++dots;
    if (parameters.count(name.substr(0, dot)) > 0) return dots > 1 || name.compare(dot, 8, kWindowPrefix) == 0;
  }
  return false;
}

}  // namespace

void Restorer::done(Module* model) const {
  std::set<std::string> parameters;
  if (model != nullptr)
    for (const Parameter* p : model->parameters()) parameters.insert(p->path());
  for (const SafetensorsEntry& e : file_->entries())
    if (!used(e.name) && !e.name.ends_with(detail::kAverageEnd) && !of_training(e.name, parameters))
      bad(file_->path(), "tensor '" + e.name + "' does not belong to this model");
}

// Zeros if rows have pad bits, which the file does not fill.
Tensor Restorer::room(const Shape& shape, DType dtype, MemoryKind kind) const {
  const Tensor t = Tensor::empty(shape, dtype, kind, Device::cpu());
  return t.stride() == row_bytes_file(dtype, t.cols()) ? t : Tensor::zeros(shape, dtype, kind, Device::cpu());
}

// Rows of the file are back to back.
void Restorer::fill(const std::string& name, const Tensor& t) const {
  const int64_t row = row_bytes_file(t.dtype(), t.cols());
  if (t.stride() == row) return file_->copy(name, 0, row * t.rows(), t.data());
  constexpr int64_t kBlock = int64_t{1} << 20;
  const int64_t rows = std::max<int64_t>(kBlock / std::max<int64_t>(row, 1), 1);
  std::vector<uint8_t> block(static_cast<size_t>(std::min(rows, t.rows()) * row));
  for (int64_t begin = 0; begin < t.rows(); begin += rows) {
    const int64_t end = std::min(begin + rows, t.rows());
    file_->copy(name, begin * row, (end - begin) * row, block.data());
    fill_rows(t, begin, end, block.data());
  }
}

const SafetensorsEntry& Restorer::entry(const std::string& name, const std::string& dtype, const Shape& shape) {
  if (!file_->contains(name)) bad(file_->path(), "tensor '" + name + "' is missing");
  const SafetensorsEntry& e = file_->entry(name);
  if (e.dtype != dtype || Shape(e.shape) != shape)
    bad(file_->path(),
        concat("tensor '", name, "' is ", Shape(e.shape), ' ', e.dtype, ", expected ", shape, ' ', dtype));
  used_.insert(name);
  return e;
}

const CodesRecord& Restorer::record(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) bad(file_->path(), "the metadata has no record of '" + name + "'");
  return found->second;
}

Tensor Restorer::bare_codes(const std::string& name, const CodesRecord& record, MemoryKind kind) {
  entry(name, "U8", Shape{record.shape.rows(), row_bytes_file(record.dtype, record.shape.cols())});
  Tensor t = room(record.shape, record.dtype, kind);
  fill(name, t);
  check_codes(name, t);
  return t;
}

Tensor Restorer::codes(const Parameter& p, const std::string& path, const std::string& prefix) {
  const std::string start = path + prefix;
  const CodesRecord& r = record(path + ".codes");
  if (r.dtype != p.spec().dtype() || r.shape != p.shape())
    bad(file_->path(), concat("parameter '", path, "' is ", r.shape, ' ', r.dtype, ", the model has ", p.shape(), ' ',
                              p.spec().dtype()));
  const Tensor t = bare_codes(start + "codes", r, p.has_values() ? MemoryKind::kWorkspace : MemoryKind::kValue);
  const std::shared_ptr<const QuantParams> form = p.has_values() ? p.value().quant() : params_form(*p.spec().quant);
  const QuantParams& model = *form;
  const Shape count{scale_count(model.granularity, p.shape().rows(), p.shape().cols())};
  if (r.scheme != model.scheme || r.granularity != model.granularity)
    bad(file_->path(), concat("parameter '", path, "' is quantized as ", r.scheme, ", ", r.granularity,
                              ", the model has ", model.scheme, ", ", model.granularity));
  auto params = std::make_shared<QuantParams>();
  params->scheme = r.scheme;
  params->granularity = r.granularity;
  // The file must have all parts of the model: a missing one would count as 1 or 0.
  const auto part = [&](const char* suffix, const std::shared_ptr<const Tensor>& like) {
    return like ? quant_part(start + suffix, like->dtype(), count, MemoryKind::kQuantState, r.dtype) : nullptr;
  };
  params->scale = part("scale", model.scale);
  params->zero = part("zero", model.zero);
  params->offset = part("offset", model.offset);
  params->statistic = part("statistic", model.statistic);
  return t.with_quant(std::move(params));
}

// No model determines the scheme's parts, so those in the file are used.
Tensor Restorer::values_of_codes(const std::string& path, const Shape& shape) {
  const std::string name = path + ".codes";
  const CodesRecord& r = record(name);
  if (r.shape != shape) bad(file_->path(), concat("parameter '", path, "' is ", r.shape, ", the model has ", shape));
  const Tensor t = bare_codes(name, r, MemoryKind::kWorkspace);
  auto params = std::make_shared<QuantParams>();
  params->scheme = r.scheme;
  params->granularity = r.granularity;
  const Shape count{scale_count(r.granularity, shape.rows(), shape.cols())};
  const auto part = [&](const char* suffix, DType dtype) {
    return file_->contains(path + suffix) ? quant_part(path + suffix, dtype, count, MemoryKind::kWorkspace, r.dtype)
                                          : nullptr;
  };
  params->scale = part(".scale", dtypes::fp32);
  params->zero = part(".zero", dtypes::int32);
  params->offset = part(".offset", dtypes::fp32);
  return dequantize_tensor(t.with_quant(std::move(params)), MemoryKind::kWorkspace);
}

// Checked because kernels trust zero points to be codes: overflow bounds of sums rely on it.
std::shared_ptr<const Tensor> Restorer::quant_part(const std::string& name, DType dtype, const Shape& shape,
                                                   MemoryKind kind, DType codes) {
  Tensor t = plain(name, dtype, shape, kind);
  const DeviceGuard host(Device::cpu());  // where the file's values are
  if (dtype == dtypes::fp32 && !kernels::all_finite(t.as<float>(), t.numel()))
    bad(file_->path(), "tensor '" + name + "' holds NaN or Inf");
  if (dtype == dtypes::int32) {
    const DTypeInfo& info = codes.info();
    for (int64_t i = 0; i < t.numel(); ++i)
      if (const int32_t z = t.as<int32_t>()[i]; z < info.qmin || z > info.qmax)
        bad(file_->path(),
            concat("tensor '", name, "', element ", i, ": ", z, ", which is not a zero point of ", codes));
  }
  return std::make_shared<const Tensor>(std::move(t));
}

// Kernels trust codes: values out of the dtype's range, or pad bits that are set, would be misread.
void Restorer::check_codes(const std::string& name, const Tensor& t) const {
  if (const std::string what = detail::wrong_codes(t); !what.empty())
    bad(file_->path(), concat("tensor '", name, "', ", what));
}

}  // namespace bitgrad::checkpoint
