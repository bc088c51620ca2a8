// data.normalize and data.train.augment: from the configuration to the run, and what is refused.
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::vector<std::string> kAugmentedKeys = {"~data.affine", "data.normalize={mean: [0.13], std: [0.31]}",
                                                 "data.train.augment={crop_pad: 2, flip: true}"};

std::vector<std::string> augmented(std::vector<std::string> more = {}) {
  more.insert(more.begin(), kAugmentedKeys.begin(), kAugmentedKeys.end());
  return more;
}

std::string config_error(const std::vector<std::string>& overrides) {
  return error_of([&] { small_config(overrides); });
}

}  // namespace

TEST_CASE("normalize and augment are read, and read back") {
  const RunConfig c = small_config(augmented({"data.normalize.mean=[0.5, 0.25, 1e-3]"}));
  CHECK(c.data.normalize == Normalization{{0.5f, 0.25f, 1e-3f}, {0.31f}});
  CHECK(c.data.train.augment == Augment{2, true});
  CHECK(contains(to_yaml(c), "  normalize: {mean: [0.5, 0.25, 0.001], std: [0.31]}\n"));
  CHECK(contains(to_yaml(c), "augment: {crop_pad: 2, flip: true}"));
  CHECK_FALSE(contains(to_yaml(c), "affine: [1"));
  CHECK((parse_config(to_yaml(c), "small.yaml") == c));
  CHECK_FALSE(contains(to_yaml(small_config()), "normalize"));
  CHECK_FALSE(contains(to_yaml(small_config()), "augment"));
  const auto differences =
      config_differences(small_config(augmented()), small_config(augmented({"data.train.augment.flip=false"})));
  REQUIRE(differences.size() == 1);
  CHECK(differences[0].key == "data.train.augment.flip");
}

TEST_CASE("normalize and augment that fit nothing are contradictions with their places") {
  CHECK(
      contains(config_error({"data.normalize={mean: [0.5], std: [0.5]}"}),
               "command line, argument 1: error: data.normalize and data.affine (6:11) both say what a pixel becomes: "
               "give one of them"));
  CHECK(contains(config_error(augmented({"data.affine=[2, -1]"})), "data.affine (command line, argument 4)"));
  CHECK(contains(config_error({"~data.affine", "data.normalize={mean: [0.5]}"}),
                 "missing required key 'data.normalize.std'"));
  CHECK(contains(config_error({"~data.affine", "data.normalize={mean: [], std: [1]}"}), "the list is empty"));
  CHECK(contains(config_error({"~data.affine", "data.normalize={mean: 1, std: [1]}"}),
                 "got '1', expected a list of numbers in [-1000, 1000]"));
  CHECK(contains(config_error({"~data.affine", "data.normalize={mean: [1], std: [0]}"}),
                 "0 is out of range [1e-6, 1000]"));
  CHECK(contains(config_error({"data.test.augment={flip: true}"}),
                 "data.test.augment: augmentation applies to training samples only"));
  CHECK(contains(config_error({"data.train.augment={}"}),
                 "data.train.augment changes no image: give crop_pad or flip, or leave the key out"));
  CHECK(config_error({"data.train.augment={flip: false}"}) == "");
  CHECK(contains(config_error({"data.train.augment={crop_pad: -1}"}), "-1 is out of range [0, 1024]"));
  CHECK(contains(config_error({"data.train.augment={crop_pat: 1}"}), "Did you mean 'crop_pad'?"));
  CHECK(contains(error_of([] {
                   Trainer t(small_config({"~data.affine", "data.normalize={mean: [1, 2], std: [1]}"}));
                 }),
                 "normalize.mean: got 2 entries, expected 1 for images of 1 channel."));
  CHECK(contains(error_of([] { Trainer t(small_config(augmented({"data.train.augment.crop_pad=28"}))); }),
                 "[data.train.augment] crop_pad: got 28 pixels for images of 28 x 28, expected fewer than the shorter "
                 "side: a crop could show none of the image."));
  CHECK(error_of([] { Trainer t(small_config(augmented({"data.train.augment.crop_pad=27"}))); }) == "");
}

TEST_CASE("a text is neither normalized nor augmented") {
  const char* const text = R"yaml(version: 1
data:
  train: {format: text, file: a.txt, context: 4, augment: {flip: true}}
  normalize: {mean: [0.5], std: [0.5]}
model: {layers: [{embedding: {num: 30, dim: 5}}, {linear: {out: 25}}]}
optim: {name: adam, lr: 0.01}
train: {stop: 1 epochs}
)yaml";
  const std::string report = error_of([&] { parse_config(text, "t.yaml"); });
  CHECK(contains(report, "t.yaml:4:14: error: data.normalize is for pixels, data.train of format text has ids"));
  CHECK(contains(report, "data.train.augment needs images, data.train of format text has ids"));
}

TEST_CASE("keys of cifar reach the library") {
  const auto parse = [](const std::string& train, const std::vector<std::string>& overrides = {}) {
    return parse_config(
        "version: 1\ndata: {root: /r, train: " + train +
            "}\nmodel: {layers: [{linear: {out: 100}}]}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 1 epochs}\n",
        "c.yaml", overrides);
  };
  const RunConfig c = parse("{format: cifar100, path: p, labels: coarse}", {"data.test={format: cifar100, path: p}"});
  CHECK(c.data.train.path == "p");
  CHECK(c.data.train.labels == "coarse");
  CHECK(c.data.train.split == "train");
  CHECK(c.data.test->split == "test");
  CHECK(c.data.test->labels == "");
  CHECK(c.data.root == "/r");
  CHECK((parse_config(to_yaml(c), "c.yaml") == c));
  CHECK(parse("{format: cifar10, path: p}").data.train.path == "p");
  const auto wrong = [&](const std::string& train) { return error_of([&] { parse(train); }); };
  CHECK(contains(wrong("{format: cifar10}"), "missing required key 'data.train.path'"));
  CHECK(contains(wrong("{format: cifar10, path: p, labels: fine}"), "data.train.labels requires data.train.format"));
  CHECK(contains(wrong("{format: cifar100, path: p, labels: big}"),
                 "data.train.labels: got 'big', expected fine (100 classes) or coarse (20 classes)"));
  CHECK(contains(wrong("{format: idx, images: i}"), "missing required key 'data.train.labels'"));
  const auto without = [&](const std::string& train, const std::vector<std::string>& overrides) {
    return parse(train, overrides).data.train;
  };
  CHECK(without("{format: cifar100, path: p, labels: coarse}", {"~data.train.labels"}).labels == "");
  CHECK(without("{format: npz, file: f, images: a, labels: b}", {"~data.train.labels", "~data.train.images"}).images ==
        "");
  CHECK(without("{format: idx, images: i, labels: l}", {"~data.train.labels", "data.train.targets=t"}).targets == "t");
  CHECK(contains(error_of([&] { parse("{format: idx, images: i, labels: l}", {"~data.train.labels"}); }),
                 "missing required key 'data.train.labels'"));
  CHECK(contains(error_of([&] { parse("{format: idx, images: i, labels: l}", {"~data.train.images"}); }),
                 "argument 1: error: 'data.train.images' is required and has no default"));
  CHECK(contains(error_of([&] { parse("{format: cifar100, path: p}", {"~data.train.path"}); }),
                 "argument 1: error: 'data.train.path' is required and has no default"));
}
