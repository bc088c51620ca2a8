// Every op of the public headers is in the list of promises of ops, or is left out with a reason.
#include <map>

#include "lint/source_tree.h"
#include "support/catch.h"

namespace bitgrad::lint {
namespace {

const std::map<std::string, std::string> kElsewhere{
    {"unary", "promises_test.cpp adds each UnaryOp to the list"},
    {"add_hardtanh", "the bits of its two ops: norm_add_hardtanh_test.cpp"},
    {"cast", "changes the dtype: bf16_values_test.cpp"},
    {"embedding", "takes ids"},
    {"integer_linear", "integers, compared by =="},
    {"integer_conv2d", "integers, compared by =="},
    {"integer_relu", "integers, compared by =="},
    {"out_dtype", "integers, compared by =="},
    {"requantize", "integers, compared by =="},
    {"requantize_shift", "integers, compared by =="},
    {"linear_simulated", "takes quantized operands"},
    {"conv2d_simulated", "takes quantized operands"},
    {"quantized_linear_dynamic", "takes quantized operands"},
    {"quantize", "by scheme, dtype and rule: quantize_test.cpp"},
    {"quantize_learned", "by scheme, dtype and rule: quantize_test.cpp"},
    {"quantize_gradient", "by scheme, dtype and rule: quantize_test.cpp"},
    {"dequantize", "takes codes"},
};

TEST_CASE("the list of promises names every op of the public headers, except those excluded with a reason") {
  std::string list;
  for (const SourceFile& file : source_files({"tests"}))
    if (file.path == "tests/ops/promises.inc")
      for (const Line& line : file.lines) list += line.code + '\n';
  std::string forgotten, idle;
  std::map<std::string, std::string> left = kElsewhere;
  for (const SourceFile& file : source_files({"include"})) {
    if (!file.starts_with("include/bitgrad/ops/")) continue;
    for (const Line& line : file.lines) {
      std::smatch m;
      if (!std::regex_search(line.code, m, std::regex(R"(^Var (\w+)\()"))) continue;
      const bool listed = std::regex_search(list, std::regex("\\b" + m[1].str() + "\\("));
      if (!listed && !kElsewhere.count(m[1])) forgotten += file.path + ": " + m[1].str() + '\n';
      if (!listed) left.erase(m[1]);
    }
  }
  for (const auto& [name, why] : left) idle += name + '\n';
  INFO("not listed:\n" << forgotten << "listed, or no op:\n" << idle);
  CHECK(forgotten.empty());
  CHECK(idle.empty());
}

}  // namespace
}  // namespace bitgrad::lint
