// Data errors found while fitting scales, on every device.
#pragma once

#include <functional>
#include <optional>

#include "kernels/flag.h"

namespace bitgrad::detail {

// While alive, data errors of fits on this thread, on a device other than the CPU, set kFlagNonFinite in `word` (on
// that device) instead of failing later. The caller must then discard the results: they are valid codes and scales, but
// meaningless. Has no effect on the CPU, where errors are thrown at once and the caller catches them.
class FlagScope {
 public:
  explicit FlagScope(uint32_t* word);
  ~FlagScope();
  FlagScope(const FlagScope&) = delete;
  FlagScope& operator=(const FlagScope&) = delete;

 private:
  uint32_t* outer_;
};

// The flag word for one check of data: that of the enclosing FlagScope if there is one, otherwise its own.
class DataFlag {
 public:
  DataFlag();
  uint32_t* word() const { return own_ ? own_->word() : scope_; }
  // As FlagWord::check; does nothing inside a FlagScope.
  void check(std::function<void()> fail) const {
    if (own_) own_->check(std::move(fail));
  }

 private:
  uint32_t* scope_;
  std::optional<FlagWord> own_;
};

}  // namespace bitgrad::detail
