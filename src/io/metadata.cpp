#include "io/metadata.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"

namespace bitgrad::detail {

Json parse_metadata(const std::string& key, const std::string& text, int depth) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  require(text.size() <= kMostBytes, "metadata", "'", key, "' has ", text.size(), " bytes, at most ", kMostBytes,
          " are read");
  try {
    return Json::parse(text, {.depth = depth, .unique_names = true});
  } catch (const JsonError& e) {
    fail("metadata", "'", key, "' is not JSON: ", e.what());
  }
}

int64_t whole_number(const Json& value, const std::string& key, int64_t min, int64_t max) {
  try {
    const auto x = value.get<int64_t>();
    if (x >= min && x <= max) return x;
  } catch (const JsonError&) {  // another type, or beyond int64
  }
  fail("metadata", "malformed metadata: ", key, ": got ", value.dump().substr(0, 60), ", expected a whole number from ",
       min, " to ", max, min == 0 ? ", none that is negative" : "");
}

int64_t whole_member(const Json& record, const std::string& key, int64_t min, int64_t max) {
  return whole_number(record.at(key), key, min, max);
}

namespace {

constexpr size_t kMostRank = 8, kMostLevels = 256;
constexpr int64_t kLargestAxis = int64_t{1} << 62;  // Shape checks the product
constexpr int64_t kLargestGroup = int64_t{1} << 31;

Json dtype_record(DType dtype) {
  const DTypeInfo& i = dtype.info();
  Json record{{"name", i.name}, {"bits", i.bits}, {"kind", kind_name(i.kind)}, {"qmin", i.qmin}, {"qmax", i.qmax}};
  if (!i.levels.empty()) record["levels"] = i.levels;
  return record;
}

std::vector<float> levels_of(const Json& list) {
  require(list.is_array() && list.size() <= kMostLevels, "codes",
          "malformed metadata: levels: expected a list of at most ", kMostLevels);
  std::vector<float> levels;
  for (const Json& level : list) {
    const auto number = level.get<double>();
    require(std::abs(number) <= std::numeric_limits<float>::max(), "codes", "a level is too large for fp32");
    levels.push_back(static_cast<float>(number));
  }
  return levels;
}

// The dtype of a file's record: known, or registered now. register_dtype throws if the name is known with another
// record.
DType dtype_of(const Json& record) {
  DTypeInfo info;
  info.name = record.at("name").text();
  info.bits = static_cast<int>(whole_member(record, "bits", 1, 64));
  const auto kind = find_kind(record.at("kind").text());
  require(kind.has_value(), "codes", "dtype '", info.name, "' has an unknown kind");
  info.kind = *kind;
  info.qmin = whole_member(record, "qmin", INT64_MIN, INT64_MAX);
  info.qmax = whole_member(record, "qmax", INT64_MIN, INT64_MAX);
  if (record.contains("levels")) info.levels = levels_of(record.at("levels"));
  const auto known = find_dtype(info.name);
  const DType dtype = known && known->info() == info ? *known : register_dtype(info);
  require(dtype.is_code(), "codes", "codes cannot be of ", dtype);
  return dtype;
}

Json granularity_record(const Granularity& g) {
  return {{"kind", static_cast<int>(g.kind)}, {"axis", g.axis}, {"group", g.group}, {"text", concat(g)}};
}
Granularity granularity_of(const Json& j) {
  const auto kind =
      static_cast<Granularity::Kind>(whole_number(j.at("kind"), "kind of the granularity", 0, Granularity::kGroup));
  return {kind, whole_member(j, "axis", -1, 1),
          whole_member(j, "group", kind == Granularity::kGroup ? 1 : 0, kLargestGroup)};
}

Shape shape_of(const Json& list) {
  require(list.is_array() && list.size() <= kMostRank, "codes",
          "malformed metadata: shape: expected a list of at most ", kMostRank);
  std::vector<int64_t> sizes;
  for (const Json& size : list) sizes.push_back(whole_number(size, "shape", 0, kLargestAxis));
  return Shape(std::move(sizes));
}

}  // namespace

CodesRecord codes_record(const Tensor& codes) {
  const auto& quant = codes.quant();
  return {codes.dtype(), codes.shape(), quant ? quant->scheme : "", quant ? quant->granularity : Granularity{}};
}

std::string codes_records_text(const CodesRecords& records) {
  Json all = Json::object();
  for (const auto& [name, record] : records)
    all[name] = {{"dtype", dtype_record(record.dtype)},
                 {"shape", record.shape.dims()},
                 {"scheme", record.scheme},
                 {"granularity", granularity_record(record.granularity)}};
  return all.dump();
}

CodesRecords parse_codes_records(const std::string& text) {
  const Json all = parse_metadata(std::string(kCodesKey), text);
  require(all.is_object(), "codes", "'", kCodesKey, "' is not a JSON object");
  CodesRecords out;
  for (const auto& [name, record] : all.members()) {
    try {
      out.emplace_back(name, CodesRecord{dtype_of(record.at("dtype")), shape_of(record.at("shape")),
                                         record.at("scheme").text(), granularity_of(record.at("granularity"))});
    } catch (const JsonError& e) {
      fail("codes", "record of '", name, "': malformed metadata: ", e.what());
    } catch (const Error& e) {
      fail("codes", "record of '", name, "': ", e.what());
    }
  }
  return out;
}

namespace {

bool is_code(const DTypeInfo& info, uint8_t raw) {
  const int64_t number = info.kind == DTypeKind::kCodebook ? raw : decode_int(info, raw);
  return number >= info.qmin && number <= info.qmax;
}

// Which bytes hold codes alone, for dtypes whose codes do not cross bytes.
struct CodeBytes {
  bool known = false, all = false;
  std::array<bool, 256> good{};

  explicit CodeBytes(const DTypeInfo& info) {
    if (8 % info.bits != 0) return;
    known = all = true;
    const unsigned mask = (1u << info.bits) - 1;
    for (unsigned byte = 0; byte < good.size(); ++byte) {
      bool whole = true;
      for (int shift = 0; shift < 8; shift += static_cast<int>(info.bits))
        whole = whole && is_code(info, static_cast<uint8_t>((byte >> shift) & mask));
      good[byte] = whole;
      all = all && whole;
    }
  }
  // Of `count` whole bytes.
  bool hold(const uint8_t* bytes, int64_t count) const {
    return known && (all || std::all_of(bytes, bytes + count, [&](uint8_t byte) { return good[byte]; }));
  }
};

}  // namespace

std::string wrong_codes(const Tensor& t) {
  if (t.numel() == 0) return "";
  const DTypeInfo& info = t.dtype().info();
  const CodeBytes bytes(info);
  const bool dense = t.cols() * info.bits == t.stride() * 8;  // rows without a bit after the last code
  std::vector<uint8_t> raw(static_cast<size_t>(t.cols())), packed(static_cast<size_t>(t.stride()));
  for (int64_t r = 0; r < t.rows(); ++r) {
    const auto* row = static_cast<const uint8_t*>(t.data()) + r * t.stride();
    if (dense && bytes.hold(row, t.stride())) continue;
    unpack_row_raw(t.dtype(), row, 0, t.cols(), raw.data());
    for (const uint8_t code : raw)
      if (!is_code(info, code))
        return concat("row ", r, ": ", info.kind == DTypeKind::kCodebook ? code : decode_int(info, code),
                      " is not a code of ", t.dtype());
    pack_row_raw(t.dtype(), raw.data(), t.cols(), packed.data());
    if (std::memcmp(packed.data(), row, packed.size()) != 0)
      return concat("row ", r, ": bits after the last code are set");
  }
  return "";
}

}  // namespace bitgrad::detail
