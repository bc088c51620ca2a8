// Ranks that are processes, over a wire in memory: their protocol, and how they end when one cannot be reached.
#include <atomic>

#include "dist/memory_wire.h"
#include "support/catch.h"

using namespace bitgrad;
using namespace bitgrad::test;
using std::chrono::milliseconds;

TEST_CASE("processes exchange parts of any lengths, in messages of bounded length") {
  check_exchanges(MemoryRankMaker());
  MemoryRanks ranks(2);
  const auto errors =
      ThreadRankMaker::errors_of(ranks.communicators({.piece = 5000}), [](Communicator& rank, size_t own) {
        std::vector<std::byte> out(123457, std::byte(own)), in(123457);
        const std::vector<Communicator::ConstBytes> to(2, out);
        rank.wait(rank.exchange(to, std::vector<Communicator::Bytes>(2, in)));
        require(in == std::vector<std::byte>(in.size(), std::byte(1 - own)), "test", "other bytes");
      });
  check_no_errors(errors);
  ranks.close();
  CHECK(ranks.net->longest == 5000);
}

TEST_CASE("processes gather parts of different lengths, and values in the order of ranks") {
  check_gathers(MemoryRankMaker());
}

TEST_CASE("processes sum as threads do") {
  check_sums(MemoryRankMaker());
  check_sums_of_many(MemoryRankMaker());
}

TEST_CASE("an Error of a process ends the calls of all others, with its text and its code") {
  check_error_of_a_rank(MemoryRankMaker());
  std::string letters;
  for (int i = 0; i < 3000; ++i) letters += "\u00e4";
  for (const std::string& text : {letters, "x" + letters}) {  // of two bytes each: one is at the end of the message
    MemoryRanks ranks(2);
    const auto errors = ThreadRankMaker::errors_of(ranks.communicators({}), [&](Communicator& rank, size_t own) {
      if (own == 1) return rank.cancel(Error(text, ErrorCode::kNonFinite));
      rank.wait(RankExchange(rank, own, 0).transfer);
    });
    CHECK(errors[0].starts_with("5 [ranks] rank 1 ended: "));
    CHECK(errors[0].ends_with("\u00e4"));
    CHECK((errors[0].size() > 4000 && errors[0].size() < 4100));
  }
}

TEST_CASE("calls and lengths that differ between processes end all of them") {
  check_differing_calls(MemoryRankMaker());
  check_refused_calls(MemoryRankMaker());
}

TEST_CASE("a process that makes no call in time ends all of them") { check_silent_rank(MemoryRankMaker()); }

TEST_CASE("after an Error no transfer of any process is under way") {
  for (int round = 0; round < 20; ++round) {
    MemoryRanks ranks(3);
    const auto errors =
        ThreadRankMaker::errors_of(ranks.communicators({.piece = 3000}), [&](Communicator& rank, size_t own) {
          std::vector<std::byte> out(200000, std::byte(own)), in(3 * out.size());
          std::vector<Communicator::Bytes> places;
          places.reserve(3);
          for (size_t r = 0; r < 3; ++r) places.push_back(std::span(in).subspan(r * out.size(), out.size()));
          for (int n = 0; n < 5; ++n) {
            const Transfer first = rank.gather(out, places), second = rank.gather(out, places);
            if (n == round % 5 && own == static_cast<size_t>(round) % 3) {
              rank.cancel(Error("[test] enough", ErrorCode::kData));
              return;
            }
            rank.wait(second);
            rank.wait(first);
          }
          gather_values(rank, std::span<const size_t>(&own, 1));
        });
    for (size_t r = 0; r < 3; ++r)
      CHECK(errors[r] ==
            (r == static_cast<size_t>(round) % 3 ? "" : concat("3 [ranks] rank ", round % 3, " ended: [test] enough")));
    ranks.close();
    CHECK(ranks.net->end_codes.empty());
  }
}

TEST_CASE("a process that leaves ends the others that wait for it") {
  MemoryRanks ranks(3);
  auto made = ranks.communicators({});
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (size_t r = 0; r < 3; ++r)
    threads.emplace_back([&errors, rank = made[r], r]() mutable {
      const size_t value = r;
      errors[r] = error_of([&] {
        gather_values(*rank, std::span(&value, 1));
        if (r != 1) gather_values(*rank, std::span(&value, 1));
        rank.reset();
      });
    });
  made.clear();
  for (std::thread& t : threads) t.join();
  for (const size_t r : {0, 2})
    CHECK((errors[r] == "[ranks] rank 1 left after 1 calls, and rank 0 waits for it in gather 1" ||
           errors[r] == "[ranks] rank 1 left after 1 calls, and rank 2 waits for it in gather 1"));
}

TEST_CASE("a process that leaves with an open transfer says so") {
  MemoryRanks ranks(2);
  auto made = ranks.communicators({});
  {
    const RankExchange open(*made[0], 0, 0);
    made[0].reset();
  }
  CHECK(error_of([&] { made[1]->wait(RankExchange(*made[1], 1, 0).transfer); }) ==
        "[ranks] rank 0 left before a transfer had ended");
}

TEST_CASE("ranks that cannot be reached end all others, whose processes end with the error's code") {
  MemoryRanks ranks(3, milliseconds(1000));
  ranks.make_silent(1);
  const auto begin = detail::Clock::now();
  const auto errors =
      ThreadRankMaker::errors_of(ranks.communicators({.timeout = milliseconds(300), .drain = milliseconds(200)}),
                                 [](Communicator& rank, size_t own) {
                                   if (own != 1) rank.wait(RankExchange(rank, own, 0).transfer);
                                 });
  for (const size_t r : {0, 2}) CHECK(errors[r] == "6 [ranks] no answer from rank 1 in 0.3 s, in exchange 0");
  CHECK(detail::Clock::now() - begin < std::chrono::seconds(3));
  CHECK(error_of([&] { ranks.communicators({}); }) == "[ranks] no answer from rank 1 in 0.3 s, in exchange 0");
  ranks.close();
  CHECK(ranks.net->end_codes == std::vector<int>(3, 6));
}

TEST_CASE("a process that is asked to end sees which rank is gone, and waits for one that is busy") {
  MemoryRanks ranks(3, milliseconds(1000));
  std::atomic<bool> stop = false;
  const auto made = ranks.communicators({.stop = [&stop] { return stop.load(); }, .drain = milliseconds(200)});
  const auto errors = ThreadRankMaker::errors_of(made, [&](Communicator& rank, size_t own) {
    const RankExchange first(rank, own, 0);
    rank.wait(first.transfer);
    if (own == 1) {
      stop = true;
      std::this_thread::sleep_for(milliseconds(900));  // busy, but its wire answers
    }
    const RankExchange second(rank, own, 1);
    rank.wait(second.transfer);
    if (own == 1) return ranks.make_silent(1);
    rank.wait(RankExchange(rank, own, 2).transfer);
  });
  for (const size_t r : {0, 2})
    CHECK(errors[r] ==
          "6 [ranks] rank 1 is gone: no answer in 0.3 s after this process was asked to end, in exchange 2");
}

// Two ranks: on a busy machine a third might answer late.
TEST_CASE(
    "a process that is gone while devices move bytes is named after the limit, or once this one is asked to end") {
  const auto error_of_0 = [](const detail::WireOptions& options) {
    const MemoryRanks ranks(2, milliseconds(1000));
    ranks.make_silent(1);
    const auto made = ranks.communicators(options);
    return error_of([&] {
      for (;; std::this_thread::sleep_for(milliseconds(1))) made[0]->check();
    });
  };
  const milliseconds short_time(100);
  CHECK(error_of_0({.timeout = milliseconds(400), .gone = short_time, .drain = short_time}) ==
        "[ranks] no answer from rank 1 in 0.4 s, in a movement between devices");
  CHECK(
      error_of_0({.stop = [] { return true; }, .gone = short_time, .drain = short_time}) ==
      "[ranks] rank 1 is gone: no answer in 0.1 s after this process was asked to end, in a movement between devices");
}

TEST_CASE("a process that answers ends no movement between devices, however long it lasts") {
  const MemoryRanks ranks(2);
  const detail::WireOptions options{
      .timeout = milliseconds(1), .stop = [] { return true; }, .gone = milliseconds(1000)};
  const auto made = ranks.communicators(options);
  const auto begin = detail::Clock::now();
  for (; detail::Clock::now() - begin < 3 * options.gone; std::this_thread::sleep_for(milliseconds(1)))
    made[0]->check();
}

TEST_CASE("a wire that cannot be opened, or fails, is an error of the rank") {
  detail::WireThread thread(
      "memory", []() -> std::unique_ptr<detail::Wire> { throw std::runtime_error("no memory today"); }, [](int) {},
      milliseconds(1000));
  CHECK(error_of([&] { thread.wait_until_open(); }) == "[ranks] memory: no memory today");
}
