#include "train/pieces.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/reduce.h"
#include "tensor/narrow.h"
#include "train/averages.h"
#include "train/train_state.h"

namespace bitgrad::checkpoint {
namespace {

bool is_finite(const Piece& p) {
  const DeviceGuard host(Device::cpu());  // where pieces are
  if (p.dtype == "F32") return kernels::all_finite(static_cast<const float*>(p.data), p.bytes / 4);
  if (p.dtype != "BF16" && p.dtype != "F16") return true;
  const uint16_t exponent = p.dtype == "BF16" ? 0x7F80u : 0x7C00u;
  const auto* x = static_cast<const uint16_t*>(p.data);
  return std::none_of(x, x + p.bytes / 2, [exponent](uint16_t bits) { return (bits & exponent) == exponent; });
}

float largest_of(const Piece& p) {
  const auto* wide = static_cast<const float*>(p.data);
  const auto* narrow = static_cast<const uint16_t*>(p.data);
  const bool f32 = p.dtype == "F32", f16 = p.dtype == "F16";
  float largest = 0;
  for (int64_t i = 0; i < p.bytes / (f32 ? 4 : 2); ++i)
    largest = std::max(largest, std::fabs(f32 ? wide[i] : f16 ? fp16_to_float(narrow[i]) : bf16_to_float(narrow[i])));
  return largest;
}

// The parameter with the largest value, as part of a sentence; empty if there is none.
std::string largest_parameter(const Pieces& pieces) {
  const Piece* found = nullptr;
  float largest = -1;
  for (const Piece& p : pieces.list) {
    if (!p.name.ends_with(".master") && !p.name.ends_with(".value")) continue;
    if (const float x = largest_of(p); x > largest) {
      largest = x;
      found = &p;
    }
  }
  return found == nullptr ? "" : concat("; the largest value is ", largest, ", in '", found->name, '\'');
}

}  // namespace

std::string file_dtype(DType dtype) {
  struct Entry {
    DType dtype;
    const char* name;
  };
  static const Entry kNames[] = {{dtypes::fp32, "F32"}, {dtypes::bf16, "BF16"}, {dtypes::fp16, "F16"},
                                 {dtypes::int8, "I8"},  {dtypes::uint8, "U8"},  {dtypes::int32, "I32"},
                                 {dtypes::int64, "I64"}};
  for (const Entry& e : kNames)
    if (e.dtype == dtype) return e.name;
  fail_with(ErrorCode::kBug, "checkpoint", "internal error: files have no plain tensors of ", dtype);
}

void Pieces::add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape, const Tensor& tensor) {
  const Tensor t = tensor.without_quant().on_host();
  if (!tensor.device().is_cpu()) copies.push_back(t);
  const int64_t row = row_bytes_file(t.dtype(), t.cols()), bytes = row * t.rows();
  const void* data = t.data();
  if (t.stride() != row && t.rows() > 0) {
    std::vector<uint8_t>& dense = owned.emplace_back(static_cast<size_t>(bytes));
    for (int64_t r = 0; r < t.rows(); ++r)
      std::memcpy(dense.data() + r * row, static_cast<const char*>(t.data()) + r * t.stride(),
                  static_cast<size_t>(row));
    data = dense.data();
  }
  list.push_back({name, dtype, std::move(shape), data, bytes});
}

void Pieces::add_tensor(const std::string& name, const Tensor& t) {
  ensure(t.layout() == layouts::canonical && !t.quant(), "checkpoint", "tensor '", name, "' is ", t);
  add(name, file_dtype(t.dtype()), t.shape().dims(), t);
}

void Pieces::add_codes(const std::string& name, const Tensor& t) {
  add(name, "U8", {t.rows(), row_bytes_file(t.dtype(), t.cols())}, t);
}

void Pieces::add_value(const std::string& path, const Tensor& value, const std::string& prefix) {
  const std::string start = path + prefix;
  add_codes(start + "codes", value);
  const QuantParams& q = *value.quant();
  if (q.scale) add_tensor(start + "scale", *q.scale);
  if (q.zero) add_tensor(start + "zero", *q.zero);
  if (q.offset) add_tensor(start + "offset", *q.offset);
  if (q.statistic) add_tensor(start + "statistic", *q.statistic);
}

void add_parameter(Pieces& pieces, const Parameter& p) {
  if (p.has_master()) pieces.add_tensor(p.path() + ".master", p.master());
  if (p.low_bit()) pieces.add_value(p.path(), p.value());
}

Pieces collect(const detail::TrainState& s) {
  Pieces pieces;
  for (Parameter* p : s.model->parameters()) add_parameter(pieces, *p);
  for (const auto& part : s.optimizer->state()) pieces.add_tensor(part.name, part.tensor);
  for (const auto& b : s.model->buffers()) pieces.add_tensor(b.path, b.tensor);
  if (s.average)
    for (const auto& [name, tensor] : s.average->state()) pieces.add_tensor(name, tensor);
  return pieces;
}

Pieces collect_model(Module& model) {
  Pieces pieces;
  for (Parameter* p : model.parameters()) {
    require(!p->low_bit() || !p->has_master(), "save_model", "parameter '", p->path(),
            "' has a master: got a model that "
            "still trains. Run convert first");
    const Tensor narrow = detail::narrow_of(p->value());
    if (p->low_bit())
      pieces.add_value(p->path(), p->value());
    else
      pieces.add_tensor(p->path() + ".value", narrow.defined() ? narrow : p->value());
  }
  for (const auto& b : model.buffers()) pieces.add_tensor(b.path, b.tensor);
  return pieces;
}

std::vector<std::string> not_finite(const Pieces& pieces) {
  const DeviceGuard cpu(Device::cpu());
  std::vector<std::string> names;
  for (const Piece& p : pieces.list)
    if (!is_finite(p)) names.push_back(p.name);
  return names;
}

std::string useless(const Pieces& pieces) {
  constexpr float kMost = 1e18f;
  const DeviceGuard cpu(Device::cpu());
  for (const Piece& p : pieces.list) {
    if (!is_finite(p)) return concat('\'', p.name, "' holds NaN or Inf");
    const bool weighs = p.name.ends_with(".master") || p.name.ends_with(".value") || p.name.ends_with(".scale");
    if (!weighs || (p.dtype != "F32" && p.dtype != "BF16" && p.dtype != "F16")) continue;
    if (const float x = largest_of(p); x > kMost)
      return concat('\'', p.name, "' has grown to ", x, " (more than ", kMost, " is of no use: squares overflow)");
  }
  return "";
}

std::string describe_not_finite(const detail::TrainState& s) {
  constexpr size_t kListed = 8;
  const DeviceGuard guard(s.device);
  const Pieces pieces = s.converted ? collect_model(*s.model) : collect(s);
  const std::vector<std::string> names = not_finite(pieces);
  if (names.empty())
    return concat("Parameters, moments and running statistics are all finite",
                  s.optimizer->whole() ? "" : ", in the rows that this rank updates", largest_parameter(pieces), '.');
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i)
    text += concat(text.empty() ? "" : ", ", '\'', names[i], '\'');
  if (names.size() > kListed) text += concat(" and ", names.size() - kListed, " more");
  return concat("NaN or Inf in the model: ", text, '.');
}

void require_finite(Learner& learner) {
  const DeviceGuard guard(learner.device());
  if (const std::string what = useless(collect(learner.train_state())); !what.empty())
    fail_with(ErrorCode::kNonFinite, "non-finite", what, " at optimizer step ", learner.state().step,
              ". A smaller learning rate may help.");
}

void fill_rows(const Tensor& t, int64_t begin, int64_t end, const uint8_t* bytes) {
  const int64_t row = row_bytes_file(t.dtype(), t.cols());
  if (row == 0) return;
  for (int64_t r = begin; r < end; ++r)
    std::memcpy(static_cast<char*>(t.data()) + r * t.stride(), bytes + (r - begin) * row, static_cast<size_t>(row));
}

}  // namespace bitgrad::checkpoint
