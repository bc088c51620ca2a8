#include "bitgrad/base/device_work.h"

#include <atomic>

#include "bitgrad/base/error.h"

namespace bitgrad {
namespace {

class HostPrefetch final : public Prefetch {
 public:
  void begin() override {}
  void copy_from_host(void* to, const void* from, int64_t bytes) override {
    device_backend(Device::cpu()).copy_from_host(to, from, bytes);
  }
  void end() override {}
  void wait() override {}
};

class HostStep final : public StepRecord {
 public:
  void capture(const std::function<void()>& step) override { step_ = step; }
  bool captured() const override { return step_ != nullptr; }
  void launch() override {
    require(captured(), "StepRecord", "launch before capture.");
    step_();
  }

 private:
  std::function<void()> step_;
};

std::atomic<const DeviceWorkMakers*> g_cuda{nullptr};

const DeviceWorkMakers& makers() {
  const DeviceWorkMakers* const found = g_cuda.load(std::memory_order_acquire);
  if (found == nullptr)
    fail_with(ErrorCode::kDevice, "device", to_string(current_device()), " has no streams of its own.");
  return *found;
}

}  // namespace

std::unique_ptr<Prefetch> make_prefetch() {
  if (current_device().is_cpu()) return std::make_unique<HostPrefetch>();
  return makers().prefetch();
}

std::unique_ptr<StepRecord> make_step_record() {
  if (current_device().is_cpu()) return std::make_unique<HostStep>();
  return makers().step_record();
}

void register_device_work(DeviceKind kind, const DeviceWorkMakers* makers) {
  require(kind == DeviceKind::kCuda, "register_device_work", "the CPU's cannot be replaced.");
  g_cuda.store(makers, std::memory_order_release);
}

}  // namespace bitgrad
