#include "train/ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "bitgrad/base/device.h"
#include "bitgrad/base/math.h"
#include "nn/activation_quantizer.h"
#include "train/step.h"

namespace bitgrad::detail {
namespace {

template <typename Use>
void for_each_quantizer(Module& model, Use use) {
  for (const auto& [path, module] : model.modules_at(kModelRoot))
    if (const auto* quantizer = dynamic_cast<const ActivationQuantizer*>(module)) use(*quantizer, path);
}

void write(Writer& to, const BatchStatistics& b) {
  to.put(b.path);
  to.put(b.momentum);
  write(to, b.mean);
  write(to, b.var);
}

void write(Writer& to, const ObservedRange& r) {
  to.put(r.path);
  write(to, r.ends);
}

// The observers of all ranks follow the batches of all of them, in order.
void follow(TrainState& s, const std::vector<ObservedRange>& ranges) {
  if (ranges.empty()) return;
  std::map<std::string, ActivationQuantizer*> quantizers;
  for (const auto& [path, module] : s.model->modules_at(kModelRoot))
    if (auto* const quantizer = dynamic_cast<ActivationQuantizer*>(module)) quantizers[path] = quantizer;
  for (const ObservedRange& range : ranges) quantizers.at(range.path)->follow(range);
}

// The running statistics of the norms of a model, on the host until they are put back.
class Running {
 public:
  explicit Running(Module& model) {
    for (const Module::Buffer& b : model.buffers()) buffers_.emplace(b.path, b.tensor);
  }
  // As in a norm that follows its batches at once (ops/map/norm.h).
  void follow(Reader& from) {
    const std::string path = from.text();
    const float momentum = from.get<float>();
    for (const char* end : {".running_mean", ".running_var"}) {
      const std::vector<float> batch = read_tensor(from).to_vector();
      std::vector<float>& now = values(path + end);
      for (size_t i = 0; i < now.size(); ++i) now[i] = math::lerp(now[i], batch.at(i), momentum, 1.0f - momentum);
    }
  }
  void put_back() const {
    for (const auto& [path, values] : moved_)
      buffers_.at(path).copy_from(Tensor::from(values, buffers_.at(path).shape()));
  }

 private:
  std::vector<float>& values(const std::string& path) {
    const auto at = moved_.find(path);
    return at != moved_.end() ? at->second : moved_[path] = buffers_.at(path).to_vector();
  }
  std::map<std::string, Tensor> buffers_;
  std::map<std::string, std::vector<float>> moved_;
};

}  // namespace

void write(Writer& to, const StepResult& r) {
  for (const double number : {r.loss, r.weight, r.squared_error}) to.put(number);
  for (const int64_t count : {r.correct, r.samples, r.counted, r.among_top5}) to.put(count);
  to.put(r.cross_entropy.has_value());
  if (r.cross_entropy) to.put(*r.cross_entropy);
  to.put(std::ssize(r.measured));
  for (const auto& [name, sum] : r.measured) {
    to.put(name);
    to.put(sum);
  }
}

StepResult read_result(Reader& from) {
  StepResult r;
  for (double* number : {&r.loss, &r.weight, &r.squared_error}) *number = from.get<double>();
  for (int64_t* count : {&r.correct, &r.samples, &r.counted, &r.among_top5}) *count = from.get<int64_t>();
  if (from.get<bool>()) r.cross_entropy = from.get<double>();
  for (auto n = from.get<int64_t>(); n > 0; --n) {
    const std::string name = from.text();
    r.measured[name] = from.get<double>();
  }
  return r;
}

void write(Writer& to, const Tensor& t) {
  require(t.contiguous() && !t.quant(), "ranks", "only contiguous values are sent to other ranks: got ", t);
  const Tensor host = t.on_host();
  to.put(t.dtype().name());
  to.put(t.shape().rank());
  for (const int64_t dim : t.shape().dims()) to.put(dim);
  to.put(host.data(), static_cast<size_t>(host.bytes()));
}

Tensor read_tensor(Reader& from) {
  const DType dtype = parse_dtype(from.text());
  std::vector<int64_t> dims(static_cast<size_t>(from.get<int64_t>()));
  for (int64_t& dim : dims) dim = from.get<int64_t>();
  Tensor got = Tensor::empty(Shape(dims), dtype, MemoryKind::kBatch);
  const auto bytes = from.take(static_cast<size_t>(got.bytes()));
  if (current_device().is_cpu())
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(got.data()));
  else
    device_backend(current_device()).copy_from_host(got.data(), bytes.data(), got.bytes());
  return got;
}

Tensor from_rank(Communicator& ranks, int64_t from, const Tensor& own) {
  const bool mine = ranks.rank() == from;
  Writer to;
  if (mine) write(to, own);
  const auto all = gather_lists(ranks, to.bytes());
  if (mine) return own;
  Reader reader(all[static_cast<size_t>(from)]);
  return read_tensor(reader);
}

void fit_steps_of_all(TrainState& s, const Tensor& x, double weight) {
  bool fits = false;
  for_each_quantizer(*s.model,
                     [&](const ActivationQuantizer& q, const std::string&) { fits = fits || q.fits_steps(); });
  s.state.fits_steps = false;
  if (!fits) return;
  const std::vector<double> weights = gather_values(*s.ranks, std::span<const double>(&weight, 1));
  const auto counts = std::find_if(weights.begin(), weights.end(), [](double w) { return w > 0; });
  require(counts != weights.end(), "ranks", "no target counts in the first microbatches of the ranks after step ",
          s.state.step,
          ": learned steps of activations are fitted to one that counts. Order the samples in another way");
  const int64_t first = counts - weights.begin();
  s.state.fits_steps = s.ranks->rank() == first;
  const Tensor batch = from_rank(*s.ranks, first, x);
  if (s.state.fits_steps) return;
  const NoGrad off;
  const auto hook = std::exchange(s.state.on_forward, nullptr);
  const int64_t before = std::exchange(s.state.microbatch, s.window.start + first * s.share());
  s.state.fits_steps = true;
  run_model(s, batch);
  end_sequences(s);
  s.state.fits_steps = false;
  s.state.batch_statistics->clear();
  s.state.observed_ranges->clear();
  s.state.microbatch = before;
  s.state.on_forward = hook;
}

void end_batches(TrainState& s) {
  std::vector<ObservedRange> ranges;
  if (s.state.observed_ranges) ranges = std::exchange(*s.state.observed_ranges, {});
  if (!s.ranks) {
    s.last_results = s.window.results;
  } else {
    Writer own;
    own.put(std::ssize(s.window.results));
    for (const StepResult& r : s.window.results) write(own, r);
    own.put(std::ssize(ranges));
    for (const ObservedRange& r : ranges) write(own, r);
    for (const BatchStatistics& b : *s.state.batch_statistics) write(own, b);
    s.state.batch_statistics->clear();
    s.last_results.clear();
    ranges.clear();
    Running running(*s.model);
    for (const std::vector<std::byte>& of : gather_lists(*s.ranks, own.bytes())) {
      Reader reader(of);
      for (auto n = reader.get<int64_t>(); n > 0; --n) s.last_results.push_back(read_result(reader));
      for (auto n = reader.get<int64_t>(); n > 0; --n) {
        const std::string path = reader.text();
        ranges.push_back({path, read_tensor(reader)});
      }
      while (!reader.ended()) running.follow(reader);
    }
    running.put_back();
  }
  follow(s, ranges);
}

}  // namespace bitgrad::detail
