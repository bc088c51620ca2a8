// What every engine of ranks must do, as cases over a maker of ranks: threads, processes, a wire in memory.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/dist/communicator.h"
#include "bitgrad/dtype/bf16.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

namespace bitgrad::test {

// An engine. A rank's work is run by its own thread or process.
class RankMaker {
 public:
  using Work = std::function<void(Communicator& rank, size_t own)>;
  RankMaker() = default;
  virtual ~RankMaker() = default;
  RankMaker(const RankMaker&) = delete;
  RankMaker& operator=(const RankMaker&) = delete;

  // The numbers of ranks that it makes, of these.
  virtual std::vector<int64_t> sizes(std::vector<int64_t> wanted) const { return wanted; }
  // New ranks do the work; what each ends with, "" or code and text of its Error, in the order of ranks.
  virtual std::vector<std::string> errors(int64_t size, const Work& work,
                                          std::chrono::milliseconds timeout = kRankTimeout) const = 0;
};

inline std::string shown(const Error& error) { return concat(static_cast<int>(error.code()), ' ', error.what()); }

class ThreadRankMaker final : public RankMaker {
 public:
  std::vector<std::string> errors(int64_t size, const Work& work, std::chrono::milliseconds timeout) const override {
    return errors_of(make_thread_ranks(size, timeout), work);
  }
  static std::vector<std::string> errors_of(const std::vector<std::shared_ptr<Communicator>>& ranks, const Work& work) {
    std::vector<std::string> errors(ranks.size());
    std::vector<std::thread> threads;
    threads.reserve(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r)
      threads.emplace_back([&work, &ranks, &errors, r] {
        try {
          work(*ranks[r], r);
        } catch (const Error& error) {
          errors[r] = shown(error);
        }
      });
    for (std::thread& t : threads) t.join();
    return errors;
  }
};

using Values = std::vector<uint32_t>;

// What rank `from` sends to rank `to` in call n: as many values as the call says.
inline Values rank_message(size_t from, size_t to, uint32_t n) {
  const RandomStream draws{9, Purpose::kMoment, static_cast<uint32_t>(from * 100 + to), n};
  Values values(draws.bits16(0) % 5 == 0 ? 0 : draws.bits16(1) % 3000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = draws.bits16(i + 2);
  return values;
}

struct RankExchange {
  std::vector<Values> to, from;
  Transfer transfer{};

  RankExchange(Communicator& rank, size_t own, uint32_t n) {
    std::vector<Communicator::ConstBytes> out;
    std::vector<Communicator::Bytes> in;
    for (size_t r = 0; r < static_cast<size_t>(rank.size()); ++r) {
      to.push_back(rank_message(own, r, n));
      from.emplace_back(rank_message(r, own, n).size());
    }
    for (const Values& v : to) out.push_back(std::as_bytes(std::span(v)));
    for (Values& v : from) in.push_back(std::as_writable_bytes(std::span(v)));
    transfer = rank.exchange(out, in);
  }
  bool right(size_t own, uint32_t n) const {
    for (size_t r = 0; r < from.size(); ++r)
      if (r != own && from[r] != rank_message(r, own, n)) return false;
    return true;
  }
};

inline void check_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& e : errors) CHECK(e.empty());
}

inline void check_exchanges(const RankMaker& maker) {
  for (const int64_t size : maker.sizes({1, 2, 3, 4, 5}))
    check_no_errors(maker.errors(size, [](Communicator& rank, size_t own) {
      std::vector<RankExchange> open;
      std::vector<uint32_t> numbers;
      for (uint32_t n = 0; n < 60; ++n) {
        open.emplace_back(rank, own, n);
        numbers.push_back(n);
        while (open.size() > (n == 59 ? 0 : n % 4)) {  // ranks wait for different ones first
          const size_t at = (own + n) % open.size();
          if (n % 3 == 0)
            while (!rank.done(open[at].transfer)) std::this_thread::yield();
          rank.wait(open[at].transfer);
          require(open[at].right(own, numbers[at]), "test", "rank ", own, " got other values in call ", numbers[at]);
          open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
          numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(at));
        }
      }
    }));
}

inline void check_gathers(const RankMaker& maker) {
  for (const int64_t size : maker.sizes({2, 3, 4}))
    check_no_errors(maker.errors(size, [](Communicator& rank, size_t own) {
      const auto count = static_cast<size_t>(rank.size());
      std::vector<Values> all;
      std::vector<Communicator::Bytes> places;
      for (size_t r = 0; r < count; ++r) all.emplace_back(4 * r, r == own ? 7u + static_cast<uint32_t>(r) : 0u);
      places.reserve(count);
      for (Values& v : all) places.push_back(std::as_writable_bytes(std::span(v)));
      rank.wait(rank.gather(places[own], places));
      std::vector<double> expected;
      for (size_t r = 0; r < count; ++r) {
        require(all[r] == Values(4 * r, 7u + static_cast<uint32_t>(r)), "test", "other values from rank ", r);
        expected.push_back(0.5 + static_cast<double>(r));
        expected.push_back(-1);
      }
      const std::vector<double> values = {0.5 + static_cast<double>(own), -1};
      require(gather_values(rank, std::span<const double>(values)) == expected, "test", "other values");
      require(rank.info().local_rank == rank.rank() && rank.info().local_size == rank.size(), "test", "other place");
      require(rank.bytes_sent() == (rank.size() - 1) * (16 * rank.rank() + 16), "test",
              "other number of bytes: ", rank.bytes_sent());
    }));
}

inline void check_error_of_a_rank(const RankMaker& maker) {
  for (const int64_t size : maker.sizes({2, 3, 4})) {
    const auto errors = maker.errors(size, [](Communicator& rank, size_t own) {
      for (uint32_t n = 0; n < 10; ++n) {
        if (n == 7 && own == 1) {
          rank.cancel(Error("[data] no samples left", ErrorCode::kData));
          return;
        }
        rank.wait(RankExchange(rank, own, n).transfer);
      }
    });
    for (size_t r = 0; r < errors.size(); ++r)
      CHECK(errors[r] == (r == 1 ? "" : "3 [ranks] rank 1 ended: [data] no samples left"));
  }
}

inline void check_differing_calls(const RankMaker& maker) {
  for (const int64_t size : maker.sizes({2, 3, 4})) {
    const auto lengths = maker.errors(size, [](Communicator& rank, size_t own) {
      const auto count = static_cast<size_t>(rank.size());
      const Values out(4);
      std::vector<Values> in(count, out);
      std::vector<Communicator::ConstBytes> to(count, std::as_bytes(std::span(out)));
      std::vector<Communicator::Bytes> from;
      from.reserve(count);
      for (Values& v : in) from.push_back(std::as_writable_bytes(std::span(v)));
      if (own == 0) to[1] = to[1].first(12);
      rank.wait(rank.exchange(to, from));
      rank.wait(rank.exchange(to, from));
    });
    for (const std::string& e : lengths)
      CHECK(e == "6 [ranks] exchange 0: rank 0 sends 12 bytes to rank 1, which expects 16");
    const auto kinds = maker.errors(size, [](Communicator& rank, size_t own) {
      const std::vector<Communicator::ConstBytes> to(static_cast<size_t>(rank.size()));
      const std::vector<Communicator::Bytes> from(static_cast<size_t>(rank.size()));
      rank.wait(own == 0 ? rank.exchange(to, from) : rank.gather({}, from));
      rank.wait(rank.gather({}, from));
    });
    for (const std::string& e : kinds)
      CHECK((contains(e, "6 [ranks] call 0: rank") && contains(e, "another rank") && contains(e, "exchange")));
  }
}

inline void check_refused_calls(const RankMaker& maker) {
  for (const int64_t size : maker.sizes({1, 2, 4})) {
    const auto one = [&](const std::function<void(Communicator&)>& call) {
      return maker.errors(size, [&call](Communicator& rank, size_t) { call(rank); })[0];
    };
    CHECK(contains(one([](Communicator& rank) { rank.gather({}, {}); }),
                   concat("[ranks] gather: got 0 parts, expected one for each of ", size, " ranks")));
    CHECK(contains(one([](Communicator& rank) { rank.exchange({}, {}); }),
                   "[ranks] exchange: got 0 parts to send and 0 to receive"));
    CHECK(contains(one([](Communicator& rank) { rank.wait(Transfer{0}); }),
                   "[ranks] no transfer 0 was started on rank 0"));
  }
}

// What sum_over_ranks must return for value i of each rank's term.
inline double tree_sum_of(const std::vector<std::vector<double>>& terms, size_t i, DType dtype) {
  const auto join = [dtype](double a, double b) {
    const float sum = static_cast<float>(a) + static_cast<float>(b);
    return static_cast<double>(dtype == dtypes::bf16 ? bf16_to_float(bf16_from_float(sum)) : sum);
  };
  TreeSum<double, decltype(join)> tree(join);
  for (const auto& term : terms) tree.add(term[i]);
  return tree.finish();
}

inline void check_sums(const RankMaker& maker) {
  for (const DType dtype : {dtypes::fp32, dtypes::bf16})
    for (const int64_t size : maker.sizes({1, 2, 3, 4, 5, 8}))
      check_no_errors(maker.errors(size, [dtype](Communicator& rank, size_t own) {
        const int64_t n = 1 + 37 * rank.size();
        std::vector<std::vector<double>> terms;
        for (int64_t r = 0; r < rank.size(); ++r)
          terms.push_back(random_tensor({n}, dtype, static_cast<uint64_t>(r + 1)).elements());
        const Tensor sum = random_tensor({n}, dtype, own + 1);
        sum_over_ranks(rank, std::span(&sum, 1));
        const std::vector<double> values = sum.elements();
        for (size_t i = 0; i < values.size(); ++i)
          require(values[i] == tree_sum_of(terms, i, dtype), "test", "other sum of rank ", own, " at ", i);
      }));
}

// More than a bucket, fewer elements than ranks, several tensors of two dtypes: together as apart, and alike on all
// ranks.
inline void check_sums_of_many(const RankMaker& maker) {
  for (const int64_t size : maker.sizes({2, 3, 4}))
    check_no_errors(maker.errors(size, [](Communicator& rank, size_t own) {
      const auto values = [](size_t r) {
        std::vector<Tensor> all;
        for (const int64_t n : {1, 0, 5, 1200000, 3, 700001})
          all.push_back(random_tensor({n}, n % 2 == 1 ? dtypes::bf16 : dtypes::fp32, static_cast<uint64_t>(n) + 7 * r));
        return all;
      };
      const std::vector<Tensor> together = values(own), apart = values(own);
      sum_over_ranks(rank, together);
      for (const Tensor& t : apart) sum_over_ranks(rank, std::span(&t, 1));
      for (size_t i = 0; i < together.size(); ++i) {
        const Tensor one = together[i].on_host(), other = apart[i].on_host();
        const std::span bytes(static_cast<const std::byte*>(one.data()), static_cast<size_t>(one.bytes()));
        require(std::equal(bytes.begin(), bytes.end(), static_cast<const std::byte*>(other.data())), "test",
                "other sum of tensor ", i, " alone");
        uint64_t hash = 1;
        for (const std::byte b : bytes) hash = hash * 31 + static_cast<uint64_t>(b);
        for (const uint64_t h : gather_values(rank, std::span<const uint64_t>(&hash, 1)))
          require(h == hash, "test", "ranks have other sums of tensor ", i);
      }
      require(rank.bytes_sent() > 0, "test", "no bytes were sent");
      std::vector<int64_t> counts = {rank.rank(), 1};
      for (int k = 0; k < 30; ++k) sum_over_ranks(rank, counts);
      int64_t power = rank.size() * (rank.size() - 1) / 2;
      for (int k = 1; k < 30; ++k) power *= rank.size();
      require(counts[0] == power, "test", "other counts: ", counts[0], ", expected ", power);
    }));
}

// For engines whose ranks answer while their threads are busy. Rank 1 makes no call, and hears why all ended.
inline void check_silent_rank(const RankMaker& maker) {
  for (const int64_t size : maker.sizes({2, 3, 4})) {
    const auto errors = maker.errors(
        size,
        [](Communicator& rank, size_t own) {
          gather_values(rank, std::span<const size_t>(&own, 1));
          if (own == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1600));
          const RankExchange call(rank, own, 0);
          if (own == 0) rank.wait(call.transfer);
          while (!rank.done(call.transfer)) std::this_thread::yield();
        },
        std::chrono::milliseconds(800));
    for (const std::string& e : errors) CHECK(e == "6 [ranks] no answer from rank 1 in 0.8 s, in exchange 1");
  }
}

}  // namespace bitgrad::test
