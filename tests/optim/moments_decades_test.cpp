// Moments in 8 and 4 bits of gradients of very different size in one block: updates are those of fp32 moments.
#include <cmath>

#include "optim/optim_support.h"
#include "support/catch.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kBlocks = 24;

// What 100 steps move each weight by; weight i has the gradient parts[i % size], with a sign.
std::vector<double> moved(const std::string& name, MomentKind kind, const std::vector<double>& parts) {
  OptimizerSpec spec = named(name);
  spec.moments = kind;
  spec.momentum = name == "sgd" ? 0.9f : 0;
  auto w = float_parameter("w", {kBlocks, 256});
  const Floats before = floats(w->master());
  auto optimizer = make_optimizer(spec);
  optimizer->attach({w.get()});
  std::vector<double> g(before.size());
  for (size_t i = 0; i < g.size(); ++i) g[i] = parts[i % parts.size()] * (i / parts.size() % 2 == 0 ? 1 : -1);
  for (int step = 0; step < 100; ++step) {
    accumulate(*w, Tensor::from_elements({kBlocks, 256}, dtypes::fp32, g));
    optimizer->step(1024.0f, 1);  // so that rounded masters show small updates
  }
  std::vector<double> by = w->master().elements();
  for (size_t i = 0; i < by.size(); ++i) by[i] -= static_cast<double>(before[i]);
  return by;
}

// Of the weights of one part: the mean of what they moved by, as a share of what fp32 moments move them by, and the
// largest distance of one of them from 1.
struct Share {
  double mean = 0, worst = 0;
};
std::vector<Share> shares(const std::string& name, MomentKind kind, const std::vector<double>& parts) {
  const std::vector<double> exact = moved(name, MomentKind::kFp32, parts), got = moved(name, kind, parts);
  std::vector<Share> out(parts.size());
  std::vector<double> count(parts.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    Share& s = out[i % parts.size()];
    const double share = got[i] / exact[i];
    s.worst = std::max(s.worst, std::fabs(share - 1));
    s.mean += share;
    ++count[i % parts.size()];
  }
  for (size_t p = 0; p < out.size(); ++p) out[p].mean /= count[p];
  return out;
}

}  // namespace

TEST_CASE("moments in 8 bits keep the updates of gradients down to 1e-4 of the largest of their block") {
  for (const char* name : {"adam", "sgd"}) {
    INFO(name);
    double mean = 0;
    const std::vector<Share> all = shares(name, MomentKind::kInt8, {1, 1e-1, 1e-2, 1e-3, 1e-4});
    for (const Share& s : all) {
      CHECK(s.worst < 0.05);
      mean += s.mean / static_cast<double>(all.size());
    }
    CHECK(std::fabs(mean - 1) < 0.005);
  }
}

TEST_CASE("moments in 4 bits keep the updates of gradients of the largest's size and of 1e-1, and nearly of 1e-2") {
  for (const char* name : {"adam", "sgd"}) {
    INFO(name);
    const std::vector<Share> all = shares(name, MomentKind::kInt4, {1, 1e-1, 1e-2});
    CHECK(all[0].worst < 0.001);
    CHECK(all[1].worst < 0.4);  // each; on average 0.05 (Adam) and 0.03
    CHECK(std::fabs(all[1].mean - 1) < 0.07);
    CHECK(std::fabs(all[2].mean - 1) < 0.1);
  }
}
