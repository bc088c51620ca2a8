// The trainers of tokenizer_trainers.inc.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/data/tokenizer_train.h"

namespace bitgrad::data {

// Each returns the bytes of the file; `notes` as in TrainedTokenizer. Texts are UTF-8 and not all empty.
#define BITGRAD_TOKENIZER_TRAINER(name, train, ...)                                       \
  std::string train(const TokenizerTraining& spec, const std::vector<std::string>& texts, \
                    std::vector<std::string>& notes);
#include "data/tokenizer_trainers.inc"
#undef BITGRAD_TOKENIZER_TRAINER

}  // namespace bitgrad::data
