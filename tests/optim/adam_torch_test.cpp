// Adam and AdamW beside torch.optim in float64, over 1,000 steps. tests/golden/torch_adam.json was written by
// scripts/torch_adam_golden.py, which also says how the gradients are made; a plain writing of the formula in double,
// which equals it, then stands for it with more weights than a file should hold.
//
// What is compared: the update of a step, by the norm of its error over all weights relative to the norm of the update,
// each side with moments of its own since the first step. One element alone may be off by more: each step rounds v
// once, by up to 2^-24, and a mean over the last 1,000 steps adds up some 20 deviations of that.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <vector>

#include "bitgrad/base/json.h"
#include "optim/optim_support.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Doubles = std::vector<double>;

struct Case {
  std::string optimizer;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, decay = 0;
};

// torch.optim.Adam, AdamW (2.x, single tensor): the order of its operations.
struct Torch {
  Case c;
  Doubles w, m, v;
  double power1 = 1, power2 = 1;

  Torch(Case of, Doubles first) : c(std::move(of)), w(std::move(first)), m(w.size()), v(w.size()) {}
  void step(const Floats& gradient) {
    power1 *= c.beta1;
    power2 *= c.beta2;
    for (size_t i = 0; i < w.size(); ++i) {
      double g = static_cast<double>(gradient[i]);
      if (c.optimizer == "adam")
        g += c.decay * w[i];
      else
        w[i] *= 1 - c.lr * c.decay;
      m[i] += (g - m[i]) * (1 - c.beta1);
      v[i] = v[i] * c.beta2 + (1 - c.beta2) * g * g;
      w[i] -= c.lr / (1 - power1) * (m[i] / (std::sqrt(v[i]) / std::sqrt(1 - power2) + 1e-8));
    }
  }
};

// The library's rule, with weights and moments in fp32.
struct Ours {
  std::unique_ptr<UpdateRule> rule;
  OptimizerSpec spec;
  float lr;
  Floats w, m, v;
  int64_t steps = 0;

  Ours(const Case& c, const Doubles& first) : lr(static_cast<float>(c.lr)), w(first.begin(), first.end()) {
    spec = named(c.optimizer);
    spec.beta1 = c.beta1;
    spec.beta2 = c.beta2;
    spec.weight_decay = static_cast<float>(c.decay);
    rule = make_rule(spec);
    m.resize(w.size());
    v.resize(w.size());
  }
  void step(Floats g) {
    float* const state[] = {m.data(), v.data()};
    UpdatePiece piece;
    piece.n = static_cast<int64_t>(w.size());
    piece.w = w.data();
    piece.g = g.data();
    piece.state = state;
    piece.lr = lr;
    piece.weight_decay = spec.weight_decay;
    piece.age = rule->age_of(steps++);
    rule->update(piece);
  }
};

// Those of the script.
class Gradients {
 public:
  explicit Gradients(size_t count) : count_(count) {}
  Floats next() {
    ++step_;
    Floats g(count_);
    for (size_t i = 0; i < count_; ++i) {
      state_ = 6364136223846793005u * state_ + 1442695040888963407u;
      const int exponent = static_cast<int>(7 * i % 41) - 20 + step_ / 100 % 5;
      g[i] = std::ldexp(static_cast<float>(static_cast<int>(state_ >> 40) - (1 << 23)), exponent - 23);
    }
    return g;
  }

 private:
  size_t count_;
  uint64_t state_ = 1;
  int step_ = 0;
};

Doubles first_numbers(size_t count) {
  Doubles w(count);
  for (size_t i = 0; i < count; ++i) w[i] = (static_cast<double>(i % 16) - 7.5) / 8;
  return w;
}

double norm(const Doubles& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}
double half_ulp(double x) { return x == 0 ? 0 : std::ldexp(1.0, std::ilogb(x) - 24); }

struct Worst {
  double norm = 0, median = 0;  // relative; the largest of all steps
};

// Weights that are 0 before each step: they then are the update itself.
Worst error_of_updates(const Case& c, size_t count, int steps) {
  Ours ours(c, Doubles(count));
  Torch torch(c, Doubles(count));
  Gradients gradients(count);
  Worst worst;
  Doubles error(count), relative(count);
  for (int t = 0; t < steps; ++t) {
    std::fill(ours.w.begin(), ours.w.end(), 0.0f);
    std::fill(torch.w.begin(), torch.w.end(), 0.0);
    const Floats g = gradients.next();
    ours.step(g);
    torch.step(g);
    for (size_t i = 0; i < count; ++i) {
      error[i] = static_cast<double>(ours.w[i]) - torch.w[i];
      relative[i] = torch.w[i] == 0 ? 0 : std::fabs(error[i] / torch.w[i]);
    }
    worst.norm = std::max(worst.norm, norm(error) / norm(torch.w));
    const auto middle = relative.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(relative.begin(), middle, relative.end());
    worst.median = std::max(worst.median, *middle);
  }
  return worst;
}

// Weights that move, so that decay has something to decay. Both sides start each step from the weights of the double
// side as fp32 has them. fp32 weights hold an update only to a unit of their last place, so ours is found from the
// moments that the rule left, in double; that the weights moved by it, but for their rounding, is checked by itself.
double error_of_steps(const Case& c, size_t count, int steps) {
  const Doubles first = first_numbers(count);
  Ours ours(c, first);
  Torch torch(c, first);
  Gradients gradients(count);
  const double lr = static_cast<double>(ours.lr), eps = static_cast<double>(ours.spec.eps);
  const double shrink = c.optimizer == "adamw" ? static_cast<double>(ours.lr * ours.spec.weight_decay) : 0;
  double worst = 0;
  int wrong = 0;
  Doubles error(count), moved(count);
  for (int t = 0; t < steps; ++t) {
    for (size_t i = 0; i < count; ++i) ours.w[i] = static_cast<float>(torch.w[i]);
    for (size_t i = 0; i < count; ++i) torch.w[i] = static_cast<double>(ours.w[i]);
    const Doubles before = torch.w;
    const Floats g = gradients.next();
    ours.step(g);
    torch.step(g);
    for (size_t i = 0; i < count; ++i) {
      const double m = static_cast<double>(ours.m[i]) / (1 - torch.power1),
                   v = static_cast<double>(ours.v[i]) / (1 - torch.power2), now = static_cast<double>(ours.w[i]);
      const double decayed = shrink * before[i], stepped = lr * (m / (std::sqrt(v) + eps)), update = decayed + stepped;
      const double rounding = 2 * half_ulp(std::max(std::fabs(before[i]), std::fabs(now)));
      wrong += std::fabs(now - (before[i] - update)) > rounding + 4e-7 * (std::fabs(decayed) + std::fabs(stepped));
      moved[i] = before[i] - torch.w[i];
      error[i] = update - moved[i];
    }
    worst = std::max(worst, norm(error) / norm(moved));
  }
  CHECK(wrong == 0);
  return worst;
}

}  // namespace

// [cpu]: rules that update arrays of the host; the kernel of a device: tests/kernels/elementwise_test.cpp
TEST_CASE("the formula in double leads where torch.optim.Adam and AdamW lead, and the library beside it", "[cpu]") {
  std::ifstream in(source_path("tests/golden/torch_adam.json"));
  const Json golden = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  REQUIRE(golden["cases"].size() == 6);
  for (const auto& of : golden["cases"]) {
    const Case c{of["optimizer"].text(), of["lr"].get<double>(), of["betas"][0].get<double>(),
                 of["betas"][1].get<double>(), of["weight_decay"].get<double>()};
    INFO(c.optimizer << ", lr " << c.lr << ", decay " << c.decay);
    const size_t count = of["weights"][0].size();
    Torch torch(c, first_numbers(count));
    Ours ours(c, first_numbers(count));
    Gradients gradients(count);
    double way = 0;  // the norms of all updates
    size_t at = 0;
    for (int t = 1; t <= 1000; ++t) {
      const Floats g = gradients.next();
      Doubles moved = torch.w;
      torch.step(g);
      ours.step(g);
      for (size_t i = 0; i < count; ++i) moved[i] -= torch.w[i];
      way += norm(moved);
      if (golden["steps"][at] != t) continue;
      Doubles error(count), rounding(count);
      for (size_t i = 0; i < count; ++i) {
        const double want = std::strtod(of["weights"][at][i].get<std::string>().c_str(), nullptr);
        CHECK(std::fabs(torch.w[i] - want) <= 1e-12 * std::max(1.0, std::fabs(want)));
        error[i] = static_cast<double>(ours.w[i]) - want;
        rounding[i] = half_ulp(want) * 2 * t;
      }
      CHECK(norm(error) <= 3e-7 * way + norm(rounding));
      ++at;
    }
    CHECK(at == golden["steps"].size());
  }
}

TEST_CASE("updates of Adam and AdamW are within 3e-7 of those of the formula in double, through 1,000 steps", "[cpu]") {
  for (const char* optimizer : {"adam", "adamw"})
    for (const Case& c :
         {Case{optimizer}, Case{optimizer, 0.02}, Case{optimizer, 0.02, 0.8, 0.95}, Case{optimizer, 1e-3, 0.9, 0.99},
          Case{optimizer, 1e-3, 0.0, 0.999}, Case{optimizer, 1e-3, 0.5, 0.25}}) {
      const Worst worst = error_of_updates(c, 4099, 1000);
      INFO(optimizer << ", lr " << c.lr << ", betas " << c.beta1 << ", " << c.beta2 << ": norm " << worst.norm
                     << ", median " << worst.median);
      CHECK(worst.norm <= 3e-7);
      CHECK(worst.median <= 3e-7);
    }
}

TEST_CASE("updates with decay, coupled or not, are within 3e-7 too, and weights move by them but for their rounding",
          "[cpu]") {
  for (const char* optimizer : {"adam", "adamw"})
    for (const double decay : {0.01, 0.5})  // far larger ones cancel the step: the two terms are right, not their sum
      for (const double lr : {1e-3, 0.02}) {
        const double worst = error_of_steps({optimizer, lr, 0.9, 0.999, decay}, 4099, 1000);
        INFO(optimizer << ", lr " << lr << ", decay " << decay << ": " << worst);
        CHECK(worst <= 3e-7);
      }
}

TEST_CASE("the first step from 0 by a gradient of 1 is -lr", "[cpu]") {
  for (const char* optimizer : {"adam", "adamw"}) {
    Ours ours({optimizer, 0.02}, Doubles(37));
    ours.step(Floats(37, 1.0f));
    for (const float w : ours.w)
      CHECK(std::fabs(static_cast<double>(w) + 0.02) <= 0x1p-29);  // a unit of the last place
  }
}
