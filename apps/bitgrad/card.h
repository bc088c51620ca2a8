// The card of a shipped model: markdown with the front matter that hubs of models read.
#pragma once

#include <string>

#include "zoo.h"

namespace bitgrad::cli {

// A function of the files of the model's folder: card.json, train.yaml and what the model file holds (bits, bytes, the
// memory of its C file). Throws Error as their readers do.
std::string card_text(const ShippedModel& model);

}  // namespace bitgrad::cli
