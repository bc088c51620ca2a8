// Tape: nodes in order of creation; backward is a reverse loop that frees what it used.
//
// While a Tape lives it is the current tape of its thread (tapes nest like scopes); ops on tracked Vars record a node
// on the Var's tape. Edges carry gradients. Several contributions to one edge are summed in one buffer of fp32 (fp64
// for fp64 values) and rounded once to the edge's dtype when the producing node's turn comes. A leaf's gradient goes to
// the GradSink that was passed with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bitgrad/autograd/var.h"
#include "bitgrad/base/rng.h"

namespace bitgrad {

// Where an op writes the gradient of one input: out = out + g if `accumulate`, else out = g (out is uninitialised).
// `sr` is set when the sum is to be rounded to bf16 stochastically (element = row-major index).
struct GradTarget {
  Tensor out = {};
  bool accumulate = false;
  const RandomStream* sr = nullptr;
};

// Takes the gradient of one leaf in blocks of whole rows, each a finished contribution: a fused update, for which the
// gradient as a whole never exists.
class GradRows {
 public:
  virtual ~GradRows() = default;
  // Blocks begin at multiples of this many rows, and have that many but for the last.
  virtual int64_t block_rows() const = 0;
  // Rows will come.
  virtual void begin() = 0;
  // Rows begin, begin + 1 .. of the gradient: g fp32 [count, cols], dense, not yet rounded to the edge's dtype; it may
  // be overwritten. From several threads, each row once, in any order.
  virtual void consume(int64_t begin, const Tensor& g) = 0;
  // All rows were consumed.
  virtual void done() = 0;
  // In place of begin(): an op that gives rows will give this gradient as a whole, and why (a sentence).
  virtual void declined(std::string_view why) { static_cast<void>(why); }
};

// Where a leaf's gradient goes.
class GradSink {
 public:
  virtual ~GradSink() = default;
  // Asked when the contribution is the only one of the tape: rows of this gradient are taken one block after another,
  // in place of target() and done(). nullptr: they are not.
  virtual GradRows* rows(const Shape& shape, DType dtype) {
    static_cast<void>(shape);
    static_cast<void>(dtype);
    return nullptr;
  }
  // The target of one contribution. Called once per read of the leaf on a tape, in the order of backward.
  virtual GradTarget target(const Shape& shape, DType dtype) = 0;
  // The contribution is complete.
  virtual void done() {}
};

// Adds into one tensor: the default of parameters, and of leaves made by hand. The first contribution after clear() is
// written, later ones are added.
class AccumulateSink final : public GradSink {
 public:
  GradTarget target(const Shape& shape, DType dtype) override;
  void done() override { filled_ = true; }
  // What set_rows was given, unless something is summed already.
  GradRows* rows(const Shape&, DType) override { return filled_ ? nullptr : rows_; }
  // Gradients go there in blocks of rows where an op can give them so and the leaf is read once; nullptr: never.
  void set_rows(GradRows* rows) { rows_ = rows; }
  const Tensor& grad() const { return grad_; }
  // Forgets the sum; keeps the memory.
  void clear() { filled_ = false; }
  bool filled() const { return filled_; }
  // Draws for sums in bf16; nullptr: nearest even.
  void set_rounding(const RandomStream* sr) { sr_ = sr; }
  const RandomStream* rounding() const { return sr_; }

 private:
  Tensor grad_;
  bool filled_ = false;
  const RandomStream* sr_ = nullptr;
  GradRows* rows_ = nullptr;
};

// The gradient of one input, as an op's backward sees it.
class GradSlot {
 public:
  bool wanted() const { return wanted_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  // For ops that can write or add in place: the target, then commit(). At most one contribution per slot, and only to a
  // wanted one: target, rows, set, set_rounded and decline_rows throw Error otherwise, commit without one of the first
  // two.
  GradTarget target();
  void commit();
  // For ops that can make the gradient in blocks of rows: where the blocks go, then commit(). nullptr, and nothing has
  // happened, unless the leaf's sink takes rows and this is the leaf's only contribution on the tape.
  GradRows* rows();
  // block_rows() of what rows() would give; 0 for nullptr.
  int64_t block_rows() const;
  // Passes the reason why rows() was not called to GradRows::declined.
  void decline_rows(std::string_view why) const;
  // For ops that made the gradient: a tensor of the input's shape, in dtype(). Throws Error that names both sides
  // otherwise.
  void set(const Tensor& gradient);
  // As set, but from fp32 (or fp64) whatever the edge's dtype: rounded or added as the edge asks.
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

// What an op recorded; made by apply<Op> (op.h).
class Node {
 public:
  virtual ~Node() = default;
  virtual std::string_view name() const = 0;
  virtual void backward(const std::vector<Tensor>& gy, std::vector<GradSlot>& gx) = 0;
};

// Called with each tensor that an op saves, before it is kept; what it returns is kept instead (offloading, checks).
using SavedHook = std::function<Tensor(const Tensor&)>;

class Tape {
 public:
  enum class Kind : uint8_t {
    kRecords,
    kCounts,  // ops leave on it what they read, and nothing for backward: a block that runs again (recompute.h)
  };
  explicit Tape(Kind kind = Kind::kRecords);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // The innermost living tape of this thread, or nullptr (also inside NoGrad).
  static Tape* current();
  // Whether the tape of a tracked Var lives, on this thread.
  static bool lives(const Var& var);

  // A leaf: gradients of `dtype` go to `sink`, which must outlive backward. Any dtype of value, integers too.
  Var leaf(const Tensor& value, GradSink* sink, DType grad_dtype);

  // Walks the nodes backwards from `outputs`, whose gradients are `seeds` (same shapes; the edges' dtypes). Once per
  // tape.
  void backward(const std::vector<Var>& outputs, const std::vector<Tensor>& seeds);
  // One output of one element, seed 1.
  void backward(const Var& output);

  void set_saved_hook(SavedHook hook) { saved_hook_ = std::move(hook); }
  Tensor saved(const Tensor& tensor) const;  // through the hook, and counted as `saved`
  int64_t nodes() const { return static_cast<int64_t>(nodes_.size()); }

  // For apply<Op>: whether ops are recorded, with what they keep.
  bool records() const { return kind_ == Kind::kRecords; }

  // For recompute(): how often leaves were read, by their sinks, on this tape and in blocks that run again.
  using Reads = std::unordered_map<const GradSink*, int64_t>;
  Reads reads() const;
  // A block of this tape reads these when it runs again.
  void add_reads(const Reads& of_block);
  // This tape is that of such a block: leaves that `outer`, which runs backward, reads elsewhere too are known there.
  void set_outer(const Tape& outer) { block_of_ = &outer; }

  // For apply<Op>: records a node that read `inputs`; returns the outputs as tracked Vars.
  std::vector<Var> record(std::unique_ptr<Node> node, const std::vector<Var>& inputs, std::vector<Tensor> outputs);

 private:
  friend class GradSlot;
  friend class Var;
  struct Edge {
    Shape shape;
    DType dtype;               // of gradients
    bool wide = false;         // value is fp64
    GradSink* sink = nullptr;  // leaves only
    int64_t readers = 0;       // contributions still possible
    // Sum so far (fp32 / fp64 when readers > 1, else the edge's dtype). The first contribution may be somebody else's
    // memory too: nobody adds to it while it is shared.
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
  int64_t reads_of(const GradSink* sink) const;
  void run_node(Record& record);
  Tensor finished(int64_t edge);

  const uint64_t id_;  // of all tapes of the process
  const Kind kind_;
  Reads block_reads_;  // of blocks that run again
  Reads all_reads_;    // with its own, once it runs backward
  const Tape* block_of_ = nullptr;
  std::vector<Edge> edges_;
  std::vector<Record> nodes_;
  SavedHook saved_hook_;
  bool done_ = false;
  Tape* outer_ = nullptr;
};

// While it lives, no tape is current on this thread, and ops record nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Tape* outer_;
};

}  // namespace bitgrad
