#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "interop/decoder_files.h"

namespace bitgrad::interop {

namespace {

constexpr std::string_view kRowsWhere = "rows";

// Quantization parameters row by row, `groups` per row.
struct RowScales {
  int64_t group = 0;  // columns of a group; 0: one per row
  int64_t groups = 1;
  std::vector<float> scale = {}, offset = {};
  std::vector<int32_t> zero = {};
};

template <typename T>
std::shared_ptr<const Tensor> flat(const std::vector<T>& numbers, DType dtype) {
  if (numbers.empty()) return nullptr;
  const Tensor t = Tensor::zeros({std::ssize(numbers)}, dtype, MemoryKind::kBuffer, Device::cpu());
  std::copy(numbers.begin(), numbers.end(), t.as<T>());
  return std::make_shared<const Tensor>(t);
}

int64_t groups_in(int64_t cols, int64_t group) { return group == 0 ? 1 : (cols + group - 1) / group; }

// Appends the parameters of the given rows, `out.groups` for each.
void append_scales(const Tensor& t, std::span<const int64_t> rows, RowScales& out) {
  const ScaleMap map = t.scale_map();
  for (const int64_t r : rows)
    for (int64_t g = 0; g < out.groups; ++g) {
      const auto at = static_cast<size_t>(map.index(r, g * out.group));
      out.scale.push_back(map.scale == nullptr ? 1.0f : map.scale[at]);
      if (map.offset != nullptr) out.offset.push_back(map.offset[at]);
      if (map.zero != nullptr) out.zero.push_back(map.zero[at]);
    }
}

template <typename T>
bool equal_in_runs(const std::vector<T>& numbers, size_t run) {
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != numbers[i - i % run]) return false;
  return true;
}
template <typename T>
void keep_every(std::vector<T>& numbers, size_t run) {
  for (size_t i = 0; i * run < numbers.size(); ++i) numbers[i] = numbers[i * run];
  numbers.resize((numbers.size() + run - 1) / run);
}
bool equal_in_runs(const RowScales& s, size_t run) {
  return equal_in_runs(s.scale, run) && equal_in_runs(s.offset, run) && equal_in_runs(s.zero, run);
}
void keep_every(RowScales& s, size_t run) {
  keep_every(s.scale, run);
  keep_every(s.offset, run);
  keep_every(s.zero, run);
}

Tensor with_scales(const Tensor& t, const std::string& scheme, const Granularity& granularity, const RowScales& s) {
  QuantParams params{.scheme = scheme, .granularity = granularity};
  params.scale = flat(s.scale, dtypes::fp32);
  params.offset = flat(s.offset, dtypes::fp32);
  params.zero = flat(s.zero, dtypes::int32);
  return t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

Granularity granularity_of(const RowScales& s) {
  return s.group == 0 ? Granularity::channel(0) : Granularity::groups(s.group);
}

void copy_rows(const Tensor& from, std::span<const int64_t> rows, const Tensor& to, int64_t first) {
  const auto bytes = static_cast<size_t>(row_bytes_file(from.dtype(), from.cols()));
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(static_cast<char*>(to.data()) + (first + static_cast<int64_t>(i)) * to.stride(),
                static_cast<const char*>(from.data()) + rows[i] * from.stride(), bytes);
}

// For an fp32 vector.
Tensor take_numbers(const Tensor& vector, std::span<const int64_t> at) {
  const Tensor t = vector.on_host();
  Tensor out = Tensor::zeros({std::ssize(at)}, t.dtype(), MemoryKind::kBuffer, Device::cpu());
  for (size_t i = 0; i < at.size(); ++i) {
    require(at[i] >= 0 && at[i] < t.numel(), kRowsWhere, "number ", at[i], " of ", t);
    out.as<float>()[i] = t.as<float>()[at[i]];
  }
  return out;
}

template <typename Change>
Tensor with_changed_scales(const Tensor& codes, const Change& change) {
  const DeviceGuard host(Device::cpu());
  const Tensor t = codes.on_host();
  QuantParams params = t.quant() ? *t.quant() : QuantParams{.scheme = "fixed"};
  for (auto* numbers : {&params.scale, &params.offset}) {
    if (*numbers == nullptr && numbers == &params.offset) continue;
    const bool none = *numbers == nullptr;
    const Tensor changed =
        none ? Tensor::full({1}, dtypes::fp32, 1, MemoryKind::kBuffer) : (*numbers)->clone(MemoryKind::kBuffer);
    for (int64_t i = 0; i < changed.numel(); ++i) changed.as<float>()[i] = change(changed.as<float>()[i]);
    *numbers = std::make_shared<const Tensor>(changed);
  }
  return t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

}  // namespace

int64_t group_of(const Tensor& t) {
  const ScaleMap map = t.scale_map();
  return map.col_step == 0 ? 0 : map.col_group;
}

std::vector<int64_t> rows_in_file(const MappedTensor& mapped, bool interleaved) {
  const int64_t n = mapped.shape[0];
  std::vector<int64_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), mapped.begin);
  if (mapped.heads == 0) return rows;
  const int64_t dim = n / mapped.heads, half = dim / 2;
  for (int64_t r = 0; r < n; ++r) {
    const int64_t head = r / dim * dim, i = r % dim;
    const int64_t from = interleaved ? i / 2 + i % 2 * half : i % half * 2 + i / half;
    rows[static_cast<size_t>(r)] = mapped.begin + head + from;
  }
  return rows;
}

std::vector<int64_t> inverse_order(std::span<const int64_t> order) {
  std::vector<int64_t> out(order.size());
  for (size_t i = 0; i < order.size(); ++i) out[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return out;
}

Tensor take_rows(const Tensor& matrix, std::span<const int64_t> rows) {
  const DeviceGuard host(Device::cpu());
  const auto n = std::ssize(rows);
  if (matrix.shape().rank() == 1) return take_numbers(matrix, rows);
  const Tensor t = matrix.on_host();
  require(t.layout() == layouts::canonical, kRowsWhere, "got ", t.describe(),
          ", expected codes in the canonical layout");
  for (const int64_t r : rows) require(r >= 0 && r < t.rows(), kRowsWhere, "row ", r, " of ", t);
  Tensor out = Tensor::zeros({n, t.cols()}, t.dtype(), MemoryKind::kBuffer, Device::cpu());
  copy_rows(t, rows, out, 0);
  if (t.quant() == nullptr || t.scale_map().trivial()) return out;
  if (t.scale_map().per_tensor()) return out.with_quant(t.quant());
  RowScales scales;
  scales.group = group_of(t);
  scales.groups = groups_in(t.cols(), scales.group);
  append_scales(t, rows, scales);
  return with_scales(out, t.quant()->scheme, granularity_of(scales), scales);
}

bool as_one_type(std::vector<Tensor>& parts) {
  const auto kind = [](const Tensor& t) {
    const QuantParams* const q = t.quant().get();
    return std::tuple{t.dtype(), q != nullptr && q->offset != nullptr, q != nullptr && q->zero != nullptr};
  };
  if (std::all_of(parts.begin(), parts.end(), [&](const Tensor& t) { return kind(t) == kind(parts[0]); })) return false;
  for (Tensor& t : parts) t = Tensor::from(t.to_vector(), t.shape(), dtypes::fp32, MemoryKind::kBuffer);
  return true;
}

Tensor stack_rows(const std::vector<Tensor>& parts) {
  const DeviceGuard host(Device::cpu());
  const Tensor& first = parts.at(0);
  int64_t rows = 0;
  bool any = false;
  RowScales scales;
  for (const Tensor& t : parts) {
    require(t.dtype() == first.dtype() && t.cols() == first.cols(), kRowsWhere, "got ", t, " below ", first);
    rows += t.rows();
    any |= t.quant() != nullptr && !t.scale_map().trivial();
    const int64_t group = group_of(t);
    scales.group = scales.group == 0 || group == 0 ? std::max(scales.group, group) : std::gcd(scales.group, group);
  }
  scales.groups = groups_in(first.cols(), scales.group);
  Tensor out = Tensor::zeros({rows, first.cols()}, first.dtype(), MemoryKind::kBuffer, Device::cpu());
  int64_t begin = 0;
  for (const Tensor& part : parts) {
    const Tensor t = part.on_host();
    std::vector<int64_t> all(static_cast<size_t>(t.rows()));
    std::iota(all.begin(), all.end(), 0);
    copy_rows(t, all, out, begin);
    if (any) append_scales(t, all, scales);
    begin += t.rows();
  }
  if (!any) return out;
  const std::string scheme = first.quant() ? first.quant()->scheme : "fixed";
  const auto groups = static_cast<size_t>(scales.groups);
  if (equal_in_runs(scales, groups * static_cast<size_t>(rows))) {
    keep_every(scales, groups * static_cast<size_t>(rows));
    return with_scales(out, scheme, Granularity::tensor(), scales);
  }
  if (equal_in_runs(scales, groups)) {
    keep_every(scales, groups);
    scales.group = 0;
  }
  return with_scales(out, scheme, granularity_of(scales), scales);
}

std::vector<std::pair<std::string, Tensor>> read_parameters(const std::vector<MappedTensor>& mapped,
                                                            const std::function<Tensor(const MappedTensor&)>& read,
                                                            bool coarse, std::vector<std::string>& notes) {
  std::map<std::string, std::vector<const MappedTensor*>> parts;
  std::vector<std::string> order;
  for (const MappedTensor& m : mapped) {
    if (m.parameter.empty()) continue;
    if (parts.find(m.parameter) == parts.end()) order.push_back(m.parameter);
    parts[m.parameter].push_back(&m);
  }
  std::vector<std::pair<std::string, Tensor>> out;
  for (const std::string& name : order) {
    std::vector<Tensor> tensors;
    for (const MappedTensor* m : parts[name]) tensors.push_back(read(*m));  // in row order
    if (parts[name][0]->matrix) {
      if (as_one_type(tensors)) notes.push_back(concat(name, ": its parts are of several types: read as fp32"));
      out.emplace_back(name, tensors.size() == 1 && !coarse ? tensors[0] : stack_rows(tensors));
      continue;
    }
    std::vector<float> all;
    for (const Tensor& t : tensors)
      for (const float x : t.to_vector()) all.push_back(x);
    out.emplace_back(name, Tensor::from(all, {std::ssize(all)}, dtypes::fp32, MemoryKind::kBuffer));
  }
  return out;
}

Tensor with_fp16_scales(const Tensor& codes) {
  return with_changed_scales(codes, [](float x) { return fp16_to_float(fp16_from_float(x)); });
}
Tensor with_scales_times(const Tensor& codes, float factor) {
  return with_changed_scales(codes, [factor](float x) { return x * factor; });
}

}  // namespace bitgrad::interop

namespace bitgrad {

bool ExportReport::refused() const {
  const auto is_refused = [](const auto& row) { return row.fate == ExportedTensor::Fate::kRefused; };
  return std::any_of(tensors.begin(), tensors.end(), is_refused) ||
         std::any_of(layers.begin(), layers.end(), is_refused);
}

void ExportReport::require_all_held(std::string_view where, std::string_view hint) const {
  std::string of_layers, of_tensors;
  for (const ExportedLayer& l : layers)
    if (l.fate == ExportedTensor::Fate::kRefused)
      of_layers += concat("\n  ", l.layer, " (", l.operation, "): ", l.reason);
  for (const ExportedTensor& t : tensors)
    if (t.fate == ExportedTensor::Fate::kRefused)
      of_tensors += concat("\n  ", t.parameter, t.name.empty() ? "" : concat(" (", t.name, ')'), ": ", t.reason);
  require(of_layers.empty() && of_tensors.empty(), where, "this format does not hold these ",
          of_layers.empty() ? "tensors" : "layers", ':', of_layers, of_tensors, hint);
}

namespace interop {

ModelValues::ModelValues(Module& model) {
  require(model.initialized(), "export", "the model has no values: initialize or load it first.");
  for (const auto& [path, parameter] : model.parameters_at(kModelRoot)) parameters_[path] = parameter;
  for (const Module::QuantizableAt& at : model.quantizables_at(kModelRoot)) {
    require(at.slot->adapter() == nullptr, "export", at.layer,
            ": has a low-rank adapter. Add it to the weight first: bitgrad merge.");
    const bool low_bits = at.slot->weight().low_bit() || at.slot->quant().input.has_value();
    require(at.slot->on() || !low_bits, "export", at.layer,
            ": quantization is switched off. Convert the model first: bitgrad convert.");
    if (at.slot->name() == "weight") slots_[at.layer + ".weight"] = at.slot->quant();
  }
}

Tensor ModelValues::part(const MappedTensor& mapped, bool interleaved) const {
  if (mapped.parameter.empty()) return Tensor::zeros(mapped.shape, dtypes::fp32, MemoryKind::kBuffer, Device::cpu());
  const auto found = parameters_.find(mapped.parameter);
  require(found != parameters_.end(), "export", "the model has no parameter '", mapped.parameter, "'.");
  const Tensor value = found->second->value();
  const int64_t rows = mapped.matrix ? value.rows() : value.numel(), last = mapped.begin + mapped.shape[0];
  require(last <= rows && (!mapped.matrix || value.cols() == mapped.shape[1]), "export", mapped.parameter, ": got ",
          value, ", expected rows ", mapped.begin, " .. ", last, " of ", mapped.shape.cols(), '.');
  return take_rows(mapped.matrix ? value : value.reshape({value.numel()}), rows_in_file(mapped, interleaved));
}

ExportedTensor ModelValues::row(const MappedTensor& mapped) const {
  ExportedTensor out{.name = mapped.name, .parameter = mapped.parameter, .reason = input_refusal(mapped)};
  if (mapped.parameter.empty()) out.fate = ExportedTensor::Fate::kZeros;
  if (!out.reason.empty()) out.fate = ExportedTensor::Fate::kRefused;
  return out;
}

std::string ModelValues::input_refusal(const MappedTensor& mapped) const {
  const auto slot = slots_.find(mapped.parameter);
  if (slot == slots_.end() || !slot->second.input) return "";
  const DType dtype = slot->second.input->dtype;
  if (!dtype.is_code() || dtype.bits() >= 8) return "";
  return concat("its inputs are ", dtype, ": the program that reads the file rounds them to 8 bits");
}

}  // namespace interop

}  // namespace bitgrad
