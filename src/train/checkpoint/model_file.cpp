// Models without what trains them.
#include "bitgrad/train/checkpoint.h"
#include "train/checkpoint/pieces.h"
#include "train/checkpoint/records.h"
#include "train/checkpoint/restorer.h"

namespace bitgrad {

using namespace checkpoint;

void save_model(const std::string& path, Module& model, const CheckpointHeader& header) {
  CheckpointHeader h = header;
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

std::string file_kind(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  read_tensors(file);
  return kind_of(file);
}

Shape shape_in_file(const std::string& file, const std::string& parameter) {
  const SafetensorsFile opened = SafetensorsFile::read(file);
  const std::map<std::string, CodesRecord> records = read_tensors(opened);
  if (const auto codes = records.find(parameter + ".codes"); codes != records.end()) return codes->second.shape;
  for (const char* suffix : {".master", ".value"})
    if (opened.contains(parameter + suffix)) return Shape(opened.entry(parameter + suffix).shape);
  bad(file, concat("has no tensor '", parameter, "', which its configuration speaks of"));
}

}  // namespace bitgrad
