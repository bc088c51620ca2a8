#include "bitgrad/base/device.h"

#include <array>
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

constexpr DeviceWorkMakers kHostWork{[]() -> std::unique_ptr<Prefetch> { return std::make_unique<HostPrefetch>(); },
                                     []() -> std::unique_ptr<StepRecord> { return std::make_unique<HostStep>(); }};

std::array<std::atomic<const DeviceWorkMakers*>, kDeviceKinds> g_makers{&kHostWork};

const DeviceWorkMakers& makers() {
  const DeviceWorkMakers* const found =
      g_makers[static_cast<size_t>(current_device().kind)].load(std::memory_order_acquire);
  if (found == nullptr)
    fail_with(ErrorCode::kDevice, "device", to_string(current_device()), " has no streams of its own.");
  return *found;
}

}  // namespace

std::unique_ptr<Prefetch> make_prefetch() { return makers().prefetch(); }

std::unique_ptr<StepRecord> make_step_record() { return makers().step_record(); }

void register_device_work(DeviceKind kind, const DeviceWorkMakers* makers) {
  require(kind != DeviceKind::kCpu && static_cast<int>(kind) < kDeviceKinds, "register_device_work", "that of ",
          to_string({kind, 0}), " cannot be replaced.");
  g_makers[static_cast<size_t>(kind)].store(makers, std::memory_order_release);
}

}  // namespace bitgrad
