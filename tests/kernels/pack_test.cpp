// Family pack: every row gives the bytes of the layout record, and the list of kernels names all families.
#include "kernels/pack.h"

#include <random>
#include <set>
#include <string>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;

TEST_CASE("every pack row writes what unpack of the layout undoes, for every dtype and layout") {
  std::mt19937 random(1);
  for (DType dtype : all_dtypes()) {
    for (Layout layout : all_layouts()) {
      if (!dtype.is_code() || !layout.info().supports(dtype)) continue;
      for (int64_t rows : {0, 1, 16, 17}) {
        for (int64_t cols : {0, 1, 8, 31, 32, 63, 64, 65, 130}) {
          const int64_t row_bytes = row_bytes_memory(dtype, cols), stride = row_bytes + 8;
          std::vector<uint8_t> codes(static_cast<size_t>(rows * stride + 1), 0xA5);
          const uint32_t count = dtype == dtypes::ternary ? 2u : 1u << dtype.bits();
          for (int64_t r = 0; r < rows; ++r) {
            std::vector<uint8_t> raw(static_cast<size_t>(cols));
            for (auto& code : raw) code = static_cast<uint8_t>(random() % count);
            pack_row_raw(dtype, raw.data(), cols, codes.data() + r * stride);
          }
          PackArgs args{dtype, rows, cols, codes.data(), stride, layout, nullptr};
          const size_t bytes = static_cast<size_t>(layout.info().bytes(dtype, rows, cols));
          std::vector<uint8_t> expected(bytes + 1, 0x11);
          layout.info().pack(dtype, rows, cols, codes.data(), stride, expected.data());
          bool any = false;
          for (const auto& row : pack_kernels()) {
            if (!row.usable(args)) continue;
            any = true;
            std::vector<uint8_t> out(bytes + 1, 0x11), back(codes.size(), 0xA5);
            args.out = out.data();
            row.run(args);
            INFO(row.name << " dtype " << dtype.name() << " layout " << layout.name() << " rows " << rows << " cols "
                          << cols);
            CHECK(out == expected);
            CHECK(out.back() == 0x11);
            layout.info().unpack(dtype, rows, cols, out.data(), back.data(), stride);
            CHECK(back == codes);
          }
          std::vector<uint8_t> chosen(bytes + 1, 0x11);
          args.out = chosen.data();
          if (!any) {
            REQUIRE(test::runs_on_device());
            CHECK(test::contains(test::error_of([&] { pack(args); }), "no kernel on cuda:0"));
            continue;
          }
          pack(args);
          CHECK(chosen == expected);
        }
      }
    }
  }
}

// [cpu]: threads
TEST_CASE("packing gives the same bytes for any number of threads", "[cpu]") {
  const int threads = num_threads();
  const int64_t rows = 701, cols = 2311;
  std::mt19937 random(2);
  for (const DType dtype : {dtypes::bint1, dtypes::ternary, dtypes::int4, dtypes::int8}) {
    const int64_t stride = row_bytes_memory(dtype, cols);
    std::vector<uint8_t> codes(static_cast<size_t>(rows * stride)), raw(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      for (auto& code : raw) code = static_cast<uint8_t>(random() % (1u << dtype.bits()));
      pack_row_raw(dtype, raw.data(), cols, codes.data() + r * stride);
    }
    for (const Layout layout : all_layouts()) {
      if (!layout.info().supports(dtype)) continue;
      INFO(dtype.name() << " in layout " << layout.name());
      const auto bytes = static_cast<size_t>(layout.info().bytes(dtype, rows, cols));
      std::vector<uint8_t> alone(bytes, 0x11), shared(bytes, 0x22), back(codes.size());
      set_num_threads(1);
      pack({dtype, rows, cols, codes.data(), stride, layout, alone.data()});
      set_num_threads(3);
      pack({dtype, rows, cols, codes.data(), stride, layout, shared.data()});
      CHECK((shared == alone));
      layout.info().unpack(dtype, rows, cols, shared.data(), back.data(), stride);
      CHECK((back == codes));
    }
  }
  set_num_threads(threads);
}

// [cpu]: rows of the CPU
TEST_CASE("the last pack row is scalar and supports every argument", "[cpu]") {
  CHECK(pack_kernels().back().needs == isa::kScalar);
  CHECK(pack_kernels().back().supports(PackArgs{}));
}

TEST_CASE(
    "the list of kernels names pack, quantize, reduce and elementwise, each with an available scalar row, each name "
    "once") {
  std::set<std::string> families, names;
  for (const KernelInfo& kernel : all_kernels()) {
    if (kernel.needs == isa::kScalar && kernel.available()) families.insert(std::string(kernel.family));
    CHECK(names.insert(std::string(kernel.family) + "/" + std::string(kernel.name)).second);
  }
  for (const char* family : {"pack", "quantize", "reduce", "elementwise"}) CHECK(families.count(family) == 1);
}

}  // namespace bitgrad
