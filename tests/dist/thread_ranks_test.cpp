// Movements of bytes between ranks that are threads, and how they end when a rank cannot go on.
#include <latch>
#include <thread>

#include "bitgrad/dist/communicator.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/rank_cases.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("threads exchange parts of any lengths, waited for in any order") { check_exchanges(ThreadRankMaker()); }

TEST_CASE("threads gather parts of different lengths, and values in the order of ranks") {
  check_gathers(ThreadRankMaker());
}

TEST_CASE("an Error of a thread ends the calls of all others, with its text and its code") {
  check_error_of_a_rank(ThreadRankMaker());
}

TEST_CASE("calls and lengths that differ between threads end all of them") {
  check_differing_calls(ThreadRankMaker());
  check_refused_calls(ThreadRankMaker());
  CHECK(contains(error_of([] { make_thread_ranks(0); }), "[ranks] got 0 ranks, expected at least 1"));
}

TEST_CASE("a rank that does not answer in time ends all of them, whether they wait or poll") {
  std::latch called(2);
  const auto ranks = make_thread_ranks(3, std::chrono::milliseconds(1));
  const auto errors = ThreadRankMaker::errors_of(ranks, [&called](Communicator& rank, size_t own) {
    if (own == 1) return;
    const RankExchange call(rank, own, 0);
    called.arrive_and_wait();  // their time begins when they wait
    if (own == 0) rank.wait(call.transfer);
    while (!rank.done(call.transfer)) std::this_thread::yield();
  });
  for (const size_t r : {0, 2}) CHECK(errors[r] == "6 [ranks] no answer from rank 1 in 0.001 s, in exchange 0");
}

TEST_CASE("a rank that leaves with an open transfer ends the others") {
  auto ranks = make_thread_ranks(2);
  std::string error;
  std::thread other(
      [&error, rank = ranks[1]] { error = error_of([&] { rank->wait(RankExchange(*rank, 1, 0).transfer); }); });
  const RankExchange open(*ranks[0], 0, 0);
  ranks.clear();
  other.join();
  CHECK(contains(error, "[ranks] rank 0 left before a transfer had ended"));
}
