#include "ops/pool.h"

#include "ops/product/windows.h"

namespace bitgrad {

std::array<int64_t, 2> pool_output(std::string_view where, int64_t h, int64_t w, const PoolOptions& options) {
  Conv2dOptions conv;
  conv.kernel = options.size;
  conv.stride = options.stride;
  conv.padding = options.padding;
  const auto [oh, ow] = detail::conv_output(where, h, w, conv);
  const auto check = [&](const char* axis, int64_t windows, size_t i, int64_t size) {
    const int64_t last = (windows - 1) * options.stride[i] - options.padding[i];
    require(options.padding[i] < options.size[i] && last < size, where, "a window of ", options.size[0], " x ",
            options.size[1], " pixels is outside the image of ", h, " x ", w, " altogether: got padding [",
            options.padding[0], ',', options.padding[1], ',', options.padding[2], ',', options.padding[3],
            "], expected less than the window's ", axis, ". Use less padding");
  };
  check("rows", oh, 0, h);
  check("columns", ow, 1, w);
  return {oh, ow};
}

maps::pools::Windows with_run(maps::pools::Windows windows, int64_t run) {
  windows.run = run;
  return windows;
}

maps::pools::Windows pool_windows(std::string_view op, const Shape& x, const PoolOptions& options, int64_t device_run) {
  require(x.rank() == 4, op, "x must be images [n,h,w,c]: got ", x);
  const auto [oh, ow] = pool_output(op, x[1], x[2], options);
  maps::pools::Windows out{};
  out.g.h = x[1];
  out.g.w = x[2];
  out.g.oh = oh;
  out.g.ow = ow;
  out.g.kh = options.size[0];
  out.g.kw = options.size[1];
  out.g.stride_y = options.stride[0];
  out.g.stride_x = options.stride[1];
  out.g.top = options.padding[0];
  out.g.left = options.padding[1];
  out.c = x[3];
  out.run = current_device().is_cpu() ? maps::pools::kRun : device_run;
  return out;
}

Shape pool_shape(int64_t samples, const maps::pools::Windows& windows) {
  return {samples, windows.g.oh, windows.g.ow, windows.c};
}

}  // namespace bitgrad
