// Models in files of other programs: GGUF (llama.cpp) and Hugging Face folders (safetensors and config.json). They are
// described by a Decoder (interop/decoder.h). docs/interop.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/export_report.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {

// `model` must be initialized, have values and match `spec`. `tokenizer` may be nullptr. Throws Error if the model is
// no decoder, if a layer does not fit the family (named in the message), or, unless dry_run, if tensors are refused
// (all are listed). Nothing is written then.
ExportReport export_gguf(Module& model, const ModelSpec& spec, const Tokenizer* tokenizer, const std::string& path,
                         const ExportSpec& options = {});
ExportReport export_hugging_face(Module& model, const ModelSpec& spec, const Tokenizer* tokenizer,
                                 const std::string& folder, const ExportSpec& options = {});

// An imported model: layers, parameters by path, and the file's tokenizer.
struct ImportedModel {
  std::string family = {};
  ModelSpec spec = {};
  std::vector<std::pair<std::string, Tensor>> parameters = {};  // fp32, or codes with scales
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;         // nullptr: none, or not supported
  ModelOrigin origin = {};                                      // what the files say beside it
  std::vector<std::string> notes = {};                          // what was left out, and why
  std::vector<std::string> read = {}, unused = {};              // keys of the file, and files of the folder
};
// Throw Error(kData) for files that are damaged, of an unsupported family, or incomplete. All mismatches (missing,
// unexpected, shapes) are listed together.
ImportedModel import_gguf(const std::string& path);
ImportedModel import_hugging_face(const std::string& folder);
// Saves it as a model file for train (model.init_from), eval, generate and inspect.
void save_imported(const ImportedModel& model, const std::string& path);

}  // namespace bitgrad
