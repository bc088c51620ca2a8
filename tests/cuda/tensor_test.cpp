// Tensors on a device: made, copied, cut, transposed and read as on the CPU.
#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const Granularity kGranularities[] = {Granularity::tensor(),    Granularity::channel(0), Granularity::channel(1),
                                      Granularity::token(),     Granularity::groups(64), Granularity::groups(50),
                                      Granularity::groups(2, 0)};

TEST_CASE("numbers of every dtype go to the device and back") {
  for (const DType dtype : all_dtypes()) {
    if (!dtype.is_code() && dtype.bits() > 64) continue;
    INFO(dtype.name());
    CHECK(device_difference([&] {
            const std::vector<double> ones(15, 1.0);
            Results out{Tensor::from_elements({3, 5}, dtype, ones), Tensor::full({2, 70}, dtype, 1.0),
                        Tensor::zeros({3, 65}, dtype.is_code() ? dtypes::int8 : dtype)};
            return out;
          }) == "");
  }
  const DeviceGuard guard(gpu());
  const Tensor t = Tensor::full({4}, dtypes::fp32, 2.5);
  CHECK(t.device() == gpu());
  CHECK(t.reshape({2, 2}).row_slice(1, 2).column_slice(0, 1).item() == 2.5);
  CHECK(t.describe() == "Tensor [4] fp32, canonical, 16 bytes");
}

TEST_CASE("dense tensors, strided rows and one row are copied to the device, on it and back") {
  const DeviceGuard guard(gpu());
  const Tensor host = [] {
    const DeviceGuard on_cpu(Device::cpu());
    return host_numbers({3, 5}, 7);
  }();
  const Tensor there = host.to_device(gpu(), MemoryKind::kActivation);
  // Its rows, one of them, a part of all, a part of one.
  const auto parts = [](const Tensor& t) {
    return Results{t, t.row_slice(1, 2), t.column_slice(1, 4), t.row_slice(2, 3).column_slice(1, 4)};
  };
  const Results a = parts(host), b = parts(there);
  for (size_t i = 0; i < a.size(); ++i) {
    INFO(i);
    const std::vector<double> numbers = a[i].elements();
    const Tensor sent = a[i].to_device(gpu(), MemoryKind::kActivation);
    const Tensor copy = b[i].clone(MemoryKind::kActivation);
    CHECK(sent.device() == gpu());
    CHECK(copy.device() == gpu());
    CHECK(sent.on_host().elements() == numbers);
    CHECK(copy.on_host().elements() == numbers);
    CHECK(b[i].to_device(Device::cpu(), MemoryKind::kActivation).elements() == numbers);
  }
  // Into a part of a larger tensor, and out of a row of it.
  const Tensor wide = Tensor::zeros({3, 9}, dtypes::fp32, MemoryKind::kActivation);
  wide.column_slice(2, 7).copy_from(host);
  wide.row_slice(0, 1).column_slice(2, 7).copy_from(there.row_slice(2, 3));
  const std::vector<double> w = wide.on_host().elements(), h = host.elements();
  for (size_t r = 0; r < 3; ++r)
    for (size_t c = 0; c < 9; ++c) CHECK(w[r * 9 + c] == (c < 2 || c >= 7 ? 0.0 : h[(r == 0 ? 2 : r) * 5 + c - 2]));
}

TEST_CASE("rows and columns of a tensor are cut with their scales, which are not copies of the host's") {
  for (const Granularity& g : kGranularities)
    for (const DType dtype : {dtypes::int4, dtypes::bint1, dtypes::int3, dtypes::int8}) {
      INFO(g << ' ' << dtype.name());
      const Tensor codes = with_scales(host_codes({6, 200}, dtype, 3), g, dtype != dtypes::bint1);
      CHECK(device_difference([&] {
              const Tensor t = here(codes);
              const bool odd = g.kind == Granularity::kGroup && g.axis != 0 && g.group == 50;
              const int64_t cut = odd ? 0 : 64;
              return Results{t.row_slice(2, 6),
                             t.row_slice(0, 2),
                             t.row_slice(4, 4),
                             t.column_slice(cut, 200),
                             t.column_slice(64 - cut, 64 - cut),
                             t.row_slice(2, 4).clone(MemoryKind::kSaved)};
            }) == "");
    }
}

TEST_CASE("a matrix is transposed on the device, with its scales") {
  for (const DType dtype : all_dtypes())
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 130}, Shape{65, 7}, Shape{64, 64}, Shape{0, 5}, Shape{5, 0}}) {
      INFO(dtype.name() << ' ' << shape);
      const Tensor m = dtype.is_code() ? host_codes(shape, dtype, 5)
                                       : (dtype.is_float() ? host_numbers(shape, 5, 1.0, dtype)
                                                           : host_numbers(shape, 5, 0.0, dtype));
      CHECK(device_difference([&] { return Results{transpose(here(m))}; }) == "");
    }
  for (const Granularity& g : kGranularities) {
    INFO(g);
    const Tensor m = with_scales(host_codes({6, 200}, dtypes::int4, 9), g, true);
    CHECK(device_difference([&] { return Results{transpose(here(m)), transpose(transpose(here(m)))}; }) == "");
  }
}

TEST_CASE("copies between devices go through the host, and two devices keep their own") {
  if (device_count(gpu().kind) < 2) {
    WARN("skipped: there is one device");
    return;
  }
  const Tensor x = host_numbers({3, 4}, 1);
  const Tensor a = x.to_device(gpu(0), MemoryKind::kActivation);
  CHECK(contains(error_of([&] { a.to_device(gpu(1), MemoryKind::kActivation); }), "copy through the CPU"));
  const Tensor b = a.on_host().to_device(gpu(1), MemoryKind::kActivation);
  CHECK(b.device() == gpu(1));
  CHECK(b.elements() == x.elements());
  CHECK(contains(error_of([&] { a.copy_from(b); }), "cuda:0 and cuda:1"));
}

}  // namespace
