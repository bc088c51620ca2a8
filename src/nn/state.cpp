#include "bitgrad/nn/state.h"

#include "bitgrad/base/device.h"
#include "kernels/flag.h"

namespace bitgrad {

uint32_t* FlagBoard::word(const std::string& name) {
  std::shared_ptr<Entry> entry;
  for (const auto& e : entries_)
    if (e->name == name) entry = e;
  if (entry == nullptr) entry = entries_.emplace_back(std::make_shared<Entry>(Entry{name}));
  if (current_device().is_cpu()) return &entry->word;
  const FlagWord flag;
  flag.read([entry](uint32_t word) { entry->word |= word; });
  return flag.word();
}

std::vector<std::string> FlagBoard::raised() const {
  std::vector<std::string> names;
  for (const auto& e : entries_)
    if (e->word != 0) names.push_back(e->name);
  return names;
}

void FlagBoard::clear() {
  for (const auto& e : entries_) e->word = 0;
}

}  // namespace bitgrad
