// Tape: nodes in creation order; backward is a reverse loop that frees nodes as it goes.
//
// While a Tape exists it is the current tape of its thread (tapes nest like scopes). Ops on tracked Vars record a node
// on the tape of the Var. Edges carry gradients: several contributions to an edge are summed in one fp32 buffer (fp64
// for fp64 values) and rounded once to the edge's dtype when the producing node runs. The gradient of a leaf goes to
// the GradSink given with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

class Tape;

class Var {
 public:
  Var() = default;
  // A constant: no gradient flows to it.
  Var(Tensor value) : value_(std::move(value)) {}  // NOLINT: an op takes tensors as they are

  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  bool defined() const { return value_.defined(); }
  // True if on a tape: ops that read it are recorded. Such an op throws Error if the tape no longer exists or has run
  // backward; detach() removes the Var from the tape.
  bool tracked() const { return tape_ != nullptr; }
  Tape* tape() const { return tape_; }
  // Index of the edge on its tape; meaningful only if tracked.
  int64_t edge() const { return edge_; }
  // Dtype of the gradient on this edge: fp32 unless changed by want_grad (fp64 for an fp64 value).
  DType grad_dtype() const;
  // Requests gradients of this edge in `dtype` (fp32 or bf16; fp64 for an fp64 value). Call before an op reads it.
  Var& want_grad(DType dtype);
  // Whether an op has read this Var, which fixes that dtype. False if not tracked or if the tape no longer exists.
  bool was_read() const;
  // The same value, off the tape.
  Var detach() const { return Var(value_); }

 private:
  friend class Tape;
  Var(Tensor value, Tape* tape, uint64_t tape_id, int64_t edge)
      : value_(std::move(value)), tape_(tape), tape_id_(tape_id), edge_(edge) {}
  Tensor value_;
  Tape* tape_ = nullptr;
  uint64_t tape_id_ = 0;  // a later tape may have the same address
  int64_t edge_ = -1;
};

// Where an op writes the gradient of one input: out = out + g if `accumulate`, else out = g (out is uninitialized).
// `sr` is set if the sum is to be rounded to bf16 stochastically (element = row-major index).
struct GradTarget {
  Tensor out = {};
  bool accumulate = false;
  const RandomStream* sr = nullptr;
};

namespace detail {
// Stores `gradient` in the target or adds it, as the target requests. `gradient` is fp32 or bf16, or fp64 for an fp64
// target; same shape, dense.
void deliver(const GradTarget& target, const Tensor& gradient);
}  // namespace detail

// Receives the gradient of one leaf in blocks of whole rows, each a finished contribution, for fused updates. The whole
// gradient never exists in memory.
class GradRows {
 public:
  virtual ~GradRows() = default;
  // All blocks start at multiples of this many rows and have that many, except possibly the last.
  virtual int64_t block_rows() const = 0;
  // Called before the first rows.
  virtual void begin() = 0;
  // Consumes rows begin, begin + 1, ... of the gradient. g: fp32 [count, cols], dense, not yet rounded to the edge's
  // dtype; may be overwritten. Called from several threads, once for each row, in any order.
  virtual void consume(int64_t begin, const Tensor& g) = 0;
  // Called after all rows were consumed.
  virtual void done() = 0;
  // Called instead of begin() if an op that can produce rows passes this gradient as a whole; `why` is a sentence.
  virtual void declined(std::string_view why) { static_cast<void>(why); }
};

// Destination of a leaf's gradient.
class GradSink {
 public:
  virtual ~GradSink() = default;
  // Called if the contribution is the only one on the tape. Returns where to pass this gradient in blocks of rows,
  // instead of target() and done(); nullptr to receive it as a whole.
  virtual GradRows* rows(const Shape& shape, DType dtype) {
    static_cast<void>(shape);
    static_cast<void>(dtype);
    return nullptr;
  }
  // Target of one contribution. Called once per read of the leaf on a tape, in the order of backward.
  virtual GradTarget target(const Shape& shape, DType dtype) = 0;
  // Called when the contribution is complete.
  virtual void done() {}
  // Called when backward has passed the first op that reads the leaf: no contribution of this tape follows. Not by the
  // tape of a recomputed block, nor if no op reads the leaf.
  virtual void complete() {}
};

// Accumulates into one tensor: the default for parameters and user-created leaves. The first contribution after clear()
// is written, later ones are added.
class AccumulateSink final : public GradSink {
 public:
  GradTarget target(const Shape& shape, DType dtype) override;
  void done() override { filled_ = true; }
  void complete() override {
    if (on_complete_) on_complete_();
  }
  // Calls `run` when no contribution of a tape follows; nullptr: nothing.
  void set_on_complete(std::function<void()> run) { on_complete_ = std::move(run); }
  // The argument of set_rows, unless a contribution has been summed already.
  GradRows* rows(const Shape&, DType) override { return filled_ ? nullptr : rows_; }
  // Passes gradients to `rows` in blocks if the op supports it and the leaf is read once; nullptr: never.
  void set_rows(GradRows* rows) { rows_ = rows; }
  const Tensor& grad() const { return grad_; }
  // Discards the sum but keeps the memory.
  void clear() { filled_ = false; }
  bool filled() const { return filled_; }
  // Draws for stochastic rounding of sums in bf16, copied; nullptr: nearest even.
  void set_rounding(const RandomStream* sr) { sr_ = sr != nullptr ? std::optional(*sr) : std::nullopt; }
  const RandomStream* rounding() const { return sr_ ? &*sr_ : nullptr; }

 private:
  Tensor grad_;
  bool filled_ = false;
  std::optional<RandomStream> sr_;
  GradRows* rows_ = nullptr;
  std::function<void()> on_complete_;
};

// Gradient of one input, as seen by the backward of an op.
class GradSlot {
 public:
  bool wanted() const { return wanted_; }
  DType dtype() const { return dtype_; }
  // The dtype in which to compute a gradient for set_rounded: dtype() of an inner edge with one contribution, which is
  // then stored without a copy; otherwise fp32 (fp64 of fp64 values), in which contributions are summed and from which
  // a leaf's sink rounds. Throws Error unless wanted.
  DType stored_dtype() const;
  const Shape& shape() const { return shape_; }
  // For ops that can write or add in place: returns the target; call commit() when done. Each slot accepts one
  // contribution, and only if wanted: target, rows, set, set_rounded and decline_rows otherwise throw Error, as does
  // commit without target or rows.
  GradTarget target();
  void commit();
  // For ops that can produce the gradient in blocks of rows: returns where the blocks go; call commit() when done.
  // Returns nullptr, without any effect, unless the leaf's sink accepts rows and this is the only contribution to the
  // leaf on the tape.
  GradRows* rows();
  // block_rows() of the result of rows(); 0 if that is nullptr.
  int64_t block_rows() const;
  // Passes the reason why rows() is not used to GradRows::declined.
  void decline_rows(std::string_view why) const;
  // For ops that have computed the gradient. Throws Error, naming both sides, unless it has the input's shape and
  // dtype().
  void set(const Tensor& gradient);
  // As set, but takes fp32 (or fp64) and rounds or adds to the edge's dtype as needed.
  void set_rounded(const Tensor& gradient);

 private:
  friend class Tape;
  void check_open() const;
  Tape* tape_ = nullptr;
  int64_t edge_ = -1;
  bool wanted_ = false, given_ = false;
  DType dtype_;
  Shape shape_;
  std::string_view op_;
  int index_ = 0;
  GradTarget pending_;
  GradRows* pending_rows_ = nullptr;
};

// A recorded op; created by apply<Op> (op.h).
class Node {
 public:
  virtual ~Node() = default;
  virtual std::string_view name() const = 0;
  virtual void backward(const std::vector<Tensor>& gy, std::vector<GradSlot>& gx) = 0;
};

// Called with each tensor that an op saves; the result is kept in its place (for offloading or checks).
using SavedHook = std::function<Tensor(const Tensor&)>;

class Tape {
 public:
  enum class Kind : uint8_t {
    kRecords,
    kCounts,  // records only which leaves are read, and nothing for backward: a block to be recomputed (recompute)
  };
  explicit Tape(Kind kind = Kind::kRecords);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // The innermost tape of this thread, or nullptr (also inside NoGrad).
  static Tape* current();
  // Whether the tape of a tracked Var still exists, on this thread.
  static bool lives(const Var& var);

  // Creates a leaf: gradients of dtype `grad_dtype` go to `sink`, which must outlive backward. `value` may have any
  // dtype, including integers. Throws Error if the tape has run backward.
  Var leaf(const Tensor& value, GradSink* sink, DType grad_dtype);

  // Runs the nodes in reverse from `outputs`, with gradients `seeds` (same shapes, dtypes of the edges). At most once
  // per tape; throws Error otherwise.
  void backward(const std::vector<Var>& outputs, const std::vector<Tensor>& seeds);
  // One output with one element; seed 1.
  void backward(const Var& output);

  void set_saved_hook(SavedHook hook) { saved_hook_ = std::move(hook); }
  Tensor saved(const Tensor& tensor) const;  // applies the hook, and accounts the tensor as `saved`
  int64_t nodes() const { return static_cast<int64_t>(nodes_.size()); }

  // For apply<Op>: whether ops are recorded along with what they keep.
  bool records() const { return kind_ == Kind::kRecords; }

  // For recompute(): how often each leaf, identified by its sink, was read on this tape and in its recomputed blocks.
  using Reads = std::unordered_map<GradSink*, int64_t>;
  Reads reads() const;
  // Adds the reads that a block of this tape makes when it is recomputed.
  void add_reads(const Reads& of_block);
  // For the tape of such a block: accounts for reads of leaves by `outer`, the tape that is running backward.
  void set_outer(const Tape& outer) { block_of_ = &outer; }

  // For apply<Op>: records a node that read `inputs`; returns the outputs as tracked Vars.
  std::vector<Var> record(std::unique_ptr<Node> node, const std::vector<Var>& inputs, std::vector<Tensor> outputs);

 private:
  friend class GradSlot;
  friend class Var;
  struct Edge {
    Shape shape;
    DType dtype;               // of the gradient
    bool wide = false;         // value is fp64
    GradSink* sink = nullptr;  // leaves only
    int64_t readers = 0;       // number of possible contributions
    // Sum so far (fp32 / fp64 if readers > 1, else the edge's dtype). The first contribution may share memory with
    // another owner; it is not added to in place while shared.
    Tensor grad;
  };
  struct Record {
    std::unique_ptr<Node> node;
    std::vector<int64_t> inputs;  // edge, or -1
    std::vector<int64_t> outputs;
  };
  static DType sum_dtype(const Edge& edge);
  int64_t add_edge(const Tensor& value, DType dtype, GradSink* sink);
  GradTarget edge_target(int64_t edge);
  GradRows* edge_rows(int64_t edge) const;
  int64_t reads_of(GradSink* sink) const;
  void note_read(GradSink* sink);
  void run_node(Record& record);
  Tensor finished(int64_t edge);

  const uint64_t id_;  // unique among all tapes of the process
  const Kind kind_;
  Reads block_reads_;  // of recomputed blocks
  Reads all_reads_;    // including this tape's own, once backward runs
  const Tape* block_of_ = nullptr;
  std::vector<Edge> edges_;
  std::vector<Record> nodes_;
  // The first node that reads each leaf, itself or in the block that it recomputes, in the order of the nodes.
  std::vector<std::pair<size_t, GradSink*>> first_reads_;
  std::unordered_set<const GradSink*> noted_;  // of first_reads_
  SavedHook saved_hook_;
  bool done_ = false;
  Tape* outer_ = nullptr;
};

// While it exists, no tape is current on this thread and ops record nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Tape* outer_;
};

// Recomputation: a block of the forward pass that keeps its input instead of what its ops would save, and runs again
// when its gradient arrives (Chen et al. 2016, arXiv 1604.06174, "Training Deep Nets with Sublinear Memory Cost").

// Called with the input of the block; `again` is true in backward. Both runs must compute the same values: the block
// may read only leaves whose values do not change until backward is done, must draw by counters, and must not store
// anything the second time.
using RecomputedBlock = std::function<Var(const Var& x, bool again)>;

// Runs run(x, false). If a tape records, the ops inside leave a single node on it, which keeps x. Backward calls run(x,
// true) on a tape of its own. The gradients are those of the block recorded normally, bit for bit: leaves receive their
// contributions in the same order, and a leaf read once across all tapes passes its gradient in rows (GradRows). Blocks
// may nest. Exception: if ops of the block read its output, the sum of a bf16 edge is rounded twice. Throws Error if
// the second run returns another shape or dtype.
Var recompute(const Var& x, const RecomputedBlock& run);

}  // namespace bitgrad
