// Reading checkpoints.
#include <cstring>
#include <set>

#include "bitgrad/dtype/codec.h"
#include "train/checkpoint/pieces.h"
#include "train/checkpoint/records.h"

namespace bitgrad {

using namespace checkpoint;

namespace {

class Restorer {
 public:
  explicit Restorer(const std::string& path) : file_(SafetensorsFile::read(path)), tensors_(read_tensors(file_)) {
    if (!file_.has_checksums())
      bad(path, "has no checksums: it was not written by bitgrad, or another program rewrote it");
  }
  const SafetensorsFile& file() const { return file_; }

  // A tensor of the file as a new one.
  Tensor plain(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind) {
    entry(name, file_dtype(dtype), shape);
    const Tensor t = Tensor::zeros(shape, dtype, kind);
    fill_rows(t, file_.data(name));
    return t;
  }
  void into(const std::string& name, const Tensor& t) {
    t.copy_from(plain(name, t.dtype(), t.shape(), MemoryKind::kWorkspace));
  }

  void parameter(Parameter& p) {
    Tensor master;
    if (p.has_master()) master = plain(p.path() + ".master", p.master().dtype(), p.shape(), MemoryKind::kWorkspace);
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
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) bad(file_.path(), "the metadata has no record of '" + name + "'");
    const auto& [dtype, shape, scheme, granularity] = found->second;
    if (dtype != p.value().dtype() || shape != p.shape())
      bad(file_.path(), concat("parameter '", p.path(), "' is ", shape, ' ', dtype, ", the model has ", p.value()));
    const int64_t row = row_bytes_file(dtype, shape.cols());
    entry(name, "U8", Shape{shape.rows(), row});
    Tensor t = Tensor::zeros(shape, dtype, MemoryKind::kWorkspace);
    fill_rows(t, file_.data(name));
    check_codes(name, t);
    const QuantParams& model = *p.value().quant();
    auto params = std::make_shared<QuantParams>();
    params->scheme = scheme;
    params->granularity = granularity;
    if (params->scheme != model.scheme || params->granularity != model.granularity)
      bad(file_.path(), concat("parameter '", p.path(), "' is quantized as ", params->scheme, ", ", params->granularity,
                               ", the model has ", model.scheme, ", ", model.granularity));
    // The file holds the parts that the model has: one that is missing would count as 1 or 0.
    const auto part = [&](const char* suffix,
                          const std::shared_ptr<const Tensor>& like) -> std::shared_ptr<const Tensor> {
      if (!like) return nullptr;
      return std::make_shared<const Tensor>(
          plain(p.path() + suffix, like->dtype(), like->shape(), MemoryKind::kQuantState));
    };
    params->scale = part(".scale", model.scale);
    params->zero = part(".zero", model.zero);
    params->offset = part(".offset", model.offset);
    params->statistic = part(".statistic", model.statistic);
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
  std::map<std::string, CodesRecord> tensors_;
  std::set<std::string> used_;
};

}  // namespace

CheckpointHeader read_checkpoint_header(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  CheckpointHeader header = read_state(file);
  read_tensors(file);
  return header;
}

void load_checkpoint(const std::string& path, Learner& learner) {
  reading(path, [&] {
    Restorer restorer(path);
    const CheckpointHeader h = read_state(restorer.file());
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

}  // namespace bitgrad
