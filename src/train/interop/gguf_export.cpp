// Writes a decoder to a file that llama.cpp opens.
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/io/gguf_tensors.h"
#include "train/interop/export_plan.h"
#include "train/interop/gguf_choice.h"
#include "train/interop/gguf_ids.h"
#include "train/interop/gguf_keys.h"
#include "train/interop/gguf_vocabulary.h"
#include "train/interop/rope_scaling.h"

namespace bitgrad {
namespace {

using namespace interop;
using Fate = ExportedTensor::Fate;

constexpr std::string_view kExportWhere = "export";

const Family& chosen_family(const std::string& name, const Decoder& decoder) {
  if (name.empty()) return family_of(decoder);
  const Family* const family = find_family(name);
  if (family != nullptr) return *family;
  std::string known;
  for (const Family& f : families()) known += concat(known.empty() ? "" : ", ", f.name);
  fail(kExportWhere, "family: got ", name, ", expected one of: ", known, '.');
}

std::string stem(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

class GgufExport {
 public:
  GgufExport(Module& model, const Family& family, bool write) : values_(model), family_(family), write_(write) {
    report_.family = family.name;
  }

  void add(const MappedTensor& mapped) {
    const Tensor part = values_.part(mapped, family_.interleaved);
    ExportedTensor& out = report_.tensors.emplace_back();
    out.name = mapped.name;
    out.parameter = mapped.parameter;
    out.shape = mapped.shape;
    const bool scale_tensor = family_.scale_tensors && mapped.matrix && !mapped.embedding;
    const GgufChoice choice = choose_gguf_type(part, scale_tensor);
    out.type = gguf_type(choice.type).name;
    out.reason = choice.reason;
    out.error = choice.error;
    out.fate = mapped.parameter.empty()                 ? Fate::kZeros
               : choice.kind == GgufFit::Kind::kExact   ? Fate::kExact
               : choice.kind == GgufFit::Kind::kRounded ? Fate::kRounded
                                                        : Fate::kRefused;
    if (const std::string inputs = values_.input_refusal(mapped); !inputs.empty()) {
      out.fate = Fate::kRefused;
      out.reason = inputs;
    }
    if (out.fate == Fate::kRefused) out.type = "";
    if (out.fate != Fate::kRefused && write_)
      items_.push_back(gguf_item(mapped.name, choice.one_scale ? part.without_quant() : part, choice.type));
    if (out.fate != Fate::kRefused && choice.one_scale) add_scale(mapped, part.scale_map().scale[0]);
  }

  // What frequencies of rotary positions are divided by.
  void add_rope_factors(const RopeOptions& rope) {
    const std::vector<float> factors = rope_factors(rope);
    const std::string name(kRopeFactors);
    report_.tensors.push_back({.name = name, .shape = {std::ssize(factors)}, .type = "F32"});
    const Tensor t = Tensor::from(factors, {std::ssize(factors)}, dtypes::fp32, MemoryKind::kBuffer);
    if (write_) items_.push_back(gguf_item(name, t, GgufType::kF32));
  }

  ExportReport& report() { return report_; }
  const std::vector<GgufItem>& items() const { return items_; }

 private:
  // The factor by which llama.cpp multiplies the product of the weight.
  void add_scale(const MappedTensor& mapped, float scale) {
    const std::string name = stem(mapped.name) + ".scale";
    report_.tensors.push_back({.name = name, .parameter = mapped.parameter, .shape = {1}, .type = "F32"});
    const Tensor number = Tensor::full({1}, dtypes::fp32, scale, MemoryKind::kBuffer);
    if (write_) items_.push_back(gguf_item(name, number, GgufType::kF32));
  }

  const ModelValues values_;
  const Family& family_;
  const bool write_;
  ExportReport report_;
  std::vector<GgufItem> items_;
};

}  // namespace

ExportReport export_gguf(Module& model, const ModelSpec& spec, const Tokenizer* tokenizer, const std::string& path,
                         const ExportSpec& options) {
  const DeviceGuard host(Device::cpu());
  const FoundDecoder found = find_decoder(spec);
  const Family& family = chosen_family(options.family, found.decoder);
  check_fits(found, family, FileFormat::kGguf);
  GgufMetadata keys = decoder_keys(found.decoder, family);
  const ModelOrigin origin = parse_origin(options.origin, path);
  for (auto& key : vocabulary_keys(tokenizer, found.decoder.vocabulary, origin)) keys.push_back(std::move(key));
  GgufExport out(model, family, !options.dry_run);
  out.report().facts = lost_ids(tokenizer, found.decoder.vocabulary, origin);
  for (const MappedTensor& mapped : tensor_map(found, family, FileFormat::kGguf)) out.add(mapped);
  const Decoder& d = found.decoder;
  if (!d.learned_positions && d.rope.factor != 1 && !scales_linear(d.rope)) out.add_rope_factors(d.rope);
  if (options.dry_run) return std::move(out.report());
  require_none_refused(out.report(), kExportWhere);
  write_gguf(path, out.items(), keys);
  return std::move(out.report());
}

}  // namespace bitgrad
