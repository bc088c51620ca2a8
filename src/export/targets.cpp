#include "export/targets.h"

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/interop/interop.h"

namespace bitgrad {
namespace {

constexpr std::string_view kExportChoice = "export";

std::string known_targets() {
  return joined(export_targets(), ", ", [](const ExportTarget& t) {
    return concat(t.name, " (", t.ending.empty() ? "a folder" : t.ending, ')');
  });
}

bool has_known_ending(const std::string& path) {
  for (const ExportTarget& t : export_targets())
    if (!t.ending.empty() && path.ends_with(t.ending)) return true;
  return false;
}

bool fits(const ExportTarget& target, const std::string& path) {
  return target.ending.empty() ? !has_known_ending(path) : path.ends_with(target.ending);
}

// Wishes that the target would ignore.
void check_wishes(const ExportTarget& target, const ExportSpec& spec) {
  struct Wish {
    bool given;
    std::string_view option, targets;
  };
  const Wish wishes[] = {{!spec.family.empty(), "--family", "gguf hf"},
                         {!spec.form.empty(), "--form", "onnx hf"},
                         {spec.opset != 0, "--opset", "onnx"},
                         {spec.dequantize, "--dequantize", "safetensors npz"},
                         {spec.with_normalization, "--with-normalization", "onnx c"}};
  for (const Wish& wish : wishes) {
    const bool known = concat(' ', wish.targets, ' ').find(concat(' ', target.name, ' ')) != std::string::npos;
    require(!wish.given || known, kExportChoice, wish.option, ": format ", target.name,
            " has no use for it. It is an option of ", wish.targets, ": leave it out");
  }
}

}  // namespace

ExportReport export_target_gguf(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  return export_gguf(*source.model, *source.spec, source.tokenizer, path, spec);
}
ExportReport export_target_hugging_face(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  return export_hugging_face(*source.model, *source.spec, source.tokenizer, path, spec);
}

const std::vector<ExportTarget>& export_targets() {
  static const std::vector<ExportTarget> targets{
#define BITGRAD_EXPORT(name, ending, companion, function, doc) {name, ending, companion, doc, function},
#include "export/targets.inc"
#undef BITGRAD_EXPORT
  };
  return targets;
}

const ExportTarget& choose_export_target(const std::string& path, const std::string& format) {
  for (const ExportTarget& t : export_targets()) {
    if (format.empty() ? fits(t, path) : t.name == format) {
      require(fits(t, path), kExportChoice, "--format ", t.name, ": got -o ", path, ", expected a ",
              t.ending.empty() ? "folder: a name without the ending of another format"
                               : concat("name that ends in ", t.ending));
      const size_t slash = path.find_last_of('/'), dot = path.find_last_of('.');
      const bool other = format.empty() && t.ending.empty() && dot != std::string::npos &&
                         (slash == std::string::npos || dot > slash + 1) && dot + 1 < path.size();
      require(!other, kExportChoice, "-o ", path, ": no format has this ending. Known: ", known_targets(),
              ". A folder with such a name needs --format hf");
      return t;
    }
  }
  fail(kExportChoice, "--format: got '", format, "', expected one of: ", known_targets());
}

ExportReport export_file(const OpenedFile& file, Learner& learner, const ExportTarget& target, const std::string& path,
                         const ExportSpec& spec) {
  check_wishes(target, spec);
  const std::optional<ModelRecord> record = model_record(learner);
  require(record.has_value(), kExportChoice, file.path,
          ": its layers are not described: only the program that made them can export them");
  const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(file.header, file.path);
  ExportSpec full = spec;
  full.origin = file.header.origin;
  ExportSource source{&learner.model(), &record->model, tokenizer.get(), file.config.run.name};
  const DataSection& data = file.config.data;
  source.affine = data.affine;
  source.normalize = data.normalize;
  source.class_names = data.class_names;
  source.table = table_of(file.header, file.path);
  return target.write(source, path, full);
}

}  // namespace bitgrad
