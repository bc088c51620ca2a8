// Writes a decoder to a folder of Hugging Face.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/interop/interop.h"
#include "interop/decoder_files.h"
#include "interop/hugging_face.h"

namespace bitgrad {
namespace {

using namespace interop;
using Fate = ExportedTensor::Fate;

constexpr std::string_view kToFolder = "export";

// The single scale of ternary codes; nullopt if there are several, or an offset.
std::optional<float> only_scale(const Tensor& t) {
  if (t.dtype() != dtypes::ternary || t.rows() % 4 != 0) return std::nullopt;
  if (t.quant() == nullptr || t.quant()->scale == nullptr || t.quant()->offset != nullptr || t.quant()->zero != nullptr)
    return std::nullopt;
  const Tensor& s = *t.quant()->scale;
  const float first = s.as<float>()[0];
  const bool same = std::all_of(s.as<float>(), s.as<float>() + s.numel(), [&](float x) { return x == first; });
  return same && first > 0 ? std::optional(first) : std::nullopt;
}

class HuggingFaceExport {
 public:
  HuggingFaceExport(Module& model, const Family& family, bool write) : values_(model), family_(family), write_(write) {
    report_.variant = family.name;
  }

  // Whether the weights of all products can be packed.
  bool packs(const std::vector<MappedTensor>& mapped) const {
    return family_.sub_norms && std::all_of(mapped.begin(), mapped.end(), [&](const MappedTensor& m) {
             return !m.matrix || m.embedding || only_scale(values_.part(m, false)).has_value();
           });
  }
  // ternary: in BitNet's packed form. codes: as integer codes where the tensor has some that fit.
  void add(const MappedTensor& m, bool ternary, bool codes) {
    const Tensor part = values_.part(m, false);
    const ExportedTensor row = values_.row(m);
    if (ternary && m.matrix && !m.embedding) return add_ternary(m, part, row);
    std::string why;
    if (codes && m.matrix && !m.embedding && row.fate != Fate::kRefused)
      if (std::optional<CodeScheme> scheme = scheme_for(part, why)) return add_codes(m, part, std::move(*scheme));
    add_floats(m, part, row, part.dtype().is_code() ? why : "");
  }
  // Those of the weights that add() wrote as codes.
  const std::vector<CodeScheme>& schemes() const { return schemes_; }

  ExportReport& report() { return report_; }
  const std::vector<SafetensorsItem>& items() const { return items_; }

 private:
  template <typename T>
  void write(ExportedTensor row, const std::vector<T>& numbers) {
    const ExportedTensor& out = report_.tensors.emplace_back(std::move(row));
    if (!write_) return;
    auto& bytes = bytes_.emplace_back(numbers.size() * sizeof(T));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    items_.push_back({out.name, out.type, out.shape.dims(), bytes.data(), std::ssize(bytes)});
  }
  template <typename T>
  void add_part(const MappedTensor& m, const char* end, const char* type, Shape shape, const std::vector<T>& numbers) {
    write({.name = m.name + end, .parameter = m.parameter, .shape = std::move(shape), .type = type}, numbers);
  }
  void add_codes(const MappedTensor& m, const Tensor& part, CodeScheme scheme) {
    const PackedCodes packed = pack_codes(part, scheme);
    add_part(m, "_packed", "I32", {part.rows(), packed.row_words}, packed.words);
    add_part(m, "_shape", "I64", {2}, part.shape().dims());
    add_part(m, "_scale", "F32", {part.rows(), packed.groups}, packed.scales);
    auto same = std::find(schemes_.begin(), schemes_.end(), scheme);
    if (same == schemes_.end()) same = schemes_.insert(schemes_.end(), std::move(scheme));
    same->targets.push_back(m.name.substr(0, m.name.rfind('.')));
  }

  void add_ternary(const MappedTensor& m, const Tensor& part, ExportedTensor row) {
    row.shape = {part.rows() / 4, part.cols()};
    row.type = "U8";
    write(std::move(row), packed_ternary(part));
    add_part(m, "_scale", "F32", {1}, std::vector<float>{*only_scale(part)});
  }

  // why: it is not packed; empty: it has no codes, or nothing asks for them.
  void add_floats(const MappedTensor& m, const Tensor& part, ExportedTensor row, const std::string& why) {
    std::vector<double> exact = part.values();
    std::vector<float> values = part.to_vector();
    if (m.offset != 0)
      for (size_t i = 0; i < exact.size(); ++i) values[i] = static_cast<float>(exact[i] -= m.offset);
    double apart = 0, largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      apart = std::max(apart, std::fabs(static_cast<double>(values[i]) - exact[i]));
      largest = std::max(largest, std::fabs(exact[i]));
    }
    if (apart > 0 && row.fate == Fate::kExact) {
      row.fate = Fate::kRounded;
      row.error = apart / largest;  // largest > apart
      row.reason = m.offset != 0 ? "files have these numbers less 1, rounded to fp32"
                                 : "products of scales and codes are rounded to fp32";
    }
    if (!why.empty()) row.reason += concat(row.reason.empty() ? "" : "; ", "not packed: ", why);
    row.type = "F32";
    row.shape = m.transposed ? Shape{m.shape[1], m.shape[0]} : m.shape;
    if (m.transposed) values = transpose(Tensor::from(values, m.shape, dtypes::fp32), MemoryKind::kBuffer).to_vector();
    write(std::move(row), values);
  }

  const ModelValues values_;
  const Family& family_;
  const bool write_;
  ExportReport report_;
  std::vector<SafetensorsItem> items_;
  std::deque<std::vector<uint8_t>> bytes_;
  std::vector<CodeScheme> schemes_;
};

// Whether weights are written as codes.
bool wants_codes(const ExportSpec& options, const Family& family) {
  if (options.form.empty() || options.form == "values") return false;
  require(options.form == "packed", kToFolder, "--form: got ", options.form, ", expected values or packed for hf.");
  require(!family.fused_qkv, kToFolder, "--form packed: the products of ", family.name,
          " are not linear layers for compressed-tensors. Omit it to write values.");
  return true;
}

bool has_several_chat_templates(const ModelOrigin& origin) {
  const Json& config = origin.tokenizer_config;
  return config.is_object() && config.contains("chat_template") && config.at("chat_template").is_array() &&
         config.at("chat_template").size() > 1;
}

}  // namespace

ExportReport export_hugging_face(Module& model, const ModelSpec& spec, const Tokenizer* tokenizer,
                                 const std::string& folder, const ExportSpec& options) {
  const DeviceGuard host(Device::cpu());
  const FoundDecoder found = find_decoder(spec);
  const Family& family = chosen_family(options.family, found.decoder);
  check_fits(found, family, FileFormat::kHuggingFace);
  HuggingFaceExport out(model, family, !options.dry_run);
  const std::vector<MappedTensor> mapped = tensor_map(found, family, FileFormat::kHuggingFace);
  const bool packed = out.packs(mapped);
  const bool codes = wants_codes(options, family);
  for (const MappedTensor& m : mapped) out.add(m, packed, codes);
  require(!codes || packed || !out.schemes().empty(), kToFolder,
          "--form packed: no weight has codes that compressed-tensors holds (integers of 2 to 8 bits, a scale for each "
          "row or group of columns). Leave it out: values are written.");
  if (codes && !packed)
    out.report().facts.emplace_back("opens in", "transformers and vLLM with the package compressed-tensors");
  if (options.dry_run) return std::move(out.report());
  out.report().require_all_held(kToFolder, kRefusedHint);
  HuggingFaceConfig config{&family, found.decoder};
  if (packed) config.weights = HuggingFaceWeights::kTernary;
  config.schemes = out.schemes();
  file_system().make_directories(folder);
  FileGroup group;
  const bool bpe = tokenizer != nullptr && tokenizer->kind() == "bpe";
  if (bpe) write_file_atomically(folder + "/tokenizer.json", tokenizer->content().dump(1));
  const ModelOrigin origin = parse_origin(options.origin, folder);
  Json text = hugging_face_config(config, end_ids(origin, tokenizer), origin);
  const char* const positions = family.fused_qkv ? "n_positions" : "max_position_embeddings";
  if (!found.decoder.learned_positions && origin.context > found.decoder.context) {
    text[positions] = origin.context;
    out.report().facts.emplace_back(
        positions, concat(origin.context, ", as the model was imported; it trained on ", found.decoder.context));
  }
  write_origin(folder, origin, tokenizer);
  if (tokenizer != nullptr && !bpe)
    out.report().facts.emplace_back(
        "tokenizer", concat(tokenizer->kind(), ": not written, since tokenizer.json does not support its kind"));
  if (!bpe && has_several_chat_templates(origin))
    out.report().facts.emplace_back("chat_template.jinja", "of several templates, the one named default alone");
  write_file_atomically(folder + "/config.json", text.dump(2) + "\n");
  write_safetensors(folder + "/model.safetensors", out.items(), {{"format", "pt"}});
  group.commit();
  return std::move(out.report());
}

}  // namespace bitgrad
