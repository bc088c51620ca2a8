// Files of TensorFlow Lite, read by the numbers of the public schema (schema.fbs of TensorFlow, version 3), with a
// reader of the wire format of FlatBuffers that knows nothing of src/export/tflite.fbs.
#include <cstring>

#include "bitgrad/base/text.h"
#include "export/tflite.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/integer_nets.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

class Flat {
 public:
  Flat(const std::string& bytes, size_t at) : bytes_(&bytes), at_(at) {}
  static Flat root(const std::string& bytes) { return {bytes, number<uint32_t>(bytes, 0)}; }

  // Field `id` of a table; 0: absent.
  size_t field(int id) const {
    const size_t table = at_ - static_cast<size_t>(static_cast<int64_t>(number<int32_t>(*bytes_, at_)));
    const size_t slot = 4 + 2 * static_cast<size_t>(id);
    if (slot >= number<uint16_t>(*bytes_, table)) return 0;
    const auto offset = number<uint16_t>(*bytes_, table + slot);
    return offset == 0 ? 0 : at_ + offset;
  }
  template <typename T>
  T get(int id, T otherwise = T{}) const {
    const size_t at = field(id);
    return at == 0 ? otherwise : number<T>(*bytes_, at);
  }
  Flat table(int id) const { return {*bytes_, target(field(id))}; }
  std::vector<Flat> tables(int id) const {
    std::vector<Flat> out;
    const size_t at = target(field(id));
    for (size_t i = 0; i < size(id); ++i) out.emplace_back(*bytes_, target(at + 4 + 4 * i));
    return out;
  }
  size_t size(int id) const { return field(id) == 0 ? 0 : number<uint32_t>(*bytes_, target(field(id))); }
  template <typename T>
  std::vector<T> vector(int id) const {
    std::vector<T> out;
    for (size_t i = 0; i < size(id); ++i) out.push_back(number<T>(*bytes_, data(id) + i * sizeof(T)));
    return out;
  }
  std::string text(int id) const { return field(id) == 0 ? "" : bytes_->substr(data(id), size(id)); }
  size_t data(int id) const { return target(field(id)) + 4; }

 private:
  template <typename T>
  static T number(const std::string& bytes, size_t at) {
    REQUIRE(at + sizeof(T) <= bytes.size());
    T out;
    std::memcpy(&out, bytes.data() + at, sizeof(T));
    return out;
  }
  size_t target(size_t at) const {
    REQUIRE(at > 0);
    return at + number<uint32_t>(*bytes_, at);
  }

  const std::string* bytes_;
  size_t at_;
};

std::string file_of(const inference::Graph& graph, ExportReport* report = nullptr) {
  const TempDir temp;
  const ExportReport r = tflite::write_tflite(graph, temp.file("net.tflite"), "a net", {}, {});
  if (report != nullptr) *report = r;
  return slurp(temp.file("net.tflite"));
}

// Operators: builtin code, version.
std::vector<std::pair<int32_t, int32_t>> operators(const Flat& model) {
  std::vector<std::pair<int32_t, int32_t>> out;
  const std::vector<Flat> codes = model.tables(1);
  for (const Flat& op : model.tables(2).at(0).tables(3)) {
    const Flat& code = codes.at(op.get<uint32_t>(0));
    CHECK(code.get<int8_t>(0) == std::min(code.get<int32_t>(3), 127));
    out.emplace_back(code.get<int32_t>(3), code.get<int32_t>(2, 1));
  }
  return out;
}

}  // namespace

TEST_CASE("Fields of .tflite files have the numbers of the public schema") {
  const std::string bytes = file_of(small_resnet(OutputRounding::kDouble, dtypes::int8));
  CHECK(bytes.substr(4, 4) == "TFL3");
  const Flat model = Flat::root(bytes);
  CHECK(model.get<uint32_t>(0) == 3);  // version
  CHECK(model.text(3) == "a net");     // description
  const std::vector<Flat> buffers = model.tables(4);
  CHECK(buffers.at(0).size(0) == 0);
  for (const Flat& b : buffers)
    if (b.size(0) > 0) CHECK(b.data(0) % 16 == 0);
  REQUIRE(model.tables(6).size() == 1);  // metadata
  CHECK(model.tables(6)[0].text(0) == "min_runtime_version");
  CHECK(contains(buffers.at(model.tables(6)[0].get<uint32_t>(1)).text(0), "1.14.0"));
  REQUIRE(model.tables(2).size() == 1);
  const Flat graph = model.tables(2)[0];
  const std::vector<Flat> tensors = graph.tables(0);
  const Flat signature = model.tables(7).at(0);
  CHECK(signature.text(2) == "serving_default");
  CHECK(signature.get<uint32_t>(4) == 0);
  CHECK(signature.tables(0).at(0).text(0) == "input");
  CHECK(signature.tables(1).at(0).text(0) == "output");
  CHECK(signature.tables(0)[0].get<uint32_t>(1) == static_cast<uint32_t>(graph.vector<int32_t>(1).at(0)));
  CHECK(signature.tables(1)[0].get<uint32_t>(1) == static_cast<uint32_t>(graph.vector<int32_t>(2).at(0)));
  const Flat input = tensors.at(static_cast<size_t>(graph.vector<int32_t>(1)[0]));
  CHECK(input.vector<int32_t>(0) == std::vector<int32_t>{1, 8, 8, 3});
  CHECK(input.get<int8_t>(1) == 9);  // INT8
  CHECK(input.get<uint32_t>(2) == 0);
  CHECK(input.table(4).vector<float>(2) == std::vector<float>{1.0f});
  CHECK(input.table(4).vector<int64_t>(3) == std::vector<int64_t>{-128});
  CHECK(tensors.at(static_cast<size_t>(graph.vector<int32_t>(2)[0])).vector<int32_t>(0) == std::vector<int32_t>{1, 10});

  // The first convolution: same padding, stride 1, int8 weights [o, kh, kw, c] with a scale per output.
  const Flat conv = graph.tables(3).at(0);
  CHECK(operators(model).at(0) == std::pair<int32_t, int32_t>{3, 3});
  CHECK(conv.get<uint8_t>(3) == 1);  // Conv2DOptions
  const Flat options = conv.table(4);
  CHECK(options.get<int8_t>(0) == 0);
  CHECK(options.get<int32_t>(1) == 1);
  CHECK(options.get<int32_t>(2) == 1);
  CHECK(options.get<int8_t>(3) == 0);
  const std::vector<int32_t> inputs = conv.vector<int32_t>(1);
  REQUIRE(inputs.size() == 3);
  const Flat weight = tensors.at(static_cast<size_t>(inputs[1])), bias = tensors.at(static_cast<size_t>(inputs[2]));
  CHECK(weight.vector<int32_t>(0) == std::vector<int32_t>{8, 3, 3, 3});
  CHECK(weight.get<int8_t>(1) == 9);
  CHECK(contains(weight.text(3), ".weight"));
  CHECK(weight.table(4).vector<float>(2).size() == 8);
  CHECK(weight.table(4).vector<int64_t>(3) == std::vector<int64_t>(8, 0));
  CHECK(weight.table(4).get<int32_t>(6) == 0);
  CHECK(buffers.at(weight.get<uint32_t>(2)).size(0) == 8 * 27);
  CHECK(bias.get<int8_t>(1) == 2);                                            // INT32
  CHECK(bias.table(4).vector<float>(2) == weight.table(4).vector<float>(2));  // times the input's scale, 1
  CHECK(buffers.at(bias.get<uint32_t>(2)).size(0) == 4 * 8);
  // No FULLY_CONNECTED (9): on it readers disagree.
  for (const auto& [code, version] : operators(model)) CHECK(code != 9);
  CHECK(operators(model).back() == std::pair<int32_t, int32_t>{22, 1});
}

TEST_CASE("Operations of .tflite files have their public codes, versions and options") {
  const std::string bytes = file_of(odd_network(OutputRounding::kDouble, dtypes::int4));
  const Flat model = Flat::root(bytes);
  const std::vector<Flat> ops = model.tables(2).at(0).tables(3), tensors = model.tables(2)[0].tables(0);
  using Code = std::pair<int32_t, int32_t>;
  CHECK(operators(model) == std::vector<Code>{{3, 7},  {4, 3},  {60, 2}, {17, 2}, {53, 1}, {0, 1}, {36, 2},
                                              {34, 2}, {3, 7},  {53, 1}, {0, 1},  {36, 2}, {1, 2}, {3, 7},
                                              {18, 2}, {53, 1}, {0, 1},  {36, 2}, {53, 1}, {0, 1}, {36, 2},
                                              {2, 2},  {22, 1}, {3, 7},  {22, 1}});
  const uint8_t kinds[] = {1, 2, 43, 5, 37, 11, 23, 22, 1, 37, 11, 23, 5, 1, 21, 37, 11, 23, 37, 11, 23, 10, 17, 1, 17};
  for (size_t i = 0; i < ops.size(); ++i) {
    INFO(i);
    CHECK(ops[i].get<uint8_t>(3) == kinds[i]);
  }
  // Weights of two codes a byte, low nibble first.
  const Flat weight = tensors.at(static_cast<size_t>(ops[0].vector<int32_t>(1)[1]));
  CHECK(weight.get<int8_t>(1) == 17);  // INT4
  CHECK(weight.vector<int32_t>(0) == std::vector<int32_t>{7, 3, 2, 5});
  CHECK(model.tables(4).at(weight.get<uint32_t>(2)).size(0) == 7 * 30 / 2);
  // Depthwise: two outputs a channel, weights [1, kh, kw, o] with scales along the last axis.
  const Flat depthwise = ops[1].table(4), its = tensors.at(static_cast<size_t>(ops[1].vector<int32_t>(1)[1]));
  CHECK(depthwise.get<int32_t>(3) == 2);
  CHECK(depthwise.get<int32_t>(5, 1) == 1);
  CHECK(its.vector<int32_t>(0) == std::vector<int32_t>{1, 3, 3, 14});
  CHECK(its.table(4).get<int32_t>(6) == 3);
  // Dilation, and pixels around the image.
  CHECK(ops[8].table(4).get<int32_t>(4, 1) == 1);
  CHECK(ops[8].table(4).get<int32_t>(5, 1) == 2);
  CHECK(ops[8].table(4).get<int8_t>(0) == 1);  // VALID
  // Pools: width before height; relu6.
  CHECK(ops[3].table(4).get<int32_t>(3) == 3);
  CHECK(ops[12].table(4).get<int8_t>(0) == 0);
  CHECK(ops[13].table(4).get<int8_t>(3) == 3);
  CHECK(ops[21].table(4).get<int32_t>(0) == 3);  // concat along the last axis
  CHECK_FALSE(ops[5].table(4).get<bool>(1, true));
  CHECK(contains(model.tables(4).at(model.tables(6)[0].get<uint32_t>(1)).text(0), "2.11.0"));
}

TEST_CASE("What .tflite files cannot hold is refused by layer") {
  const auto refused = [](const inference::Graph& graph) { return error_of([&] { (void)file_of(graph); }); };
  IntegerNet clamp(Shape{4}, OutputRounding::kDouble, 1);
  clamp.result(0.05f, 0, -100, 90);
  clamp.linear(IntegerNet::kInput, 4, dtypes::int8);
  const std::string activation = refused(clamp.finish());
  CHECK(
      contains(activation,
               "[tflite] this format does not hold these layers:\n  layers.linear2 (activation): codes of -100 to 90"));
  IntegerNet pool(Shape{5, 5, 2}, OutputRounding::kDouble, 1);
  pool.avg_pool(IntegerNet::kInput, {{2, 2}, {1, 1}, {1, 0, 0, 1}});
  CHECK(contains(refused(pool.finish()), "(AVERAGE_POOL_2D): its padding is neither none nor TensorFlow's \"same\""));
}

TEST_CASE("Weights of 4 bits are stored so that readers of the rule have kernels for them") {
  ExportReport report;
  (void)file_of(dense_network(OutputRounding::kDouble, dtypes::ternary), &report);
  CHECK(report.layers.at(0).operation == "CONV_2D, weights ternary stored as INT4");
  CHECK(report.tensors.at(0).type == "INT4");
  report = {};
  (void)file_of(depthwise_network(OutputRounding::kDouble, dtypes::int4), &report);
  CHECK(
      report.layers.at(0).operation ==
      "DEPTHWISE_CONV_2D, weights int4 stored as INT8, since LiteRT's reference kernels have no depthwise convolution "
      "of INT4");
  CHECK(report.tensors.at(0).type == "INT8");
  report = {};
  (void)file_of(dense_network(OutputRounding::kFloat, dtypes::ternary), &report);
  CHECK(report.layers.at(0).operation ==
        "CONV_2D, weights ternary stored as INT8, since XNNPACK has no convolution of INT4");
  CHECK(contains(report.facts.at(0).second, "float: equal codes in LiteRT with XNNPACK"));
}
