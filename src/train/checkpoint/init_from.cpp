// Initial values from another run, whatever its quantization was.
#include <set>

#include "train/checkpoint/own_values.h"
#include "train/checkpoint/restorer.h"

namespace bitgrad {

using namespace checkpoint;

namespace {

// The parameter that a tensor belongs to; empty for a buffer. Parts of a parameter append one name to its path,
// optimizer state two or three.
std::string owner_of(const std::string& name, const std::set<std::string>& parameters) {
  for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.', dot - 1))
    if (parameters.count(name.substr(0, dot))) return name.substr(0, dot);
  return "";
}

std::vector<std::string> names_not_taken(const SafetensorsFile& file, const std::set<std::string>& taken) {
  std::set<std::string> parameters, skipped;
  for (const SafetensorsEntry& e : file.entries())
    for (const std::string_view form : {".master", ".value", ".codes"})
      if (e.name.ends_with(form)) parameters.insert(e.name.substr(0, e.name.size() - form.size()));
  for (const SafetensorsEntry& e : file.entries()) {
    const std::string owner = owner_of(e.name, parameters), name = owner.empty() ? e.name : owner;
    if (!taken.count(name)) skipped.insert(name);
  }
  return {skipped.begin(), skipped.end()};
}

}  // namespace

InitFrom init_from(const std::string& path, Module& model, int64_t step) {
  return reading(path, [&] {
    Restorer restorer(path, "");
    read_state(restorer.file());
    const std::set<std::string> own = own_values(model, [&](const std::string& at) {
      return restorer.file().contains(at + ".master") || restorer.file().contains(at + ".value");
    });
    InitFrom found;
    const auto take = [&](const std::string& name) {
      (own.count(name) ? found.fresh : found.taken).push_back(name);
      return own.count(name) == 0;
    };
    for (Parameter* p : model.parameters())
      if (take(p->path()) && !restorer.same_codes(*p)) p->assign(restorer.numbers(p->path(), p->shape()), step);
    for (const Module::Buffer& b : model.buffers())
      if (take(b.path)) restorer.into(b.path, b.tensor);
    std::set<std::string> known(found.taken.begin(), found.taken.end());
    known.insert(found.fresh.begin(), found.fresh.end());
    found.skipped = names_not_taken(restorer.file(), known);
    return found;
  });
}

}  // namespace bitgrad
