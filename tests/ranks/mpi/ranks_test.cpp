// One of several processes below mpirun: every rank runs these cases, in the same order.
#include <algorithm>
#include <cstring>

#include "bitgrad/dist/engines.h"
#include "support/catch.h"
#include "support/rank_cases.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

class MpiRankMaker final : public RankMaker {
 public:
  explicit MpiRankMaker(int64_t message_bytes = int64_t{1} << 30) : message_bytes_(message_bytes) {}

  std::vector<int64_t> sizes(std::vector<int64_t> wanted) const override {
    const int64_t size = find_launch()->size;
    return std::count(wanted.begin(), wanted.end(), size) == 0 ? std::vector<int64_t>{} : std::vector{size};
  }
  std::vector<std::string> errors(int64_t, const Work& work, std::chrono::milliseconds timeout) const override {
    std::string error;
    {
      const auto rank = launched_ranks({.timeout = timeout, .message_bytes = message_bytes_});
      try {
        work(*rank, static_cast<size_t>(rank->rank()));
      } catch (const Error& e) {
        error = shown(e);
      }
    }
    const auto rank = launched_ranks({.timeout = std::chrono::seconds(20)});
    std::vector<char> text(200);
    std::copy_n(error.begin(), std::min(error.size(), text.size() - 1), text.begin());
    const std::vector<char> all = gather_values(*rank, std::span<const char>(text));
    std::vector<std::string> errors;
    for (size_t at = 0; at < all.size(); at += text.size()) errors.emplace_back(&all[at]);
    return errors;
  }

 private:
  int64_t message_bytes_;
};

}  // namespace

TEST_CASE("MPI exchanges parts of any lengths, waited for in any order") { check_exchanges(MpiRankMaker()); }

TEST_CASE("MPI splits long parts into messages") {
  check_exchanges(MpiRankMaker(1000));
  check_no_errors(MpiRankMaker(int64_t{1} << 20)
                      .errors(
                          0,
                          [](Communicator& rank, size_t own) {
                            const auto size = static_cast<size_t>(rank.size());
                            std::vector<std::byte> all(size * 5'000'001);
                            std::vector<Communicator::Bytes> places;
                            for (size_t r = 0; r < size; ++r)
                              places.push_back(std::span(all).subspan(r * 5'000'001, 5'000'001));
                            std::fill(places[own].begin(), places[own].end(), std::byte(own + 1));
                            rank.wait(rank.gather(places[own], places));
                            for (size_t r = 0; r < size; ++r)
                              require(std::count(places[r].begin(), places[r].end(), std::byte(r + 1)) ==
                                          std::ssize(places[r]),
                                      "test", "other bytes from rank ", r);
                          },
                          kRankTimeout));
}

TEST_CASE("MPI gathers parts of different lengths, and values in the order of ranks") { check_gathers(MpiRankMaker()); }

TEST_CASE("sums over ranks of MPI are those of threads") {
  check_sums(MpiRankMaker());
  check_sums_of_many(MpiRankMaker());
}

TEST_CASE("an Error of a rank of MPI ends the calls of all others, with its text and its code") {
  check_error_of_a_rank(MpiRankMaker());
}

TEST_CASE("calls and lengths that differ between ranks of MPI end all of them") {
  check_differing_calls(MpiRankMaker());
  check_refused_calls(MpiRankMaker());
}

TEST_CASE("a rank of MPI that makes no call in time ends all of them") { check_silent_rank(MpiRankMaker()); }

TEST_CASE("a rank of MPI knows its engine and its machine") {
  const auto rank = launched_ranks();
  CHECK(rank->info().engine.starts_with("mpi ("));
  CHECK(!rank->info().host.empty());
  CHECK(rank->info().local_size == find_launch()->local_size);
}
