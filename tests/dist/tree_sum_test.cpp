// Trees of sums, and sums over ranks that are threads.
#include "bitgrad/dist/communicator.h"

#include <string>
#include <thread>

#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/bf16.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string joined(int64_t terms) {
  const auto join = [](const std::string& left, const std::string& right) { return "(" + left + "+" + right + ")"; };
  TreeSum<std::string, decltype(join)> tree(join);
  for (int64_t i = 0; i < terms; ++i) tree.add(std::to_string(i));
  return tree.finish();
}

// The values of each rank, after `work` of all ranks at the same time.
template <typename Work>
void on_ranks(const std::vector<std::shared_ptr<Communicator>>& ranks, Work work) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&work, &rank] { work(*rank); });
  for (std::thread& t : threads) t.join();
}

}  // namespace

TEST_CASE("a tree adds pairs, then pairs of pairs; what is left over joins from the last on") {
  CHECK(joined(1) == "0");
  CHECK(joined(2) == "(0+1)");
  CHECK(joined(3) == "((0+1)+2)");
  CHECK(joined(4) == "((0+1)+(2+3))");
  CHECK(joined(6) == "(((0+1)+(2+3))+(4+5))");
  CHECK(joined(7) == "(((0+1)+(2+3))+((4+5)+6))");
  CHECK(joined(8) == "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEST_CASE("the sum over ranks is the tree in the order of ranks, on every rank") {
  for (const DType dtype : {dtypes::fp32, dtypes::bf16})
    for (const int64_t size : {1, 2, 3, 4, 5, 8}) {
      const auto ranks = make_thread_ranks(size);
      const int64_t n = 1 + 37 * size;
      std::vector<Tensor> values, before;
      for (int64_t r = 0; r < size; ++r) {
        values.push_back(random_tensor({n}, dtype, static_cast<uint64_t>(r + 1)));
        before.push_back(Tensor::empty({n}, dtype));
        before.back().copy_from(values.back());
      }
      on_ranks(ranks, [&](Communicator& rank) {
        sum_over_ranks(rank, std::span(&values[static_cast<size_t>(rank.rank())], 1));
      });
      const auto join = [dtype](double a, double b) {
        const float sum = static_cast<float>(a) + static_cast<float>(b);
        return static_cast<double>(dtype == dtypes::bf16 ? bf16_to_float(bf16_from_float(sum)) : sum);
      };
      std::vector<std::vector<double>> terms;
      terms.reserve(before.size());
      for (const Tensor& t : before) terms.push_back(t.elements());
      for (int64_t i = 0; i < n; ++i) {
        TreeSum<double, decltype(join)> tree(join);
        for (const auto& term : terms) tree.add(term[static_cast<size_t>(i)]);
        const double expected = tree.finish();
        for (const Tensor& t : values)
          if (t.elements()[static_cast<size_t>(i)] != expected) FAIL("rank sum of " << size << " at " << i);
      }
    }
}

TEST_CASE("counts are added over ranks, again and again") {
  const auto ranks = make_thread_ranks(3);
  std::vector<std::vector<int64_t>> counts(3);
  on_ranks(ranks, [&](Communicator& rank) {
    auto& own = counts[static_cast<size_t>(rank.rank())];
    own = {rank.rank(), 1};
    for (int i = 0; i < 30; ++i) sum_over_ranks(rank, own);
  });
  int64_t power = 1;
  for (int i = 0; i < 30; ++i) power *= 3;
  for (const auto& c : counts) CHECK(c == std::vector<int64_t>{power, power});
}

TEST_CASE("sums of many tensors over ranks are those of each, of any sizes and dtypes") {
  constexpr int64_t kSizes[] = {1, 0, 5, 1200000, 3, 700001};  // more than a bucket, and fewer elements than ranks
  for (const int64_t size : {2, 3}) {
    const auto ranks = make_thread_ranks(size);
    std::vector<std::vector<Tensor>> together(static_cast<size_t>(size)), apart = together;
    for (size_t r = 0; r < together.size(); ++r)
      for (const int64_t n : kSizes) {
        const DType dtype = n % 2 == 1 ? dtypes::bf16 : dtypes::fp32;
        together[r].push_back(random_tensor({n}, dtype, static_cast<uint64_t>(n) + 7 * r));
        apart[r].push_back(together[r].back().clone(MemoryKind::kWorkspace));
      }
    on_ranks(ranks, [&](Communicator& rank) {
      const auto r = static_cast<size_t>(rank.rank());
      sum_over_ranks(rank, together[r]);
      for (const Tensor& t : apart[r]) sum_over_ranks(rank, std::span(&t, 1));
    });
    for (size_t r = 0; r < together.size(); ++r)
      for (size_t i = 0; i < together[r].size(); ++i) {
        CHECK((together[r][i].elements() == apart[0][i].elements()));
        CHECK((apart[r][i].elements() == apart[0][i].elements()));
      }
    CHECK(ranks[0]->bytes_sent() > 0);
  }
}
