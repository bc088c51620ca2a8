#include "io/codes_record.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "bitgrad/dtype/codec.h"

namespace bitgrad::detail {
namespace {

using Json = nlohmann::ordered_json;

Json dtype_record(DType dtype) {
  const DTypeInfo& i = dtype.info();
  Json record{{"name", i.name}, {"bits", i.bits}, {"kind", kind_name(i.kind)}, {"qmin", i.qmin}, {"qmax", i.qmax}};
  if (!i.levels.empty()) record["levels"] = i.levels;
  return record;
}

// The dtype of a file's record: known, or registered now. Another record under a known name is an error of
// register_dtype.
DType dtype_of(const Json& record) {
  DTypeInfo info;
  info.name = record.at("name").get<std::string>();
  info.bits = record.at("bits").get<int>();
  const auto kind = find_kind(record.at("kind").get<std::string>());
  require(kind.has_value(), "codes", "dtype '", info.name, "' has an unknown kind");
  info.kind = *kind;
  info.qmin = record.at("qmin").get<int64_t>();
  info.qmax = record.at("qmax").get<int64_t>();
  if (record.contains("levels")) info.levels = record.at("levels").get<std::vector<float>>();
  const auto known = find_dtype(info.name);
  return known && known->info() == info ? *known : register_dtype(info);
}

Json granularity_record(const Granularity& g) {
  return {{"kind", static_cast<int>(g.kind)}, {"axis", g.axis}, {"group", g.group}, {"text", concat(g)}};
}
Granularity granularity_of(const std::string& name, const Json& j) {
  const int kind = j.at("kind").get<int>();
  require(kind >= 0 && kind <= static_cast<int>(Granularity::kGroup), "codes", "'", name, "': unknown granularity ",
          kind);
  const Granularity g{static_cast<Granularity::Kind>(kind), j.at("axis").get<int64_t>(), j.at("group").get<int64_t>()};
  constexpr int64_t kMostGroup = int64_t{1} << 40;
  require(g.kind != Granularity::kGroup || (g.group >= 1 && g.group <= kMostGroup), "codes", "'", name,
          "': the group of a granularity: got ", g.group, ", expected 1 .. ", kMostGroup);
  return g;
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
  try {
    CodesRecords out;
    const Json all = Json::parse(text);
    for (const auto& [name, record] : all.items())
      out.emplace_back(
          name, CodesRecord{dtype_of(record.at("dtype")), Shape(record.at("shape").get<std::vector<int64_t>>()),
                            record.at("scheme").get<std::string>(), granularity_of(name, record.at("granularity"))});
    return out;
  } catch (const nlohmann::json::exception& e) {
    fail("codes", "malformed metadata: ", e.what());
  }
}

std::string wrong_codes(const Tensor& t) {
  if (t.numel() == 0) return "";
  const DTypeInfo& info = t.dtype().info();
  std::vector<uint8_t> raw(static_cast<size_t>(t.cols())), packed(static_cast<size_t>(t.stride()));
  for (int64_t r = 0; r < t.rows(); ++r) {
    const auto* row = static_cast<const uint8_t*>(t.data()) + r * t.stride();
    unpack_row_raw(t.dtype(), row, 0, t.cols(), raw.data());
    for (const uint8_t code : raw) {
      const int64_t number = info.kind == DTypeKind::kCodebook ? code : decode_int(info, code);
      if (number < info.qmin || number > info.qmax)
        return concat("row ", r, ": ", number, " is no code of ", t.dtype());
    }
    pack_row_raw(t.dtype(), raw.data(), t.cols(), packed.data());
    if (std::memcmp(packed.data(), row, packed.size()) != 0)
      return concat("row ", r, ": bits after the last code are set");
  }
  return "";
}

}  // namespace bitgrad::detail
