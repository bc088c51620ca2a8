// Rows that have owners: how they are dealt out, how their gradients are summed, and a step on several ranks against
// that of one.
#include "optim/shards.h"

#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include "bitgrad/optim/optimizer.h"
#include "kernels/elementwise.h"
#include "optim/optim_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;
using detail::RowShares;
using detail::SharedGradient;

namespace {

// Calls `body` on every rank, each in its own thread, and returns their errors.
std::vector<std::string> on_ranks(int64_t size, const std::function<void(Communicator&, size_t)>& body,
                                  std::vector<std::shared_ptr<Communicator>> ranks = {}) {
  if (ranks.empty()) ranks = make_thread_ranks(size);
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < errors.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(*ranks[r], r);
      } catch (const Error& e) {
        errors[r] = e.what();
        ranks[r]->cancel(e);
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

Tensor normal(const Shape& shape, DType dtype, uint64_t seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  Tensor x = Tensor::empty(shape, dtypes::fp32);
  for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = scale * draw(random);
  if (dtype == dtypes::fp32) return x;
  Tensor narrow = Tensor::empty(shape, dtype);
  kernels::to_bf16(x.numel(), x.as<float>(), narrow.as<uint16_t>());
  return narrow;
}

void sum_own_rows(Communicator& ranks, const std::vector<SharedGradient>& gradients, WireFormat wire) {
  detail::RowSums sums(ranks, wire);
  for (const SharedGradient& g : gradients) sums.add(g);
  sums.finish();
}

// The sum of all parts in a tree, in fp32; bf16 parts are rounded after each addition.
std::vector<float> tree_of(const std::vector<Tensor>& parts) {
  const bool narrow = parts[0].dtype() == dtypes::bf16;
  const auto join = [narrow](const std::vector<float>& left, std::vector<float> right) {
    for (size_t i = 0; i < right.size(); ++i) right[i] = left[i] + right[i];
    if (narrow) {
      std::vector<uint16_t> rounded(right.size());
      kernels::to_bf16(std::ssize(right), right.data(), rounded.data());
      kernels::from_bf16(std::ssize(right), rounded.data(), right.data());
    }
    return right;
  };
  TreeSum<std::vector<float>, decltype(join)> tree(join);
  for (const Tensor& part : parts) tree.add(part.to_vector());
  return tree.finish();
}

}  // namespace

// [cpu]: rows have owners on the CPU only
TEST_CASE("each row has one owner, units stay together, and no rank has two units more than another", "[cpu]") {
  for (const int64_t rows : {0, 1, 15, 16, 17, 100, 255, 4096})
    for (const int64_t unit : {1, 16, 48, 5000})
      for (const int64_t size : {1, 2, 3, 4, 7, 64})
        for (const int64_t turn : {0, 1, 5, 200}) {
          const RowShares shares(rows, unit, size, turn);
          INFO(rows << " rows, unit " << unit << ", " << size << " ranks, turn " << turn);
          REQUIRE(shares.begin(0) == 0);
          REQUIRE(shares.end(size - 1) == rows);
          int64_t least = rows, most = 0;
          for (int64_t r = 0; r < size; ++r) {
            if (r > 0) REQUIRE(shares.begin(r) == shares.end(r - 1));
            REQUIRE(shares.begin(r) <= shares.end(r));
            REQUIRE((shares.begin(r) % unit == 0 || shares.begin(r) == rows));
            const int64_t units = (shares.end(r) - shares.begin(r) + unit - 1) / unit;
            least = std::min(least, units);
            most = std::max(most, units);
          }
          REQUIRE(most - least <= 1);
        }
  for (const int64_t most : {1, 16, 40, 1000}) {
    const RowShares shares(300, 16, 3, 1);
    std::vector<int64_t> at{shares.begin(0), shares.begin(1), shares.begin(2)};
    for (const RowShares::Slice& slice : shares.slices(most))
      for (size_t r = 0; r < 3; ++r) {
        CHECK(slice[r].first == at[r]);
        CHECK((slice[r].second - at[r] <= std::max<int64_t>(most, 16)));
        CHECK((slice[r].second % 16 == 0 || slice[r].second == 300));
        at[r] = slice[r].second;
      }
    CHECK(at == std::vector<int64_t>{shares.end(0), shares.end(1), shares.end(2)});
  }
  CHECK(RowShares(16, 16, 4, 2).end(1) == 0);  // the unit that is left over goes to rank `turn`
  CHECK(RowShares(16, 16, 4, 2).end(2) == 16);
}

TEST_CASE("own rows become the sums of a tree over any number of ranks; other rows stay", "[cpu]") {
  for (const int64_t size : {2, 3, 4, 5})
    for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
      const std::vector<Shape> shapes{{1, 1}, {33, 7}, {64, 1000}, {700, 1024}, {3, 300000}, {0, 5}};
      std::vector<std::vector<Tensor>> parts(shapes.size());
      std::vector<RowShares> shares;
      for (size_t i = 0; i < shapes.size(); ++i) {
        shares.emplace_back(shapes[i].rows(), i == 3 ? 16 : 1, size, static_cast<int64_t>(i));
        for (int64_t r = 0; r < size; ++r)
          parts[i].push_back(normal(shapes[i], dtype, 10 * i + static_cast<size_t>(r)));
      }
      std::vector<std::vector<Tensor>> sums(static_cast<size_t>(size));
      const auto errors = on_ranks(size, [&](Communicator& ranks, size_t r) {
        std::vector<SharedGradient> gradients;
        for (size_t i = 0; i < shapes.size(); ++i) {
          sums[r].push_back(parts[i][r].clone(MemoryKind::kWorkspace));
          gradients.push_back({sums[r].back(), &shares[i]});
        }
        sum_own_rows(ranks, gradients, WireFormat::kExact);
      });
      for (const std::string& error : errors) CHECK(error == "");
      for (size_t i = 0; i < shapes.size(); ++i) {
        const std::vector<float> sum = tree_of(parts[i]);
        const int64_t cols = shapes[i].cols();
        for (size_t r = 0; r < sums.size(); ++r) {
          const std::vector<float> got = sums[r][i].to_vector(), before = parts[i][r].to_vector();
          const auto begin = static_cast<size_t>(shares[i].begin(static_cast<int64_t>(r)) * cols),
                     end = static_cast<size_t>(shares[i].end(static_cast<int64_t>(r)) * cols);
          bool same = true;
          for (size_t e = 0; e < got.size(); ++e) same = same && got[e] == (e >= begin && e < end ? sum[e] : before[e]);
          CHECK(same);
        }
      }
    }
}

TEST_CASE("gradients travel while others are not added yet, and are summed when somebody looks", "[cpu]") {
  constexpr int64_t kRows = 1024, kCols = 512;  // half of it, 1 MiB, goes to the other rank
  const RowShares shares(kRows, 1, 2, 0);
  const std::vector<Tensor> parts{normal({kRows, kCols}, dtypes::fp32, 1), normal({kRows, kCols}, dtypes::fp32, 2)};
  const std::vector<float> want = tree_of(parts);
  std::vector<int64_t> sent(2);
  std::vector<bool> same(2);
  const auto errors = on_ranks(2, [&](Communicator& ranks, size_t r) {
    Tensor sum = parts[r].clone(MemoryKind::kWorkspace), late = sum.clone(MemoryKind::kWorkspace);
    detail::RowSums sums(ranks, WireFormat::kExact);
    sums.add({sum, &shares});
    sent[r] = ranks.bytes_sent();
    const int64_t begin = shares.begin(ranks.rank()) * kCols, end = shares.end(ranks.rank()) * kCols;
    const auto there = [&] { return std::equal(sum.as<float>() + begin, sum.as<float>() + end, want.begin() + begin); };
    while (!there()) sums.poll();
    sums.add({late, &shares});
    sums.finish();
    same[r] = there() && std::equal(late.as<float>() + begin, late.as<float>() + end, want.begin() + begin);
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(sent == std::vector<int64_t>(2, kRows / 2 * kCols * 4));
  CHECK(same == std::vector<bool>(2, true));
}

TEST_CASE("sums that are given up end the other ranks, and their memory is free", "[cpu]") {
  const RowShares shares(2048, 1, 3, 0);
  const auto errors = on_ranks(3, [&](Communicator& ranks, size_t r) {
    detail::RowSums sums(ranks, WireFormat::kExact);
    sums.add({normal({2048, 512}, dtypes::fp32, r), &shares});
    if (r == 1) throw Error("backward failed", ErrorCode::kNonFinite);
    sums.add({normal({2048, 512}, dtypes::fp32, r), &shares});
    sums.finish();
  });
  CHECK(errors[1] == "backward failed");
  for (const size_t r : {0, 2}) CHECK(errors[r] == "[ranks] rank 1 ended: [ranks] sums of gradients were given up");
}

TEST_CASE("a wire rounds what travels and not the owner's part, within its bound, and int8 without bias", "[cpu]") {
  constexpr int64_t kSize = 4, kRows = 64, kCols = 515;
  for (const WireFormat wire : {WireFormat::kBf16, WireFormat::kInt8}) {
    std::vector<Tensor> parts;
    for (uint64_t r = 0; r < kSize; ++r)
      parts.push_back(normal({kRows, kCols}, dtypes::fp32, r, r == 2 ? 1e-30f : 1e-3f));
    const RowShares shares(kRows, 16, kSize, 0);
    std::vector<std::vector<float>> got;
    int64_t bytes = 0;
    double bias = 0, spread = 0;
    for (uint32_t step = 0; step < 8; ++step) {
      std::vector<Tensor> sums(kSize);
      const auto ranks = make_thread_ranks(kSize);
      const auto errors = on_ranks(
          kSize,
          [&](Communicator& rank, size_t r) {
            sums[r] = parts[r].clone(MemoryKind::kWorkspace);
            const std::vector<SharedGradient> one{
                {sums[r], &shares, {3, Purpose::kWire, 5, static_cast<uint32_t>(step * kSize + r)}}};
            sum_own_rows(rank, one, wire);
          },
          ranks);
      for (const std::string& error : errors) REQUIRE(error == "");
      bytes = ranks[0]->bytes_sent();
      for (int64_t r = 0; r < kSize; ++r)
        for (int64_t e = shares.begin(r) * kCols; e < shares.end(r) * kCols; ++e) {
          double exact = 0, bound = 0;
          for (int64_t from = 0; from < kSize; ++from) {
            const double x = parts[static_cast<size_t>(from)].as<float>()[e];
            exact += x;
            if (from == r) continue;
            const int64_t block = (e - shares.begin(r) * kCols) / 256 * 256 + shares.begin(r) * kCols;
            double most = 0;
            for (int64_t i = block; i < std::min(block + 256, shares.end(r) * kCols); ++i)
              most = std::max(most, std::abs(static_cast<double>(parts[static_cast<size_t>(from)].as<float>()[i])));
            bound += wire == WireFormat::kBf16 ? std::abs(x) / 256 : most / 127 * 1.00001;
          }
          const double error = static_cast<double>(sums[static_cast<size_t>(r)].as<float>()[e]) - exact;
          if (std::abs(error) > bound + 1e-9) FAIL("element " << e << ": error " << error << ", bound " << bound);
          bias += error;
          spread += error * error;
        }
      got.push_back(sums[1].to_vector());
    }
    const double n = 8.0 * kRows * kCols;
    CHECK(std::abs(bias / n) < 5 * std::sqrt(spread / n / n));
    CHECK((got[0] == got[1]) == (wire == WireFormat::kBf16));  // draws differ from step to step
    constexpr int64_t kSent = kRows / kSize * kCols * (kSize - 1);
    CHECK(bytes ==
          (wire == WireFormat::kBf16 ? 2 * kSent : kSent + (kRows / kSize * kCols + 255) / 256 * 4 * (kSize - 1)));
  }
}

TEST_CASE("NaN and Inf reach the owner through every wire", "[cpu]") {
  for (const WireFormat wire : {WireFormat::kExact, WireFormat::kBf16, WireFormat::kInt8})
    for (const float bad : {std::nanf(""), INFINITY}) {
      const RowShares odd(33, 1, 2, 0), shares(32, 16, 2, 0);
      std::vector<Tensor> before{normal({33, 7}, dtypes::fp32, 1), normal({33, 7}, dtypes::fp32, 2)};
      std::vector<Tensor> sums{normal({32, 40}, dtypes::fp32, 1), normal({32, 40}, dtypes::fp32, 2)};
      sums[1].as<float>()[77] = bad;  // of rank 0
      const auto errors = on_ranks(2, [&](Communicator& ranks, size_t r) {
        const RandomStream draws{1, Purpose::kWire, 2, static_cast<uint32_t>(r)};
        const std::vector<SharedGradient> both{{before[r], &odd, draws}, {sums[r], &shares, draws}};
        sum_own_rows(ranks, both, wire);
      });
      CHECK(errors == std::vector<std::string>(2));
      CHECK(!std::isfinite(sums[0].as<float>()[77]));
    }
}

TEST_CASE("a gradient that is not finite is refused by its owner, and no rank updates a row", "[cpu]") {
  std::vector<std::unique_ptr<Parameter>> parameters(3);
  std::vector<bool> usable(3), same(3);
  const auto errors = on_ranks(3, [&](Communicator& rank, size_t r) {
    parameters[r] = float_parameter("w", {300, 129});
    Parameter& p = *parameters[r];
    const Tensor before = p.master().clone(MemoryKind::kWorkspace);
    Optimizer optimizer(named("adam"));
    optimizer.attach({&p});
    optimizer.set_ranks(std::shared_ptr<Communicator>(&rank, [](Communicator*) {}));
    REQUIRE(optimizer.shares(p) != nullptr);
    Tensor g = normal(p.shape(), dtypes::fp32, 4);
    g.as<float>()[optimizer.shares(p)->begin(1) * 129 + 5] = std::nanf("");
    accumulate(p, g);
    try {
      optimizer.step(0.1f, 1);
    } catch (const Error&) {
      usable[r] = !optimizer.partially_updated() && optimizer.whole();
      same[r] = floats(before) == floats(p.master());
      throw;
    }
  });
  CHECK(contains(errors[1], "[optimizer] the gradient of 'w' ([300,129] fp32) holds NaN or Inf at optimizer step 0"));
  for (const size_t r : {0, 2}) CHECK(errors[r] == concat("[ranks] rank 1 ended: ", errors[1]));
  CHECK(usable == std::vector<bool>(3, true));
  CHECK(same == std::vector<bool>(3, true));
}

TEST_CASE("an update that is not finite ends all ranks in the middle of a step", "[cpu]") {
  std::vector<std::unique_ptr<Parameter>> parameters(3);
  std::vector<bool> lost(3);
  const auto errors = on_ranks(3, [&](Communicator& rank, size_t r) {
    parameters[r] = float_parameter("w", {300, 129});
    Parameter& p = *parameters[r];
    Optimizer optimizer(named("sgd"));
    optimizer.attach({&p});
    optimizer.set_ranks(std::shared_ptr<Communicator>(&rank, [](Communicator*) {}));
    Tensor g = normal(p.shape(), dtypes::fp32, 4);
    g.as<float>()[optimizer.shares(p)->begin(2) * 129] = 1e30f;
    accumulate(p, g);
    try {
      optimizer.step(1e20f, 1);
    } catch (const Error&) {
      lost[r] = optimizer.partially_updated();
      throw;
    }
  });
  CHECK(contains(errors[2], "[optimizer] the update of 'w' ([300,129] fp32) gave NaN or Inf at optimizer step 0"));
  for (const size_t r : {0, 1}) CHECK(errors[r] == concat("[ranks] rank 2 ended: ", errors[2]));
  CHECK(lost == std::vector<bool>(3, true));
}
