#include "bitgrad/train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>

#include "bitgrad/base/version.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/io/sha256.h"
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/kernels/row.h"

namespace bitgrad {
namespace {

using Json = nlohmann::ordered_json;

// One tensor of a checkpoint: bytes in file form.
struct Piece {
  std::string name, dtype;
  std::vector<int64_t> shape;
  const void* data;
  int64_t bytes;
};

// All tensors of a learner. Codes whose rows are padded in memory are copied into `owned`.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::vector<uint8_t>> owned;

  void add_dense(const std::string& name, const Tensor& t) {
    ensure(t.contiguous() && (t.dtype() == dtypes::fp32 || t.dtype() == dtypes::int32), "checkpoint", "tensor '", name,
           "' is ", t);
    list.push_back({name, t.dtype() == dtypes::fp32 ? "F32" : "I32", t.shape().dims(), t.data(), t.bytes()});
  }
  void add_codes(const std::string& name, const Tensor& t) {
    const int64_t row = row_bytes_file(t.dtype(), t.cols());
    std::vector<uint8_t>& bytes = owned.emplace_back(static_cast<size_t>(row * t.rows()));
    for (int64_t r = 0; r < t.rows(); ++r)
      std::memcpy(bytes.data() + r * row, static_cast<const char*>(t.data()) + r * t.stride(),
                  static_cast<size_t>(row));
    list.push_back({name, "U8", {t.rows(), row}, bytes.data(), row * t.rows()});
  }
};

Pieces collect(Learner& learner) {
  Pieces pieces;
  for (Parameter* p : learner.model().parameters()) {
    pieces.add_dense(p->path() + ".master", p->master());
    if (!p->low_bit()) continue;
    pieces.add_codes(p->path() + ".codes", p->value());
    const QuantParams& q = *p->value().quant();
    if (q.scale) pieces.add_dense(p->path() + ".scale", *q.scale);
    if (q.zero) pieces.add_dense(p->path() + ".zero", *q.zero);
    if (q.offset) pieces.add_dense(p->path() + ".offset", *q.offset);
  }
  for (const auto& s : learner.optimizer().state()) pieces.add_dense(s.name, s.tensor);
  for (const auto& b : learner.model().buffers()) pieces.add_dense(b.path, b.tensor);
  return pieces;
}

Json dtype_record(DType dtype) {
  const DTypeInfo& i = dtype.info();
  Json record{{"name", i.name}, {"bits", i.bits}, {"kind", kind_name(i.kind)}, {"qmin", i.qmin}, {"qmax", i.qmax}};
  if (!i.levels.empty()) record["levels"] = i.levels;
  return record;
}

// The dtype of a file's record: known, or registered now. Another record under a known name is an error of
// register_dtype.
DType dtype_of(const Json& record) {
  DTypeInfo info;
  info.name = record.at("name").get<std::string>();
  info.bits = record.at("bits").get<int>();
  const auto kind = find_kind(record.at("kind").get<std::string>());
  require(kind.has_value(), "checkpoint", "dtype '", info.name, "' has an unknown kind");
  info.kind = *kind;
  info.qmin = record.at("qmin").get<int64_t>();
  info.qmax = record.at("qmax").get<int64_t>();
  if (record.contains("levels")) info.levels = record.at("levels").get<std::vector<float>>();
  const auto known = find_dtype(info.name);
  return known && known->info() == info ? *known : register_dtype(info);
}

Json granularity_record(const Granularity& g) {
  return {{"kind", static_cast<int>(g.kind)}, {"axis", g.axis}, {"group", g.group}, {"text", concat(g)}};
}
Granularity granularity_of(const Json& j) {
  const int kind = j.at("kind").get<int>();
  require(kind >= 0 && kind <= static_cast<int>(Granularity::kGroup), "checkpoint", "unknown granularity ", kind);
  return {static_cast<Granularity::Kind>(kind), j.at("axis").get<int64_t>(), j.at("group").get<int64_t>()};
}

Json state_record(Learner& learner, const RunCounters& c) {
  return {{"format_version", kCheckpointFormat},
          {"step", learner.state().step},
          {"microbatch", learner.state().microbatch},
          {"since_requantize", learner.since_requantize()},
          {"epoch", c.epoch},
          {"position", c.position},
          {"seed", learner.state().seed},
          {"best", {{"accuracy", c.best_accuracy}, {"epoch", c.best_epoch}}},
          {"last_accuracy", c.last_accuracy}};
}

[[noreturn]] void bad(const std::string& path, const std::string& what) {
  fail_with(ErrorCode::kData, "checkpoint", path, ": ", what);
}

Json metadata_json(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end())
    bad(file.path(), "has no '" + key + "' in its metadata: it is not a bitgrad checkpoint");
  try {
    return Json::parse(found->second);
  } catch (const nlohmann::json::exception& e) {
    bad(file.path(), "'" + key + "' is not JSON: " + e.what());
  }
}

// Runs `read` and turns every failure into Error(kData) that names the file.
template <typename F>
auto reading(const std::string& path, F&& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& e) {
    bad(path, std::string("malformed metadata: ") + e.what());
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kData) throw;
    bad(path, e.what());
  }
}

class Restorer {
 public:
  explicit Restorer(const std::string& path)
      : file_(SafetensorsFile::read(path)), tensors_(metadata_json(file_, "bitgrad.tensors")) {
    if (!file_.has_checksums())
      bad(path, "has no checksums: it was not written by bitgrad, or another program rewrote it");
  }
  const SafetensorsFile& file() const { return file_; }

  // A dense tensor of the file as a new one.
  Tensor dense(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind) {
    const SafetensorsEntry& e = entry(name, dtype == dtypes::fp32 ? "F32" : "I32", shape);
    Tensor t = Tensor::empty(shape, dtype, kind);
    if (e.bytes > 0) std::memcpy(t.data(), file_.data(name), static_cast<size_t>(e.bytes));
    return t;
  }
  void into(const std::string& name, const Tensor& t) {
    t.copy_from(dense(name, t.dtype(), t.shape(), MemoryKind::kBatch));
  }

  void parameter(Parameter& p) {
    const Tensor master = dense(p.path() + ".master", dtypes::fp32, p.shape(), MemoryKind::kBatch);
    p.restore(master, p.low_bit() ? codes(p) : Tensor());
  }

  void done() {
    for (const SafetensorsEntry& e : file_.entries())
      if (!used_.count(e.name)) bad(file_.path(), "tensor '" + e.name + "' belongs to no part of this model");
  }

 private:
  const SafetensorsEntry& entry(const std::string& name, const std::string& dtype, const Shape& shape) {
    if (!file_.contains(name)) bad(file_.path(), "tensor '" + name + "' is missing");
    const SafetensorsEntry& e = file_.entry(name);
    if (e.dtype != dtype || Shape(e.shape) != shape)
      bad(file_.path(),
          concat("tensor '", name, "' is ", Shape(e.shape), ' ', e.dtype, ", expected ", shape, ' ', dtype));
    used_.insert(name);
    return e;
  }

  Tensor codes(Parameter& p) {
    const std::string name = p.path() + ".codes";
    if (!tensors_.contains(name)) bad(file_.path(), "the metadata has no record of '" + name + "'");
    const Json& record = tensors_.at(name);
    const DType dtype = dtype_of(record.at("dtype"));
    const Shape shape(record.at("shape").get<std::vector<int64_t>>());
    if (dtype != p.value().dtype() || shape != p.shape())
      bad(file_.path(), concat("parameter '", p.path(), "' is ", shape, ' ', dtype, ", the model has ", p.value()));
    const int64_t row = row_bytes_file(dtype, shape.cols());
    entry(name, "U8", Shape{shape.rows(), row});
    Tensor t = Tensor::zeros(shape, dtype, MemoryKind::kBatch);
    const uint8_t* bytes = file_.data(name);
    for (int64_t r = 0; r < t.rows(); ++r)
      std::memcpy(static_cast<char*>(t.data()) + r * t.stride(), bytes + r * row, static_cast<size_t>(row));
    check_codes(name, t);
    const QuantParams& model = *p.value().quant();
    auto params = std::make_shared<QuantParams>();
    params->scheme = record.at("scheme").get<std::string>();
    params->granularity = granularity_of(record.at("granularity"));
    if (params->scheme != model.scheme || params->granularity != model.granularity)
      bad(file_.path(), concat("parameter '", p.path(), "' is quantized as ", params->scheme, ", ", params->granularity,
                               ", the model has ", model.scheme, ", ", model.granularity));
    // The file holds the parts that the model has: one that is missing would count as 1 or 0.
    const auto part = [&](const char* suffix,
                          const std::shared_ptr<const Tensor>& like) -> std::shared_ptr<const Tensor> {
      if (!like) return nullptr;
      return std::make_shared<const Tensor>(
          dense(p.path() + suffix, like->dtype(), like->shape(), MemoryKind::kQuantState));
    };
    params->scale = part(".scale", model.scale);
    params->zero = part(".zero", model.zero);
    params->offset = part(".offset", model.offset);
    return t.with_quant(std::move(params));
  }

  // Kernels trust their codes: ones out of the dtype's range, or pad bits that are set, would be read as other numbers.
  void check_codes(const std::string& name, const Tensor& t) {
    const DTypeInfo& info = t.dtype().info();
    std::vector<uint8_t> raw(static_cast<size_t>(t.cols())), packed(static_cast<size_t>(t.stride()));
    for (int64_t r = 0; r < t.rows(); ++r) {
      const auto* row = static_cast<const uint8_t*>(t.data()) + r * t.stride();
      unpack_row_raw(t.dtype(), row, 0, t.cols(), raw.data());
      for (const uint8_t code : raw) {
        const int64_t number = info.kind == DTypeKind::kCodebook ? code : decode_int(info, code);
        if (number < info.qmin || number > info.qmax)
          bad(file_.path(), concat("tensor '", name, "', row ", r, ": ", number, " is no code of ", t.dtype()));
      }
      pack_row_raw(t.dtype(), raw.data(), t.cols(), packed.data());
      if (std::memcmp(packed.data(), row, packed.size()) != 0)
        bad(file_.path(), concat("tensor '", name, "', row ", r, ": bits after the last code are set"));
    }
  }

  SafetensorsFile file_;
  Json tensors_;
  std::set<std::string> used_;
};

CheckpointHeader header_of(const SafetensorsFile& file) {
  return reading(file.path(), [&] {
    const Json state = metadata_json(file, "bitgrad.state");
    const int version = state.at("format_version").get<int>();
    if (version != kCheckpointFormat)
      bad(file.path(), concat("format version ", version, ", this program reads ", kCheckpointFormat));
    CheckpointHeader h;
    h.step = state.at("step").get<int64_t>();
    h.microbatch = state.at("microbatch").get<int64_t>();
    h.since_requantize = state.at("since_requantize").get<int64_t>();
    h.seed = state.at("seed").get<uint64_t>();
    h.counters.epoch = state.at("epoch").get<int64_t>();
    h.counters.position = state.at("position").get<int64_t>();
    h.counters.best_accuracy = state.at("best").at("accuracy").get<double>();
    h.counters.best_epoch = state.at("best").at("epoch").get<int64_t>();
    h.counters.last_accuracy = state.at("last_accuracy").get<double>();
    h.counters.train_seconds = state.at("train_seconds").get<double>();
    if (h.step < 0 || h.microbatch < 0 || h.counters.epoch < 0 || h.counters.position < 0)
      bad(file.path(), "a counter is negative");
    const auto text = [&](const char* key) {
      const auto found = file.metadata().find(key);
      if (found == file.metadata().end()) bad(file.path(), std::string("has no '") + key + "' in its metadata");
      return found->second;
    };
    h.config = text("bitgrad.config");
    h.kernel_hash = text("bitgrad.kernels");
    return h;
  });
}

}  // namespace

void save_checkpoint(const std::string& path, Learner& learner, const RunCounters& counters,
                     const std::string& config_yaml) {
  ensure(learner.window_samples() == 0, "checkpoint", "saved inside a window of accumulation");
  const Pieces pieces = collect(learner);
  for (const Piece& p : pieces.list)
    if (p.dtype == "F32" && !all_finite(static_cast<const float*>(p.data), p.bytes / 4))
      fail_with(ErrorCode::kNonFinite, "checkpoint", "'", p.name, "' holds NaN or Inf at optimizer step ",
                learner.state().step, ". Nothing was saved; ", path, " is as it was.");
  std::vector<SafetensorsItem> items;
  for (const Piece& p : pieces.list) items.push_back({p.name, p.dtype, p.shape, p.data, p.bytes});
  Json records = Json::object();
  for (Parameter* p : learner.model().parameters())
    if (p->low_bit())
      records[p->path() + ".codes"] = {{"dtype", dtype_record(p->value().dtype())},
                                       {"shape", p->shape().dims()},
                                       {"scheme", p->value().quant()->scheme},
                                       {"granularity", granularity_record(p->value().quant()->granularity)}};
  Json state = state_record(learner, counters);
  state["train_seconds"] = counters.train_seconds;
  write_safetensors(path, items,
                    {{"bitgrad.tensors", records.dump()},
                     {"bitgrad.state", state.dump()},
                     {"bitgrad.config", config_yaml},
                     {"bitgrad.kernels", kernel_table_hash()},
                     {"bitgrad.version", BITGRAD_VERSION}});
}

CheckpointHeader read_checkpoint_header(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  CheckpointHeader header = header_of(file);
  reading(path, [&] {
    const Json records = metadata_json(file, "bitgrad.tensors");
    for (const Json& record : records) dtype_of(record.at("dtype"));
    return 0;
  });
  return header;
}

void load_checkpoint(const std::string& path, Learner& learner) {
  reading(path, [&] {
    Restorer restorer(path);
    const CheckpointHeader h = header_of(restorer.file());
    if (h.seed != learner.state().seed)
      bad(path, concat("was trained with seed ", h.seed, ", the configuration has ", learner.state().seed));
    for (Parameter* p : learner.model().parameters()) restorer.parameter(*p);
    for (const auto& s : learner.optimizer().state()) restorer.into(s.name, s.tensor);
    for (const auto& b : learner.model().buffers()) restorer.into(b.path, b.tensor);
    restorer.done();
    learner.set_counters(h.step, h.microbatch, h.since_requantize);
    return 0;
  });
}

std::string state_hash(Learner& learner, const RunCounters& counters) {
  Pieces pieces = collect(learner);
  std::sort(pieces.list.begin(), pieces.list.end(), [](const Piece& a, const Piece& b) { return a.name < b.name; });
  Sha256 hash;
  for (const Piece& p : pieces.list) {
    hash.update(concat(p.name, ' ', p.dtype, ' ', Shape(p.shape), '\n'));
    hash.update(p.data, static_cast<size_t>(p.bytes));
  }
  hash.update(state_record(learner, counters).dump());
  return hash.hex();
}

std::string kernel_table_hash() {
  Sha256 hash;
  for (const KernelInfo& k : all_kernels())
    if (k.available) hash.update(concat(k.family, ' ', k.name, '\n'));
  // The costs by which float products choose their order, at a small, a middle and a large shape.
  for (const int64_t size : {16, 256, 2048}) {
    GemmArgs probe;
    probe.m = probe.n = probe.k = probe.ldc = size;
    probe.a.stride = probe.b.stride = size * 4;
    for (const GemmRow& row : gemm_rows())
      if (row.usable(probe)) hash.update(concat(row.name, ' ', row.cost(probe), '\n'));
  }
  return hash.hex();
}

}  // namespace bitgrad
