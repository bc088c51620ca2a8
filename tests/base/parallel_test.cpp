#include "bitgrad/base/parallel.h"

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

// Restores the number of threads at the end of a test.
struct KeepThreads {
  int old = num_threads();
  ~KeepThreads() { set_num_threads(old); }
};

TEST_CASE("parallel_for calls every chunk exactly once for any number of threads") {
  const KeepThreads keep;
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    CHECK(num_threads() == threads);
    for (int64_t chunks : {0, 1, 2, 3, 17, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(chunks));
      parallel_for(chunks, [&](int64_t c) { ++calls[static_cast<size_t>(c)]; });
      int wrong = 0;
      for (const auto& n : calls) wrong += n != 1;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("parallel_for of a negative count does nothing") {
  parallel_for(-3, [](int64_t) { FAIL("called"); });
  parallel_ranges(-3, 4, [](int64_t, int64_t) { FAIL("called"); });
  parallel_ranges(0, 4, [](int64_t, int64_t) { FAIL("called"); });
}

TEST_CASE("parallel_ranges cuts by the grain, never by the threads") {
  const KeepThreads keep;
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    for (int64_t total : {1, 9, 10, 11, 20, 101}) {
      std::vector<std::atomic<int>> items(static_cast<size_t>(total));
      std::atomic<int> odd{0};
      parallel_ranges(total, 10, [&](int64_t begin, int64_t end) {
        if (begin % 10 != 0 || (end != total && end - begin != 10) || end > total) ++odd;
        for (int64_t i = begin; i < end; ++i) ++items[static_cast<size_t>(i)];
      });
      int wrong = odd;
      for (const auto& n : items) wrong += n != 1;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("The exception of the lowest failing chunk comes out, for any number of threads") {
  const KeepThreads keep;
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    for (int round = 0; round < 200; ++round) {
      std::string text;
      try {
        parallel_for(64, [&](int64_t c) {
          if (c % 8 == 5) throw std::runtime_error("chunk " + std::to_string(c));
        });
      } catch (const std::runtime_error& error) {
        text = error.what();
      }
      REQUIRE(text == "chunk 5");
    }
    // The next loop works as if nothing had happened.
    std::atomic<int> calls{0};
    parallel_for(64, [&](int64_t) { ++calls; });
    CHECK(calls == 64);
  }
}

TEST_CASE("Exceptions that do not derive from std::exception are passed on too") {
  const KeepThreads keep;
  set_num_threads(2);
  int caught = 0;
  try {
    parallel_for(4, [](int64_t) { throw 7; });
  } catch (int value) {
    caught = value;
  }
  CHECK(caught == 7);
}

TEST_CASE("Nested loops run inline on the thread of the outer chunk") {
  const KeepThreads keep;
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    std::atomic<int> calls{0}, strangers{0};
    parallel_for(8, [&](int64_t) {
      const std::thread::id here = std::this_thread::get_id();
      parallel_for(16, [&](int64_t) {
        ++calls;
        if (std::this_thread::get_id() != here) ++strangers;
      });
    });
    CHECK(calls == 8 * 16);
    CHECK(strangers == 0);
  }
}

TEST_CASE("A loop with one thread stays on the caller's thread") {
  const KeepThreads keep;
  set_num_threads(1);
  const std::thread::id here = std::this_thread::get_id();
  int strangers = 0;
  parallel_for(100, [&](int64_t) { strangers += std::this_thread::get_id() != here; });
  CHECK(strangers == 0);
}

TEST_CASE("Two program threads may run loops at the same time") {
  const KeepThreads keep;
  set_num_threads(2);
  std::atomic<int64_t> sum{0};
  const auto work = [&] {
    for (int round = 0; round < 50; ++round) parallel_for(20, [&](int64_t c) { sum += c; });
  };
  std::thread other(work);
  work();
  other.join();
  CHECK(sum == 2 * 50 * 190);
}

TEST_CASE("A number of threads out of range is an error with the range") {
  const KeepThreads keep;
  for (int bad : {0, -1, 1025}) {
    const std::string text = test::error_of([&] { set_num_threads(bad); });
    CHECK(test::contains(text, "got " + std::to_string(bad)));
    CHECK(test::contains(text, "1 .. 1024"));
  }
  CHECK(num_threads() == keep.old);
}

#if defined(__SSE2__)
TEST_CASE("Chunks run with the default floating-point mode even where the caller flushes to zero") {
  const KeepThreads keep;
  const unsigned old = _mm_getcsr();
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    std::atomic<int> wrong{0};
    volatile float small = 1e-38f;
    _mm_setcsr(old | 0x8040u | 0x2000u);  // FTZ, DAZ, round down
    std::thread([&] {                     // new threads inherit the mode
      parallel_for(64, [&](int64_t) {
        if ((_mm_getcsr() & 0xE040u) != 0 || small * 0.25f == 0.0f) ++wrong;
      });
    })
        .join();
    parallel_for(64, [&](int64_t) { wrong += (_mm_getcsr() & 0xE040u) != 0; });
    const unsigned after = _mm_getcsr();
    _mm_setcsr(old);
    CHECK((after & 0xE040u) == 0xA040u);  // the caller's own mode is left alone
    CHECK(wrong == 0);
  }
}
#endif

}  // namespace
}  // namespace bitgrad
