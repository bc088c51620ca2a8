#include "interop/decoder_files.h"

#include <algorithm>

#include "bitgrad/base/error.h"

namespace bitgrad {

bool ExportReport::refused() const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const ExportedTensor& t) { return t.fate == ExportedTensor::Fate::kRefused; }) ||
         std::any_of(layers.begin(), layers.end(),
                     [](const ExportedLayer& l) { return l.fate == ExportedTensor::Fate::kRefused; });
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

std::string ModelValues::input_refusal(const MappedTensor& mapped) const {
  const auto slot = slots_.find(mapped.parameter);
  if (slot == slots_.end() || !slot->second.input) return "";
  const DType dtype = slot->second.input->dtype;
  if (!dtype.is_code() || dtype.bits() >= 8) return "";
  return concat("its inputs are ", dtype, ": the program that reads the file rounds them to 8 bits");
}

void require_none_refused(const ExportReport& report, std::string_view where) {
  if (!report.refused()) return;
  std::string all;
  for (const ExportedTensor& t : report.tensors)
    if (t.fate == ExportedTensor::Fate::kRefused) all += concat("\n  ", t.name, " (", t.parameter, "): ", t.reason);
  fail(where, "files of ", report.family, " do not hold these tensors:", all,
       "\nRows in groups of 32 with scale_dtype: fp16 fit all types of few bits.");
}

}  // namespace interop
}  // namespace bitgrad
