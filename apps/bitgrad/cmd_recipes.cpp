// bitgrad recipes: the names that quant.recipe, first, last and rules accept, and how each quantizes a layer.
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/nn/prepare.h"
#include "command.h"
#include "output.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

std::string text_of(const std::optional<QuantSpec>& spec) {
  if (!spec) return "-";
  TextWriter out;
  out << spec->dtype << ' ' << spec->scheme << ' ' << spec->granularity;
  return out.str();
}

}  // namespace

Run setup_recipes(Arguments& args) {
  auto json = std::make_shared<bool>(false);
  args.flag("--json", *json, "one JSON array on standard output");
  return [json] {
    std::vector<std::vector<std::string>> table{{"recipe", "weights", "inputs"}};
    for (const std::string& name : recipe_names()) {
      const LayerQuant quant = find_recipe(name);
      table.push_back(
          {name, quant.weight ? text_of(quant.weight) : "fp32", quant.input ? text_of(quant.input) : "as they are"});
    }
    print_texts(std::cout, table, *json);
    text_output(*json) << wrap_lines(
        "\nquant: {recipe: NAME} in a configuration quantizes every linear, convolutional and embedding layer "
        "so; quant.first, quant.last and quant.rules make exceptions (docs/quantization.md)\n");
    return 0;
  };
}

}  // namespace bitgrad::cli
