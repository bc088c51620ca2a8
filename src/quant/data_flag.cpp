#include "quant/data_flag.h"

#include <utility>

#include "bitgrad/base/device.h"

namespace bitgrad::detail {
namespace {

thread_local uint32_t* t_scope = nullptr;

}  // namespace

FlagScope::FlagScope(uint32_t* word) : outer_(t_scope) {
  if (!current_device().is_cpu()) t_scope = word;
}
FlagScope::~FlagScope() { t_scope = outer_; }

DataFlag::DataFlag() : scope_(t_scope) {
  if (scope_ == nullptr) own_.emplace();
}

}  // namespace bitgrad::detail
