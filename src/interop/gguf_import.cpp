// Reads a decoder from a file of llama.cpp.
#include <algorithm>
#include <map>
#include <set>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "interop/decoder_files.h"
#include "interop/gguf_keys.h"
#include "tensor/narrow.h"

namespace bitgrad {
namespace {

using namespace interop;

constexpr std::string_view kImportWhere = "gguf";

std::string scale_name(const MappedTensor& m) { return m.name.substr(0, m.name.rfind('.')) + ".scale"; }

Tensor as_floats(const Tensor& t) {
  const std::vector<float> values = t.to_vector();
  return Tensor::from(values, t.shape(), dtypes::fp32, MemoryKind::kBuffer);
}

class GgufImport {
 public:
  explicit GgufImport(const std::string& path) : file_(GgufFile::read(path)), made_(decoder_of(file_)) {
    if (made_.decoder.blocks > std::ssize(file_.entries()))
      fail_with(ErrorCode::kData, kImportWhere, "'", path, "': got ", made_.decoder.blocks, " blocks in a file of ",
                file_.entries().size(), " tensors.");
  }

  ImportedModel run() {
    Decoder& d = made_.decoder;
    const Family& family = *made_.family;
    list_keys(file_, family, out_.read, out_.unused);
    if (!family.activations_newer.empty() && file_.find(kActivationKey) == nullptr &&
        file_.find(concat(family.name, '.', kHiddenActivation)) == nullptr)
      out_.notes.push_back(concat("no key says the activation: taken ", d.activation,
                                  ", as llama.cpp computes it, not ", family.activations_newer));
    map();
    check();
    if (made_.family->biases) {
      drop_zeros(d.norm_bias, {"attn_norm", "ffn_norm"}, "norms", {"output_norm.bias"});
      drop_zeros(d.qkv_bias, {"attn_qkv"}, "q, k and v");
      drop_zeros(d.out_bias, {"attn_output"}, "the output of attention");
      drop_zeros(d.ffn_bias, {"ffn_up", "ffn_down"}, "the feed-forward");
      map();
    }
    out_.family = made_.family->name;
    out_.spec = spec_;
    out_.parameters = read_parameters(
        mapped_, [&](const MappedTensor& m) { return read(m); }, true, out_.notes);
    out_.types = types();
    out_.tokenizer = vocabulary_of(file_, d.vocabulary, out_.notes);
    out_.origin = origin_of_keys(file_, d.vocabulary);
    out_.origin.context = d.context;
    for (const GgufEntry& e : file_.entries())
      if (e.name == "output.weight" && d.tied) out_.unused.push_back("tensor output.weight");
    return std::move(out_);
  }

 private:
  void map() {
    spec_ = decoder_model(made_.decoder);
    mapped_ = tensor_map(find_decoder(spec_), *made_.family, FileFormat::kGguf);
  }

  std::map<std::string, std::string> types() const {
    std::map<std::string, std::string> out;
    for (const MappedTensor& m : mapped_) {
      if (!m.matrix || m.parameter.empty()) continue;
      const std::string_view name = gguf_type(file_.entry(m.name).type).name;
      std::string& all = out[m.parameter];
      if (!has_word(all, name)) all += concat(all.empty() ? "" : " ", name);
    }
    return out;
  }

  // Reports all mismatches in one error.
  void check() const {
    std::string wrong;
    std::set<std::string> known{std::string(kRopeFactors)};
    for (const MappedTensor& m : mapped_) {
      known.insert(m.name);
      if (made_.family->scale_tensors && m.matrix && !m.embedding) {
        const std::string scale = scale_name(m);
        known.insert(scale);
        if (file_.contains(scale) && file_.entry(scale).shape != std::vector<int64_t>{1})
          wrong += concat("\n  ", scale, ": got shape ", Shape(file_.entry(scale).shape), ", expected [1]");
      }
      if (!file_.contains(m.name))
        wrong += concat("\n  ", m.name, ": missing, expected ", m.shape);
      else if (Shape(file_.entry(m.name).shape) != m.shape)
        wrong += concat("\n  ", m.name, ": got shape ", Shape(file_.entry(m.name).shape), ", expected ", m.shape);
    }
    for (const GgufEntry& entry : file_.entries())
      if (known.find(entry.name) == known.end() && !copy_of_embedding(entry.name))
        wrong += concat("\n  ", entry.name, ": unexpected");
    if (!wrong.empty())
      fail_with(ErrorCode::kData, kImportWhere, "'", file_.path(), "' is not a model of ", made_.family->name, ':',
                wrong);
  }

  // A tied head that was saved a second time.
  bool copy_of_embedding(const std::string& name) const {
    if (name != "output.weight" || !made_.decoder.tied) return false;
    const GgufEntry &head = file_.entry(name), &table = file_.entry("token_embd.weight");
    return head.type == table.type && head.shape == table.shape && file_.data(name) == file_.data(table.name);
  }

  bool all_zero(const std::string& name) const {
    const std::vector<double> values = gguf_tensor(file_, name).values();
    return std::all_of(values.begin(), values.end(), [](double x) { return x == 0; });
  }
  // Omits biases that the family requires in files if all of them are zero.
  void drop_zeros(bool& has, std::initializer_list<std::string_view> names, std::string_view what,
                  std::vector<std::string> all = {}) {
    for (int64_t n = 0; n < made_.decoder.blocks; ++n)
      for (const std::string_view name : names) all.push_back(concat("blk.", n, '.', name, ".bias"));
    if (!std::all_of(all.begin(), all.end(), [&](const std::string& name) { return all_zero(name); })) return;
    has = false;
    out_.notes.push_back(concat("biases of ", what, " are zeros: skipped"));
  }

  // Reads a part, with its rows in the order of the model.
  Tensor read(const MappedTensor& m) const {
    Tensor t = gguf_tensor(file_, m.name);
    if (!m.matrix || (t.dtype().is_float() && !detail::is_narrow(t.dtype()))) t = as_floats(t);
    const std::string scale = scale_name(m);
    if (m.matrix && !m.embedding && made_.family->scale_tensors && file_.contains(scale)) {
      const auto factor = static_cast<float>(gguf_tensor(file_, scale).item());
      t = t.dtype().is_code() ? with_scales_times(t, factor) : scaled(as_floats(t), factor);
    }
    if (m.heads == 0) return t;
    MappedTensor from_zero = m;
    from_zero.begin = 0;
    return take_rows(t, inverse_order(rows_in_file(from_zero, made_.family->interleaved)));
  }
  static Tensor scaled(const Tensor& t, float factor) {
    for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] *= factor;
    return t;
  }

  const GgufFile file_;
  GgufDecoder made_;
  ModelSpec spec_;
  std::vector<MappedTensor> mapped_;
  ImportedModel out_;
};

}  // namespace

ImportedModel import_gguf(const std::string& path) {
  const DeviceGuard host(Device::cpu());
  return GgufImport(path).run();
}

}  // namespace bitgrad
