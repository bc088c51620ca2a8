// bitgrad import HF_DIR|FILE -o MODEL.safetensors [--inputs float|int8|int8_block] [--config C [key=value ...]
// [--input SHAPE]] [--force]: converts a model of another program to a model file. Without a configuration, its layers
// are those of a recognized decoder.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <optional>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/interop/decoder.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/run/trainer.h"
#include "command.h"
#include "open_file.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kImport = "import";

struct ImportOptions {
  std::string source, out, config, data, input;
  std::vector<std::string> overrides;
  ImportInputs inputs = ImportInputs::kAsTrained;
  bool force = false;
};

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "nothing" : joined(names, ", ", printable);
}

// What became of the matrices of the file, those with the same fate together.
void print_layers(const std::vector<ImportedLayer>& layers) {
  std::vector<std::pair<std::string, std::vector<std::string>>> fates;
  for (const ImportedLayer& l : layers) {
    const std::string fate = concat(l.type.empty() ? "" : concat(l.type, " as "), l.weights,
                                    l.inputs.empty() ? ", a table of ids" : concat(", inputs ", l.inputs));
    auto found = std::find_if(fates.begin(), fates.end(), [&](const auto& f) { return f.first == fate; });
    if (found == fates.end()) found = fates.insert(fates.end(), {fate, {}});
    found->second.push_back(l.layer);
  }
  constexpr size_t kNamed = 2;
  for (const auto& [fate, names] : fates) {
    const bool few = names.size() <= kNamed;
    std::cout << "weights: " << fate << ": "
              << (few ? joined(names, ", ", printable) : concat(names.size(), " layers, first ", printable(names[0])))
              << '\n';
  }
}

int import_decoder(const ImportOptions& options) {
  const bool folder = file_system().is_directory(options.source);
  if (!folder && !options.source.ends_with(".gguf")) {
    const std::string other = why_no_model_file(options.source);
    fail(kImport, "got '", options.source,
         "', expected a folder of Hugging Face (config.json, model.safetensors) or a .gguf file; weights of other "
         "networks need their layers: --config FILE.",
         other.empty() ? "" : concat(" It is ", other));
  }
  const ImportedModel model = folder ? import_hugging_face(options.source) : import_gguf(options.source);
  const std::vector<ImportedLayer> layers = save_imported(model, options.out, options.inputs);
  const Decoder d = find_decoder(model.spec).decoder;
  std::cout << printable(options.source) << ": " << model.family << ", " << d.blocks << " blocks of " << d.dim << ", "
            << d.vocabulary << " ids, context " << d.context << ", " << (model.tokenizer ? "with" : "without")
            << " tokenizer -> " << printable(options.out) << ": " << file_bytes(options.out) << " bytes\n";
  print_layers(layers);
  for (const std::string& note : model.notes) std::cout << "note: " << printable(note) << '\n';
  std::cout << "read: " << listed(model.read) << "\nnot used: " << listed(model.unused) << '\n';
  if (const std::string preset = decoder_preset(d); !preset.empty())
    std::cout << "to train it: model: " << preset << ", with model.init_from: " << printable(options.out) << '\n';
  return 0;
}

// "784" or "28,28,1".
Shape parse_shape(const std::string& text) {
  constexpr int64_t kMostSide = int64_t{1} << 30;
  std::vector<int64_t> dims;
  const char* from = text.data();
  const char* const end = from + text.size();
  bool good = !text.empty();
  while (good) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(from, end, size);
    good = error == std::errc() && size > 0 && size <= kMostSide && dims.size() < 4;
    dims.push_back(size);
    if (!good || next == end) break;
    good = *next == ',';
    from = next + 1;
  }
  require(good, kImport, "--input: got '", text, "', expected the shape of a sample such as 784 or 28,28,1");
  return Shape(std::move(dims));
}

// What data.train, which is opened for it, tells of its samples goes into the file as into that of a run: the names of
// classes, and how a table becomes features.
Form form_of(RunConfig& config, const ImportOptions& options, CheckpointHeader& header) {
  if (options.input.empty()) {
    const auto data = open_dataset(config, config.data.train);
    if (config.data.class_names.empty()) config.data.class_names = data->class_names();
    header.table = table_text(data->table().get());
    return input_form(*data);
  }
  Form form;
  form.sample = parse_shape(options.input);
  return form;
}

void require_weights(const std::string& source) {
  if (is_weight_file(source)) return;
  std::optional<FileKind> kind;
  if (!file_system().is_directory(source)) {
    std::string begin(1 << 16, '\0');
    begin.resize(file_system().open_read(source)->read_at(0, reinterpret_cast<uint8_t*>(begin.data()), begin.size()));
    kind = known_file_kind(begin);
  }
  fail_with(ErrorCode::kUsage, kImport, "got '", source,
            "', expected weights of another program: .safetensors, *.index.json, .npz, .gguf, or a folder of Hugging "
            "Face",
            kind ? concat(". It is ", kind->name, ". ", kind->way_out) : std::string());
}

// Builds the network of a configuration with the weights of the file, in the precision that the configuration
// specifies.
int import_weights(const ImportOptions& options) {
  RunConfig config = load_config(options.config, with_data_root(options.overrides, options.data));
  require_weights(options.source);
  const DeviceGuard host(Device::cpu());
  CheckpointHeader header;
  const Form form = form_of(config, options, header);
  const std::unique_ptr<Learner> learner = build_learner(config, form, 0, 1);
  const InitFrom found = init_from_weights(options.source, learner->model(), {config.rename, config.ignore});
  learner->convert();
  header.config = to_portable_yaml(config);
  header.seed = static_cast<uint64_t>(config.run.seed);
  if (const std::optional<ModelRecord> record = model_record(*learner)) header.model = to_text(*record);
  save_model(options.out, learner->model(), header);
  std::cout << printable(options.source) << ": " << found.taken.size() << " tensors -> " << printable(options.out)
            << ": " << file_bytes(options.out) << " bytes\n";
  if (!found.fresh.empty()) std::cout << "note: not in the file, first values: " << found.fresh.size() << " tensors\n";
  for (const std::string& name : found.skipped) std::cout << "note: ignored: " << name << '\n';
  return 0;
}

int run_import(const ImportOptions& options) {
  require_writable(options.out, options.force, {options.source});
  if (!file_system().exists(options.source))
    fail_with(ErrorCode::kData, kImport, "'", options.source, "': no such file or folder");
  require(!options.config.empty() || (options.overrides.empty() && options.input.empty()), kImport,
          "key=value and --input belong to --config");
  require(options.config.empty() || options.inputs == ImportInputs::kAsTrained, kImport,
          "--inputs is for models without --config, whose rules say how inputs are rounded (activations)");
  return options.config.empty() ? import_decoder(options) : import_weights(options);
}

}  // namespace

Run setup_import(Arguments& args) {
  auto o = std::make_shared<ImportOptions>();
  args.option("source", o->source,
              "folder of Hugging Face or .gguf file of a decoder; with --config also .safetensors, *.index.json, .npz")
      .required();
  args.option("overrides", o->overrides, "key=value of the configuration, such as 'model.rename={layers.0: fc1}'");
  args.option("-o,--out", o->out, "output model file").required();
  args.option("--config", o->config, "configuration of the network and its quantization");
  args.option("--input", o->input, "shape of a sample, such as 28,28,1; default: that of data.train");
  args.choice(
      "--inputs", o->inputs,
      {{"float", ImportInputs::kFloat}, {"int8", ImportInputs::kInt8}, {"int8_block", ImportInputs::kInt8Block}},
      "how inputs of weights that are codes are rounded: float (not at all), int8 (a scale for each token), "
      "int8_block (in blocks of 32 or 256, as llama.cpp); default: float, int8 for ternary BitNet");
  args.option("--data", o->data, kDataHelp);
  args.flag("--force", o->force, "overwrite an existing file");
  return [o] { return run_import(*o); };
}

}  // namespace bitgrad::cli
