// A run folder for the HTML page: byte 0 and 1 say how long metrics.jsonl is; evaluation.json follows it. What the page
// shows of them is escaped: no tag of the input becomes a tag of the page.
#include <algorithm>

#include "bitgrad/report/report.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t length = std::min<size_t>(data[0] | (size_t{data[1]} << 8), size - 2);
  fuzz::MemoryFiles disk;
  disk.files["run/metrics.jsonl"] = {data + 2, data + 2 + length};
  disk.files["run/evaluation.json"] = {data + 2 + length, data + size};
  std::string page;
  if (!fuzz::takes([&] { page = html_report({"run"}); })) return 0;
  fuzz::expect(page.find("<xss") == std::string::npos, "names of the run are escaped");
  return 0;
}
