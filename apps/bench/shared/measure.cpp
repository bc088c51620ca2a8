#include "shared/measure.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::bench {
namespace {

double time_ns(const Contestant& c, int64_t calls, TimeBase base) {
  if (c.before) {
    double ns = 0;
    for (int64_t i = 0; i < calls; ++i) {
      c.before();
      const double start = now_ns(base);
      c.run();
      ns += now_ns(base) - start;
    }
    return ns / static_cast<double>(calls);
  }
  const double start = now_ns(base);
  for (int64_t i = 0; i < calls; ++i) c.run();
  return (now_ns(base) - start) / static_cast<double>(calls);
}

constexpr int64_t kMostSets = 16, kMostLaunches = 2000;
constexpr double kLeastNs = 3e6;  // minimum duration of one measurement

double run(const Launches& l, int64_t count) {
  const TimeBase base = current_device().is_cpu() ? TimeBase::kThread : TimeBase::kWall;
  DeviceBackend& device = device_backend(current_device());
  device.synchronize();
  const double begin = now_ns(base);
  for (int64_t i = 0; i < count; ++i) l.launch(i);
  device.synchronize();
  return (now_ns(base) - begin) / static_cast<double>(count);
}

}  // namespace

double now_ns(TimeBase base) {
  timespec t{};
  clock_gettime(base == TimeBase::kThread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const size_t half = x.size() / 2;
  return x.size() % 2 == 1 ? x[half] : (x[half - 1] + x[half]) / 2;
}

// Contestants alternate, so that a change of the machine's speed affects all of them.
void measure(std::vector<Contestant>& all, int64_t repeat, TimeBase base, bool rare) {
  constexpr double kOnceNs = 2e9, kThriceNs = 4e8, kMeasurementNs = 2e6;
  for (Contestant& c : all) {
    const double first = time_ns(c, 1, base);
    c.slow = rare && first > kThriceNs;
    if (c.slow) {
      c.ns.push_back(first);
      for (int i = 1; i < 3 && first < kOnceNs; ++i) c.ns.push_back(time_ns(c, 1, base));
      continue;
    }
    const double warm = time_ns(c, 1, base);
    c.calls = std::max<int64_t>(1, static_cast<int64_t>(kMeasurementNs / std::max(warm, 1.0)));
  }
  for (int64_t r = 0; r < repeat; ++r)
    for (Contestant& c : all)
      if (!c.slow) c.ns.push_back(time_ns(c, c.calls, base));
}

int64_t operand_sets(double bytes) {
  return std::clamp(static_cast<int64_t>(static_cast<double>(kCacheBytes) / std::max(bytes, 1.0)) + 1, int64_t{1},
                    kMostSets);
}

void measure(std::vector<Launches>& all, int64_t repeat) {
  for (Launches& l : all) {
    run(l, 1);
    l.count = std::clamp<int64_t>(static_cast<int64_t>(kLeastNs / std::max(run(l, 2), 1.0)), 1, kMostLaunches);
  }
  for (int64_t r = 0; r < repeat; ++r)
    for (Launches& l : all) l.ns.push_back(run(l, l.count));
}

Launches copy_launches(int64_t bytes) {
  const Tensor from = Tensor::zeros({bytes}, dtypes::uint8), to = Tensor::zeros({bytes}, dtypes::uint8);
  return {"copy", [from, to](int64_t) { to.copy_from(from); }};
}

Json run_in_child(const std::string& what, const std::function<Json()>& run) {
  int ends[2];
  require(pipe(ends) == 0, "bench", "no pipe to a child process");
  const pid_t child = fork();
  require(child >= 0, "bench", "no child process");
  if (child == 0) {
    std::string text;
    try {
      text = run().dump();
    } catch (const std::exception& e) {
      text = Json{{"error", e.what()}}.dump();
    }
    const bool sent = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  Json row = status == 0 ? Json::parse(text) : Json{{"error", "the child process died"}};
  require(!row.contains("error"), "bench", what, ": ", row.value("error", ""));
  return row;
}

Json bytes_json(const MemoryAccount& account) {
  Json bytes = Json::object();
  for (int i = 0; i < kMemoryKinds; ++i)
    if (const int64_t n = account.bytes[static_cast<size_t>(i)]; n > 0)
      bytes[std::string(memory_kind_name(static_cast<MemoryKind>(i)))] = n;
  bytes["total"] = account.total;
  return bytes;
}

}  // namespace bitgrad::bench
