// Data sets: indexed examples (a sample and its target), and the registry of the formats that create them.
//
// A program may implement its own Dataset and use it directly, or register its format under a name with
// register_dataset.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/data/chat.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

class Tokenizer;
struct TablePlan;

// Class of a position that is ignored by losses and metrics. Allowed only where a sample has more than one class.
inline constexpr int32_t kIgnoredClass = -100;

// What a model predicts for each sample: classes or values.
struct TargetForm {
  Shape shape = {};             // target of one sample: [] one class, [t] one class per position, [k] k values
  int64_t classes = 0;          // targets are int32 classes 0 .. classes-1; 0 if targets are fp32 values
  double bytes_per_target = 0;  // mean bytes of text per class, for bits per byte; 0 if the data are not text
  DType dtype() const { return classes > 0 ? dtypes::int32 : dtypes::fp32; }
  // Size of the last axis of the model's output: one score per class, or the values.
  int64_t outputs() const { return classes > 0 ? classes : shape.cols(); }
  friend bool operator==(const TargetForm&, const TargetForm&) = default;
};

// Element type in memory: codes and ids of 8, 16 or 32 bits, or fp32 values.
enum class StoredAs : uint8_t { kUint8, kUint16, kInt32, kFloat };
constexpr int64_t element_bytes(StoredAs form) {
  return form == StoredAs::kUint8 ? 1 : form == StoredAs::kUint16 ? 2 : 4;
}

// Layout of a data set's examples in host memory, for devices that read them as stored. Sample i is the features()
// elements of `codes` starting at element i * stride: values (kFloat), ids, or bytes that index the tables in
// `numbers`. Target i starts at element i * target_stride of `labels`: classes, or values (kFloat).
struct StoredSamples {
  const void* codes = nullptr;  // nullptr if the examples are not in memory
  int64_t bytes = 0;            // size of all codes
  int64_t stride = 0;
  const float* numbers = nullptr;  // [tables, 256]; nullptr for ids and values
  const void* labels = nullptr;
  StoredAs form = StoredAs::kUint8;
  StoredAs target_form = StoredAs::kUint8;
  int64_t target_stride = 1;
  int64_t tables = 1;  // value of element e of a sample: numbers[e % tables][its byte]; 1, or one table per channel
};

// Which of the samples 0 .. size()-1 a training epoch reads, and in which order.
struct EpochOrder {
  enum class Kind : uint8_t {
    kShuffled,    // every sample once, permuted anew in each epoch
    kSequential,  // every sample once, in order
    kRandom,      // `samples` independent draws from all samples: some may repeat, some may be missing
  };
  Kind kind = Kind::kShuffled;
  int64_t samples = 0;  // samples per epoch; size() for kShuffled and kSequential
};

// Samples 0 .. size()-1: fp32 values, or ids (bytes, tokens) that an embedding looks up. Const member functions may be
// called from several threads concurrently.
class Dataset {
 public:
  virtual ~Dataset() = default;
  // Name for messages, such as "digits (train)" or a file path.
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;
  // Shape of one sample without the batch axis, such as {28, 28}.
  virtual std::vector<int64_t> sample_shape() const = 0;
  // Classes are 0 .. classes()-1; 0 if targets are values.
  virtual int64_t classes() const = 0;
  // Default: one class per sample.
  virtual TargetForm target_form() const;
  // Names of the classes, or of the values of a target, in order; empty if they have no names.
  virtual std::vector<std::string> class_names() const { return {}; }
  // Names of the features (columns of a table, "column=value" for one of several categories); empty if they have none.
  virtual std::vector<std::string> feature_names() const { return {}; }
  // The plan of the columns, for tables of text (data/table.h); else nullptr.
  virtual std::shared_ptr<const TablePlan> table() const { return nullptr; }
  // What its reader doubts, guessed or left out, for warnings.
  virtual std::vector<std::string> notes() const { return {}; }
  // What a training epoch reads. Default: every sample once, shuffled.
  virtual EpochOrder epoch_order() const { return {EpochOrder::Kind::kShuffled, size()}; }
  // Samples are ids 0 .. vocabulary()-1; 0 if samples are fp32 values.
  virtual int64_t vocabulary() const { return 0; }
  // The id that ends each document if samples are concatenated documents that a model must process separately
  // (attention does not cross document borders); -1 if samples are read as one continuous text.
  virtual int64_t document_end() const { return -1; }
  // Tokenizer that produced the ids; nullptr if they are not text or the tokenizer is not known.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  // Dtype of samples: int32 for ids, else fp32.
  DType dtype() const { return vocabulary() > 0 ? dtypes::int32 : dtypes::fp32; }
  // Write sample `index` to x [features()], and its label. Image formats write a*(p/255)+b for a pixel p in 0..255 and
  // the affine [a, b] of their DatasetSpec, or (p/255-mean[c])/std[c] if it has a normalization; each operation is fp32
  // and rounded once. A data set implements one of the two, according to its dtype; the other throws Error. Both throw
  // Error if the index is out of range.
  virtual void sample(int64_t index, float* x, int32_t* label) const;
  virtual void sample_ids(int64_t index, int32_t* x, int32_t* label) const;
  // Writes sample `index` to x [sample_shape] of dtype(), and its target [target_form().shape] of that form's dtype.
  // The default calls sample or sample_ids, for data sets with one class per sample. Data sets with other targets only
  // override this.
  virtual void example(int64_t index, void* x, void* target) const;
  // The same samples and targets as stored in memory, valid for the lifetime of the data set; empty if examples are
  // generated on request.
  virtual StoredSamples stored() const { return {}; }
  // Bytes of memory held by the data set.
  virtual int64_t memory_bytes() const { return 0; }
  // Elements per sample: the product of sample_shape().
  int64_t features() const;

 protected:
  // Throws Error for an index that is not in 0 .. size()-1.
  void check_index(int64_t index) const;
};

// (value - mean[c]) / std[c] for channel c: the last axis of rank-3 samples; other samples have one channel. mean and
// std have one entry, or one per channel.
struct Normalization {
  std::vector<float> mean = {}, std = {};  // std > 0
  bool given() const { return !mean.empty() || !std.empty(); }
  friend bool operator==(const Normalization&, const Normalization&) = default;
};

// Parameters for creating a data set. dataset_fields.inc lists those that keys of a configuration set. A format reads
// the fields named in its DatasetFormat and ignores the others. Give `split` "test" to open test data with the key
// normal_class: split "train", the default, has the samples of that class alone, without the anomalies.
struct DatasetSpec {
  std::string format = {};           // a registered name
  std::string images = {};           // path, absolute or relative to `root`
  std::string labels = {};           // path, absolute or relative to `root`; for cifar100: fine or coarse
  std::string targets = {};          // path, absolute or relative to `root`; for text: last or each
  std::string file = {};             // path, absolute or relative to `root`
  std::string path = {};             // path of a folder or file, absolute or relative to `root`
  std::string root = {};             // data.root; empty means the current folder
  std::string split = "train";       // "train" or "test"; for text also "valid"
  int64_t size = 0;                  // number of samples of a procedural format
  int64_t limit = 0;                 // use only the first `limit` samples; 0 means all
  int64_t classes = 0;               // 0 means the format's default
  uint64_t seed = 1;                 // seed of a procedural format
  int64_t context = 0;               // ids per sample, for text and tokens
  double test_fraction = 0.1;        // fraction at the end of a text that is split "test"
  double valid_fraction = 0.0;       // fraction at the end of the remainder that is split "valid"
  bool whole = false;                // tokens: use the whole file instead of a split
  std::string tokenizer = {};        // data.tokenizer: one of tokenizer_names(), or a file; empty if none
  std::string vocabulary_file = {};  // the text that the tokenizer is built from; empty means `file`
  std::string training_path = {};    // `path` of the training data, which defines the classes; empty means `path`
  std::string training_labels = {};  // the same of `labels`
  std::string training_file = {};    // the same of `file`
  // tokens: the tokenizer of the model that will read them, used instead of one built from a text.
  std::shared_ptr<const Tokenizer> of_model = {};
  std::optional<ChatTable> chat = {};  // data.chat
  // csv: the plan of the training table or of the model, used instead of one made from `vocabulary_file`.
  std::shared_ptr<const TablePlan> table = {};
  std::array<float, 2> affine{1.0f, 0.0f};  // [a, b]
  Normalization normalize = {};             // used instead of affine
  Attributes keys = {};                     // values of DatasetFormat::keys; omitted keys have their defaults
  friend bool operator==(const DatasetSpec&, const DatasetSpec&) = default;
};

using DatasetFactory = std::function<std::unique_ptr<Dataset>(const DatasetSpec&)>;

// A data set format. `required` and `optional` are the configuration keys that it reads in addition to `format`. All
// that other layers have to know of a format is said here: none of them compares its name.
struct DatasetFormat {
  // Samples are windows of the ids of one file, and a part of the data is a range of that file. kBytes: the ids are the
  // distinct bytes of the file. kTokens: ids of data.tokenizer, or stored ones; what one section alone reads is whole.
  enum class Windows : uint8_t { kNone, kBytes, kTokens };
  // A word that a key may hold instead of a path.
  struct Word {
    std::string name = {}, meaning = {};
  };

  std::string name = {};
  std::vector<std::string> required = {};
  std::vector<std::string> optional = {};
  std::string summary = {};
  DatasetFactory create = {};
  bool ids = false;  // samples are ids (Dataset::vocabulary() > 0)
  // The format's own keys, validated: DatasetSpec::keys holds a value for each one that has a default when `create`
  // runs.
  std::vector<Key> keys = {};
  Windows windows = Windows::kNone;
  bool pixels = false;  // samples are bytes made values by `affine` or `normalize`, even if not stored() as such
  bool counts_classes = false;  // without `classes`, there are as many as the labels of data.train have
  std::vector<Word> label_words = {}, target_words = {};  // of `labels` and `targets`, which then are no paths
  bool chats = false;                                     // reads conversations by DatasetSpec::chat, with a tokenizer
  // Those of `keys` that data.train decides for all data of a run.
  std::vector<std::string> of_training = {};
};

// Registers a format from a program or plugin. Throws Error if the name is empty or taken, `create` is empty, or a key
// does not parse, coincides with a DatasetSpec field, or is declared differently by another format.
void register_dataset(DatasetFormat format);
// Names of all formats: built-in ones first, then in order of registration.
std::vector<std::string> dataset_formats();
// The format with this name, or nullptr. The pointer stays valid until the program ends.
const DatasetFormat* find_dataset_format(std::string_view name);
// The format of a spec; one with nothing but defaults if there is none of this name.
const DatasetFormat& format_of(const DatasetSpec& spec);
// Creates the data set. Throws Error(kUsage) for an unknown format or key, a missing required key or an invalid value;
// Error(kData) for a file that is missing or unusable; Error(kMemory) if it does not fit in memory.
std::unique_ptr<Dataset> make_dataset(const DatasetSpec& spec);

// Memory with a single owner, accounted under `kind`: 64-byte aligned, uninitialized.
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

// What becomes of the samples of an epoch that do not fill a batch: kKeep: a smaller last batch; kDrop: they are left
// out of the epoch; kJoin: the batch before takes them too. An epoch of fewer samples than a batch is one batch in any
// case.
enum class LastBatch : uint8_t { kKeep, kDrop, kJoin };
template <>
struct EnumNames<LastBatch> {
  static constexpr std::string_view all[] = {"keep", "drop", "join"};
};
// The batches of an epoch of n samples.
struct EpochBatches {
  int64_t count = 0, samples = 0;  // samples: those that some batch contains
  int64_t largest = 0, least = 0;  // samples in the largest and in the smallest batch
};
// Requires samples and micro >= 1; micro may exceed samples.
EpochBatches epoch_batches(int64_t samples, int64_t micro, LastBatch last);

// What identifies the samples of a data set, so that a resumed run can tell whether they are still the same.
struct SamplesRecord {
  int64_t samples = 0;
  Shape shape = {};     // of one sample
  uint32_t crc32c = 0;  // of mixed CRCs of each sample's values or ids and its target, as Dataset::example writes them
  friend bool operator==(const SamplesRecord&, const SamplesRecord&) = default;
};

// Reads samples that are in memory in full. Of others, which may be slow to read, it takes all up to 256 MiB, else as
// many of them, evenly spread, the first and the last included. Does not depend on how the samples are stored.
SamplesRecord samples_record(const Dataset& data);
// "95 samples [4], CRC32C 0x1a2b3c4d".
std::string to_string(const SamplesRecord& record);

}  // namespace bitgrad
