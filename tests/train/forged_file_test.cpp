// Files forged with right checksums: what they say is held against the file and against limits.
#include <cstring>
#include <functional>
#include <limits>

#include "support/catch.h"
#include "train/checkpoint_parts.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("sizes and numbers of a forged record are held against the file, and against limits") {
  const auto edited = [&](const std::function<void(Json&)>& change) {
    return error_after(
        [&](Parts& p) { p.edit("bitgrad.tensors", [&](Json& j) { change(j.at("layers.0.weight.codes")); }); });
  };
  static constexpr int64_t kHuge = int64_t{1} << 59;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, kHuge}, {4, 1 << 27}, {1 << 27, 4}, {3, 5}}) {
    const std::string text = edited([&](Json& r) { r["shape"] = shape; });
    CHECK(contains(text, "tensor 'layers.0.weight.codes' is "));
    CHECK(contains(text, concat("expected the codes of [", shape[0], ',', shape[1], ']')));
  }
  CHECK(contains(edited([](Json& r) { r["shape"] = {kHuge, kHuge}; }), "passes 2^62"));
  CHECK(contains(edited([](Json& r) { r["shape"] = {0, 5}; }), "shape: got 0, expected a whole number from 1"));
  CHECK(contains(edited([](Json& r) { r["shape"] = {4.0, 5}; }), "shape: got 4.0, expected a whole number"));
  CHECK(contains(edited([](Json& r) { r["shape"] = std::vector<int>(9, 1); }), "shape: expected a list of at most 8"));
  for (const int64_t group : {std::numeric_limits<int64_t>::max(), int64_t{1} << 40, int64_t{0}})
    CHECK(contains(edited([&](Json& r) {
                     r["granularity"] = {{"kind", 3}, {"axis", -1}, {"group", group}};
                   }),
                   concat("group: got ", group, ", expected a whole number from 1 to ")));
  CHECK(contains(edited([](Json& r) { r["granularity"]["axis"] = 2; }), "axis: got 2, expected"));
  CHECK(contains(edited([](Json& r) { r["dtype"]["bits"] = 1e300; }), "bits: got 1e+300, expected a whole number"));
  CHECK(contains(edited([](Json& r) { r["dtype"]["levels"] = {1e300, 0.0}; }), "too large for fp32"));
  CHECK(contains(edited([](Json& r) { r["dtype"]["levels"] = std::vector<int>(257, 1); }), "a list of at most 256"));
  CHECK(contains(
      edited([](Json& r) {
        const DTypeInfo& fp32 = dtypes::fp32.info();
        r["dtype"] = {{"name", "fp32"}, {"bits", 32}, {"kind", "float"}, {"qmin", fp32.qmin}, {"qmax", fp32.qmax}};
      }),
      "codes cannot be of fp32"));
  CHECK(contains(error_after([](Parts& p) {
                   p.edit("bitgrad.tensors",
                          [](Json& j) { j["layers.9.weight.codes"] = j.at("layers.0.weight.codes"); });
                 }),
                 "tensor 'layers.9.weight.codes' is missing, the metadata has a record of it"));
}

TEST_CASE("metadata that are deep, long, ambiguous or cut by a zero byte are refused while they are read") {
  using namespace std::string_literals;
  const auto with = [](const std::string& key, const std::string& text) {
    return error_after([&](Parts& p) { p.metadata[key] = text; });
  };
  CHECK(contains(with("bitgrad.tensors", std::string(1 << 20, '[')),
                 "'bitgrad.tensors' is not JSON: more than 8 collections inside one another"));
  CHECK(contains(with("bitgrad.tensors", std::string((16 << 20) + 1, ' ')),
                 "'bitgrad.tensors' has 16777217 bytes, at most 16777216 are read"));
  CHECK(contains(with("bitgrad.state", R"({"step": 1, "step": 2})"),
                 "'bitgrad.state' is not JSON: the key 'step' twice in one object"));
  CHECK(contains(with("bitgrad.state", "{}\0 {"s), "'bitgrad.state' is not JSON: a byte 0"));
}

TEST_CASE("counters of a forged file are held within what a run can do") {
  const auto edited = [](const std::function<void(Json&)>& change) {
    return error_after([&](Parts& p) { p.edit("bitgrad.state", change); });
  };
  CHECK(contains(edited([](Json& s) { s["step"] = int64_t{1} << 62; }), "step: got 4611686018427387904, expected"));
  CHECK(contains(edited([](Json& s) { s["step"] = 1.5; }), "step: got 1.5, expected a whole number"));
  CHECK(contains(edited([](Json& s) { s["step"] = s.at("microbatch").get<int64_t>() + 1; }), "do not agree"));
  // The largest that may be: nothing is repeated for each step.
  CHECK(edited([](Json& s) { s["step"] = s["microbatch"] = int64_t{1} << 53; }).empty());
}

TEST_CASE("scales that are not finite and invalid zero points are refused") {
  const auto fill = [](const std::string& name, auto number, int code) {
    return error_after(
        [&](Parts& p) {
          std::vector<uint8_t>& bytes = p.bytes[p.find(name)];
          std::memcpy(bytes.data() + bytes.size() - sizeof number, &number, sizeof number);
        },
        code);
  };
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    CHECK(contains(fill("layers.0.weight.scale", bad, 5), "'layers.0.weight.scale' holds NaN or Inf"));
    CHECK(contains(fill("layers.3.weight.offset", bad, 5), "'layers.3.weight.offset' holds NaN or Inf"));
  }
  for (const int32_t zero : {8, -9, std::numeric_limits<int32_t>::min()})  // int4: -8 .. 7
    CHECK(contains(fill("layers.0.weight.zero", zero, 3),
                   concat("tensor 'layers.0.weight.zero', element 3: ", zero, ", which is not a zero point of int4")));
}

TEST_CASE("a forged record that init_from reads is refused as the same one that is loaded") {
  TempDir temp;
  const auto learner = small_learner();
  save_checkpoint(temp.file("a"), *learner, kCounters, "");
  Parts parts(temp.file("a"));
  // Codes alone: no master, no scale, and a group that makes counts overflow.
  for (const char* name : {"layers.0.weight.master", "layers.0.weight.scale", "layers.0.weight.zero"}) {
    const auto at = static_cast<std::ptrdiff_t>(parts.find(name));
    parts.items.erase(parts.items.begin() + at);
    parts.bytes.erase(parts.bytes.begin() + at);
  }
  const Parts bare = parts;
  parts.edit("bitgrad.tensors", [](Json& j) {
    j.at("layers.0.weight.codes")["granularity"] = {
        {"kind", 3}, {"axis", -1}, {"group", std::numeric_limits<int64_t>::max()}};
  });
  parts.write(temp.file("b"));
  const auto init = [&] { init_from(temp.file("b"), small_learner()->model()); };
  CHECK(error_code_of(init) == 3);
  CHECK(contains(error_of(init), "group: got 9223372036854775807"));
  Parts small_group = bare;
  small_group.edit("bitgrad.tensors", [](Json& j) {
    j.at("layers.0.weight.codes")["granularity"] = {{"kind", 3}, {"axis", -1}, {"group", int64_t{1} << 20}};
  });
  small_group.write(temp.file("c"));
  CHECK_NOTHROW(init_from(temp.file("c"), small_learner()->model()));  // no scale: they are 1
}
