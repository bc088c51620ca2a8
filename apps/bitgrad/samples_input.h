// Samples that a command reads: files of several formats, and standard input.
#pragma once

#include <string>

#include "bitgrad/data/samples.h"
#include "bitgrad/nn/form.h"

namespace bitgrad::cli {

enum class SampleFormat { kByContent, kIdx, kNpy, kCsv, kPicture };

struct SampleInput {
  SampleFormat format = SampleFormat::kByContent;
  bool pixels = false;  // numbers of CSV are bytes 0 .. 255
};

// `path`: a file, or "-" for standard input, which needs a format. A picture is one sample: resized to what the model
// takes where that is [rows, columns] or [rows, columns, 1 or 3]; of a model of vectors it must have as many pixels.
// Throws Error(kData) that names the file, and the line of a text.
Samples read_samples(const std::string& path, const SampleInput& input, const Form& model);

}  // namespace bitgrad::cli
