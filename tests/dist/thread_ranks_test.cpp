// Movements of bytes between ranks that are threads, and how they end when a rank cannot go on.
#include <latch>
#include <thread>

#include "bitgrad/base/rng.h"
#include "bitgrad/dist/communicator.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Bytes = Communicator::Bytes;
using ConstBytes = Communicator::ConstBytes;

using Values = std::vector<uint32_t>;

// work(rank, number) on a thread of each rank; the errors that they end with.
template <typename Work>
std::vector<std::string> on_ranks(const std::vector<std::shared_ptr<Communicator>>& ranks, Work work) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&work, &ranks, &errors, r] {
      try {
        work(*ranks[r], r);
      } catch (const Error& error) {
        errors[r] = concat(static_cast<int>(error.code()), ' ', error.what());
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

// What rank `from` sends to rank `to` in call n: as many values as the call says.
Values message(size_t from, size_t to, uint32_t n) {
  const RandomStream draws{9, Purpose::kMoment, static_cast<uint32_t>(from * 100 + to), n};
  Values values(draws.bits16(0) % 5 == 0 ? 0 : draws.bits16(1) % 3000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = draws.bits16(i + 2);
  return values;
}

struct Exchange {
  std::vector<Values> to, from;
  Transfer transfer{};

  Exchange(Communicator& rank, size_t own, uint32_t n) {
    std::vector<ConstBytes> out;
    std::vector<Bytes> in;
    for (size_t r = 0; r < static_cast<size_t>(rank.size()); ++r) {
      to.push_back(message(own, r, n));
      from.emplace_back(message(r, own, n).size());
    }
    for (const Values& v : to) out.push_back(std::as_bytes(std::span(v)));
    for (Values& v : from) in.push_back(std::as_writable_bytes(std::span(v)));
    transfer = rank.exchange(out, in);
  }
  bool right(size_t own, uint32_t n) const {
    for (size_t r = 0; r < from.size(); ++r)
      if (r != own && from[r] != message(r, own, n)) return false;
    return true;
  }
};

}  // namespace

TEST_CASE("ranks exchange parts of any lengths, waited for in any order") {
  for (const int64_t size : {1, 2, 3, 5}) {
    const auto errors = on_ranks(make_thread_ranks(size), [&](Communicator& rank, size_t own) {
      std::vector<Exchange> open;
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
    });
    for (const std::string& e : errors) CHECK(e.empty());
  }
}

TEST_CASE("ranks gather parts of different lengths, and values in the order of ranks") {
  const auto ranks = make_thread_ranks(3);
  const auto errors = on_ranks(ranks, [&](Communicator& rank, size_t own) {
    std::vector<Values> all;
    std::vector<Bytes> places;
    for (size_t r = 0; r < 3; ++r) all.emplace_back(4 * r, r == own ? 7u + static_cast<uint32_t>(r) : 0u);
    places.reserve(all.size());
    for (Values& v : all) places.push_back(std::as_writable_bytes(std::span(v)));
    rank.wait(rank.gather(places[own], places));
    for (size_t r = 0; r < 3; ++r)
      require(all[r] == Values(4 * r, 7u + static_cast<uint32_t>(r)), "test", "other values from rank ", r);
    const std::vector<double> values = {0.5 + static_cast<double>(own), -1};
    require(gather_values(rank, std::span<const double>(values)) == std::vector<double>{0.5, -1, 1.5, -1, 2.5, -1},
            "test", "other values");
    require(rank.info().local_rank == rank.rank() && rank.info().engine == "threads", "test", "other place");
  });
  for (const std::string& e : errors) CHECK(e.empty());
  CHECK(ranks[2]->bytes_sent() == 2 * (8 * 4) + 2 * 16);
}

TEST_CASE("an Error of a rank ends the calls of all others, with its text and its code") {
  const auto errors = on_ranks(make_thread_ranks(3), [](Communicator& rank, size_t own) {
    for (uint32_t n = 0; n < 10; ++n) {
      if (n == 7 && own == 1) {
        rank.cancel(Error("[data] no samples left", ErrorCode::kData));
        return;
      }
      const Exchange call(rank, own, n);
      rank.wait(call.transfer);
    }
  });
  CHECK(errors[1].empty());
  for (const size_t r : {0, 2}) CHECK(errors[r] == "3 [ranks] rank 1 ended: [data] no samples left");
}

TEST_CASE("calls and lengths that differ between ranks end all of them") {
  std::vector<uint32_t> place(8);
  const auto lengths = on_ranks(make_thread_ranks(2), [&](Communicator& rank, size_t own) {
    Values out(3 + own), in(4);
    const std::vector<ConstBytes> to(2, std::as_bytes(std::span(out)));
    const std::vector<Bytes> from(2, std::as_writable_bytes(std::span(in)));
    rank.wait(rank.exchange(to, from));
  });
  for (const std::string& e : lengths)
    CHECK(e == "6 [ranks] exchange 0: rank 0 sends 12 bytes to rank 1, which expects 16");
  const auto kinds = on_ranks(make_thread_ranks(2), [](Communicator& rank, size_t own) {
    const std::vector<ConstBytes> to(2);
    const std::vector<Bytes> from(2);
    rank.wait(own == 0 ? rank.exchange(to, from) : rank.gather({}, from));
  });
  for (const std::string& e : kinds) CHECK((contains(e, "6 [ranks] call 0: rank") && contains(e, "another rank")));
  const auto one = make_thread_ranks(1)[0];
  CHECK(contains(error_of([&] { one->gather({}, {}); }),
                 "[ranks] gather: got 0 parts, expected one for each of 1 ranks"));
  CHECK(contains(error_of([&] { one->exchange({}, {}); }), "[ranks] exchange: got 0 parts to send and 0 to receive"));
  CHECK(contains(error_of([] { make_thread_ranks(0); }), "[ranks] got 0 ranks, expected at least 1"));
}

TEST_CASE("a rank that does not answer in time ends all of them, whether they wait or poll") {
  std::latch called(2);
  const auto ranks = make_thread_ranks(3, std::chrono::milliseconds(1));
  const auto errors = on_ranks(ranks, [&called](Communicator& rank, size_t own) {
    if (own == 1) return;
    const Exchange call(rank, own, 0);
    called.arrive_and_wait();  // their time begins when they wait
    if (own == 0) rank.wait(call.transfer);
    while (!rank.done(call.transfer)) std::this_thread::yield();
  });
  for (const size_t r : {0, 2}) CHECK(errors[r] == "6 [ranks] no answer from rank 1 in 0.001 s, in exchange 0");
}

TEST_CASE("a rank that leaves with an open transfer ends the others, and unknown transfers are refused") {
  auto ranks = make_thread_ranks(2);
  std::string error;
  std::thread other(
      [&error, rank = ranks[1]] { error = error_of([&] { rank->wait(Exchange(*rank, 1, 0).transfer); }); });
  const Exchange open(*ranks[0], 0, 0);
  ranks.clear();
  other.join();
  CHECK(contains(error, "[ranks] rank 0 left before a transfer had ended"));
  const auto one = make_thread_ranks(1)[0];
  CHECK(contains(error_of([&] { one->wait(Transfer{0}); }), "[ranks] no transfer 0 was started on rank 0"));
}
