// The sums of a normalisation's backward against the order of docs/numerics.md section 8, spelled out here.
#include <random>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/reduce.h"
#include "support/catch.h"

namespace bitgrad {

using namespace kernels;
namespace {

struct Restore {
  IsaLevel level = isa_cap();
  int threads = num_threads();
  ~Restore() {
    set_isa_cap(level);
    set_num_threads(threads);
  }
};

float ordered_sum(const std::vector<float>& v) {
  std::vector<float> level;
  for (size_t chunk = 0; chunk < v.size(); chunk += 1024) {
    float lane[16] = {};
    for (size_t i = chunk; i < v.size() && i < chunk + 1024; ++i) lane[(i - chunk) % 16] += v[i];
    for (size_t half = 8; half >= 1; half /= 2)
      for (size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    level.push_back(lane[0]);
  }
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = next;
  }
  return level.empty() ? 0.0f : level[0];
}

struct Problem {
  int64_t rows, cols, step;
  std::vector<float> gy, x, mean, inv;

  Problem(int64_t r, int64_t c, int64_t column_step) : rows(r), cols(c), step(column_step) {
    std::mt19937 random(static_cast<unsigned>(r * 31 + c));
    std::normal_distribution<float> normal;
    for (std::vector<float>* v : {&gy, &x})
      for (int64_t i = 0; i < rows * cols; ++i) v->push_back(normal(random));
    for (std::vector<float>* v : {&mean, &inv})
      for (int64_t i = 0; i < groups(); ++i) v->push_back(normal(random));
  }
  int64_t groups() const { return step == 1 ? cols : 1; }

  std::vector<float> run() const {
    std::vector<float> out(static_cast<size_t>(2 * groups()), -1.0f);
    norm_sums({rows, cols, gy.data(), x.data(), mean.data(), inv.data(), step, out.data(), out.data() + groups()});
    return out;
  }
  std::vector<float> expected() const {
    std::vector<float> out;
    for (const bool times : {false, true})
      for (int64_t j = 0; j < groups(); ++j) {
        std::vector<float> terms;
        for (int64_t i = 0; i < rows * cols; ++i) {
          if (step == 1 && i % cols != j) continue;
          const auto at = static_cast<size_t>(i), group = static_cast<size_t>(j);
          const float xhat = (x[at] - mean[group]) * inv[group];
          terms.push_back(times ? gy[at] * xhat : gy[at]);
        }
        out.push_back(ordered_sum(terms));
      }
    return out;
  }
};

}  // namespace

TEST_CASE("norm_sums adds gy and gy times xhat in the one order, by column and over all, on every ISA") {
  const Restore restore;
  const int64_t shapes[][2] = {{1, 1},    {1, 5},    {5, 1},    {15, 63},  {16, 64}, {17, 65},
                               {100, 10}, {1023, 2}, {1025, 3}, {2500, 4}, {0, 3},   {3, 3000}};
  for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, restore.level}) {
    set_isa_cap(level);
    for (const auto& shape : shapes)
      for (const int64_t step : {1, 0}) {
        INFO(shape[0] << " x " << shape[1] << ", column step " << step);
        const Problem p(shape[0], shape[1], step);
        CHECK(p.run() == p.expected());
      }
  }
}

TEST_CASE("norm_sums has the same bits for 1, 2 and 4 threads") {
  const Restore restore;
  for (const int64_t step : {1, 0}) {
    const Problem p(700, 333, step);
    set_num_threads(1);
    const std::vector<float> once = p.run();
    for (const int threads : {2, 4}) {
      set_num_threads(threads);
      CHECK(p.run() == once);
    }
  }
}

}  // namespace bitgrad
