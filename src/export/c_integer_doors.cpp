// Floats and bytes at the inputs, and floats at the outputs, of a C file of integers.
#include <variant>

#include "bitgrad/base/error.h"
#include "export/c_integer.h"
#include "export/c_writer.h"
#include "export/targets.h"

namespace bitgrad::c_integer {
namespace {

using c_target::c_number;

const inference::Quantize& quantizer_of(const Graph& graph) {
  const auto& op = std::get<inference::Quantize>(graph[1].operation);
  require(op.rule == CodeRule::kInverse || op.rule == CodeRule::kDivide, "c",
          "--float-io, --with-normalization: inputs are rounded by scheme ", op.spec.scheme,
          ", which C of integers does not have. Leave them out");
  return op;
}

std::string loop(int64_t n, const std::string& text) { return concat("  for (i = 0; i < ", n, "; ++i) ", text, '\n'); }

}  // namespace

Doors doors_of(const Graph& graph, const ExportSpec& spec, const std::vector<float>& value_of_byte) {
  Doors out{.floats_in = spec.float_io && value_of_byte.empty(),
            .floats_out = spec.float_io,
            .codes_out = output_scale(graph, spec)};
  if (!spec.float_io && value_of_byte.empty()) return out;
  inference::Quantize op = quantizer_of(graph);
  const inference::CodeScale in = inference::code_scale(graph[1]);
  op.scale = {in.scale};
  op.zero = {in.zero};
  for (const float x : value_of_byte) out.code_of_byte.push_back(static_cast<int8_t>(c_target::code_of(op, x, 0)));
  return out;
}

std::string Doors::functions() const {
  if (!floats_in && !floats_out) return "";
  return '\n' + c_target::c_guards() + (floats_in ? c_target::c_bits_of() + c_target::c_to_code() : "");
}

std::string Doors::read(const Graph& graph, const std::string& codes) const {
  const int64_t n = graph[1].form.sample.numel();
  if (!code_of_byte.empty()) {
    const int64_t tables = std::ssize(code_of_byte) / 256;
    const std::string at = tables > 1 ? concat("i % ", tables, " * 256 + in[i]") : "in[i]";
    return loop(n, concat('(', codes, ")[i] = code_of_byte[", at, "];"));
  }
  if (!floats_in) return "";
  const inference::Quantize& op = quantizer_of(graph);
  const inference::CodeScale in = inference::code_scale(graph[1]);
  const std::string scaled =
      op.rule == CodeRule::kInverse ? " * " + c_number(1.0f / in.scale) : " / " + c_number(in.scale);
  return loop(n, "if ((bits_of(in[i]) & 0x7f800000U) == 0x7f800000U) return 1;") +
         loop(n, concat('(', codes, ")[i] = (int8_t)to_code(in[i]", scaled, ", 0, ", in.zero, ", ", op.lo, ", ", op.hi,
                        ");"));
}

std::string Doors::write(const Graph& graph, const std::string& codes) const {
  const Value last = graph[graph.output()].inputs[0];
  return loop(graph[last].form.sample.numel(),
              concat("out[i] = (float)((", codes, ")[i] - (", codes_out.zero, ")) * ", c_number(codes_out.scale), ';'));
}

}  // namespace bitgrad::c_integer
