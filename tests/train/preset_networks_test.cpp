// The shipped networks against tables of layers and published counts of parameters and multiplications.
#include <map>
#include <sstream>
#include <utility>

#include "bitgrad/config/presets.h"
#include "bitgrad/nn/layer_table.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/run/trainer.h"
#include "support/catch.h"

using namespace bitgrad;

namespace {

struct Published {
  Shape image;  // of language models: ids
  int64_t parameters = 0, macs = 0;
};
// What the sources below and the tables of layers in Count come to; numbers that are trained, so without running
// statistics.
const std::map<std::string, Published> kPublished = {
    {"bitnet", {{64}, 797952, 52994048}},
    {"birealnet18", {{224, 224, 3}, 11689512, 1814073344}},
    {"cnv", {{32, 32, 3}, 1546690, 59461376}},
    {"ds_cnn", {{49, 10, 1}, 23756, 2656768}},
    {"finn_mlp", {{28, 28}, 59394, 59008}},
    {"gpt", {{64}, 804096, 52994048}},
    {"llama", {{64}, 795904, 52994048}},
    {"larq_mnist", {{28, 28}, 93556, 2794240}},
    {"mobilenet_v1", {{224, 224, 3}, 4231976, 568740352}},
    {"reactnet_a", {{224, 224, 3}, 29343592, 4828758016}},
    {"resnet20", {{32, 32, 3}, 269722, 40551040}},
    {"resnet20_irnet", {{32, 32, 3}, 269850, 40551040}},
    {"resnet8", {{32, 32, 3}, 78186, 12501632}},
    {"vgg_small", {{32, 32, 3}, 4660106, 607600640}},
};
// A network's numbers and products, added up from its paper's table of layers.
struct Count {
  int64_t parameters = 0, macs = 0;
  // `size` x `size` outputs of each channel.
  Count& conv(int64_t size, int64_t kernel, int64_t in, int64_t out, int64_t times = 1) {
    const int64_t weights = kernel * kernel * in * out;
    parameters += times * weights;
    macs += times * weights * size * size;
    return *this;
  }
  Count& depthwise(int64_t size, int64_t channels) { return conv(size, 3, 1, channels); }
  Count& linear(int64_t in, int64_t out) { return conv(1, 1, in, out); }
  Count& numbers(int64_t count) {
    parameters += count;
    return *this;
  }
  Count& norm(int64_t channels, int64_t times = 1) { return numbers(2 * channels * times); }
};

// Umuroglu et al. 2017, section 5 (CNV), and brevitas' CNV.py: a norm behind each layer, of the last one of two
// numbers.
Count count_cnv() {
  Count c;
  c.conv(30, 3, 3, 64).conv(28, 3, 64, 64).conv(12, 3, 64, 128).conv(10, 3, 128, 128);
  c.conv(3, 3, 128, 256).conv(1, 3, 256, 256).linear(256, 512).linear(512, 512).linear(512, 10);
  return c.norm(64, 2).norm(128, 2).norm(256, 2).norm(512, 2).norm(1);
}
// The same, section 5: TFC, 64 neurons a layer.
Count count_finn_mlp() {
  Count c;
  return c.linear(784, 64).linear(64, 64).linear(64, 64).linear(64, 10).norm(64, 3).norm(1);
}
// karpathy/nanoGPT, README "I only have a macbook": 4 layers, 4 heads, 128 wide, 64 characters of 65; 0.80 M. Products
// of 64 positions, and of the keys that each sees.
Count count_gpt() {
  constexpr int64_t kWide = 128, kContext = 64, kLayers = 4;
  Count c;
  c.conv(8, 1, kWide, 3 * kWide, kLayers).conv(8, 1, kWide, kWide, kLayers);
  c.conv(8, 1, kWide, 4 * kWide, kLayers).conv(8, 1, 4 * kWide, kWide, kLayers);
  c.conv(8, 1, kWide, 65).numbers(kContext * kWide).numbers((2 * kLayers + 1) * kWide);
  c.macs += kLayers * kWide * kContext * (kContext + 1);
  return c;
}
// Touvron et al. 2023, Ainslie et al. 2023: q of 4 heads, k and v of 2, gate, up and down; 64 characters of 65. BitNet
// b1.58 has a norm more in front of out and of down.
Count count_llama(bool sub_norms) {
  constexpr int64_t kWide = 128, kWider = 384, kContext = 64, kLayers = 4;
  Count c;
  c.conv(8, 1, kWide, 2 * kWide, kLayers).conv(8, 1, kWide, kWide, kLayers);
  c.conv(8, 1, kWide, 2 * kWider, kLayers).conv(8, 1, kWider, kWide, kLayers);
  c.conv(8, 1, kWide, 65).numbers((2 * kLayers + 1) * kWide);
  if (sub_norms) c.numbers(kLayers * (kWide + kWider));
  c.macs += kLayers * kWide * kContext * (kContext + 1);
  return c;
}
// docs.larq.dev/larq/tutorials/mnist, models.summary: 93.6 k.
Count count_larq_mnist() {
  Count c;
  c.conv(26, 3, 1, 32).conv(11, 3, 32, 64).conv(3, 3, 64, 64).linear(576, 64).linear(64, 10);
  return c.norm(32).norm(64, 3).norm(10);
}
// He et al. 2016, arXiv 1512.03385, section 4.2, n = 3: 0.27 M parameters; 41 M products as often quoted.
Count count_resnet20() {
  Count c;
  c.conv(32, 3, 3, 16).conv(32, 3, 16, 16, 6).conv(16, 3, 16, 32).conv(16, 3, 32, 32, 5);
  c.conv(8, 3, 32, 64).conv(8, 3, 64, 64, 5).linear(64, 10).numbers(10);
  return c.norm(16, 7).norm(32, 6).norm(64, 6);
}
// mlcommons/tiny, image_classification: 78,666 numbers, of which 480 are running statistics; 12.5 M. Biases everywhere.
Count count_resnet8() {
  Count c;
  c.conv(32, 3, 3, 16).conv(32, 3, 16, 16, 2).conv(16, 3, 16, 32).conv(16, 3, 32, 32).conv(16, 1, 16, 32);
  c.conv(8, 3, 32, 64).conv(8, 3, 64, 64).conv(8, 1, 32, 64).linear(64, 10);
  return c.numbers(3 * 16 + 3 * 32 + 3 * 64 + 10).norm(16, 3).norm(32, 2).norm(64, 2);
}
// torchvision's resnet18, whose layers Bi-Real Net 18 has (arXiv 1808.00278): 11,689,512; 1.814 G.
Count count_birealnet18() {
  Count c;
  c.conv(112, 7, 3, 64).conv(56, 3, 64, 64, 4).norm(64, 5);
  for (const auto& [size, in] : {std::pair<int64_t, int64_t>{28, 64}, {14, 128}, {7, 256}})
    c.conv(size, 3, in, 2 * in).conv(size, 3, 2 * in, 2 * in, 3).conv(size, 1, in, 2 * in).norm(2 * in, 5);
  return c.linear(512, 1000).numbers(1000);
}
// Channels in and out, and the size of the result, of the 13 blocks of MobileNet v1 (arXiv 1704.04861, table 1).
constexpr int64_t kMobile[13][3] = {{32, 64, 112},  {64, 128, 56},  {128, 128, 56}, {128, 256, 28}, {256, 256, 28},
                                    {256, 512, 14}, {512, 512, 14}, {512, 512, 14}, {512, 512, 14}, {512, 512, 14},
                                    {512, 512, 14}, {512, 1024, 7}, {1024, 1024, 7}};
// The same, table 4: 4.2 M, 569 M.
Count count_mobilenet_v1() {
  Count c;
  c.conv(112, 3, 3, 32).norm(32).linear(1024, 1000).numbers(1000);
  for (const auto& [in, out, size] : kMobile) c.depthwise(size, in).norm(in).conv(size, 1, in, out).norm(out);
  return c;
}
// mlcommons/tiny, keyword_spotting: 24,908 numbers, of which 1,152 are running statistics. 25 x 5 pixels of 64 channels
// from a window of 10 x 4 on, biases everywhere.
Count count_ds_cnn() {
  constexpr int64_t kPixels = int64_t{25} * 5, kChannels = 64;
  Count c;
  for (const int64_t in : {40, 9, 64, 9, 64, 9, 64, 9, 64}) {
    c.numbers(in * kChannels + kChannels).norm(kChannels);
    c.macs += in * kChannels * kPixels;
  }
  return c.linear(kChannels, 12).numbers(12);
}
// Liu et al. 2020, arXiv 2003.03488, figure 5, and its code: MobileNet with full 3x3 convolutions; per block two signs
// with a shift, and two RPReLU of three numbers a channel. Table 2: 4.82 G binary products.
Count count_reactnet_a() {
  Count c;
  c.conv(112, 3, 3, 32).norm(32).linear(1024, 1000).numbers(1000);
  for (const auto& [in, out, size] : kMobile)
    c.conv(size, 3, in, in).norm(in).conv(size, 1, in, out).norm(out).numbers(2 * in + 3 * in + 3 * out);
  return c;
}
// Qin et al. 2020, arXiv 1909.10788, github.com/htqin/IR-Net, vgg.py.
Count count_vgg_small() {
  Count c;
  c.conv(32, 3, 3, 128).conv(32, 3, 128, 128).conv(16, 3, 128, 256).conv(16, 3, 256, 256);
  c.conv(8, 3, 256, 512).conv(8, 3, 512, 512).linear(8192, 10).numbers(10);
  return c.norm(128, 2).norm(256, 2).norm(512, 2);
}

// Kinds of layers that they need.
bool has_kinds() {
  for (const char* const kind :
       {"conv2d", "max_pool", "avg_pool", "global_avg_pool", "flatten", "prelu", "shift", "shortcut_a"})
    if (find_layer_kind(kind) == nullptr) return false;
  return true;
}

}  // namespace

TEST_CASE("numbers expected of the shipped networks are those of the papers' tables of layers") {
  Count irnet = count_resnet20();
  irnet.norm(64);  // in front of the last layer: resnet.py of IR-Net
  const std::map<std::string, Count> counted = {{"bitnet", count_llama(true)},
                                                {"birealnet18", count_birealnet18()},
                                                {"cnv", count_cnv()},
                                                {"ds_cnn", count_ds_cnn()},
                                                {"finn_mlp", count_finn_mlp()},
                                                {"larq_mnist", count_larq_mnist()},
                                                {"gpt", count_gpt()},
                                                {"llama", count_llama(false)},
                                                {"mobilenet_v1", count_mobilenet_v1()},
                                                {"reactnet_a", count_reactnet_a()},
                                                {"resnet20", count_resnet20()},
                                                {"resnet20_irnet", irnet},
                                                {"resnet8", count_resnet8()},
                                                {"vgg_small", count_vgg_small()}};
  REQUIRE(counted.size() == kPublished.size());
  for (const auto& [name, count] : counted) {
    INFO(name);
    CHECK(count.parameters == kPublished.at(name).parameters);
    CHECK(count.macs == kPublished.at(name).macs);
  }
  // As printed: digits, and a unit.
  const auto rounded = [](int64_t number, int64_t unit) { return (number + unit / 2) / unit; };
  CHECK(rounded(count_resnet20().parameters, 10000) == 27);       // 0.27 M
  CHECK(rounded(count_resnet20().macs, 1000000) == 41);           // 40.6 M
  CHECK(rounded(count_mobilenet_v1().parameters, 100000) == 42);  // 4.2 M
  CHECK(rounded(count_mobilenet_v1().macs, 1000000) == 569);      // 569 M
  CHECK(count_birealnet18().parameters == 11689512);              // torchvision
  CHECK(count_resnet8().parameters + 480 == 78666);               // MLPerf Tiny
  CHECK(count_ds_cnn().parameters + 1152 == 24908);               // MLPerf Tiny
  CHECK(rounded(count_resnet8().macs, 100000) == 125);            // 12.5 M
}

TEST_CASE("shipped networks have the published numbers of parameters and multiplications", "[bits]") {
  CHECK(model_presets().size() == kPublished.size());
  for (const auto& [name, published] : kPublished) {
    if (name != "finn_mlp" && !has_kinds()) {
      WARN(name << " skipped: this build lacks kinds of layers that it has");
      continue;
    }
    INFO(name);
    const bool ids = published.image.rank() == 1;
    const std::string data = ids ? "{tokenizer: chars, train: {format: tokens, file: x.txt, context: 64}}"
                                 : "{train: {format: digits, size: 40}}";
    const RunConfig c = parse_config("version: 1\ndata: " + data + "\nmodel: {preset: " + name +
                                         "}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 4 steps}\n",
                                     "c.yaml");
    CHECK(parse_config(to_yaml(c), "c.yaml") == c);
    Form in;
    in.sample = name == "finn_mlp" ? Shape{published.image.numel()} : published.image;
    if (ids) {
      in.dtype = dtypes::int32;
      in.ids = 65;
    }
    const auto model = make_model(model_spec(c, in));
    StepState state;
    model->initialize(kModelRoot, state);
    const LayerTable table = layer_table(*model);
    CHECK(table.parameters == published.parameters);
    CHECK(table.macs == published.macs);
    const int64_t classes = published.image.rank() == 2 || published.image[0] == 32 ? 10 : name == "ds_cnn" ? 12 : 1000;
    CHECK(model->output_form()->sample == (ids ? Shape{64, 65} : Shape{classes}));
    std::ostringstream text;
    print_layer_table(text, *model);
    const std::string lines = text.str();
    CHECK(std::count(lines.begin(), lines.end(), '\n') <= 64);
  }
}
