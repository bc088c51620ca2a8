#include "bench_step_memory.h"

#include "bench_step_ours.h"
#include "bitgrad/base/memory.h"
#include "shared/child.h"
#include "shared/common.h"

namespace bitgrad::bench {

Json step_memory(const Case& what, const Options& options) {
  return run_in_child(what.layer.name + std::string(" ") + what.shape(), [&] {
    const int64_t before = status_bytes("VmRSS");
    reset_memory_peaks();
    Ours ours(what, options, Without::kNothing);
    for (int i = 0; i < 2; ++i) ours.step();
    const MemoryAccount peak = memory_at_peak();
    Json bytes = Json::object();
    for (int i = 0; i < kMemoryKinds; ++i)
      if (peak.bytes[static_cast<size_t>(i)] > 0)
        bytes[std::string(memory_kind_name(static_cast<MemoryKind>(i)))] = peak.bytes[static_cast<size_t>(i)];
    bytes["total"] = peak.total;
    return Json{{"bytes", bytes}, {"rss_growth", status_bytes("VmHWM") - before}, {"fused", ours.fused()}};
  });
}

}  // namespace bitgrad::bench
