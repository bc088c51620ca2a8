// Data sets: numbered examples (a sample and its target), and the list of formats that make them.
//
// A program may write its own Dataset, use it directly, or register its format under a name with register_dataset.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

class Tokenizer;

// The class of a position that does not count; only where a sample has more than one class.
inline constexpr int32_t kIgnoredClass = -100;

// What a model has to say of each sample: classes, or values.
struct TargetForm {
  Shape shape = {};             // of the target of one sample: [] one class, [t] one a position, [k] k values
  int64_t classes = 0;          // classes are int32, 0 .. classes-1; 0: the target is fp32 values
  double bytes_per_target = 0;  // bytes of text that one class stands for, for bits per byte; 0: no text
  DType dtype() const { return classes > 0 ? dtypes::int32 : dtypes::fp32; }
  // Elements along the last axis of a model's output: a score a class, or the values.
  int64_t outputs() const { return classes > 0 ? classes : shape.cols(); }
  friend bool operator==(const TargetForm&, const TargetForm&) = default;
};

// What is in memory: codes and ids of 8, 16 or 32 bits, or fp32 values.
enum class StoredAs : uint8_t { kUint8, kUint16, kInt32, kFloat };
constexpr int64_t element_bytes(StoredAs form) {
  return form == StoredAs::kUint8 ? 1 : form == StoredAs::kUint16 ? 2 : 4;
}

// How a data set holds its examples in memory of the host, for devices that take them as they are. Sample i is the
// features() elements from element i * stride of `codes` on: values (kFloat), ids, or bytes that each stand for a value
// of `numbers`. Target i lies from element i * target_stride of `labels` on: classes, or values (kFloat).
struct StoredSamples {
  const void* codes = nullptr;  // nullptr: the data set does not tell
  int64_t bytes = 0;            // of all codes
  int64_t stride = 0;
  const float* numbers = nullptr;  // [tables, 256]; nullptr for ids and values
  const void* labels = nullptr;
  StoredAs form = StoredAs::kUint8;
  StoredAs target_form = StoredAs::kUint8;
  int64_t target_stride = 1;
  int64_t tables = 1;  // element e of a sample stands for numbers[e % tables][its byte]: one, or one a channel
};

// The samples that an epoch of training reads of 0 .. size()-1.
struct EpochOrder {
  enum class Kind : uint8_t {
    kShuffled,    // each once, permuted anew in each epoch
    kSequential,  // each once, in order
    kRandom,      // `samples` of them, each drawn from all: some twice, some not at all
  };
  Kind kind = Kind::kShuffled;
  int64_t samples = 0;  // of an epoch; of kShuffled and kSequential size()
};

// Samples 0 .. size()-1: fp32 values, or ids of words (bytes, tokens) that an embedding looks up. Const calls may come
// from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  // For messages, such as "digits (train)" or the path of a file.
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;
  // Shape of one sample, without the batch axis, such as {28, 28}.
  virtual std::vector<int64_t> sample_shape() const = 0;
  // Classes are 0 .. classes()-1; 0: targets are values.
  virtual int64_t classes() const = 0;
  // One class a sample, where a data set says nothing else.
  virtual TargetForm target_form() const;
  // Of the classes, or of the values of a target, in their order; empty: they have numbers alone.
  virtual std::vector<std::string> class_names() const { return {}; }
  // What an epoch of training reads; every sample once, shuffled, where a data set says nothing else.
  virtual EpochOrder epoch_order() const { return {EpochOrder::Kind::kShuffled, size()}; }
  // Samples are ids 0 .. vocabulary()-1; 0: they are numbers.
  virtual int64_t vocabulary() const { return 0; }
  // Samples are documents side by side that a model shall read apart: the id that ends each of them (attention stays
  // between two of these); -1: as one.
  virtual int64_t document_end() const { return -1; }
  // What made the ids of a text; nullptr: they are no text, or it is not known.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  // Of samples: int32 for ids, else fp32.
  DType dtype() const { return vocabulary() > 0 ? dtypes::int32 : dtypes::fp32; }
  // Writes sample `index` to x [features()] and its label. Image formats write a*(p/255)+b for a pixel p in 0..255 and
  // the affine [a, b] of their DatasetSpec, or (p/255-mean[c])/std[c] where it has a normalization; each operation is
  // fp32 and rounded once. Throws Error for an index out of range. A data set has one of the two, by its dtype; the
  // other throws Error.
  virtual void sample(int64_t index, float* x, int32_t* label) const;
  virtual void sample_ids(int64_t index, int32_t* x, int32_t* label) const;
  // Writes sample `index` to x [sample_shape] of dtype(), and its target [target_form().shape] of that form's dtype. A
  // data set of one class a sample may leave this to sample or sample_ids; one with other targets overrides this alone.
  virtual void example(int64_t index, void* x, void* target) const;
  // The same samples and targets as stored in memory, as long as the data set lives; nothing where they are made when
  // they are asked for.
  virtual StoredSamples stored() const { return {}; }
  // Bytes that the data set holds in memory.
  virtual int64_t memory_bytes() const { return 0; }
  // Numbers in one sample: the product of sample_shape().
  int64_t features() const;
};

// (value - mean[c]) / std[c] for channel c, the last axis of samples of rank 3; others have one channel. One entry, or
// one a channel.
struct Normalization {
  std::vector<float> mean = {}, std = {};  // std above 0
  bool given() const { return !mean.empty() || !std.empty(); }
  friend bool operator==(const Normalization&, const Normalization&) = default;
};

// What a format needs to make a data set. Formats read the fields they name in DatasetFormat and ignore the others.
struct DatasetSpec {
  std::string format = {};           // a name of the list
  std::string images = {};           // path, absolute or under `root`
  std::string labels = {};           // path, absolute or under `root`; of cifar100: fine or coarse
  std::string targets = {};          // path, absolute or under `root`; of a text: last or each
  std::string file = {};             // path, absolute or under `root`
  std::string path = {};             // of a folder or file, absolute or under `root`
  std::string root = {};             // data.root; empty: the current folder
  std::string split = "train";       // "train" or "test"; of a text also "valid"
  int64_t size = 0;                  // samples of a procedural format
  int64_t limit = 0;                 // the first so many samples; 0: all
  int64_t classes = 0;               // 0: the format's default
  uint64_t seed = 1;                 // of a procedural format
  int64_t context = 0;               // ids of a sample of a text or of tokens
  double test_fraction = 0.1;        // part at the end of a text that is split "test"
  double valid_fraction = 0.0;       // part at the end of what is left of it that is split "valid"
  bool whole = false;                // tokens: the whole file, not a split of it
  std::string tokenizer = {};        // data.tokenizer: of tokenizer_names(), or a file; empty: none
  std::string vocabulary_file = {};  // the text that the tokenizer is made for; empty: `file`
  std::string training_path = {};    // `path` of the training data, whose classes count; empty: `path`
  // tokens: the tokenizer of the model that will read them, in place of one that is made of a text.
  std::shared_ptr<const Tokenizer> of_model = {};
  std::array<float, 2> affine{1.0f, 0.0f};        // [a, b]
  Normalization normalize = {};                   // in place of affine
  std::map<std::string, std::string> extra = {};  // further keys that a registered format names as texts
  Attributes keys = {};                           // DatasetFormat::keys; those left out have their defaults
};

using DatasetFactory = std::function<std::unique_ptr<Dataset>(const DatasetSpec&)>;

// One format. `required` and `optional` are the keys of the configuration that it reads beside `format`.
struct DatasetFormat {
  std::string name = {};
  std::vector<std::string> required = {};
  std::vector<std::string> optional = {};
  std::string summary = {};
  DatasetFactory create = {};
  bool ids = false;  // samples are ids (Dataset::vocabulary() is not 0)
  // Keys of its own, checked: `create` finds a value in DatasetSpec::keys for each that has a default.
  std::vector<Key> keys = {};
};

// Adds a format from a program or plugin. Throws Error when the name is empty or taken, `create` is empty, or a key
// does not read, is one that DatasetSpec has a field for, or is described otherwise by another format.
void register_dataset(DatasetFormat format);
// The names of all formats, built-in ones first, then in order of registration.
std::vector<std::string> dataset_formats();
// The format of that name, or nullptr. The pointer stays valid until the program ends.
const DatasetFormat* find_dataset_format(std::string_view name);
// Makes the data set. Error(kUsage) for an unknown format or key, a required key that is missing or a bad value;
// Error(kData) for a file that is missing or cannot be used; Error(kMemory) when it does not fit.
std::unique_ptr<Dataset> make_dataset(const DatasetSpec& spec);

// Memory of one owner in the account of `kind`: 64-byte aligned, not initialised.
class TrackedBytes {
 public:
  TrackedBytes() = default;
  TrackedBytes(int64_t bytes, MemoryKind kind) : data_(tracked_allocate(bytes, kind)), bytes_(bytes), kind_(kind) {}
  ~TrackedBytes() {
    if (data_ != nullptr) tracked_release(data_, bytes_, kind_);
  }
  TrackedBytes(TrackedBytes&& other) noexcept { swap(other); }
  TrackedBytes& operator=(TrackedBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  void swap(TrackedBytes& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
  }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  int64_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kDataset;
};

}  // namespace bitgrad
