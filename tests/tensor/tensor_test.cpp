// Tensor: shapes, dtypes, scales, layouts, copies and what it says of itself.
#include "bitgrad/tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/codec.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Numbers = std::vector<double>;

std::shared_ptr<const Tensor> shared(const Tensor& t) { return std::make_shared<const Tensor>(t); }
std::shared_ptr<const Tensor> floats(const Numbers& n) {
  return shared(Tensor::from_elements({static_cast<int64_t>(n.size())}, dtypes::fp32, n));
}
std::shared_ptr<const Tensor> ints(const Numbers& n) {
  return shared(Tensor::from_elements({static_cast<int64_t>(n.size())}, dtypes::int32, n));
}
Tensor quantized(const Tensor& codes, const Granularity& g, std::shared_ptr<const Tensor> scale,
                 std::shared_ptr<const Tensor> zero = nullptr, std::shared_ptr<const Tensor> offset = nullptr) {
  return codes.with_quant(std::make_shared<const QuantParams>(
      QuantParams{"affine", g, std::move(scale), std::move(zero), std::move(offset), nullptr}));
}

}  // namespace

TEST_CASE("shapes know their rows, columns and elements") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{}.rows() == 1);
  CHECK(Shape{}.cols() == 1);
  CHECK(Shape{5}.rows() == 1);
  CHECK(Shape{5}.cols() == 5);
  CHECK(Shape{2, 3, 4}.rows() == 6);
  CHECK(Shape{2, 3, 4}[-1] == 4);
  CHECK(Shape{2, 3, 4}[0] == 2);
  CHECK(Shape{0, 7}.numel() == 0);
  CHECK(Shape{7, 0}.rows() == 7);
  CHECK(concat(Shape{2, 3}, Shape{}, Shape{0}) == "[2,3][][0]");
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK_FALSE(Shape{} == Shape{1});
}

TEST_CASE("impossible shapes and axes are errors") {
  CHECK(error_of([] { Shape{2, -1}; }) == "[Shape] sizes must be at least 0: got -1");
  CHECK(contains(error_of([] { Shape{int64_t{1} << 40, int64_t{1} << 40}; }), "the product of the sizes passes 2^62"));
  CHECK(contains(error_of([] { Shape{int64_t{1} << 62, 2, 0}; }), "passes 2^62"));
  CHECK(error_of([] { Shape({2, 3})[2]; }) == "[Shape] axis 2 of [2,3], which has rank 2");
  CHECK(contains(error_of([] { Shape({2, 3})[-3]; }), "axis -3 of [2,3]"));
}

TEST_CASE("every dtype gives back the numbers that it was made from") {
  for (const DType d : all_dtypes())
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 65}, Shape{2, 3, 7}, Shape{0, 5}, Shape{5, 0}}) {
      Numbers numbers = random_numbers(d, shape.numel(), 1);
      // Floats of few bits, so that bf16 and fp16 hold them exactly.
      if (d.is_float())
        for (double& v : numbers) v = std::rint(v * 64) / 64;
      const Tensor t = Tensor::from_elements(shape, d, numbers);
      INFO(t);
      CHECK(t.elements() == numbers);
      CHECK(t.values() == numbers);
      CHECK(t.contiguous());
      CHECK(t.clone(MemoryKind::kBuffer).elements() == numbers);
      CHECK(t.bytes() == row_bytes_memory(d, shape.cols()) * shape.rows());
    }
}

TEST_CASE("numbers that a dtype cannot hold are refused, floats are rounded to nearest even") {
  CHECK(contains(error_of([] { Tensor::from_elements({2}, dtypes::int4, Numbers{7, 8}); }), "int4"));
  CHECK(contains(error_of([] { Tensor::from_elements({1}, dtypes::bint1, Numbers{0}); }), "bint1"));
  CHECK(contains(error_of([] { Tensor::from_elements({1}, dtypes::int8, Numbers{0.5}); }), "int8"));
  CHECK(error_of([] {
          Tensor::from_elements({2, 2}, dtypes::fp32, Numbers{1, 2, 3});
        }) == "[Tensor::from_elements] shape [2,2] needs 4 elements, got 3");
  CHECK(Tensor::scalar(1 + 0x1p-8, dtypes::bf16).item() == 1);
  CHECK(Tensor::scalar(1 + 0x3p-8, dtypes::bf16).item() == 1 + 0x1p-6);
  CHECK(Tensor::scalar(1 + 0x1p-24).item() == 1);
}

TEST_CASE("rows of codes start on 8 bytes and their pad bits are zero") {
  const Tensor t = Tensor::full({2, 3}, dtypes::bint1, 1);
  CHECK(t.stride() == 8);
  CHECK(t.bytes() == 16);
  uint64_t words[2];
  std::memcpy(words, t.data(), 16);
  CHECK(words[0] == 7);
  CHECK(words[1] == 7);
  CHECK(Tensor::zeros({4, 65}, dtypes::bint1).stride() == 16);
  CHECK(Tensor::zeros({4, 3}, dtypes::fp32).stride() == 12);
}

TEST_CASE("typed pointers are given only for the tensor's own type") {
  const Tensor t = Tensor::zeros({2, 2}, dtypes::bf16);
  CHECK_NOTHROW(t.as<uint16_t>());
  CHECK(contains(error_of([&] { t.as<float>(); }),
                 "[Tensor::as] the tensor is [2,2] bf16, whose elements are not 4-byte values of the requested type"));
  CHECK_NOTHROW(Tensor::zeros({2}, dtypes::uint8).as<uint8_t>());
  CHECK(contains(error_of([] { Tensor::zeros({2}, dtypes::int4).as<int8_t>(); }), "[2] int4"));
  CHECK(contains(error_of([] { Tensor::zeros({2}, dtypes::int32).as<int64_t>(); }), "[2] int32"));
}

TEST_CASE("values are s * (q - z) or s * q + m, by tensor, channel, token and group") {
  const Numbers codes = {0, 1, 2, 3, 4, 5, 6, 7, -8, -1, 0, 1};
  const Tensor q = Tensor::from_elements({2, 6}, dtypes::int4, codes);
  const auto expect = [&](const Tensor& t, auto scale, auto zero, auto offset) {
    Numbers out;
    for (int64_t r = 0; r < 2; ++r)
      for (int64_t c = 0; c < 6; ++c) {
        const float v = (static_cast<float>(codes[static_cast<size_t>(r * 6 + c)]) - static_cast<float>(zero(r, c))) *
                        static_cast<float>(scale(r, c));
        out.push_back(v + static_cast<float>(offset(r, c)));
      }
    CHECK(t.values() == out);
    CHECK(t.elements() == codes);
  };
  const auto none = [](int64_t, int64_t) { return 0.0; };
  expect(
      quantized(q, Granularity::tensor(), floats({0.1})), [](auto, auto) { return 0.1; }, none, none);
  expect(
      quantized(q, Granularity::tensor(), nullptr, ints({3})), [](auto, auto) { return 1.0; },
      [](auto, auto) { return 3.0; }, none);
  expect(
      quantized(q, Granularity::channel(0), floats({0.3, 2}), ints({-1, 5})), [](auto r, auto) { return r ? 2 : 0.3; },
      [](auto r, auto) { return r ? 5 : -1; }, none);
  expect(
      quantized(q, Granularity::token(), floats({0.3, 2}), nullptr, floats({1, -0.7})),
      [](auto r, auto) { return r ? 2 : 0.3; }, none, [](auto r, auto) { return r ? -0.7 : 1; });
  expect(
      quantized(q, Granularity::channel(1), floats({1, 2, 3, 4, 5, 6})), [](auto, auto c) { return c + 1.0; }, none,
      none);
  // groups of 4 along a row of 6: 4 and a ragged 2
  expect(
      quantized(q, Granularity::groups(4), floats({1, 2, 3, 4}), ints({0, 1, 2, 3})),
      [](auto r, auto c) { return 1.0 + r * 2 + c / 4; }, [](auto r, auto c) { return r * 2.0 + c / 4; }, none);
  // groups of 1 row down the columns
  Numbers each;
  for (int i = 0; i < 12; ++i) each.push_back(i + 1);
  expect(
      quantized(q, Granularity::groups(1, 0), floats(each)), [](auto r, auto c) { return r * 6.0 + c + 1; }, none,
      none);
}

TEST_CASE("scales must be as many as the granularity asks, and one kind of zero") {
  const Tensor q = Tensor::zeros({2, 6}, dtypes::int4);
  CHECK(error_of([&] {
          quantized(q, Granularity::channel(0), floats({1, 2, 3}));
        }) == "[Tensor::with_quant] granularity channel(0) of [2,6] int4 needs 2 scales, got 3");
  CHECK(contains(error_of([&] { quantized(q, Granularity::groups(4), floats({1})); }),
                 "granularity group(4) of [2,6] int4 needs 4 scales, got 1"));
  CHECK(contains(error_of([&] { quantized(q, Granularity::tensor(), floats({1}), ints({1}), floats({1})); }),
                 "exclude each other"));
  CHECK(contains(error_of([&] { quantized(q, Granularity::groups(0), floats({1})); }),
                 "group size must be at least 1: got 0"));
  CHECK(quantized(q, Granularity::tensor(), floats({1})).without_quant().quant() == nullptr);
}

TEST_CASE("copies share bytes, clones do not, both keep scales") {
  const Tensor a = random_codes({3, 70}, dtypes::int3, 5, Granularity::channel(0));
  const Tensor b = a, c = a.clone(MemoryKind::kMaster);
  CHECK(b.data() == a.data());
  CHECK(c.data() != a.data());
  CHECK(c.kind() == MemoryKind::kMaster);
  CHECK(c.values() == a.values());
  CHECK(c.quant() == a.quant());
  const Tensor view = random_tensor({4, 128}, dtypes::int5, 6).column_slice(64, 128);
  CHECK_FALSE(view.contiguous());
  CHECK(view.clone(MemoryKind::kBuffer).contiguous());
  CHECK(view.clone(MemoryKind::kBuffer).elements() == view.elements());
}

TEST_CASE("copy_from writes equal shapes and dtypes, views too") {
  const Tensor to = Tensor::zeros({4, 8}, dtypes::fp32), from = random_tensor({4, 8}, dtypes::fp32, 7);
  to.column_slice(2, 5).copy_from(from.column_slice(2, 5));
  Numbers expected(32, 0.0);
  for (size_t r = 0; r < 4; ++r)
    for (size_t c = 2; c < 5; ++c) expected[r * 8 + c] = from.elements()[r * 8 + c];
  CHECK(to.elements() == expected);
  CHECK(error_of([&] {
          to.copy_from(Tensor::zeros({8, 4}, dtypes::fp32));
        }) == "[copy_from] shapes and dtypes differ: got [8,4] fp32, expected [4,8] fp32");
  CHECK(contains(error_of([&] {
                   to.copy_from(Tensor::zeros({4, 8}, dtypes::bf16));
                 }),
                 "got [4,8] bf16, expected [4,8] fp32"));
}

TEST_CASE("a copy to the same device has bytes of its own") {
  const Tensor a = random_codes({3, 5}, dtypes::int4, 8), b = a.to_device({}, MemoryKind::kBatch);
  CHECK(b.data() != a.data());
  CHECK(b.kind() == MemoryKind::kBatch);
  CHECK(b.values() == a.values());
  // the copy of a view has dense rows
  const Tensor view = a.row_slice(1, 3), dense = view.to_device({}, MemoryKind::kBatch);
  CHECK(dense.contiguous());
  CHECK(dense.values() == view.values());
  const Tensor wide = Tensor::from_elements({2, 3}, dtypes::fp32, std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(wide.column_slice(1, 3).to_device({}, MemoryKind::kBatch).elements() == std::vector<double>{2, 3, 5, 6});
}

TEST_CASE("derived layouts travel with the tensor and hold the same codes") {
  for (const DType d : code_dtypes()) {
    Tensor t = random_codes({19, 100}, d, 9, Granularity::channel(0));
    for (const Layout layout : all_layouts()) {
      if (layout == layouts::canonical || !layout.info().supports(d)) continue;
      CHECK_FALSE(t.in_layout(layout).defined());
      const Tensor derived = Tensor::empty_layout(t.shape(), d, layout, MemoryKind::kDerived);
      layout.info().pack(d, t.rows(), t.cols(), t.data(), t.stride(), derived.data());
      t.attach_layout(derived);
      const Tensor there = t.in_layout(layout);
      CHECK(there.layout() == layout);
      CHECK(there.data() == derived.data());
      CHECK(there.values() == t.values());
      CHECK(contains(t.describe(), concat(" as ", layout)));
      const size_t count = t.attached_layouts().size();
      t.attach_layout(derived);
      CHECK(t.attached_layouts().size() == count);
    }
    CHECK(t.in_layout(layouts::canonical).data() == t.data());
    CHECK(t.row_slice(0, 5).attached_layouts().empty());
  }
  Tensor t = Tensor::zeros({2, 64}, dtypes::bint1);
  CHECK(error_of([&] {
          t.attach_layout(Tensor::empty_layout({2, 65}, dtypes::bint1, layouts::planes, MemoryKind::kDerived));
        }) == "[attach_layout] a derived layout has the same codes: got [2,65] bint1, expected [2,64] bint1");
  CHECK(contains(error_of([] {
                   Tensor::empty_layout({2, 2}, dtypes::fp32, layouts::planes, MemoryKind::kDerived);
                 }),
                 "dtype fp32 has no layout 'planes'"));
  const Tensor planes = Tensor::empty_layout({2, 64}, dtypes::bint1, layouts::planes, MemoryKind::kDerived);
  CHECK(contains(error_of([&] { planes.row_slice(0, 1); }), "needs canonical codes, got layout planes"));
  CHECK(contains(error_of([&] { planes.reshape({128}); }), "needs canonical codes"));
  CHECK(contains(error_of([&] { planes.clone(MemoryKind::kBuffer); }), "needs canonical codes"));
  CHECK(contains(error_of([&] { transpose(planes); }), "needs canonical codes"));
}

TEST_CASE("a tensor describes itself with shape, dtype, scheme, layout and bytes") {
  const Tensor w = quantized(Tensor::zeros({256, 784}, dtypes::bint1), Granularity::tensor(), floats({1}));
  CHECK(w.describe() == "Tensor [256,784] bint1, affine per tensor, canonical, 26,624 bytes + 4 of scales");
  CHECK(Tensor::zeros({2, 3}, dtypes::fp32).describe() == "Tensor [2,3] fp32, canonical, 24 bytes");
  CHECK(Tensor::zeros({1000, 250}, dtypes::fp32).describe() == "Tensor [1000,250] fp32, canonical, 1,000,000 bytes");
  CHECK(random_codes({4, 64}, dtypes::int4, 1, Granularity::groups(32, 1), ZeroKind::kInteger).describe() ==
        "Tensor [4,64] int4, made per group(32), canonical, 128 bytes + 64 of scales");
  CHECK(Tensor().describe() == "Tensor undefined");
  CHECK(concat(Tensor(), ' ', Tensor::scalar(1)) == "undefined [] fp32");
}

TEST_CASE("item is the value of a one-element tensor") {
  CHECK(quantized(Tensor::full({1, 1}, dtypes::int8, 5), Granularity::tensor(), floats({0.5}), ints({3})).item() == 1);
  CHECK(Tensor::scalar(7, dtypes::int64).item() == 7);
  CHECK(error_of([] { Tensor::zeros({2}, dtypes::fp32).item(); }) == "[Tensor::item] needs one element, got [2] fp32");
}

TEST_CASE("storage is counted under its kind, moves between kinds, and is freed with its last owner") {
  const MemoryAccount before = memory_now();
  {
    const Tensor t = Tensor::empty({100}, dtypes::fp32, MemoryKind::kBatch);
    CHECK(memory_now()[MemoryKind::kBatch] - before[MemoryKind::kBatch] == 400);
    const Tensor view = t.row_slice(10, 20);
    view.storage().set_kind(MemoryKind::kSaved);
    CHECK(t.kind() == MemoryKind::kSaved);
    CHECK(memory_now()[MemoryKind::kBatch] == before[MemoryKind::kBatch]);
    CHECK(memory_now()[MemoryKind::kSaved] - before[MemoryKind::kSaved] == 400);
  }
  CHECK(memory_now().total == before.total);
  CHECK_FALSE(Tensor().defined());
  CHECK(Tensor().bytes() == 0);
  CHECK(Tensor().elements().empty());
}

namespace {

Tensor random_codes(const Shape& shape, DType dtype) {
  return Tensor::from_elements(shape, dtype, random_numbers(dtype, shape.numel(), 5), MemoryKind::kValue);
}
Tensor packed_in(const Tensor& codes, Layout layout) {
  Tensor out = Tensor::empty_layout(codes.shape(), codes.dtype(), layout, MemoryKind::kDerived);
  layout.info().pack(codes.dtype(), codes.rows(), codes.cols(), codes.data(), codes.stride(), out.data());
  return out;
}

}  // namespace

// [cpu]: only weights on the CPU give up their canonical codes.
TEST_CASE("codes that are kept in a derived layout only are freed, and come back when they are read", "[cpu]") {
  for (const DType dtype : {dtypes::bint1, dtypes::ternary, dtypes::int3, dtypes::int4, dtypes::uint8}) {
    for (const Layout layout : {layouts::vnni64, layouts::planes}) {
      INFO(dtype << ' ' << layout);
      const int64_t before = memory_now()[MemoryKind::kValue];
      Tensor t = random_codes({37, 70}, dtype);
      const int64_t bytes = memory_now()[MemoryKind::kValue] - before;
      const std::vector<double> numbers = t.elements();
      const std::vector<uint8_t> codes(static_cast<uint8_t*>(t.data()), static_cast<uint8_t*>(t.data()) + t.bytes());
      t = t.with_quant(std::make_shared<const QuantParams>(QuantParams{"symmetric", {}, floats({0.5})}));
      t.attach_layout(packed_in(t, layout));
      const Tensor other = t;  // has the codes as long as it lives
      t.keep_only(layout);
      CHECK_FALSE(t.present());
      CHECK(other.present());
      const Tensor copy = t, view = t.reshape({37, 70});
      CHECK(t.bytes() == bytes);
      CHECK(concat(t) == concat(other));
      const Tensor rows = t.canonical_rows(15, 18, MemoryKind::kWorkspace);
      CHECK(rows.elements() == std::vector<double>(numbers.begin() + 1050, numbers.begin() + 1260));  // of 70 columns
      CHECK_FALSE(t.present());
      CHECK(memory_now()[MemoryKind::kValue] - before == bytes);  // of `other`
      CHECK(view.row_slice(3, 4).elements() == std::vector<double>(numbers.begin() + 210, numbers.begin() + 280));
      CHECK(copy.present());  // all share what was restored
      CHECK(memory_now()[MemoryKind::kValue] - before == 2 * bytes);
      CHECK(std::memcmp(copy.data(), codes.data(), codes.size()) == 0);
      CHECK(copy.values()[7] == numbers[7] * 0.5);
      t.keep_only(layout);
      CHECK_FALSE(t.present());
      CHECK(t.elements() == numbers);
    }
    CHECK(memory_now()[MemoryKind::kWorkspace] == 0);
  }
}

TEST_CASE("threads that read codes at once restore them once", "[cpu]") {
  Tensor t = random_codes({300, 700}, dtypes::int4);
  const std::vector<double> numbers = t.elements();
  t.attach_layout(packed_in(t, layouts::vnni64));
  for (int i = 0; i < 20; ++i) {
    t.keep_only(layouts::vnni64);
    std::vector<const void*> seen(4);
    std::vector<std::thread> threads;
    threads.reserve(seen.size());
    for (auto& data : seen) threads.emplace_back([&] { data = t.data(); });
    for (std::thread& thread : threads) thread.join();
    CHECK(std::count(seen.begin(), seen.end(), t.data()) == 4);
    CHECK(t.elements() == numbers);
  }
}

TEST_CASE("only whole matrices on the CPU, in layouts of blocks of rows, give up their canonical codes", "[cpu]") {
  Tensor t = random_codes({32, 64}, dtypes::int4);
  const std::string needs =
      "[keep_only] needs a whole dense matrix on the CPU with an attached layout of blocks of rows";
  CHECK(contains(error_of([&] { t.keep_only(layouts::vnni64); }), needs));
  t.attach_layout(packed_in(t, layouts::vnni64_t));
  CHECK(contains(error_of([&] { t.keep_only(layouts::vnni64_t); }), needs));
  CHECK(contains(error_of([&] { t.keep_only(layouts::canonical); }), needs));
  Tensor rows = t.row_slice(16, 32);
  rows.attach_layout(packed_in(rows, layouts::vnni64));
  CHECK(contains(error_of([&] { rows.keep_only(layouts::vnni64); }), needs));
  t.attach_layout(packed_in(t, layouts::vnni64));
  t.keep_only(layouts::vnni64);
  CHECK(contains(error_of([&] { t.canonical_rows(31, 33, MemoryKind::kWorkspace); }), "got rows 31 to 33"));
}

TEST_CASE("scales in the order of a layout belong to the scales that they were made of", "[cpu]") {
  Tensor t = quantized(random_codes({2, 64}, dtypes::int4), Granularity::groups(32), floats({1, 2, 3, 4}));
  CHECK_FALSE(t.panel_scales().defined());
  t.attach_panel_scales(Tensor::from({1, 2, 3}, {3}));
  CHECK(t.panel_scales().numel() == 3);
  CHECK_FALSE(t.without_quant().panel_scales().defined());
  CHECK(t.without_quant().with_quant(t.quant()).panel_scales().defined());
  CHECK_FALSE(quantized(t, Granularity::groups(32), floats({1, 2, 3, 4})).panel_scales().defined());
}
