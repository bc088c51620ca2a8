// The parts of bench_step: its command line, both sides of the comparison, nets and quantization-aware training.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "bitgrad/train/learner.h"

#include "shared/common.h"
#include "shared/measure.h"

namespace bitgrad::bench {

// The command line of bench_step.

// Dtypes of weights and activations. Weights: sign, or absmax per output. Activations: sign with the clip rule, or
// absmax per sample.
struct LayerKind {
  const char* name;
  DType weights, activations;
};

// One linear layer whose input requires a gradient (widths: in, out), or a net (784, hidden ..., 10).
struct Case {
  LayerKind layer;
  std::string net;  // empty: a single layer
  int64_t batch = 0;
  std::vector<int64_t> widths;

  std::string shape() const;  // "512,4096,4096"
};

// A net defined by a configuration (net_yaml).
struct NetCase {
  std::string name;   // built-in name, or a file
  int64_t batch = 0;  // 0: as in the configuration
};

struct Options : SharedOptions {  // a device other than the CPU: wall time, no rivals, no memory account
  Options() : SharedOptions{.repeat = 7} {}
  std::vector<Case> cases;
  std::vector<NetCase> nets;
  std::vector<int64_t> sample{32, 32, 3};  // for nets
  int64_t classes = 0;                     // for nets; 0: 10, or 65 for language models
  std::vector<std::string> overrides;      // for nets
  bool grad_given = false;                 // else nets keep the dtypes of their configuration
  ProductMode grad = ProductMode::kFp32;   // for both backward products
  Rounding rounding = Rounding::kStochastic;
  MomentKind moments = MomentKind::kFp32;
  MasterKind master = MasterKind::kFp32;
  int64_t accumulate = 1;
  bool norm_clip = false, parts = true, rivals = true, memory = true;
  bool qat = false;                  // measure_qat
  std::vector<std::string> schemes;  // for qat; empty: all
  bool recorded = false;             // run the step as recorded graphs of a device
};

// Throws cli::UsageError, cli::HelpShown or Error.
Options parse_options(cli::Arguments& args, int argc, char** argv);

// bitgrad's side of bench_step: a layer or a net in a Learner, driven as in a training run.

// The part that a step omits. The time of a part is the difference between the whole step and a step without it.
enum class Without { kNothing, kInputGradient, kRequantize, kUpdate, kWeightGradients };

// For all measurements: CPU time of the thread for one CPU thread, else wall time.
TimeBase time_base(const Options& options);

// Runs on the device that is current at construction, and must be current in each step.
class TrainStep {
 public:
  // Trains `model` on random samples of the case, and labels.
  TrainStep(const Case& what, const Options& options, Without without, std::shared_ptr<Module> model,
            const LossFunction& loss, const OptimizerSpec& optimizer);
  virtual ~TrainStep() = default;
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;
  // One optimizer step, with requantization of the masters.
  void step();
  // Nanoseconds of the forward passes of each step so far.
  const std::vector<double>& forward_ns() const { return forward_ns_; }
  void forget_times() { forward_ns_.clear(); }
  // Whether the update ran inside the backward pass, so that no gradient of a quantized weight was stored.
  bool fused() const;
  // Whether the steps were launched as recorded graphs.
  bool recorded() const { return learner_->recorded_launches() > 0; }

 protected:
  TrainStep(const Options& options, bool updates) : base_(time_base(options)), updates_(updates) {}
  virtual void microbatch() { learner_->microbatch(x_, labels_); }

  TimeBase base_;
  bool updates_;  // false: a step does not fill the window, which is dropped
  int64_t microbatches_ = 1;
  Tensor x_;
  double start_ = 0, forward_ = 0;  // when the microbatch began; nanoseconds of the step's forward passes
  std::unique_ptr<Learner> learner_;

 private:
  std::vector<int32_t> labels_;
  std::vector<double> forward_ns_;
};
// The step of a case.
std::unique_ptr<TrainStep> our_step(const Case& what, const Options& options, Without without);

// The rival of bench_step: the same step as a float simulation, as fast as plain code can reasonably be. Operands are
// fake-quantized (one pass each, straight into fp32 or bf16). The three products are oneDNN's, in fp32 or bf16 -> fp32,
// each with the fastest of three ways to pack (weights change in every step, so packing is included). The clip mask and
// Adam are one vectorized pass each; moments and masters are fp32. Norms and dropout of nets are omitted, in the
// rival's favor. Operands of dtype fp32 are multiplied as they are (fp32 step only).

class FakeQuantizedStep {
 public:
  virtual ~FakeQuantizedStep() = default;
  // One optimizer step.
  virtual void step() = 0;
  // Nanoseconds by part, for each step so far.
  virtual const std::map<std::string, std::vector<double>>& parts() const = 0;
};

// The steps in fp32 and bf16, which share masters, moments and gradients. Null where bitgrad is built without oneDNN,
// or oneDNN does not support the product on this machine.
struct RivalSteps {
  std::unique_ptr<FakeQuantizedStep> fp32, bf16;
};
RivalSteps make_rivals(const Case& what, const Options& options);

// The passes over memory that a float simulation of quantized training makes besides its products, each with one read
// and one write, vectorized and parallel. The rival of bench_step consists of them. Values are small, without
// denormals.

namespace sweeps {

// Fake quantization of [rows, cols]: +-1 by the sign (qmax 0), or s * clamp(rint(x / s), -qmax, qmax) with s = max abs
// of the row / qmax. The result is fp32, or rounded to bf16.
void fake_quantize(int64_t rows, int64_t cols, int qmax, const float* x, float* out);
void fake_quantize(int64_t rows, int64_t cols, int qmax, const float* x, uint16_t* out);
void to_bf16(int64_t n, const float* x, uint16_t* out);
// Sets g to 0 where abs x > 1.
void clip_mask(int64_t n, const float* x, float* g);
double sum_of_squares(int64_t n, const float* g);
// Adam (Kingma and Ba 2014, arXiv 1412.6980) with the gradient factor * g. w is clamped to [-1, 1].
struct AdamStep {
  float lr, factor, c1, c2;  // c1, c2: 1 / (1 - beta^t)
};
void adam(int64_t n, const AdamStep& step, const float* g, float* w, float* m, float* v);

}  // namespace sweeps

// bench_step --net: whole training steps of convolutional networks and language models defined by configurations.

// The built-in configuration of this name: `cnv`, `resnet20` or a language model (gpt_yaml). Empty if there is none.
std::string net_yaml(const std::string& name);
// The configuration of `gpt` (4 x 128, context 64, batch 12), `gpt384` (6 x 384, 6 heads, context 256, batch 4) or
// `gpt768` (12 x 768, 12 heads, vocabulary 8192, context and batch as gpt384): preset gpt with float weights. With the
// suffix `-int8`, `-int4` (groups of 32), `-ternary` or `-bint1`, the linear layers of its blocks have those weights
// and int8 inputs with a scale per token.
std::string gpt_yaml(const std::string& name);

// Adds to `report`, and prints, a row for each net: ms of one optimizer step (median and mean) on random samples (or
// ids) and labels (forward, loss, backward, update, requantization) as a Learner drives it; images/s; page faults per
// step (mean). Parts, measured alternately with it: update and requantization, as the difference from steps without
// them; the forward pass, whole and by kind of layer, and loss and backward, from steps with a callback after each
// module. In those steps every module runs separately, so what a whole step fuses takes longer. Memory: bytes by kind
// at the peak, the peak of tensors saved for the backward pass, resident growth.
void measure_nets(const Options& options, Json& report);

// bench_step --qat: the cost of a step of quantization-aware training relative to its float twin: the same net with
// fp32 weights and activations and the same optimizer, in this framework and in the same run.

// One row per net and scheme, printed as soon as it is measured. Throws Error for an unknown name in options.schemes.
void measure_qat(const Options& options, Json& report);

}  // namespace bitgrad::bench
