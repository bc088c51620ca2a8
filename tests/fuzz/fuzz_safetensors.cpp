// A safetensors file. Of what is accepted every name is found once and every byte of every tensor is there to read.
#include <set>

#include "bitgrad/io/safetensors.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> bytes = fuzz::forged_safetensors(data, size);
  fuzz::takes([&] {
    const SafetensorsFile file = SafetensorsFile::parse(bytes, "fuzz");
    std::set<std::string> names;
    int64_t total = 0;
    unsigned sum = 0;
    for (const SafetensorsEntry& e : file.entries()) {
      fuzz::expect(names.insert(e.name).second && &file.entry(e.name) == &e, "names are different");
      const uint8_t* tensor = file.data(e.name);
      for (int64_t i = 0; i < e.bytes; ++i) sum += tensor[i];
      total += e.bytes;
    }
    volatile unsigned used = sum;
    static_cast<void>(used);
    fuzz::expect(total <= static_cast<int64_t>(bytes.size()), "tensors lie in the file");
  });
  return 0;
}
