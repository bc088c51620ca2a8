// Models of other programs. 'C': a config.json of Hugging Face; 'I': a model.safetensors.index.json; 'G': a GGUF file;
// 'H': a folder of Hugging Face as parts with a byte 0x1e between: config.json, model.safetensors.index.json (empty:
// none) and safetensors files (fuzz::forged_safetensors) a, b, c ... .safetensors, or the one model.safetensors.
// 'W': weights of any network, then the format ('s', 'g', 'z': safetensors as fuzz::forged_safetensors, GGUF, npz).
// What is accepted is a decoder whose numbers are in range, says itself again, and has the parameters of its layers.
#include <algorithm>

#include "bitgrad/base/json.h"
#include "bitgrad/interop/decoder.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/layers.h"
#include "fuzz/fuzz.h"
#include "interop/hugging_face.h"
#include "interop/weight_file.h"

using namespace bitgrad;

namespace {

constexpr char kBetween = 0x1e;

void check_decoder(const Decoder& d) {
  const int64_t least = std::min({d.vocabulary, d.context, d.dim, d.blocks, d.heads, d.kv_heads, d.head_dim, d.ffn});
  fuzz::expect(least >= 1, "numbers from 1 on");
  fuzz::expect(d.heads % d.kv_heads == 0, "heads share keys evenly");
  fuzz::expect(d.learned_positions || d.head_dim % 2 == 0, "rotary heads are even");
  fuzz::expect(!d.activation.empty(), "an activation");
}

void read_config(const std::string& text) {
  const interop::HuggingFaceConfig config = interop::parse_hugging_face_config(text, "fuzz");
  check_decoder(config.decoder);
  const std::string said = interop::hugging_face_config(config, {}, {}).dump();
  const interop::HuggingFaceConfig again = interop::parse_hugging_face_config(said, "fuzz");
  fuzz::expect(interop::hugging_face_config(again, {}, {}).dump() == said, "a configuration says itself again");
}

void read_index(const std::string& text) {
  for (const auto& [tensor, file] : interop::parse_safetensors_index(text, "fuzz"))
    fuzz::expect(file.find('/') == std::string::npos && file[0] != '.', "files are in the folder");
}

void check_model(const ImportedModel& model) {
  const Decoder d = find_decoder(model.spec).decoder;
  check_decoder(d);
  fuzz::expect(!model.parameters.empty(), "parameters");
  for (const auto& [path, tensor] : model.parameters) fuzz::expect(tensor.numel() > 0, "parameters have elements");
  fuzz::expect(model.tokenizer == nullptr || model.tokenizer->vocabulary() <= d.vocabulary, "ids of the model");
}

std::vector<std::string> parts_of(const std::string& input) {
  std::vector<std::string> parts(1);
  for (const char c : input)
    if (c == kBetween)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

void read_folder(const std::string& input) {
  fuzz::MemoryFiles disk;
  const std::vector<std::string> parts = parts_of(input);
  disk.files["in/config.json"] = {parts[0].begin(), parts[0].end()};
  const bool index = parts.size() > 1 && !parts[1].empty();
  if (index) disk.files["in/model.safetensors.index.json"] = {parts[1].begin(), parts[1].end()};
  for (size_t i = 2; i < parts.size(); ++i) {
    const std::string name = index ? std::string(1, static_cast<char>('a' + (i - 2) % 26)) : "model";
    disk.files["in/" + name + ".safetensors"] =
        fuzz::forged_safetensors(reinterpret_cast<const uint8_t*>(parts[i].data()), parts[i].size());
  }
  check_model(import_hugging_face("in"));
}

void read_gguf(const std::string& input) {
  fuzz::MemoryFiles disk;
  disk.files["in.gguf"] = {input.begin(), input.end()};
  check_model(import_gguf("in.gguf"));
}

// Every array is read or refused.
void read_weights(const std::string& input) {
  if (input.empty()) return;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(input.data()) + 1;
  const std::string path = input[0] == 's' ? "in.safetensors" : input[0] == 'g' ? "in.gguf" : "in.npz";
  fuzz::MemoryFiles disk;
  disk.files[path] = input[0] == 's' ? fuzz::forged_safetensors(bytes, input.size() - 1)
                                     : std::vector<uint8_t>(bytes, bytes + input.size() - 1);
  const interop::WeightFile file(path);
  for (const interop::WeightEntry& entry : file.entries())
    if (entry.floats)
      fuzz::takes([&] { fuzz::expect(file.read(entry.name).shape() == entry.shape, "a tensor of its shape"); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  fuzz::takes([&] {
    switch (data[0]) {
      case 'C':
        return read_config(input);
      case 'I':
        return read_index(input);
      case 'G':
        return read_gguf(input);
      case 'W':
        return read_weights(input);
      default:
        return read_folder(input);
    }
  });
  return 0;
}
