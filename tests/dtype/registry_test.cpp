#include "dtype/registry.h"

#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <thread>

#include "bitgrad/dtype/dtype.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using bitgrad::detail::DTypeRegistry;
using bitgrad::test::contains;
using bitgrad::test::error_code_of;
using bitgrad::test::error_of;

namespace {

DTypeInfo int_like(const std::string& name, int bits, int64_t qmin, int64_t qmax) {
  return {name, bits, DTypeKind::kInt, qmin, qmax, {}};
}

// The error of adding `info` to a registry of its own.
std::string refusal(DTypeInfo info) {
  DTypeRegistry registry;
  const int before = registry.count();
  std::string text = error_of([&] { registry.add(std::move(info)); });
  CHECK(registry.count() == before);
  return text;
}

}  // namespace

TEST_CASE("the built-in dtypes have the widths, kinds and ranges of the numerics page") {
  CHECK(dtypes::fp64.id() == 0);
  CHECK(DType() == dtypes::fp64);
  CHECK(dtypes::fp32.info() == DTypeInfo{"fp32", 32, DTypeKind::kFloat, 0, 0, {}});
  CHECK(dtypes::int1.info() == DTypeInfo{"int1", 1, DTypeKind::kUint, 0, 1, {}});
  CHECK(dtypes::bint1.info() == DTypeInfo{"bint1", 1, DTypeKind::kSign, -1, 1, {}});
  CHECK(dtypes::ternary.info() == DTypeInfo{"ternary", 2, DTypeKind::kInt, -1, 1, {}});
  CHECK(dtypes::int64.info().qmin == std::numeric_limits<int64_t>::min());
  for (int bits = 2; bits <= 8; ++bits) {
    const DType s = parse_dtype("int" + std::to_string(bits)), u = parse_dtype("uint" + std::to_string(bits));
    CHECK(s.info() == DTypeInfo{s.name(), bits, DTypeKind::kInt, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, {}});
    CHECK(u.info() == DTypeInfo{u.name(), bits, DTypeKind::kUint, 0, (1 << bits) - 1, {}});
  }
  CHECK(dtypes::fp32.is_float());
  CHECK_FALSE(dtypes::fp32.is_code());
  CHECK_FALSE(dtypes::int32.is_code());
  CHECK(dtypes::int8.is_code());
}

TEST_CASE("the level tables of nf4 and fp4 are those of their papers") {
  const DTypeInfo& nf4 = dtypes::nf4.info();
  REQUIRE(nf4.levels.size() == 16);
  CHECK(nf4.qmin == 0);
  CHECK(nf4.qmax == 15);
  for (size_t i = 1; i < 16; ++i) CHECK(nf4.levels[i - 1] < nf4.levels[i]);
  CHECK(nf4.levels.front() == -1.0f);
  CHECK(nf4.levels[7] == 0.0f);
  CHECK(nf4.levels[8] == 0.07958029955625534f);
  CHECK(nf4.levels.back() == 1.0f);
  // E2M1: sign s, exponent e of bias 1, mantissa m.
  const DTypeInfo& fp4 = dtypes::fp4_e2m1.info();
  REQUIRE(fp4.levels.size() == 16);
  for (int raw = 0; raw < 16; ++raw) {
    const int e = raw >> 1 & 3, m = raw & 1;
    const double magnitude = e == 0 ? 0.5 * m : std::ldexp(1.0 + 0.5 * m, e - 1);
    CHECK(static_cast<double>(fp4.levels[static_cast<size_t>(raw)]) == (raw >= 8 ? -magnitude : magnitude));
  }
}

TEST_CASE("every dtype is found by its name, prints it, and names are unique") {
  std::set<std::string> names;
  for (const DType dtype : all_dtypes()) {
    CHECK(names.insert(dtype.name()).second);
    CHECK(find_dtype(dtype.name()) == dtype);
    CHECK(parse_dtype(dtype.name()) == dtype);
    std::ostringstream text;
    text << dtype;
    CHECK(text.str() == dtype.name());
  }
  CHECK_FALSE(find_dtype("").has_value());
  CHECK_FALSE(find_dtype("INT4").has_value());
  CHECK_FALSE(find_dtype("int4 ").has_value());
}

TEST_CASE("an unknown dtype name is an error that lists the names and the nearest one") {
  const std::string text = error_of([] { parse_dtype("bitn1"); });
  CHECK(contains(text, "[parse_dtype] unknown dtype: got \"bitn1\", expected one of fp64, fp32, bf16, fp16"));
  CHECK(contains(text, "The nearest name is "));
  CHECK(contains(error_of([] { parse_dtype("ternarry"); }), "The nearest name is ternary."));
  CHECK(contains(error_of([] { parse_dtype("Nf4"); }), "The nearest name is nf4."));
  CHECK(contains(error_of([] { parse_dtype(""); }), "got \"\""));
  CHECK(error_code_of([] { parse_dtype(std::string(100000, 'x')); }) == 2);
}

TEST_CASE("kinds have names and are found by them") {
  for (const auto kind :
       {DTypeKind::kFloat, DTypeKind::kInt, DTypeKind::kUint, DTypeKind::kSign, DTypeKind::kCodebook}) {
    CHECK(find_kind(kind_name(kind)) == kind);
  }
  CHECK(kind_name(DTypeKind::kCodebook) == "codebook");
  CHECK_FALSE(find_kind("Float").has_value());
}

TEST_CASE("a handle that nothing registered is an internal error, not a wild read") {
  CHECK(error_code_of([] { DType(255).info(); }) == 70);
}

TEST_CASE("registering an equal record again gives the same handle") {
  DTypeRegistry registry;
  const DType a = registry.add(int_like("tern_a", 2, -1, 1));
  CHECK(registry.add(int_like("tern_a", 2, -1, 1)) == a);
  const DTypeInfo book{"book", 2, DTypeKind::kCodebook, 0, 0, {-1.0f, 0.5f, 3.0f}};
  const DType b = registry.add(book);
  CHECK(b.id() == a.id() + 1);
  CHECK(registry.info(b.id()).qmax == 2);
  CHECK(registry.add(registry.info(b.id())) == b);
  // A checkpoint that names a built-in brings its whole record, of any kind.
  for (const DType dtype : {dtypes::fp32, dtypes::int64, dtypes::bint1, dtypes::nf4}) {
    CHECK(registry.add(dtype.info()) == dtype);
  }
}

TEST_CASE("another record under a known name is an error that shows both") {
  DTypeRegistry registry;
  const std::string text = error_of([&] { registry.add(int_like("int4", 4, -7, 7)); });
  CHECK(contains(text,
                 "[register_dtype] dtype int4 is taken: got 4 bits, kind int, range [-7, 7], expected 4 bits, kind "
                 "int, range [-8, 7]"));
  registry.add({"book", 2, DTypeKind::kCodebook, 0, 0, {-1.0f, 1.0f}});
  CHECK(contains(error_of([&] {
                   registry.add({"book", 2, DTypeKind::kCodebook, 0, 0, {-1.0f, 2.0f}});
                 }),
                 "levels -1 2, expected 2 bits, kind codebook, range [0, 1], levels -1 1"));
  CHECK(contains(error_of([&] { registry.add({"fp32", 16, DTypeKind::kFloat, 0, 0, {}}); }), "dtype fp32 is taken"));
}

TEST_CASE("unusable records are refused, each with its own text") {
  CHECK(contains(refusal(int_like("", 4, -8, 7)), "[register_dtype] name: got \"\", expected 1 to 64 letters"));
  CHECK(contains(refusal(int_like("my int", 4, -8, 7)), "name: got \"my int\""));
  CHECK(contains(refusal(int_like("4int", 4, -8, 7)), "name: got \"4int\""));
  CHECK(contains(refusal(int_like(std::string(65, 'a'), 4, -8, 7)), "name: got"));
  CHECK(contains(refusal(int_like("x", 0, -8, 7)), "dtype x, bits: got 0, expected 1 to 8."));
  CHECK(contains(refusal(int_like("x", 9, -8, 7)), "bits: got 9, expected 1 to 8."));
  CHECK(contains(refusal(int_like("x", -1, -8, 7)), "bits: got -1"));
  CHECK(contains(refusal(int_like("x", 4, -9, 7)),
                 "code range: got [-9, 7], expected qmin < qmax within [-8, 7] of 4 bits"));
  CHECK(contains(refusal(int_like("x", 4, -8, 8)), "code range: got [-8, 8]"));
  CHECK(contains(refusal(int_like("x", 4, 3, 3)), "code range: got [3, 3]"));
  CHECK(contains(refusal(int_like("x", 4, 3, -3)), "code range: got [3, -3]"));
  CHECK(contains(refusal({"x", 4, DTypeKind::kUint, -1, 15, {}}), "within [0, 15] of 4 bits and kind uint"));
  CHECK(contains(refusal({"x", 1, DTypeKind::kUint, 0, 2, {}}), "within [0, 1] of 1 bit and"));
  CHECK(contains(refusal({"x", 4, DTypeKind::kInt, -8, 7, {1.0f}}),
                 "number of levels: got 1, expected none for kind int"));
  CHECK(contains(refusal({"x", 2, DTypeKind::kSign, -1, 1, {}}), "expected 1 bit and range [-1, 1]"));
  CHECK(contains(refusal({"x", 1, DTypeKind::kSign, 0, 1, {}}), "expected 1 bit and range [-1, 1]"));
  CHECK(contains(refusal({"x", 16, DTypeKind::kFloat, 0, 0, {}}),
                 "kind: got float, expected int, uint, sign or codebook."));
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(contains(refusal({"x", 1, DTypeKind::kCodebook, 0, 0, {0.0f, 1.0f}}),
                 "bits of a codebook: got 1, expected 2 to 8."));
  CHECK(contains(refusal({"x", 9, DTypeKind::kCodebook, 0, 0, {0.0f, 1.0f}}), "bits of a codebook: got 9"));
  CHECK(contains(refusal({"x", 2, DTypeKind::kCodebook, 0, 0, {}}),
                 "number of levels: got 0, expected 2 to 4 for 2 bits."));
  CHECK(contains(refusal({"x", 2, DTypeKind::kCodebook, 0, 0, {1.0f}}), "number of levels: got 1"));
  CHECK(contains(refusal({"x", 2, DTypeKind::kCodebook, 0, 0, {1, 2, 3, 4, 5}}), "number of levels: got 5"));
  CHECK(contains(refusal({"x", 2, DTypeKind::kCodebook, 0, 0, {1.0f, inf}}),
                 "level 1: got inf, expected a finite number."));
  CHECK(contains(refusal({"x", 2, DTypeKind::kCodebook, 0, 0, {std::nanf(""), 0.0f}}), "level 0: got"));
}

TEST_CASE("one-bit integers, full-range codebooks and signs of another name are accepted") {
  DTypeRegistry registry;
  CHECK(registry.info(registry.add(int_like("neg1", 1, -1, 0)).id()).qmin == -1);
  std::vector<float> levels(256);
  for (size_t i = 0; i < 256; ++i) levels[i] = static_cast<float>(i) * 0.25f;
  CHECK(registry.info(registry.add({"book8", 8, DTypeKind::kCodebook, 7, 3, levels}).id()).qmax == 255);
  CHECK_NOTHROW(registry.add({"pm1", 1, DTypeKind::kSign, -1, 1, {}}));
}

TEST_CASE("the 256th dtype is an error and the 255 before it stay usable") {
  DTypeRegistry registry;
  const DTypeInfo& first = registry.info(0);
  for (int i = registry.count(); i < 255; ++i) {
    REQUIRE(registry.add(int_like("extra_" + std::to_string(i), 3, -3, 3)).id() == i);
  }
  CHECK(error_of([&] { registry.add(int_like("one_more", 3, -3, 3)); }) ==
        "[register_dtype] number of dtypes: got 256 with one_more, expected at most 255.");
  CHECK(registry.add(int_like("extra_254", 3, -3, 3)).id() == 254);
  CHECK(&registry.info(0) == &first);
  CHECK(first.name == "fp64");
  CHECK(registry.info(254).name == "extra_254");
}

TEST_CASE("threads that register and read at once see complete records and agree on the handles") {
  DTypeRegistry registry;
  const int start = registry.count();
  std::vector<std::thread> threads;
  std::vector<std::vector<uint8_t>> ids(4);
  std::atomic<int> bad{0};
  for (size_t t = 0; t < ids.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        ids[t].push_back(registry.add(int_like("shared_" + std::to_string(i), 5, -i % 16 - 1, 15)).id());
        for (int k = start; k < registry.count(); ++k) {
          const DTypeInfo& info = registry.info(static_cast<uint8_t>(k));
          if (info.bits != 5 || info.qmax != 15 || info.name.rfind("shared_", 0) != 0) ++bad;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(bad == 0);
  CHECK(registry.count() == start + 100);
  for (const auto& other : ids) CHECK(other == ids[0]);
}
