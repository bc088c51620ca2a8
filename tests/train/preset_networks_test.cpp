// The shipped networks against published counts of parameters and multiplications.
#include <map>
#include <sstream>

#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/nn/layer_table.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/train/presets.h"
#include "bitgrad/train/trainer.h"
#include "support/catch.h"

using namespace bitgrad;

namespace {

struct Published {
  Shape image;
  int64_t parameters = 0, macs = 0;
};
// MLPerf Tiny: 78,666 numbers, of which 480 are running statistics; 12.5 M. ResNet-20: 269,722 (0.27 M), option A.
// torchvision: resnet18 11,689,512, which Bi-Real Net shares, mobilenet v1 4,231,976 and 568.7 M. ReActNet-A: 29.3
// M, 4.82 G. The others are counted by hand from their papers' tables of layers.
const std::map<std::string, Published> kPublished = {
    {"birealnet18", {{224, 224, 3}, 11689512, 1814073344}},
    {"cnv", {{32, 32, 3}, 1546690, 59461376}},
    {"finn_mlp", {{28, 28}, 59394, 59008}},
    {"larq_mnist", {{28, 28}, 93556, 2794240}},
    {"mobilenet_v1", {{224, 224, 3}, 4231976, 568740352}},
    {"reactnet_a", {{224, 224, 3}, 29343592, 4828758016}},
    {"resnet20", {{32, 32, 3}, 269722, 40551040}},
    {"resnet20_irnet", {{32, 32, 3}, 269850, 40551040}},
    {"resnet8", {{32, 32, 3}, 78186, 12501632}},
    {"vgg_small", {{32, 32, 3}, 4660106, 607600640}},
};
// Kinds of layers that they need.
bool has_kinds() {
  for (const char* const kind :
       {"conv2d", "max_pool", "avg_pool", "global_avg_pool", "flatten", "prelu", "shift", "shortcut_a"})
    if (find_layer_kind(kind) == nullptr) return false;
  return true;
}

}  // namespace

TEST_CASE("shipped networks have the published numbers of parameters and multiplications") {
  CHECK(model_presets().size() == kPublished.size());
  for (const auto& [name, published] : kPublished) {
    if (name != "finn_mlp" && !has_kinds()) {
      WARN(name << " skipped: this build lacks kinds of layers that it has");
      continue;
    }
    INFO(name);
    const RunConfig c = parse_config("version: 1\ndata: {train: {format: digits, size: 40}}\nmodel: {preset: " + name +
                                         "}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 4 steps}\n",
                                     "c.yaml");
    CHECK(parse_config(to_yaml(c), "c.yaml") == c);
    Form in;
    in.sample = name == "finn_mlp" ? Shape{published.image.numel()} : published.image;
    const auto model = make_model(model_spec(c, in));
    StepState state;
    model->initialize(kModelRoot, state);
    const LayerTable table = layer_table(*model);
    CHECK(table.parameters == published.parameters);
    CHECK(table.macs == published.macs);
    CHECK(model->output_form()->sample == Shape{published.image.rank() == 2 || published.image[0] == 32 ? 10 : 1000});
    std::ostringstream text;
    print_layer_table(text, *model);
    const std::string lines = text.str();
    CHECK(std::count(lines.begin(), lines.end(), '\n') <= 64);
  }
}
