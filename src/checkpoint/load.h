// Loading from a file that is held open and verified, so that reading its header and then its values is one file and
// one check. As the functions of the same names in checkpoint/checkpoint.h and checkpoint/model_record.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/io/safetensors.h"

namespace bitgrad::checkpoint {

using OpenFile = std::shared_ptr<const SafetensorsFile>;

// Opens a file and verifies the checksum of its data, in one pass that keeps nothing.
OpenFile open_verified(const std::string& path);

// Of the header alone.
CheckpointHeader read_checkpoint_header(const SafetensorsFile& file);
FileForm file_form(const SafetensorsFile& file);

void load_checkpoint(const OpenFile& file, Learner& learner);
void load_values(const OpenFile& file, Module& model);
void load_model(const OpenFile& file, Module& model);
std::unique_ptr<Learner> load_evaluator(const OpenFile& file, const LossFunction& loss, int64_t eval_samples,
                                        LearnerUse use);

}  // namespace bitgrad::checkpoint
