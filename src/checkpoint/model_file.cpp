// Model files: a model without its training state.
#include "bitgrad/checkpoint/checkpoint.h"
#include "checkpoint/records.h"
#include "checkpoint/restorer.h"
#include "train/pieces.h"

namespace bitgrad {

using namespace checkpoint;

void save_model(const std::string& path, Module& model, const CheckpointHeader& header) {
  CheckpointHeader h = header;
  h.cut_since_requantize = 0;  // its codes are not in a model file
  if (h.kernel_hash.empty()) h.kernel_hash = kernel_table_hash();
  write_pieces(path, collect_model(model), h,
               {{"bitgrad.kind", std::string(kModelKind)}, {"bitgrad.tensors", tensors_text(model)}});
}

void load_model(const std::string& path, Module& model) {
  reading(path, [&] {
    Restorer restorer(path, kModelKind);
    read_state(restorer.file());
    for (Parameter* p : model.parameters()) restorer.converted(*p);
    for (const auto& b : model.buffers()) restorer.into(b.path, b.tensor);
    restorer.done();
    return 0;
  });
}

FileForm file_form(const std::string& path) {
  return reading(path, [&] {
    const SafetensorsFile file = SafetensorsFile::read(path);
    FileForm form{path, kind_of(file), {}, 0};
    for (const SafetensorsEntry& e : file.entries()) {
      form.bytes += e.bytes;
      for (const std::string_view suffix : {".master", ".value"})
        if (e.name.ends_with(suffix) && e.bytes > 0)
          form.parameters.emplace(e.name.substr(0, e.name.size() - suffix.size()), Shape(e.shape));
    }
    for (const auto& [name, record] : read_tensors(file))
      form.parameters.insert_or_assign(name.substr(0, name.rfind('.')), record.shape);
    return form;
  });
}

std::string file_kind(const std::string& path) { return file_form(path).kind; }

}  // namespace bitgrad
