// Writes a decoder to a file that llama.cpp opens.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/io/gguf.h"
#include "interop/decoder_files.h"
#include "interop/gguf_keys.h"

namespace bitgrad {
namespace {

using namespace interop;
using Fate = ExportedTensor::Fate;

constexpr std::string_view kExportWhere = "export";

// ---- the type of a weight
struct GgufChoice {
  GgufType type = GgufType::kF32;
  GgufFit fit = {};        // largest_error: of a value, relative to the tensor's largest value
  bool one_scale = false;  // blocks have d = 1, and the scale is in a tensor of its own
};

// In ascending order of bits per element. TQ1_0 is omitted: it is slow to unpack, and TQ2_0 has the same rows and
// codes.
constexpr GgufType kTypes[] = {GgufType::kQ1_0, GgufType::kTQ2_0, GgufType::kQ2_0, GgufType::kQ4_0,
                               GgufType::kQ4_1, GgufType::kQ5_0,  GgufType::kQ5_1, GgufType::kQ8_0};

double largest_difference(const Tensor& a, const Tensor& b) {
  double error = 0, largest = 0;
  for (int64_t r = 0; r < a.rows(); ++r) {
    const std::vector<double> x = a.row_slice(r, r + 1).values(), y = b.row_slice(r, r + 1).values();
    for (size_t i = 0; i < x.size(); ++i) {
      error = std::max(error, std::abs(x[i] - y[i]));
      largest = std::max(largest, std::abs(x[i]));
    }
  }
  return largest == 0 ? 0 : error / largest;
}

bool one_plain_scale(const Tensor& t) {
  const ScaleMap map = t.scale_map();
  return map.per_tensor() && map.scale != nullptr && map.zero == nullptr && map.offset == nullptr;
}

// The first type that stores the codes exactly.
bool choose_exact(const Tensor& t, GgufChoice& choice) {
  for (const GgufType type : kTypes) {
    const GgufFit fit = gguf_fit(t, type);
    if (fit.kind != GgufFit::Kind::kExact) continue;
    choice.type = type;
    return true;
  }
  return false;
}

// Codes get the smallest type that llama.cpp multiplies at full speed and that preserves them: exactly, or else with
// scales rounded to fp16. Floats are F32. scale_tensor: a scale per tensor that is not representable in fp16 may be
// stored in a separate tensor.
GgufChoice choose_gguf_type(const Tensor& tensor, bool scale_tensor) {
  GgufChoice choice;
  if (!tensor.dtype().is_code()) {
    choice.fit = gguf_fit(tensor, GgufType::kF32);
    return choice;
  }
  if (choose_exact(tensor, choice)) return choice;
  if (scale_tensor && one_plain_scale(tensor) && choose_exact(tensor.without_quant(), choice)) {
    choice.one_scale = true;
    return choice;
  }
  choice.fit.kind = GgufFit::Kind::kRefused;
  for (const GgufType type : kTypes) {
    const GgufFit fit = gguf_fit(tensor, type);
    if (fit.kind == GgufFit::Kind::kRounded) {
      choice.type = type, choice.fit = fit;
      choice.fit.largest_error = largest_difference(tensor, with_fp16_scales(tensor));
      return choice;
    }
    // The most informative reason: of the first type that holds such codes, but not their rows or scales.
    if (choice.fit.why.empty() && !fit.other_codes) choice.fit.why = fit.why;
  }
  if (choice.fit.why.empty()) choice.fit.why = concat("no type holds codes of ", tensor.dtype());
  return choice;
}

// ---- the file
std::string stem(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

class GgufExport {
 public:
  GgufExport(Module& model, const Family& family, bool write) : values_(model), family_(family), write_(write) {
    report_.variant = family.name;
  }

  void add(const MappedTensor& mapped) {
    const Tensor part = values_.part(mapped, family_.interleaved);
    ExportedTensor& out = report_.tensors.emplace_back(values_.row(mapped));
    out.shape = mapped.shape;
    const bool scale_tensor = family_.scale_tensors && mapped.matrix && !mapped.embedding;
    const GgufChoice choice = choose_gguf_type(part, scale_tensor);
    out.type = gguf_type(choice.type).name;
    if (out.fate != Fate::kRefused) {
      out.reason = choice.fit.why;
      if (out.fate == Fate::kExact)
        out.fate = choice.fit.kind == GgufFit::Kind::kExact     ? Fate::kExact
                   : choice.fit.kind == GgufFit::Kind::kRounded ? Fate::kRounded
                                                                : Fate::kRefused;
    }
    out.error = choice.fit.largest_error;
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
  require(options.client.empty() || options.client == "newer", kExportWhere, "--client: got ", options.client,
          ", expected newer, or none.");
  check_fits(found, family, FileFormat::kGguf, options.client == "newer");
  GgufMetadata keys = decoder_keys(found.decoder, family);
  const ModelOrigin origin = parse_origin(options.origin, path);
  for (auto& key : vocabulary_keys(tokenizer, found.decoder.vocabulary, origin)) keys.push_back(std::move(key));
  GgufExport out(model, family, !options.dry_run);
  out.report().facts = lost_ids(tokenizer, found.decoder.vocabulary, origin);
  for (const MappedTensor& mapped : tensor_map(found, family, FileFormat::kGguf)) out.add(mapped);
  const Decoder& d = found.decoder;
  if (!d.learned_positions && d.rope.factor != 1 && !scales_linear(d.rope)) out.add_rope_factors(d.rope);
  if (options.dry_run) return std::move(out.report());
  out.report().require_all_held(kExportWhere, kRefusedHint);
  write_gguf(path, out.items(), keys);
  return std::move(out.report());
}

}  // namespace bitgrad
