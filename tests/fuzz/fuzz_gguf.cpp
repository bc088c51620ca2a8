// A GGUF file. Of what is accepted every tensor is there to read, and becomes a tensor or an error.
#include "bitgrad/io/gguf.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);
  fuzz::takes([&] {
    const GgufFile file = GgufFile::parse(bytes, "fuzz");
    for (const auto& [key, value] : file.metadata()) fuzz::expect(file.find(key) == &value, "keys are different");
    for (const GgufEntry& e : file.entries()) {
      fuzz::expect(&file.entry(e.name) == &e, "names are different");
      fuzz::expect(static_cast<int64_t>(file.data(e.name).size()) == e.bytes, "tensors lie in the file");
      fuzz::takes([&] { static_cast<void>(gguf_tensor(file, e.name)); });
    }
  });
  return 0;
}
