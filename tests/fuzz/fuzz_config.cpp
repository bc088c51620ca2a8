// A configuration: text in, a configuration or a report out. What is accepted is written and read back the same.
#include "bitgrad/config/config.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  RunConfig config;
  if (!fuzz::takes([&] { config = parse_config(text, "fuzz.yaml"); })) return 0;
  const std::string written = to_yaml(config);
  fuzz::expect(to_yaml(parse_config(written, "written.yaml")) == written, "the resolved configuration reads back");
  return 0;
}
