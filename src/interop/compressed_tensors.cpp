#include "interop/hugging_face.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "interop/decoder_files.h"

namespace bitgrad::interop {
namespace {

constexpr std::string_view kCodes = "quantization_config";

template <typename... Parts>
[[noreturn]] void bad_codes(const Parts&... parts) {
  fail_with(ErrorCode::kData, kCodes, printable(concat(parts...)));
}

bool is_set(const Json& j, std::string_view key) {
  if (!j.contains(key) || j.at(key).is_null()) return false;
  const Json& value = j.at(key);
  return !((value.is_object() || value.is_array()) && value.empty()) && value != Json(false);
}
std::string shown(const Json& j) { return j.dump().substr(0, 80); }

bool packed_format(const Json& in, const std::string& outer, const std::string& where) {
  const std::string format = is_set(in, "format") ? in.at("format").text() : outer;
  if (format == "pack-quantized") return true;
  if (format == "int-quantized" || format == "naive-quantized") return false;
  bad_codes(where, ": format: got '", format,
            "', expected pack-quantized, int-quantized or naive-quantized (weights of integer codes). Take the float "
            "weights of the model.");
}

CodeScheme parse_weights(const Json& weights, const std::string& where) {
  CodeScheme scheme;
  if (const std::string type = weights.value("type", "int"); type != "int")
    bad_codes(where, ": type: got '", type, "', expected int. Take the float weights of the model.");
  const auto bits = weights.at("num_bits").get<int64_t>();
  if (bits < 2 || bits > 8) bad_codes(where, ": num_bits: got ", bits, ", expected 2 to 8.");
  scheme.bits = static_cast<int>(bits);
  scheme.symmetric = weights.value("symmetric", true);
  const std::string strategy = is_set(weights, "strategy")     ? weights.at("strategy").text()
                               : is_set(weights, "group_size") ? "group"
                                                               : "tensor";
  if (strategy == "group") {
    scheme.group = weights.at("group_size").get<int64_t>();
    if (scheme.group == -1) scheme.group = 0;
    if (scheme.group < 0 || scheme.group > (int64_t{1} << 24))
      bad_codes(where, ": group_size: got ", scheme.group, ", expected a number of columns.");
  } else if (strategy != "channel" && strategy != "tensor") {
    bad_codes(where, ": strategy: got '", strategy, "', expected tensor, channel or group.");
  }
  if (is_set(weights, "actorder") && weights.at("actorder") != Json("static") &&
      weights.at("actorder") != Json("weight"))
    bad_codes(where, ": actorder: got ", shown(weights.at("actorder")),
              ", which reorders the columns: not read. Take the float weights of the model.");
  return scheme;
}

// Patterns of names as such files have them: characters, \., . and .*, and (a|b) without nesting. All alternatives
// apart.
void expand(const std::string& pattern, std::vector<std::string>& out) {
  constexpr size_t kMost = 256;
  const size_t open = pattern.find('('), close = pattern.find(')');
  if (open == std::string::npos && close == std::string::npos && out.size() < kMost) return out.push_back(pattern);
  if (open == std::string::npos || close == std::string::npos || close < open || pattern.find('(', open + 1) < close ||
      out.size() >= kMost)
    bad_codes("targets: got 're:", pattern.substr(0, 80), "', expected characters, '.*' and '(a|b)' without nesting.");
  for (size_t from = open + 1; from <= close;) {
    const size_t to = std::min(pattern.find('|', from), close);
    expand(concat(pattern.substr(0, open), pattern.substr(from, to - from), pattern.substr(close + 1)), out);
    from = to + 1;
  }
}

// As re.match: from the start, to any place unless $ ends the pattern. `at`: the places of the name reached so far.
bool matches_one(const std::string& pattern, const std::string& name) {
  std::vector<char> at(name.size() + 1, 0);
  at[0] = 1;
  for (size_t i = pattern.starts_with('^') ? 1 : 0; i < pattern.size(); ++i) {
    if (pattern[i] == '$' && i + 1 == pattern.size()) return at[name.size()] != 0;
    const bool escaped = pattern[i] == '\\' && i + 1 < pattern.size();
    if (escaped) ++i;
    const char c = pattern[i];
    if (escaped ? std::isalnum(static_cast<unsigned char>(c)) != 0 : std::string_view("*+?[]{}|^$").find(c) < 10)
      bad_codes("targets: got 're:", pattern.substr(0, 80), "': '", c, "' is not read there.");
    const bool any = c == '.' && !escaped, run = any && i + 1 < pattern.size() && pattern[i + 1] == '*';
    if (run) {
      ++i;
      for (size_t p = 1; p <= name.size(); ++p) at[p] = at[p] != 0 || at[p - 1] != 0 ? 1 : 0;
      continue;
    }
    for (size_t p = name.size(); p > 0; --p) at[p] = at[p - 1] != 0 && (any || name[p - 1] == c) ? 1 : 0;
    at[0] = 0;
  }
  return std::find(at.begin(), at.end(), 1) != at.end();
}

bool matches(const std::string& target, const std::string& module) {
  std::vector<std::string> patterns;
  expand(target.substr(3), patterns);
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches_one(p, module); });
}

// Numbers of `bits` bits, one after the other from the low end of the first word on.
int64_t bits_at(const uint8_t* words, int64_t index, int bits) {
  const int64_t byte = index * bits / 8, shift = index * bits % 8;
  const int64_t two = words[byte] | (shift + bits > 8 ? words[byte + 1] << 8 : 0);
  return two >> shift & ((int64_t{1} << bits) - 1);
}
int64_t words_for(int64_t count, int bits) { return (count * bits + 31) / 32; }

DType type_of_codes(int bits, bool is_signed) { return parse_dtype(concat(is_signed ? "int" : "uint", bits)); }

struct WeightLayout {
  int64_t rows, cols, groups;
  bool one_scale;  // of the whole tensor
};
WeightLayout layout_of(const HuggingFaceFiles& files, const std::string& weight, const Shape& shape,
                       const CodeScheme& scheme) {
  const Shape scales(files.entry(weight + "_scale").shape);
  return {shape[0], shape[1], scheme.group == 0 ? 1 : shape[1] / scheme.group,
          scheme.group == 0 && scales.numel() == 1 && shape[0] != 1};
}

// Zero points, as many as scales; empty: none, or all are 0.
std::vector<int32_t> read_zeros(const HuggingFaceFiles& files, const std::string& weight, const WeightLayout& at,
                                int bits) {
  const std::string name = weight + "_zero_point";
  if (!files.contains(name)) return {};
  const bool packed = files.entry(name).dtype == "I32";
  const uint8_t* const bytes = files.data(name);
  const int64_t rows = at.one_scale ? 1 : at.rows, words = words_for(rows, bits);
  std::vector<int32_t> zeros;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < at.groups; ++g) {
      if (!packed) {
        zeros.push_back(static_cast<int8_t>(bytes[r * at.groups + g]));
        continue;
      }
      std::vector<uint8_t> column(static_cast<size_t>(4 * words));
      for (int64_t w = 0; w < words; ++w) std::memcpy(column.data() + 4 * w, bytes + 4 * (w * at.groups + g), 4);
      zeros.push_back(static_cast<int32_t>(bits_at(column.data(), r, bits) - (int64_t{1} << (bits - 1))));
    }
  return std::all_of(zeros.begin(), zeros.end(), [](int32_t z) { return z == 0; }) ? std::vector<int32_t>() : zeros;
}

std::string wrong_tensor(const HuggingFaceFiles& files, const std::string& name,
                         const std::vector<std::pair<std::string, Shape>>& allowed) {
  if (!files.contains(name)) return concat("\n  ", name, ": missing, expected ", allowed[0].second);
  const SafetensorsEntry& e = files.entry(name);
  std::string expected;
  for (const auto& [type, shape] : allowed) {
    if (e.dtype == type && Shape(e.shape) == shape) return "";
    expected += concat(expected.empty() ? "" : " or ", type, ' ', shape);
  }
  return concat("\n  ", name, ": got ", e.dtype, ' ', Shape(e.shape), ", expected ", expected);
}

}  // namespace

bool CodeScheme::operator==(const CodeScheme& o) const {
  return bits == o.bits && symmetric == o.symmetric && group == o.group && packed == o.packed;
}

std::vector<CodeScheme> parse_code_schemes(const Json& q) {
  const std::string format = is_set(q, "format") ? q.at("format").text() : "dense";
  if (const std::string status = q.value("quantization_status", "compressed"); status != "compressed")
    bad_codes("quantization_status: got '", status, "', expected compressed.");
  for (const char* key : {"kv_cache_scheme", "transform_config"})
    if (is_set(q, key)) bad_codes(key, ": got ", shown(q.at(key)), ", which is not read.");
  if (is_set(q, "sparsity_config") && q.at("sparsity_config").value("format", "dense") != "dense")
    bad_codes("sparsity_config: got ", shown(q.at("sparsity_config")), ", which is not read.");
  std::vector<CodeScheme> out;
  if (!is_set(q, "config_groups")) bad_codes("config_groups: got none.");
  for (const auto& [name, group] : q.at("config_groups").members()) {
    const std::string where = "config_groups." + name;
    for (const char* key : {"input_activations", "output_activations"})
      if (is_set(group, key))
        bad_codes(where, '.', key, ": got ", shown(group.at(key)),
                  ", expected none: weights of few bits are read, rounded inputs of layers are not.");
    const bool packed = packed_format(group, format, where);
    if (!is_set(group, "weights")) bad_codes(where, ".weights: got none.");
    CodeScheme scheme = parse_weights(group.at("weights"), where + ".weights");
    scheme.packed = packed;
    for (const Json& target : group.at("targets")) scheme.targets.push_back(target.text());
    out.push_back(std::move(scheme));
  }
  return out;
}

Json code_schemes_json(const std::vector<CodeScheme>& schemes) {
  Json groups = Json::object();
  for (const CodeScheme& s : schemes) {
    Json weights{{"num_bits", s.bits},
                 {"type", "int"},
                 {"symmetric", s.symmetric},
                 {"strategy", s.group == 0 ? "channel" : "group"},
                 {"dynamic", false}};
    if (s.group != 0) weights["group_size"] = s.group;
    groups[concat("group_", groups.size())] = {
        {"targets", s.targets}, {"weights", weights}, {"input_activations", nullptr}, {"output_activations", nullptr}};
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", Json::array()}};
}

bool holds_codes(const HuggingFaceFiles& files, const std::string& weight) {
  return files.contains(weight + "_packed") || (files.contains(weight) && files.entry(weight).dtype == "I8");
}

const CodeScheme& scheme_of_weight(const std::vector<CodeScheme>& schemes, const std::string& weight) {
  const std::string module = weight.substr(0, weight.rfind('.'));
  // As the package: a name before a pattern before a class.
  for (int round = 0; round < 3; ++round)
    for (const CodeScheme& s : schemes)
      for (const std::string& target : s.targets) {
        const bool pattern = target.starts_with("re:");
        if (round == 0 && target == module) return s;
        if (round == 1 && pattern && matches(target, module)) return s;
        if (round == 2 && !pattern && target == "Linear") return s;
      }
  bad_codes(weight, ": has codes, and no target of config_groups names it.");
}

std::vector<std::string> code_tensors(const HuggingFaceFiles& files, const std::string& weight) {
  std::vector<std::string> out;
  for (const char* end : {"", "_packed", "_scale", "_shape", "_zero_point"})
    if (files.contains(weight + end)) out.push_back(weight + end);
  return out;
}

std::string wrong_with_codes(const HuggingFaceFiles& files, const std::string& weight, const Shape& shape,
                             const CodeScheme& s) {
  const int64_t rows = shape[0], cols = shape[1], groups = s.group == 0 ? 1 : cols / s.group;
  if (s.group != 0 && cols % s.group != 0)
    return concat("\n  ", weight, ": got groups of ", s.group, " columns, expected a divisor of ", cols);
  std::string wrong = s.packed ? wrong_tensor(files, weight + "_packed", {{"I32", {rows, words_for(cols, s.bits)}}})
                               : wrong_tensor(files, weight, {{"I8", shape}});
  if (s.packed && files.contains(weight)) wrong += concat("\n  ", weight, ": unexpected beside its codes");
  std::vector<std::pair<std::string, Shape>> scales, zeros;
  for (const char* type : {"F32", "BF16", "F16"}) {
    scales.emplace_back(type, Shape{rows, groups});
    if (s.group == 0) scales.insert(scales.end(), {{type, {1}}, {type, {rows}}, {type, Shape{}}, {type, {1, 1}}});
  }
  wrong += wrong_tensor(files, weight + "_scale", scales);
  if (files.contains(weight + "_shape")) {
    wrong += wrong_tensor(files, weight + "_shape", {{"I64", {2}}, {"I32", {2}}});
    if (wrong.empty() && files.entry(weight + "_shape").dtype == "I64") {
      int64_t said[2];
      std::memcpy(said, files.data(weight + "_shape"), sizeof said);
      if (said[0] != rows || said[1] != cols)
        wrong += concat("\n  ", weight, "_shape: got ", said[0], ", ", said[1], ", expected ", shape);
    }
  }
  const std::string zero = weight + "_zero_point";
  if (!wrong.empty() || (s.symmetric && !files.contains(zero))) return wrong;
  const WeightLayout at = layout_of(files, weight, shape, s);
  const int64_t down = at.one_scale ? 1 : rows;
  zeros.emplace_back("I32", Shape{words_for(down, s.bits), groups});
  zeros.emplace_back("I8", Shape{down, groups});
  if (s.group == 0) zeros.insert(zeros.end(), {{"I8", {down}}, {"I8", Shape{}}});
  return wrong_tensor(files, zero, zeros);
}

Tensor read_codes(const HuggingFaceFiles& files, const std::string& weight, const Shape& shape, const CodeScheme& s) {
  const WeightLayout at = layout_of(files, weight, shape, s);
  std::vector<int32_t> zeros = read_zeros(files, weight, at, s.bits);
  const int64_t half = int64_t{1} << (s.bits - 1), unsigned_offset = zeros.empty() ? 0 : half;
  const uint8_t* const bytes = files.data(s.packed ? weight + "_packed" : weight);
  const int64_t row_bytes = s.packed ? 4 * words_for(at.cols, s.bits) : at.cols;
  std::vector<double> codes;
  codes.reserve(static_cast<size_t>(shape.numel()));
  for (int64_t r = 0; r < at.rows; ++r)
    for (int64_t c = 0; c < at.cols; ++c) {
      const uint8_t* const row = bytes + r * row_bytes;
      const int64_t code = s.packed ? bits_at(row, c, s.bits) - half : static_cast<int8_t>(row[c]);
      if (code < -half || code >= half)
        bad_codes(weight, ", row ", r, ", column ", c, ": got code ", code, ", expected ", s.bits, " bits.");
      codes.push_back(static_cast<double>(code + unsigned_offset));
    }
  const DType type = type_of_codes(s.bits, zeros.empty());
  const Tensor t = Tensor::from_elements(shape, type, codes, MemoryKind::kBuffer);
  const Tensor scales = files.floats(weight + "_scale");
  QuantParams params{.scheme = "fixed"};
  params.granularity = s.group != 0   ? Granularity::groups(s.group)
                       : at.one_scale ? Granularity::tensor()
                                      : Granularity::channel(0);
  params.scale = std::make_shared<const Tensor>(scales.reshape({scales.numel()}));
  if (!zeros.empty()) {
    const Tensor z = Tensor::zeros({std::ssize(zeros)}, dtypes::int32, MemoryKind::kBuffer, Device::cpu());
    for (size_t i = 0; i < zeros.size(); ++i) z.as<int32_t>()[i] = zeros[i] + static_cast<int32_t>(half);
    params.zero = std::make_shared<const Tensor>(z);
  }
  return t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

// Codes written.

namespace {

// Codes less their zero points: transformers 5.24 refuses files with zero points.
std::vector<int64_t> centred_codes(const Tensor& matrix) {
  const std::vector<double> numbers = matrix.without_quant().elements();
  std::vector<int64_t> codes(numbers.begin(), numbers.end());
  const ScaleMap map = matrix.scale_map();
  if (map.zero == nullptr) return codes;
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] -= map.zero[map.index(static_cast<int64_t>(i) / matrix.cols(), static_cast<int64_t>(i) % matrix.cols())];
  return codes;
}

std::pair<int64_t, int64_t> range_of(const Tensor& matrix) {
  if (matrix.scale_map().zero == nullptr) return {matrix.dtype().info().qmin, matrix.dtype().info().qmax};
  const std::vector<int64_t> codes = centred_codes(matrix);
  if (codes.empty()) return {0, 0};
  const auto [low, high] = std::minmax_element(codes.begin(), codes.end());
  return {*low, *high};
}

}  // namespace

std::optional<CodeScheme> scheme_for(const Tensor& matrix, std::string& why) {
  const DTypeInfo& info = matrix.dtype().info();
  const ScaleMap map = matrix.scale_map();
  const int64_t group = group_of(matrix);
  if (!matrix.dtype().is_code())
    why = "floats";
  else if (info.kind == DTypeKind::kCodebook)
    why = concat("codes of ", matrix.dtype(), " are levels of a codebook");
  else if (map.offset != nullptr)
    why = "real offsets";
  else if (map.row_group > 1)
    why = "scales of groups of rows";
  else if (group != 0 && matrix.cols() % group != 0)
    why = concat("groups of ", group, " columns do not divide ", matrix.cols());
  if (!why.empty()) return std::nullopt;
  const auto [low, high] = range_of(matrix);
  for (const int bits : {2, 4, 8}) {
    const int64_t half = int64_t{1} << (bits - 1);
    if (low >= -half && high < half) return CodeScheme{.bits = bits, .group = group};
  }
  why =
      concat("codes ", low, " to ", high, map.zero == nullptr ? "" : " from the zero point", " need more than 8 bits");
  return std::nullopt;
}

std::vector<int32_t> packed_rows(const std::vector<int64_t>& codes, int64_t rows, int64_t cols, int bits,
                                 int64_t offset) {
  const int64_t words = (cols * bits + 31) / 32;
  std::vector<uint32_t> out(static_cast<size_t>(rows * words), 0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const auto raw = static_cast<uint32_t>(codes[static_cast<size_t>(r * cols + c)] + offset);
      const auto at = static_cast<size_t>(r * words + c * bits / 32);
      const int64_t shift = c * bits % 32;
      out[at] |= raw << shift;
      if (shift + bits > 32) out[at + 1] |= raw >> (32 - shift);
    }
  return {out.begin(), out.end()};
}

PackedCodes pack_codes(const Tensor& matrix, const CodeScheme& scheme) {
  const int64_t rows = matrix.rows(), cols = matrix.cols();
  const ScaleMap map = matrix.scale_map();
  PackedCodes out;
  out.row_words = (cols * scheme.bits + 31) / 32;
  out.groups = scheme.group == 0 ? 1 : cols / scheme.group;
  out.words = packed_rows(centred_codes(matrix), rows, cols, scheme.bits, int64_t{1} << (scheme.bits - 1));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < out.groups; ++g)
      out.scales.push_back(map.scale == nullptr ? 1.0f : map.scale[map.index(r, g * scheme.group)]);
  return out;
}

}  // namespace bitgrad::interop
