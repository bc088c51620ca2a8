// The work of a microbatch as two graphs of a device: front (forward, backward, and what an optimizer step must know
// first), then the flags are read, then, where a window ends, back (the updates and the new codes). Graphs are made by
// the form of the microbatch: rows, what counts in its window, whether it begins or ends one, and whether codes follow.
//
// The first microbatch of a form runs one kernel after another, the second records, the others repeat. What changes
// from one to the next lies in memory of the device: batch, labels, and LiveStep (base/live_step.h). What the host does
// beside the launches is done again here: counters, whose gradients hold sums, the rules' own numbers.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/device_work.h"
#include "bitgrad/base/live_step.h"
#include "bitgrad/kernels/flag.h"
#include "bitgrad/train/learner.h"
#include "optim/square_sums.h"

namespace bitgrad {

namespace detail {
// The one number of a tensor of the current device (fp32, fp64 or int64), told when the flags are read; of the CPU at
// once.
void read_later(const Tensor& number, const std::shared_ptr<double>& to);
}  // namespace detail

// What a microbatch came to, as a device tells it when its flags are read.
struct Learner::Pending {
  static std::shared_ptr<double> zero() { return std::make_shared<double>(0.0); }
  std::shared_ptr<double> loss = zero(), correct = zero(), among_top5 = zero(), squared_error = zero();
  void tell(StepResult& result) const;
};

class Learner::Graphs {
 public:
  explicit Graphs(Learner& learner);
  ~Graphs();

  // Whether this microbatch's work is recorded, or is to be now.
  bool serves(const Tensor& x, const Target& target);
  // After begin_microbatch.
  StepResult microbatch(const Tensor& x, const Target& target);
  // Parameters, layers or the optimizer changed: all is recorded anew.
  void forget();

  int64_t launches() const { return launches_; }
  // Empty: recorded. Found, and told in the log, anew for each form of the model.
  const std::string& why_not();

 private:
  struct Form {
    int64_t rows, target, counted;  // target: elements. counted: of this microbatch
    int64_t divisor;                // what counts in a window that ends here
    bool first, last, requantize;
    auto operator<=>(const Form&) const = default;
  };
  struct Part {
    std::unique_ptr<StepRecord> graph;
    std::unique_ptr<FlagRecord> flags;
  };
  struct Front : Part {
    Pending pending;
    std::shared_ptr<bool> backward = std::make_shared<bool>(false);  // it was finite
    std::shared_ptr<detail::SquareSums> sums = std::make_shared<detail::SquareSums>();
    std::vector<Parameter*> gradients;  // that hold sums after it
  };
  struct Batch {
    Tensor x, target;
  };
  using Place = std::pair<int64_t, int64_t>;  // rows, elements of the target
  Form form_of(const Tensor& x, const Target& target) const;
  void tell(const LiveStep& now);
  void tell_why_not() const;
  // False: the device, or something in `body`, cannot be recorded; then why_not() says so, and nothing was done.
  bool record(Part& part, const std::function<void()>& body);
  void launch(Part& part);
  const Batch& take(const Tensor& x, const Target& target);
  bool run_front(Front& front, const Form& form, const Batch& batch);
  bool run_back(Part& part, const Form& form);
  void move_now(const Form& form);

  Learner& l_;
  Tensor live_;
  std::map<Place, Batch> batches_;  // where recorded work reads
  LiveStep now_;
  std::map<Form, int64_t> seen_;
  std::map<Form, Front> fronts_;
  std::map<Form, Part> backs_;
  int64_t launches_ = 0;
  bool asked_ = false;  // why_not_ is that of the model as it is
  std::string why_not_;
};

}  // namespace bitgrad
