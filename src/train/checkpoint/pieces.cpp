#include "train/checkpoint/pieces.h"

#include <cstring>

#include "bitgrad/dtype/codec.h"

namespace bitgrad::checkpoint {

std::string file_dtype(DType dtype) {
  struct Entry {
    DType dtype;
    const char* name;
  };
  static const Entry kNames[] = {{dtypes::fp32, "F32"}, {dtypes::bf16, "BF16"}, {dtypes::int8, "I8"},
                                 {dtypes::uint8, "U8"}, {dtypes::int32, "I32"}, {dtypes::int64, "I64"}};
  for (const Entry& e : kNames)
    if (e.dtype == dtype) return e.name;
  fail_with(ErrorCode::kBug, "checkpoint", "internal error: files hold no plain tensors of ", dtype);
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

void Pieces::add_value(const Parameter& p) {
  add_codes(p.path() + ".codes", p.value());
  const QuantParams& q = *p.value().quant();
  if (q.scale) add_tensor(p.path() + ".scale", *q.scale);
  if (q.zero) add_tensor(p.path() + ".zero", *q.zero);
  if (q.offset) add_tensor(p.path() + ".offset", *q.offset);
  if (q.statistic) add_tensor(p.path() + ".statistic", *q.statistic);
}

Pieces collect(Learner& learner) {
  Pieces pieces;
  for (Parameter* p : learner.model().parameters()) {
    if (p->has_master()) pieces.add_tensor(p->path() + ".master", p->master());
    if (p->low_bit()) pieces.add_value(*p);
  }
  for (const auto& s : learner.optimizer().state()) pieces.add_tensor(s.name, s.tensor);
  for (const auto& b : learner.model().buffers()) pieces.add_tensor(b.path, b.tensor);
  return pieces;
}

Pieces collect_model(Module& model) {
  Pieces pieces;
  for (Parameter* p : model.parameters()) {
    require(!p->low_bit() || !p->has_master(), "save_model", "parameter '", p->path(),
            "' has a master: got a model that "
            "still trains. Run convert first");
    if (p->low_bit())
      pieces.add_value(*p);
    else
      pieces.add_tensor(p->path() + ".value", p->value());
  }
  for (const auto& b : model.buffers()) pieces.add_tensor(b.path, b.tensor);
  return pieces;
}

void fill_rows(const Tensor& t, const uint8_t* bytes) {
  const int64_t row = row_bytes_file(t.dtype(), t.cols());
  if (row == 0) return;
  for (int64_t r = 0; r < t.rows(); ++r)
    std::memcpy(static_cast<char*>(t.data()) + r * t.stride(), bytes + r * row, static_cast<size_t>(row));
}

}  // namespace bitgrad::checkpoint
