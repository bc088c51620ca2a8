// bitgrad import HF_DIR|FILE.gguf -o MODEL.safetensors [--force]: a model of another program as a model file.
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/train/decoder.h"
#include "bitgrad/train/interop.h"
#include "command.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

struct ImportOptions {
  std::string source, out;
  bool force = false;
};

int run_import(const ImportOptions& options) {
  require_writable(options.out, options.force, {options.source});
  const bool folder = file_system().is_directory(options.source);
  require(folder || options.source.ends_with(".gguf"), "import", "got '", options.source,
          "', expected a folder of Hugging Face (config.json, model.safetensors) or a .gguf file.");
  const ImportedModel model = folder ? import_hugging_face(options.source) : import_gguf(options.source);
  save_imported(model, options.out);
  const Decoder d = find_decoder(model.spec).decoder;
  std::cout << options.source << ": " << model.family << ", " << d.blocks << " blocks of " << d.dim << ", "
            << d.vocabulary << " ids, context " << d.context << ", " << (model.tokenizer ? "with" : "without")
            << " tokenizer -> " << options.out << ": " << file_bytes(options.out) << " bytes\n";
  for (const std::string& note : model.notes) std::cout << "note: " << note << '\n';
  if (const std::string preset = decoder_preset(d); !preset.empty())
    std::cout << "to train it: model: " << preset << ", with model.init_from: " << options.out << '\n';
  return 0;
}

}  // namespace

Run setup_import(Arguments& args) {
  auto o = std::make_shared<ImportOptions>();
  args.option("source", o->source, "folder of Hugging Face, or a .gguf file").required();
  args.option("-o,--out", o->out, "the model file to write").required();
  args.flag("--force", o->force, "overwrite an existing file");
  return [o] { return run_import(*o); };
}

}  // namespace bitgrad::cli
