#include <string>

#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/version.h"
#include "bitgrad/config/plugin.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "capi/guard.h"

namespace bitgrad::capi {
namespace {

thread_local std::string last_error;

}  // namespace

void set_last_error(std::string_view text) noexcept {
  try {
    last_error.assign(text);
  } catch (...) {
    last_error.clear();  // an empty text: out of memory
  }
}

void prepare_process() {
  static const bool done = [] {
    kernels::load_gemm_costs(kernels::gemm_costs_path());
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace bitgrad::capi

using namespace bitgrad;
using namespace bitgrad::capi;

int32_t bitgrad_abi_version(void) { return BITGRAD_ABI_VERSION; }
const char* bitgrad_version(void) { return BITGRAD_VERSION " (" BITGRAD_GIT ")"; }
const char* bitgrad_last_error(void) { return last_error.c_str(); }

int bitgrad_set_threads(int32_t threads) {
  return guarded([&] { set_num_threads(threads); });
}
int32_t bitgrad_threads(void) { return num_threads(); }

void bitgrad_set_log(bitgrad_log sink, void* user) {
  if (sink == nullptr) return set_log_sink({});
  set_log_sink([sink, user](LogLevel level, std::string_view line) {
    const std::string text(line);
    call_program([&] { sink(static_cast<int32_t>(level), text.c_str(), user); });
  });
}

int bitgrad_load_plugin(const char* path) {
  return guarded([&] { load_plugin(std::string(&given(path, "path"))); });
}
