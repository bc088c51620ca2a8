// The object behind a bitgrad_model.
#pragma once

#include <memory>
#include <string>

#include "bitgrad/c.h"
#include "bitgrad/infer/predictor.h"

struct bitgrad_model {
  std::unique_ptr<bitgrad::Predictor> predictor;
  std::string description;
};
