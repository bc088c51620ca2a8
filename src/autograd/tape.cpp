#include "bitgrad/autograd/tape.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "bitgrad/autograd/op.h"
#include "kernels/elementwise.h"
#include "kernels/map/fill.h"

namespace bitgrad {
namespace {

thread_local Tape* t_current = nullptr;
thread_local Tape* t_recording = nullptr;

// The tapes that exist on this thread.
struct LivingTape {
  const Tape* tape;
  uint64_t id;
  friend bool operator==(const LivingTape&, const LivingTape&) = default;
};
thread_local std::vector<LivingTape> t_living;

uint64_t next_tape_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

Tensor ones(const Shape& shape, DType dtype) {
  if (dtype != dtypes::fp32) return Tensor::full(shape, dtype, 1.0);
  Tensor out = Tensor::empty(shape, dtype);
  run_map(maps::Fill{out.as<float>(), 1.0f}, out.numel());
  return out;
}

// Operations run where their tensors are, which must be the current device.
void check_device(std::string_view op, std::string_view what, size_t index, const Tensor& tensor) {
  const Device now = current_device();
  if (tensor.device() != now)
    fail_with(ErrorCode::kDevice, op, what, ' ', index, " (", tensor, ") is on ", to_string(tensor.device()),
              ", but the current device is ", to_string(now),
              ". Copy it there (to_device), or change the DeviceGuard.");
  if (!now.is_cpu() && tensor.dtype() == dtypes::fp64) detail::fail_fp64_on_device(op);
}

void check_grad_dtype(std::string_view where, DType dtype, const Tensor& value) {
  const bool wide = value.dtype() == dtypes::fp64;
  require(wide ? dtype == dtypes::fp64 : (dtype == dtypes::fp32 || dtype == dtypes::bf16), where, "gradients of ",
          value, " can be ", wide ? "fp64" : "fp32 or bf16", ", got ", dtype);
}

}  // namespace

// ---- Var

DType Var::grad_dtype() const {
  if (tape_ == nullptr || !Tape::lives(*this)) return value_.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
  return tape_->edges_[static_cast<size_t>(edge_)].dtype;
}

bool Var::was_read() const {
  return tape_ != nullptr && Tape::lives(*this) && tape_->edges_[static_cast<size_t>(edge_)].readers > 0;
}

Var& Var::want_grad(DType dtype) {
  require(tracked(), "want_grad", "the Var ", value_, " is a constant: no gradient flows to it");
  require(Tape::lives(*this), "want_grad", "the tape of the Var ", value_, " no longer exists");
  check_grad_dtype("want_grad", dtype, value_);
  Tape::Edge& edge = tape_->edges_[static_cast<size_t>(edge_)];
  require(edge.readers == 0 || edge.dtype == dtype, "want_grad", "an op has read this Var already, with gradients in ",
          edge.dtype, ", now ", dtype, " is requested. Call want_grad before the first op.");
  edge.dtype = dtype;
  return *this;
}

// ---- Tape

Tape::Tape(Kind kind) : id_(next_tape_id()), kind_(kind), outer_(t_current) {
  t_living.push_back({this, id_});
  t_current = this;
}
Tape::~Tape() {
  std::erase(t_living, LivingTape{this, id_});
  t_current = outer_;
}
Tape* Tape::current() { return t_current; }
bool Tape::lives(const Var& var) {
  return std::find(t_living.rbegin(), t_living.rend(), LivingTape{var.tape_, var.tape_id_}) != t_living.rend();
}

NoGrad::NoGrad() : outer_(t_current) { t_current = nullptr; }
NoGrad::~NoGrad() { t_current = outer_; }

int64_t Tape::add_edge(const Tensor& value, DType dtype, GradSink* sink) {
  Edge edge;
  edge.shape = value.shape();
  edge.dtype = dtype;
  edge.wide = value.dtype() == dtypes::fp64;
  edge.sink = sink;
  edges_.push_back(std::move(edge));
  return static_cast<int64_t>(edges_.size()) - 1;
}

Var Tape::leaf(const Tensor& value, GradSink* sink, DType grad_dtype) {
  require(value.defined(), "Tape::leaf", "the tensor is undefined");
  require(sink != nullptr, "Tape::leaf", "a leaf needs a GradSink; a constant is a plain Var");
  require(!done_, "Tape::leaf", "this tape has run backward. Make a new one.");
  check_grad_dtype("Tape::leaf", grad_dtype, value);
  return Var(value, this, id_, add_edge(value, grad_dtype, sink));
}

Tensor Tape::saved(const Tensor& tensor) const {
  if (!tensor.defined()) return tensor;
  if (tensor.kind() == MemoryKind::kActivation) tensor.storage().set_kind(MemoryKind::kSaved);
  return saved_hook_ ? saved_hook_(tensor) : tensor;
}

std::vector<Var> Tape::record(std::unique_ptr<Node> node, const std::vector<Var>& inputs, std::vector<Tensor> outputs) {
  require(!done_, node->name(),
          "an input belongs to a tape that has run backward, which frees what gradients need. Run the forward pass "
          "again on a new tape, or detach() the input.");
  Record record;
  record.node = std::move(node);
  for (const Var& v : inputs) {
    record.inputs.push_back(v.tracked() ? v.edge() : -1);
    if (!v.tracked()) continue;
    Edge& edge = edges_[static_cast<size_t>(v.edge())];
    ++edge.readers;
    if (edge.sink != nullptr) note_read(edge.sink);
  }
  std::vector<Var> out;
  for (size_t i = 0; i < outputs.size(); ++i)
    require(outputs[i].defined(), record.node->name(), "forward left output ", i, " undefined");
  for (Tensor& value : outputs) {
    const int64_t edge = add_edge(value, value.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32, nullptr);
    record.outputs.push_back(edge);
    out.push_back(Var(std::move(value), this, id_, edge));
  }
  if (records()) nodes_.push_back(std::move(record));
  return out;
}

Tape::Reads Tape::reads() const {
  Reads out = block_reads_;
  for (const Edge& edge : edges_)
    if (edge.sink != nullptr && edge.readers > 0) out[edge.sink] += edge.readers;
  return out;
}

void Tape::add_reads(const Reads& of_block) {
  for (const auto& [sink, count] : of_block) {
    block_reads_[sink] += count;
    note_read(sink);
  }
}

// By the node that is recorded next.
void Tape::note_read(GradSink* sink) {
  if (records() && noted_.insert(sink).second) first_reads_.emplace_back(nodes_.size(), sink);
}

// Reads on this tape, including its recomputed blocks, and on the tapes around it.
int64_t Tape::reads_of(GradSink* sink) const {
  const auto own = all_reads_.find(sink);
  const int64_t here = own == all_reads_.end() ? 0 : own->second;
  return block_of_ == nullptr ? here : std::max(here, block_of_->reads_of(sink));
}

// Gradients of an edge with several readers are summed in a wider dtype and rounded once, when its node runs.
DType Tape::sum_dtype(const Edge& edge) {
  return edge.wide ? dtypes::fp64 : (edge.readers > 1 ? dtypes::fp32 : edge.dtype);
}

GradTarget Tape::edge_target(int64_t index) {
  Edge& edge = edges_[static_cast<size_t>(index)];
  if (edge.sink) return edge.sink->target(edge.shape, edge.dtype);
  const bool first = !edge.grad.defined();
  if (first)
    edge.grad = Tensor::empty(edge.shape, sum_dtype(edge));
  else if (edge.grad.storage().shared())
    edge.grad = edge.grad.clone(MemoryKind::kActivation);
  return {edge.grad, !first, nullptr};
}

// All leaves of one parameter share its sink, so its reads are edges of that sink, which backward has counted. This
// includes reads in recomputed blocks.
GradRows* Tape::edge_rows(int64_t index) const {
  const Edge& edge = edges_[static_cast<size_t>(index)];
  if (edge.sink == nullptr || edge.readers != 1 || edge.wide || reads_of(edge.sink) > 1) return nullptr;
  return edge.sink->rows(edge.shape, edge.dtype);
}

Tensor Tape::finished(int64_t index) {
  Edge& edge = edges_[static_cast<size_t>(index)];
  Tensor grad = std::move(edge.grad);
  edge.grad = Tensor();
  if (!grad.defined() || grad.dtype() == edge.dtype) return grad;
  Tensor rounded = Tensor::empty(edge.shape, edge.dtype);
  kernels::to_bf16(grad.numel(), grad.as<float>(), rounded.as<uint16_t>());
  return rounded;
}

void Tape::run_node(Record& record) {
  std::vector<Tensor> gy;
  bool reached = false;
  for (const int64_t edge : record.outputs) {
    gy.push_back(finished(edge));
    reached = reached || gy.back().defined();
  }
  if (!reached) return;
  std::vector<GradSlot> slots(record.inputs.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    GradSlot& slot = slots[i];
    slot.tape_ = this;
    slot.op_ = record.node->name();
    slot.index_ = static_cast<int>(i);
    slot.edge_ = record.inputs[i];
    if (slot.edge_ < 0) continue;
    const Edge& edge = edges_[static_cast<size_t>(slot.edge_)];
    slot.wanted_ = true;
    slot.dtype_ = edge.dtype;
    slot.shape_ = edge.shape;
  }
  {
    const ProfileRange range(record.node->name());
    record.node->backward(gy, slots);
  }
  for (const GradSlot& slot : slots)
    require(!slot.pending_.out.defined() && slot.pending_rows_ == nullptr, slot.op_, "gradient ", slot.index_,
            " has a target() or rows() but no commit()");
}

void Tape::backward(const std::vector<Var>& outputs, const std::vector<Tensor>& seeds) {
  require(!done_, "backward",
          "this tape has run backward already: its saved tensors are freed. Run the forward pass again on a new tape.");
  require(outputs.size() == seeds.size(), "backward", "got ", outputs.size(), " outputs and ", seeds.size(), " seeds");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool own = outputs[i].tape_ == this && outputs[i].tape_id_ == id_;
    require(own, "backward", "output ", i, " (", outputs[i].value(), ") is not on this tape",
            outputs[i].tracked() ? "" : ": it is a constant, computed from no leaf");
    require(seeds[i].shape() == outputs[i].shape() && seeds[i].dtype() == outputs[i].grad_dtype(), "backward", "seed ",
            i, " is ", seeds[i], " but output ", i, " needs ", outputs[i].shape(), ' ', outputs[i].grad_dtype());
    check_device("backward", "output", i, outputs[i].value());
    check_device("backward", "seed", i, seeds[i]);
  }
  done_ = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Edge& edge = edges_[static_cast<size_t>(outputs[i].edge())];
    edge.readers += 2;  // the seed counts as a separate contribution, so the gradient never aliases the caller's tensor
    detail::deliver(edge_target(outputs[i].edge()), seeds[i]);
    if (edge.sink) edge.sink->done();
  }
  all_reads_ = reads();
  // Edges that share a sink contribute to one gradient.
  std::unordered_map<const GradSink*, Edge*> read;
  for (Edge& edge : edges_) {
    if (edge.sink == nullptr || edge.readers == 0) continue;
    const auto [first, fresh] = read.emplace(edge.sink, &edge);
    if (!fresh) first->second->readers = edge.readers = std::max<int64_t>(edge.readers, 2);
  }
  for (size_t i = nodes_.size(); i-- > 0;) {
    run_node(nodes_[i]);
    nodes_[i].node.reset();
    for (; !first_reads_.empty() && first_reads_.back().first == i; first_reads_.pop_back())
      if (block_of_ == nullptr) first_reads_.back().second->complete();
  }
  nodes_.clear();
}

void Tape::backward(const Var& output) {
  require(output.value().numel() == 1, "backward", "an output without a seed has one element, got ", output.value(),
          ". Pass a seed.");
  backward({output}, {ones(output.shape(), output.grad_dtype())});
}

// ---- op support

namespace detail {

Tape* tape_of(std::string_view op, const std::vector<Var>& inputs) {
  Tape* tape = nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].defined(), op, "input ", i, " is undefined");
    check_device(op, "input", i, inputs[i].value());
    if (!inputs[i].tracked()) continue;
    require(t_current == nullptr || Tape::lives(inputs[i]), op, "input ", i, " (", inputs[i].value(),
            ") was recorded on a tape that no longer exists or belongs to another thread. Use it while its tape "
            "exists, or detach() it.");
    require(tape == nullptr || tape == inputs[i].tape(), op, "inputs are on two tapes");
    tape = inputs[i].tape();
  }
  return t_current == nullptr ? nullptr : tape;
}

Recording::Recording(Tape* tape) : outer_(t_recording) { t_recording = tape; }
Recording::~Recording() { t_recording = outer_; }
Tape* recording() { return t_recording; }

}  // namespace detail

Tensor keep(const Tensor& tensor) { return t_recording ? t_recording->saved(tensor) : Tensor(); }

}  // namespace bitgrad
