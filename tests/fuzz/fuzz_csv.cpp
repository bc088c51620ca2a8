// A table in CSV. Byte 0 says which keys a configuration names (bit 0: the target is column 1, not the last; bit 1: it
// holds values, not classes; bit 2: missing values are 0). The table is described, and what is accepted is read to the
// last sample.
#include <algorithm>
#include <cmath>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/samples.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  fuzz::MemoryFiles disk;
  disk.files["t.csv"] = {data + 1, data + size};
  fuzz::takes([&] { describe_data_json("t.csv"); });
  DatasetSpec spec;
  spec.format = "csv";
  spec.file = "t.csv";
  if ((data[0] & 1) != 0) spec.keys["target"] = std::string("1");
  if ((data[0] & 2) != 0) spec.keys["target_is"] = std::string("values");
  if ((data[0] & 4) != 0) spec.keys["missing"] = std::string("0");
  std::unique_ptr<Dataset> set;
  if (!fuzz::takes([&] { set = make_dataset(spec); })) return 0;
  std::vector<float> x(static_cast<size_t>(set->features()));
  for (int64_t i = 0; i < set->size(); ++i) {
    int32_t label = -1;
    if (set->classes() == 0) break;
    set->sample(i, x.data(), &label);
    fuzz::expect(label >= 0 && label < set->classes(), "a label is one of the classes");
    fuzz::expect(std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); }), "features are finite");
  }
  return 0;
}
