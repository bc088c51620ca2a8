#include "bitgrad/nn/state.h"

namespace bitgrad {

uint32_t* FlagBoard::word(const std::string& name) {
  for (Entry& e : entries_)
    if (e.name == name) return &e.word;
  entries_.push_back({name, 0});
  return &entries_.back().word;
}

std::vector<std::string> FlagBoard::raised() const {
  std::vector<std::string> names;
  for (const Entry& e : entries_)
    if (e.word != 0) names.push_back(e.name);
  return names;
}

void FlagBoard::clear() {
  for (Entry& e : entries_) e.word = 0;
}

}  // namespace bitgrad
