// A model as one C99 file and its header: NAME.c, NAME.h, `int NAME_predict(const float *in, float *out)`.
#include <cctype>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/file_group.h"
#include "train/export/c_writer.h"
#include "train/export/report.h"
#include "train/export/targets.h"

namespace bitgrad {
std::string c_name_of(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  name = name.substr(0, name.find_last_of('.'));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  require(!name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])), "c", "-o ", path,
          ": the functions are named like the file. Expected a name that begins with a letter, such as model.c");
  return name;
}

ExportReport export_target_c(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  const DeviceGuard host(Device::cpu());
  const std::string name = c_name_of(path), header = path.substr(0, path.size() - 1) + 'h';
  const inference::Graph graph = inference::lowered(*source.model, source.spec->input);
  ExportReport report;
  report.family = "C99";
  c_target::Writer writer(graph, c_target::make_plan(graph), name, report);
  writer.run();
  if (spec.dry_run) return report;
  require_all_held(report, "c");
  FileGroup group;
  write_file_atomically(header, writer.header());
  write_file_atomically(path, writer.source(header.substr(header.find_last_of('/') + 1)));
  group.commit();
  return report;
}

}  // namespace bitgrad
