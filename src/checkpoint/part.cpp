#include "checkpoint/part.h"

#include "checkpoint/records.h"
#include "train/pieces.h"

namespace bitgrad {

void checkpoint::save_part(const std::string& path, const std::vector<Parameter*>& parameters,
                           const std::vector<Module::Buffer>& buffers, const std::string& record) {
  Pieces pieces;
  detail::CodesRecords records;
  for (const Parameter* p : parameters) {
    add_parameter(pieces, *p);
    if (p->low_bit()) records.emplace_back(p->path() + ".codes", detail::codes_record(p->value()));
  }
  for (const Module::Buffer& b : buffers) pieces.add_tensor(b.path, b.tensor);
  CheckpointHeader header;
  header.model = record;
  header.kernel_hash = kernel_table_hash();
  write_pieces(path, pieces, header,
               {{"bitgrad.kind", std::string(kPartKind)}, {"bitgrad.tensors", detail::codes_records_text(records)}});
}

}  // namespace bitgrad
