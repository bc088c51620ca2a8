// Reads a decoder from a folder of Hugging Face.
#include <algorithm>
#include <cstring>
#include <set>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/interop/interop.h"
#include "interop/decoder_files.h"
#include "interop/hugging_face.h"

namespace bitgrad {
namespace {

using namespace interop;

constexpr std::string_view kFromFolder = "import";
constexpr int64_t kMostConfigBytes = 1 << 22;
constexpr std::string_view kScaleEnd = "_scale";  // appended to the name of a packed weight

HuggingFaceConfig config_of(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!file_system().exists(path) && file_system().exists(folder + "/adapter_config.json"))
    fail_with(ErrorCode::kData, kFromFolder, "'", folder,
              "' has adapters of PEFT and no model. Import their base model (",
              "base_model_name_or_path of adapter_config.json), and name the folder in adapters.init_from.");
  const std::vector<uint8_t> bytes = read_file(path, kMostConfigBytes);
  return parse_hugging_face_config({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

// Masks and tables that are not parameters.
bool is_table(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

class HuggingFaceImport {
 public:
  explicit HuggingFaceImport(const std::string& folder) : folder_(folder), config_(config_of(folder)), files_(folder) {
    const int64_t tensors = std::ssize(files_.names());
    if (config_.decoder.blocks > tensors)
      fail_with(ErrorCode::kData, kFromFolder, "'", folder, "': got ", config_.decoder.blocks, " blocks in files of ",
                tensors, " tensors.");
    out_.family = config_.family->name;
    out_.spec = decoder_model(config_.decoder);
    // The base model alone (LlamaModel, GPT2Model) has the same names without the first part.
    const bool fused = config_.family->fused_qkv;
    const std::string first = fused ? "transformer." : "model.", table = fused ? "wte.weight" : "embed_tokens.weight";
    const bool bare = !files_.contains(first + table) && files_.contains(table);
    if (bare) out_.notes.push_back(concat("tensors have no '", first, "' in front: taken as those of the base model"));
    mapped_ = tensor_map(find_decoder(out_.spec), *config_.family, FileFormat::kHuggingFace, bare ? "" : first);
    out_.read = config_.read;
    out_.unused = config_.unused;
    out_.read.insert(out_.read.end(), files_.read().begin(), files_.read().end());
    if (!files_.unused().empty())
      out_.notes.push_back("model.safetensors is read, as transformers does; the index of shards beside it is not");
    out_.origin = origin_of_folder(folder, out_.notes);
  }

  ImportedModel run() {
    check();
    out_.parameters = read_parameters(
        mapped_, [&](const MappedTensor& m) { return read(m); }, false, out_.notes);
    tokenizer();
    return std::move(out_);
  }

 private:
  bool packed(const MappedTensor& m) const {
    return config_.weights != HuggingFaceWeights::kFloats && m.matrix && !m.embedding;
  }
  bool coded(const MappedTensor& m) const {
    return !config_.schemes.empty() && m.matrix && !m.embedding && holds_codes(files_, m.name);
  }

  // What is wrong with a tensor; empty if nothing is.
  std::string wrong_with(const std::string& name, const Shape& shape, bool codes) const {
    if (!files_.contains(name)) return concat("\n  ", name, ": missing, expected ", shape);
    const SafetensorsEntry& e = files_.entry(name);
    if (Shape(e.shape) != shape) return concat("\n  ", name, ": got shape ", Shape(e.shape), ", expected ", shape);
    if (codes ? e.dtype == "U8" : is_float_type(e.dtype)) return "";
    return concat("\n  ", name, ": got dtype ", e.dtype, ", expected ", codes ? "U8" : "F32, F16, BF16 or F64");
  }

  // Reports all mismatches in one error.
  void check() {
    std::string wrong;
    std::set<std::string> known;
    for (const MappedTensor& m : mapped_) {
      known.insert(m.name);
      if (coded(m)) {
        wrong += wrong_with_codes(files_, m.name, m.shape, scheme_of_weight(config_.schemes, m.name));
        for (const std::string& name : code_tensors(files_, m.name)) known.insert(name);
        continue;
      }
      if (!packed(m)) {
        wrong += wrong_with(m.name, m.transposed ? Shape{m.shape[1], m.shape[0]} : m.shape, false);
        continue;
      }
      if (m.shape[0] % 4 != 0) wrong += concat("\n  ", m.name, ": got ", m.shape[0], " rows, expected a multiple of 4");
      const std::string scale = m.name + std::string(kScaleEnd);
      known.insert(scale);
      wrong += wrong_with(m.name, {m.shape[0] / 4, m.shape[1]}, true) + wrong_with(scale, {1}, false);
    }
    for (const std::string& name : files_.names()) {
      if (known.count(name) > 0) continue;
      if (is_table(name))
        out_.notes.push_back(concat(name, ": not a parameter, skipped"));
      else if (name == "lm_head.weight" && config_.decoder.tied && copy_of_embedding(name))
        out_.notes.push_back("lm_head.weight: a copy of the embedding, to which the configuration ties the head");
      else if (name == "lm_head.weight" && config_.decoder.tied)
        wrong += concat("\n  ", name,
                        ": differs from the embedding, to which tie_word_embeddings ties it. Remove one or the other");
      else
        wrong += concat("\n  ", name, ": unexpected");
    }
    if (!wrong.empty())
      fail_with(ErrorCode::kData, kFromFolder, "'", folder_, "' is not a model of ", config_.family->name,
                " as its config.json says:", wrong);
  }

  bool copy_of_embedding(const std::string& name) const {
    const Tensor head = files_.floats(name), table = files_.floats(mapped_[0].name);
    return head.shape() == table.shape() &&
           std::equal(head.as<float>(), head.as<float>() + head.numel(), table.as<float>());
  }

  Tensor read(const MappedTensor& m) const {
    if (m.offset != 0) return plus(files_.floats(m.name), static_cast<float>(m.offset));
    if (coded(m)) return read_codes(files_, m.name, m.shape, scheme_of_weight(config_.schemes, m.name));
    if (!packed(m) && m.transposed) return transpose(files_.floats(m.name), MemoryKind::kBuffer);
    if (!packed(m)) return m.matrix ? files_.stored_floats(m.name) : files_.floats(m.name);
    const std::string name = m.name + std::string(kScaleEnd);
    float scale = files_.floats(name).as<float>()[0];
    if (config_.weights == HuggingFaceWeights::kTernaryDivided) scale = 1 / scale;
    if (!(scale > 0 && scale < 1e30f))
      fail_with(ErrorCode::kData, kFromFolder, name, ": got a scale of ", scale, ", expected a positive number.");
    QuantParams params{.scheme = "ternary"};
    params.scale = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::fp32, scale, MemoryKind::kBuffer));
    return files_.ternary(m.name).with_quant(std::make_shared<const QuantParams>(std::move(params)));
  }

  static Tensor plus(const Tensor& t, float offset) {
    for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] += offset;
    return t;
  }

  void tokenizer() {
    for (const char* file : {"tokenizer.json", "tokenizer.model"}) {
      const std::string path = concat(folder_, '/', file);
      if (!file_system().exists(path)) continue;
      if (out_.tokenizer != nullptr) {
        out_.unused.push_back(file);
        continue;
      }
      try {
        out_.tokenizer = open_tokenizer(path);
        if (out_.tokenizer->vocabulary() <= config_.decoder.vocabulary) {
          out_.read.push_back(file);
          continue;
        }
        out_.notes.push_back(concat(path, ": skipped: it has ", out_.tokenizer->vocabulary(), " ids, the model ",
                                    config_.decoder.vocabulary));
      } catch (const Error& e) {
        std::string why = e.what();
        // The advice is followed below.
        if (file_system().exists(folder_ + "/tokenizer.model"))
          why = why.substr(0, why.find(" Take the tokenizer.model"));
        out_.notes.push_back(concat(path, ": skipped: ", why));
      }
      out_.unused.push_back(file);
      out_.tokenizer = nullptr;
    }
    const Tokenizer* const made = out_.tokenizer.get();
    if (out_.origin.end.empty() && made != nullptr && made->kind() == "bpe" && made->end_id() >= 0)
      out_.notes.push_back(concat("no file says which id ends a text: taken ", made->end_id(), ", '",
                                  made->bytes(made->end_id()), "', by its name"));
    const bool pieces = out_.tokenizer != nullptr && out_.tokenizer->kind() == "sentencepiece";
    for (const char* file : {"generation_config.json", "tokenizer_config.json", "added_tokens.json",
                             "special_tokens_map.json", "chat_template.jinja", "vocab.json", "merges.txt"}) {
      const std::string_view name = file;
      if (!file_system().exists(concat(folder_, '/', file))) continue;
      const bool used =
          name.ends_with("_config.json") || (name == "added_tokens.json" && pieces) || name == "chat_template.jinja";
      (used ? out_.read : out_.unused).push_back(file);
    }
  }

  const std::string folder_;
  const HuggingFaceConfig config_;
  const HuggingFaceFiles files_;
  std::vector<MappedTensor> mapped_;
  ImportedModel out_;
};

}  // namespace

ImportedModel import_hugging_face(const std::string& folder) {
  const DeviceGuard host(Device::cpu());
  return HuggingFaceImport(folder).run();
}

}  // namespace bitgrad
