// Errors of data that a fit finds, on every device.
#pragma once

#include <functional>
#include <optional>

#include "bitgrad/kernels/flag.h"

namespace bitgrad::detail {

// While it lives, data errors of fits on this thread, on a device other than the CPU, set kFlagNonFinite in `word` (of
// that device) in place of failing later. The caller drops what was made: the numbers are legal, not right. On the CPU
// it does nothing: there errors are thrown at once, and the caller catches them.
class FlagScope {
 public:
  explicit FlagScope(uint32_t* word);
  ~FlagScope();
  FlagScope(const FlagScope&) = delete;
  FlagScope& operator=(const FlagScope&) = delete;

 private:
  uint32_t* outer_;
};

// A flag word for one check of data: the scope's if there is one.
class DataFlag {
 public:
  DataFlag();
  uint32_t* word() const { return own_ ? own_->word() : scope_; }
  // As FlagWord::check; nothing in a scope.
  void check(std::function<void()> fail) const {
    if (own_) own_->check(std::move(fail));
  }

 private:
  uint32_t* scope_;
  std::optional<FlagWord> own_;
};

}  // namespace bitgrad::detail
