// Weights as constants: codes in the smallest type of the opset, with their scales.
#include <algorithm>
#include <cstdint>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "export/onnx_graph.h"
#include "export/targets.h"

namespace bitgrad::onnx {
namespace {

using inference::Product;

// The smallest type that can represent the codes. Signs are INT8 before opset 25. `cast`: an operator other than
// DequantizeLinear reads them; ONNX Runtime has a Cast of 4 bits since 1.23, which no file below opset 23 asks for.
// `inputs`: of a product, 0 for convolutions; OpenVINO 2026.4 reads 4 bits of an odd number of inputs wrongly.
Type stored_type(DType dtype, int opset, bool cast, int64_t inputs) {
  const DTypeInfo& info = dtype.info();
  const bool is_signed = info.qmin < 0;
  if (inputs % 2 != 0) return is_signed ? Type::kInt8 : Type::kUint8;
  if (dtype.kind() == DTypeKind::kSign && opset < first_opset(Type::kInt2)) return Type::kInt8;
  static constexpr Type kSigned[] = {Type::kInt2, Type::kInt4}, kUnsigned[] = {Type::kUint2, Type::kUint4};
  for (const Type type : is_signed ? kSigned : kUnsigned) {
    const int bits = type_bits(type);
    const int64_t high = is_signed ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
    if (opset >= (cast ? std::max(first_opset(type), kFirstOpsetOfCast) : first_opset(type)) && info.qmax <= high &&
        (!is_signed || info.qmin >= -high - 1))
      return type;
  }
  return is_signed ? Type::kInt8 : Type::kUint8;
}

// Whether a row of [o,k] has several scales, of groups. Such weights, of convolutions too, keep that order until
// dequantized. A group as long as the row is a scale per row: ONNX Runtime moves a Transpose behind its
// DequantizeLinear, which up to 1.24 gives a file that does not open, and in 1.32 a product with inputs of 8 bits.
bool grouped(const Tensor& w) { return w.scale_map().col_step != 0 && w.scale_map().col_group < w.cols(); }

// Adds the tensor of a weight, and its line of the report.
std::string store(GraphBuilder& g, TensorValue value) {
  ExportedTensor row{.parameter = value.name, .shape = Shape(value.dims), .type = std::string(type_name(value.type))};
  row.name = g.tensor(std::move(value));
  return g.report().tensors.emplace_back(std::move(row)).name;
}
std::string weight_name(const GraphBuilder& g) { return concat(g.layer(), ".weight"); }
std::string store(GraphBuilder& g, Type type, const std::vector<int64_t>& dims, const std::vector<int64_t>& numbers) {
  return store(g, tensor_of(weight_name(g), type, dims, numbers));
}

// Codes in a type that DequantizeLinear can read. ONNX Runtime 1.32 fuses it with MatMul into MatMulNBits, which gives
// wrong results for INT2, so 2-bit codes are widened first.
std::string readable(GraphBuilder& g, const std::string& codes, Type& type) {
  if (type != Type::kInt2 && type != Type::kUint2) return codes;
  type = type == Type::kInt2 ? Type::kInt8 : Type::kUint8;
  return g.cast(codes, type);
}

std::string scales(GraphBuilder& g, const std::vector<float>& x, const std::vector<int64_t>& dims,
                   const char* what = ".weight_scale") {
  return g.tensor(tensor_of(concat(g.layer(), what), dims, x));
}

std::string table_key(const Tensor& table) { return concat("table ", reinterpret_cast<uintptr_t>(table.data())); }

// Rows of k codes with zeros behind each, up to `wide`.
std::vector<int64_t> filled_rows(const std::vector<int64_t>& codes, int64_t k, int64_t wide) {
  std::vector<int64_t> out;
  for (auto row = codes.begin(); row != codes.end(); row += k) {
    out.insert(out.end(), row, row + k);
    out.resize(out.size() + static_cast<size_t>(wide - k), 0);
  }
  return out;
}

// Values [o,k] of codes with groups, offsets or levels: blocked DequantizeLinear if it can express them, otherwise
// separate operators. Rows are filled up to whole blocks, since OpenVINO reads no others, and cut at the end.
std::string values_in_rows(GraphBuilder& g, const Product& op, std::string& note) {
  const Tensor& w = op.weight;
  const Blocks b = blocks_of(w);
  const int64_t o = w.rows(), k = w.cols(), wide = b.cols * b.block;
  const bool levels = w.dtype().kind() == DTypeKind::kCodebook;
  Type type = stored_type(w.dtype(), g.opset(), levels, op.conv ? 0 : wide);
  std::string codes = store(g, type, {o, wide}, filled_rows(codes_of(w), k, wide));
  // Applies `operation` to v and the parameter of each block, [rows, cols].
  const auto by_block = [&](const char* operation, const std::string& v, const std::vector<float>& x,
                            const char* what) {
    if (b.cols == 1) return g.add(operation, {v, scales(g, x, {b.rows, 1}, what)});
    const std::string cut = g.add("Reshape", {v, g.integers({o, b.cols, b.block}, {3})});
    return g.add("Reshape",
                 {g.add(operation, {cut, scales(g, x, {b.rows, b.cols, 1}, what)}), g.integers({o, wide}, {2})});
  };
  const auto first_k = [&](const std::string& v) {
    return wide == k ? v : g.add("Slice", {v, g.integers({0}, {1}), g.integers({k}, {1}), g.integers({1}, {1})});
  };
  if (levels) {
    note = "Gather of levels";
    return first_k(by_block("Mul", levels_of(g, w.dtype(), codes), b.scale, ".weight_scale"));
  }
  note = concat("DequantizeLinear ", type_name(type));
  codes = readable(g, codes, type);
  std::vector<std::string> inputs{codes};
  NodeAttributes attributes;
  std::vector<int64_t> dims;
  if (b.cols > 1) {
    std::vector<float> scale = b.scale;
    std::vector<int64_t> zero = b.zero;
    dims = {o, b.cols};
    if (b.rows == 1)  // all rows have the same blocks
      for (int64_t r = 1; r < o; ++r) {
        scale.insert(scale.end(), b.scale.begin(), b.scale.end());
        zero.insert(zero.end(), b.zero.begin(), b.zero.end());
      }
    inputs.push_back(scales(g, scale, dims));
    attributes = {{"axis", int64_t{1}}, {"block_size", b.block}};
    if (!zero.empty()) inputs.push_back(g.tensor(tensor_of(concat(g.layer(), ".weight_zero"), type, dims, zero)));
  } else {
    dims = b.rows == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{o};
    inputs.push_back(scales(g, b.scale, dims));
    if (b.rows > 1) attributes = {{"axis", int64_t{0}}};
    if (!b.zero.empty()) inputs.push_back(g.tensor(tensor_of(concat(g.layer(), ".weight_zero"), type, dims, b.zero)));
  }
  const std::string v = g.add("DequantizeLinear", inputs, attributes);
  return first_k(b.offset.empty() ? v : by_block("Add", v, b.offset, ".weight_offset"));
}

}  // namespace

WeightCodes write_codes(GraphBuilder& g, const Product& op, bool shifted) {
  const Type byte = shifted ? Type::kUint8 : byte_type(op.weight.dtype()),
             type = shifted ? byte : stored_type(op.weight.dtype(), g.opset(), true, op.conv ? 0 : op.weight.cols());
  std::vector<int64_t> codes = reordered(codes_of(op.weight), op.weight.rows(), op.weight.cols(), op.conv);
  if (shifted)
    for (int64_t& code : codes) code += kShift;
  WeightCodes out{store(g, type, weight_dims(op), codes), type};
  if (type != byte) out.name = g.cast(out.name, byte);
  return out;
}

std::string write_table(GraphBuilder& g, const Tensor& table, std::string& note) {
  if (table.dtype().is_code()) return values_in_rows(g, {.weight = table}, note);
  note = "fp32";
  return g.once(table_key(table), [&] {
    return store(g, tensor_of(weight_name(g), {table.rows(), table.cols()}, table.to_vector()));
  });
}

bool keeps_rows(const GraphBuilder& g, const Product& op, bool apart) {
  const Tensor& w = op.weight;
  return apart && g.qdq() && !op.conv && w.dtype().is_code() && w.dtype().kind() != DTypeKind::kCodebook &&
         !grouped(w) && w.scale_map().offset == nullptr;
}

std::string write_values(GraphBuilder& g, const Product& op, bool apart, std::string& note) {
  const Tensor& w = op.weight;
  const int64_t o = w.rows(), k = w.cols();
  const std::vector<int64_t> dims = weight_dims(op);
  if (!w.dtype().is_code()) {
    note = "fp32";
    if (!op.conv && g.added(table_key(w)))
      return g.add("Transpose", {write_table(g, w, note)}, {{"perm", std::vector<int64_t>{1, 0}}});
    return store(g, tensor_of(weight_name(g), dims, reordered(w.to_vector(), o, k, op.conv)));
  }
  const ScaleMap map = w.scale_map();
  apart = apart && !op.conv;
  if (grouped(w) || map.offset != nullptr || w.dtype().kind() == DTypeKind::kCodebook) {
    const std::string rows = values_in_rows(g, op, note);
    if (!op.conv) return g.add("Transpose", {rows}, {{"perm", std::vector<int64_t>{1, 0}}});
    const std::string taps = g.add("Reshape", {rows, g.integers({o, dims[2], dims[3], dims[1]}, {4})});
    return g.add("Transpose", {taps}, {{"perm", std::vector<int64_t>{0, 3, 1, 2}}});
  }
  const bool rows = keeps_rows(g, op, apart);
  apart = apart && !rows;
  Type type = stored_type(w.dtype(), g.opset(), apart, op.conv ? 0 : k);
  const Blocks b = blocks_of(w);
  note = concat(apart ? "Cast, Mul " : "DequantizeLinear ", type_name(type));
  const std::vector<int64_t> of_scale = b.rows == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{o};
  const std::string codes =
      rows ? store(g, type, {o, k}, codes_of(w)) : store(g, type, dims, reordered(codes_of(w), o, k, op.conv));
  if (apart) {  // computed once, when the file is opened
    std::string v = g.to_float(codes);
    if (!b.zero.empty()) v = g.add("Sub", {v, g.numbers(std::vector<float>(b.zero.begin(), b.zero.end()), of_scale)});
    return g.add("Mul", {v, scales(g, b.scale, of_scale)});
  }
  std::vector<std::string> inputs{readable(g, codes, type), scales(g, b.scale, of_scale)};
  if (!b.zero.empty()) inputs.push_back(g.tensor(tensor_of(concat(g.layer(), ".weight_zero"), type, of_scale, b.zero)));
  NodeAttributes axis;
  if (b.rows > 1) axis.emplace_back("axis", op.conv || rows ? int64_t{0} : int64_t{1});
  return g.add("DequantizeLinear", inputs, axis);
}

}  // namespace bitgrad::onnx
