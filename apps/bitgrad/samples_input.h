// Samples as input of a command: files of several formats, and standard input.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/data/samples.h"
#include "bitgrad/infer/predictor.h"

namespace bitgrad::cli {

enum class SampleFormat { kByContent, kIdx, kNpy, kNpz, kCsv, kPicture };

struct SampleInput {
  SampleFormat format = SampleFormat::kByContent;
  bool pixels = false;  // CSV values are bytes 0 .. 255
};

// `path`: a file, or "-" for standard input, which needs a format. A picture is one sample. It is resized to the
// model's input if that is [rows, columns] or [rows, columns, 1 or 3]; for a model of vectors it must have as many
// pixels. Throws Error(kData) that names the file, and the line of a text.
// A csv is read as the model's table (Predictor::read_csv). `notes`: what was guessed or is not read.
Samples read_samples(const std::string& path, const SampleInput& input, const Predictor& model,
                     std::vector<std::string>& notes);

}  // namespace bitgrad::cli
