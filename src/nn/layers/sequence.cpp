// Layers one after the other: the model itself, and the kinds `sequence` and `repeat`. Children 0, 1, ... of `repeat`
// are its rounds.
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/layers.h"
#include "nn/expanded_layers.h"
#include "nn/layers/fusions.h"

namespace bitgrad {

Sequential::Sequential(const std::vector<std::shared_ptr<Module>>& modules) {
  for (const auto& m : modules) append(m);
}

void Sequential::append(std::shared_ptr<Module> module, std::string name) {
  if (name.empty()) name = std::to_string(modules_.size());
  add_child(name, module);
  modules_.push_back(std::move(module));
  names_.push_back(std::move(name));
  fusions_.reset();
}

// Runs the longest pattern that begins at module i, ends before `end` and can run now; returns how many modules it
// covers, or 0. After an error they run again one by one, only so that the error names the module at fault; the batch
// is lost either way.
size_t Sequential::run_fused(size_t i, size_t end, Var& y) {
  for (const Fusions::Fused& fused : fusions_->at(i)) {
    if (i + fused.modules > end) continue;
    try {
      if (const Var z = fused.run(y); z.defined()) {
        y = z;
        return fused.modules;
      }
    } catch (const Error&) {
      for (size_t k = i; k < i + fused.modules; ++k) y = in_layer(names_[k], [&] { return (*modules_[k])(y); });
      throw;
    }
  }
  return 0;
}

namespace {

constexpr const char* kOutputCodes = "output_codes";

// Sets StepState::recomputing for the scope of a recomputed block.
class Recomputing {
 public:
  Recomputing(StepState& state, bool again) : now_(state.recomputing), outer_(std::exchange(now_, again || now_)) {}
  ~Recomputing() { now_ = outer_; }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;

 private:
  bool& now_;
  const bool outer_;
};

}  // namespace

std::vector<std::string> Sequential::operand_names() const {
  return whole_model_ ? std::vector<std::string>{kOutputCodes} : std::vector<std::string>();
}

Var Sequential::forward(const Var& x) {
  if (!recompute_ || !initialized() || !state().training) return operand(kOutputCodes, forward_first(size(), x));
  return recompute(x, [this](const Var& in, bool again) {
    const Recomputing mode(mutable_state(), again);
    return operand(kOutputCodes, forward_first(size(), in));
  });
}

Var Sequential::forward_first(size_t count, const Var& x) {
  const bool fuses =
      fusions_ && initialized() && !state().on_forward && (state().training || Tape::current() == nullptr);
  Var y = x;
  for (size_t i = 0; i < count;) {
    const size_t done = fuses ? run_fused(i, count, y) : 0;
    if (done == 0) y = in_layer(names_[i], [&] { return (*modules_[i])(y); });
    i += std::max<size_t>(done, 1);
  }
  return y;
}

namespace {

// Throws Error if the kind does not support values of this dtype.
void check_kind(const Module& module, DType values) {
  if (values != dtypes::bf16 || module.spec() == nullptr) return;
  require(kind_of(*module.spec()).bf16, module.kind(),
          "reads and returns fp32 values only: values between layers are bf16, expected fp32. Set model.values: fp32");
}

}  // namespace

Form Sequential::plan(const Form& in, PlanRequests& requests) {
  Form form = in;
  for (size_t i = 0; i < modules_.size(); ++i) {
    PlanRequests wanted;
    form.inner = in.inner || i + 1 < modules_.size();
    form = in_layer(names_[i], [&] {
      check_kind(*modules_[i], form.values);
      return modules_[i]->planned(form, wanted);
    });
    requests.merge(serve_before(i, std::move(wanted)));
  }
  form.inner = in.inner;
  fusions_ = std::make_shared<const Fusions>(modules_);
  return plan_operand(kOutputCodes, form);
}

PlanRequests Sequential::serve(const PlanRequests& requests) { return serve_before(modules_.size(), requests); }

// Passes the requests on the output of module i - 1 backwards; returns those that all modules before i pass on.
PlanRequests Sequential::serve_before(size_t i, PlanRequests requests) {
  while (i > 0 && !requests.empty()) requests = modules_[--i]->serve(requests);
  return requests;
}

inference::Value Sequential::lower(inference::Graph& graph, inference::Value x) {
  for (size_t i = 0; i < modules_.size(); ++i) x = in_layer(names_[i], [&] { return modules_[i]->lower(graph, x); });
  return lower_operand(kOutputCodes, graph, x);
}

namespace {

// The key of containers whose layers are recomputed in backward. `what`: text for the container's list.
constexpr const char* kRecomputeKey = "recompute";

Key recompute_key(const std::string& what) {
  return {kRecomputeKey, Key::Type::kBool, "", "false",
          "training keeps the input of " + what +
              " alone and runs the layers again in backward: less memory, the same bits"};
}

}  // namespace

LayerKind sequence_kind() {
  return {.name = "sequence",
          .doc = "layers one after the other, as one layer",
          .keys = {recompute_key("the sequence")},
          .lists = {.kind = LayerLists::Kind::kInline},
          .bf16 = true,
          .make = [](const LayerSpec& spec) {
            auto layers = make_layers(spec.lists.at(0).layers);
            layers->set_recompute(spec.attributes.flag(kRecomputeKey));
            return layers;
          }};
}

LayerKind repeat_kind() {
  return {.name = "repeat",
          .doc = "repeats its layers, each time with separate parameters",
          .keys = {{"times", Key::Type::kInt, "[1, 4096]", "!", "rounds"},
                   recompute_key("each round"),
                   {std::string(detail::kCycleKey), Key::Type::kBool, "", "false",
                    "each round is one of the layers alone, which are taken in turn, instead of all of them"}},
          .lists = {.kind = LayerLists::Kind::kRepeated},
          .bf16 = true,
          .make = [](const LayerSpec& spec) {
            require(!spec.lists.empty() && !spec.lists[0].layers.empty(), "repeat",
                    "layers: got none, expected at least one");
            auto rounds = std::make_shared<Sequential>();
            for (int64_t i = 0; i < spec.attributes.integer("times"); ++i) {
              const std::span<const LayerSpec> of_round = detail::layers_of_round(spec, i);
              const auto round = in_layer(std::to_string(i), [&] {
                return make_layers({of_round.begin(), of_round.end()});
              });
              round->set_recompute(spec.attributes.flag(kRecomputeKey));
              rounds->append(round);
            }
            return rounds;
          }};
}

}  // namespace bitgrad
