// Moments::for_pieces: ranges of whole blocks in any order, from one thread and from several, give the bits of one call
// for all elements; ranges that split blocks do so in order.
#include <atomic>
#include <numeric>

#include "bitgrad/base/parallel.h"
#include "optim/moments.h"
#include "optim/optim_support.h"
#include "support/catch.h"

using namespace bitgrad;

namespace {

const RandomStream kDraws{5, Purpose::kMoment, 77, 3};
constexpr int64_t kNumel = 40 * 256 + 100;

using Bytes = std::vector<std::vector<double>>;

// Two steps of Adam; move(moments, body) goes through the elements of one step.
template <typename Move>
Bytes after(MomentKind kind, Move&& move) {
  OptimizerSpec spec;
  spec.name = "adam";
  const auto rule = make_rule(spec);
  detail::Moments moments(rule->moments({kNumel}), kind, {kNumel});
  std::vector<float> w(kNumel, 0.25f), g(kNumel);
  for (size_t i = 0; i < g.size(); ++i) g[i] = kDraws.uniform(i) - 0.4f;
  for (int step = 0; step < 2; ++step) {
    std::atomic<int64_t> seen{0};
    std::atomic<bool> wrong{false};
    move(moments, [&](int64_t begin, int64_t n, std::span<float* const> state) {
      UpdatePiece piece;
      piece.n = n;
      piece.w = w.data() + begin;
      piece.g = g.data() + begin;
      piece.state = state;
      piece.lr = 0.01f;
      piece.age = rule->age_of(step);
      rule->update(piece);
      seen += n;
      if (n <= 0 || n > 2048) wrong = true;  // Catch2 checks on one thread only
    });
    CHECK(seen == kNumel);
    CHECK_FALSE(wrong);
  }
  std::vector<Optimizer::StateTensor> state;
  moments.list("x", state);
  Bytes out{{w.begin(), w.end()}};
  for (const auto& s : state) out.push_back(s.tensor.elements());
  return out;
}

constexpr MomentKind kKinds[] = {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4};

}  // namespace

// [cpu]: pieces of moments that threads of the CPU take
TEST_CASE("ranges of whole blocks of moments may come in any order and from several threads", "[cpu]") {
  const int before = num_threads();
  for (const MomentKind kind : kKinds) {
    const Bytes whole = after(
        kind, [](detail::Moments& m, const detail::Moments::Body& body) { m.for_pieces(0, kNumel, kDraws, body); });
    for (const int64_t width : {256, 768, 4096}) {
      const int64_t count = (kNumel + width - 1) / width;
      const auto one = [&](detail::Moments& m, const detail::Moments::Body& body, int64_t i) {
        m.for_pieces(i * width, std::min((i + 1) * width, kNumel), kDraws, body);
      };
      CHECK((after(kind, [&](detail::Moments& m, const detail::Moments::Body& body) {
               for (int64_t i = count - 1; i >= 0; --i) one(m, body, i);
             }) == whole));
      for (const int threads : {1, 4}) {
        set_num_threads(threads);
        CHECK((after(kind, [&](detail::Moments& m, const detail::Moments::Body& body) {
                 parallel_for(count, [&](int64_t i) { one(m, body, (i * 11 + 3) % count); });
               }) == whole));
      }
      set_num_threads(before);
    }
  }
}

TEST_CASE("ranges that split blocks of moments give the same bits in order; fp32 and bf16 in any order", "[cpu]") {
  for (const MomentKind kind : kKinds) {
    const Bytes whole = after(
        kind, [](detail::Moments& m, const detail::Moments::Body& body) { m.for_pieces(0, kNumel, kDraws, body); });
    for (const int64_t width : {100, 301, 2047, 5000}) {
      CHECK((after(kind, [&](detail::Moments& m, const detail::Moments::Body& body) {
               for (int64_t i = 0; i < kNumel; i += width) m.for_pieces(i, std::min(i + width, kNumel), kDraws, body);
             }) == whole));
      if (detail::in_blocks(kind)) continue;
      CHECK((after(kind, [&](detail::Moments& m, const detail::Moments::Body& body) {
               for (int64_t i = (kNumel - 1) / width * width; i >= 0; i -= width)
                 m.for_pieces(i, std::min(i + width, kNumel), kDraws, body);
             }) == whole));
    }
  }
}
