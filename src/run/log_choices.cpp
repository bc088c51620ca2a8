// Logs which rule chose the quantization of each layer.

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "train/phases.h"

namespace bitgrad {

void detail::log_choices(Module& model, const PrepareSpec& spec) {
  std::vector<std::vector<std::string>> lines{{"layer", "rule", "recipe"}};
  for (const LayerChoice& c : choose_layers(model, spec))
    lines.push_back({c.layer, c.quant ? c.rule : "(no rule)", c.slot->quant().recipe});
  TextReader table(text_table(lines));
  for (std::string line; std::getline(table, line);) log(LogLevel::kInfo, line);
}

const PrepareSpec* detail::spec_of_now(const Learner& learner) {
  for (int64_t i = learner.phase(); i >= 0 && i < std::ssize(learner.phases()); --i)
    if (const auto& spec = learner.phases()[static_cast<size_t>(i)].spec) return &*spec;
  return nullptr;
}

}  // namespace bitgrad
