// Placeholder until the writer of Hugging Face's folders is merged.
#include "bitgrad/base/error.h"
#include "bitgrad/train/interop.h"

namespace bitgrad {

ExportReport export_hugging_face(Module&, const ModelSpec&, const Tokenizer*, const std::string&, const ExportSpec&) {
  fail("export", "this program does not write folders of Hugging Face yet. Give -o a name that ends in .gguf.");
}

}  // namespace bitgrad
