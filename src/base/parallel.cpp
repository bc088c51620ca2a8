// Parallel loops on a thread pool. Threads draw chunk numbers from one counter, so every chunk below a running one has
// been started. The caller works too, and at the end waits only for workers that have joined the loop: a worker that
// the system has not scheduled costs nothing. (An OpenMP region ends when the whole team has arrived: 14 ms per loop on
// a busy machine.)
#include "bitgrad/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "base/loops.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"

namespace bitgrad {
namespace {

constexpr int kMaxThreads = 1024;
std::atomic<int> g_threads{0};  // 0: not chosen yet
thread_local bool t_inside = false;

int threads_of_affinity() {
  // sched_getaffinity rejects a mask shorter than the kernel's, so try increasing lengths.
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (ok) return count < 1 ? 1 : (count > kMaxThreads ? kMaxThreads : count);
  }
  return 1;
}

// Rounding to nearest, no flush-to-zero, no denormals-are-zero, whatever mode this thread inherited (a program linked
// with -ffast-math sets these modes for every thread created later). Restored at the end, so that the caller keeps its
// own mode.
class DefaultFloatMode {
 public:
#if defined(__SSE2__)
  DefaultFloatMode() : old_(_mm_getcsr()) {
    if ((old_ & kModeBits) != 0) _mm_setcsr(old_ & ~kModeBits);
  }
  ~DefaultFloatMode() {
    if ((old_ & kModeBits) != 0) _mm_setcsr(old_);
  }

 private:
  static constexpr unsigned kModeBits = 0x8000u | 0x6000u | 0x0040u;  // FTZ, rounding, DAZ
  unsigned old_;
#else
  DefaultFloatMode() = default;
  ~DefaultFloatMode() {}
#endif
 public:
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
};

// Marks this thread as inside a loop, so that nested loops run inline.
class InsideLoop {
 public:
  InsideLoop() : old_(t_inside) { t_inside = true; }
  ~InsideLoop() { t_inside = old_; }
  InsideLoop(const InsideLoop&) = delete;
  InsideLoop& operator=(const InsideLoop&) = delete;

 private:
  bool old_;
};

// One loop, shared by several threads.
class Loop {
 public:
  Loop(int64_t chunks, void (*call)(void*, int64_t), void* context) : chunks_(chunks), call_(call), context_(context) {}

  void work() noexcept {
    const InsideLoop inside;
    const DefaultFloatMode mode;
    while (!stop_.load(std::memory_order_relaxed)) {
      const int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks_) return;
      try {
        call_(context_, chunk);
      } catch (...) {
        keep(chunk, std::current_exception());
      }
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Keeps the error of the lowest chunk, which is the one that a serial loop would throw, for any number of threads:
  // every chunk below the failed one was drawn before it and is finished by its thread.
  void keep(int64_t chunk, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (chunk < error_chunk_) {
      error_chunk_ = chunk;
      error_ = std::move(error);
    }
    stop_.store(true, std::memory_order_relaxed);
  }

  const int64_t chunks_;
  void (*const call_)(void*, int64_t);
  void* const context_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  int64_t error_chunk_ = std::numeric_limits<int64_t>::max();
  std::exception_ptr error_;
};

// The worker threads. Runs one loop at a time; a caller that finds it busy runs its loop alone.
class Pool {
 public:
  static Pool& instance() {
    static Pool pool;
    return pool;
  }

  // Runs the loop on the calling thread and up to `helpers` workers. Returns the number of workers available, or -1 if
  // the pool is busy and nothing was run.
  int run(Loop& loop, int helpers) {
    const std::unique_lock busy(caller_, std::try_to_lock);
    if (!busy.owns_lock()) return -1;
    {
      const std::lock_guard lock(mutex_);
      helpers = hire(helpers);
      loop_ = &loop;
      places_ = helpers;
      offers_.fetch_add(1, std::memory_order_release);
    }
    if (sleeping_.load(std::memory_order_seq_cst) > 0) wake_.notify_all();
    loop.work();
    std::unique_lock lock(mutex_);
    loop_ = nullptr;  // workers that wake up from now on find no loop
    done_.wait(lock, [this] { return active_ == 0; });
    return helpers;
  }

 private:
  Pool() = default;
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      offers_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& t : workers_) t.join();
  }

  // Starts workers until there are `wanted` or the system refuses one (memory or process limit); results do not depend
  // on their number. Returns min(wanted, workers available).
  int hire(int wanted) {
    try {
      workers_.reserve(static_cast<size_t>(wanted));
      while (static_cast<int>(workers_.size()) < wanted) workers_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    return std::min(wanted, static_cast<int>(workers_.size()));
  }

  void serve() {
    uint64_t seen = 0;
    for (;;) {
      await_offer(seen);
      Loop* loop = nullptr;
      {
        const std::lock_guard lock(mutex_);
        if (ending_) return;
        seen = offers_.load(std::memory_order_relaxed);
        if (loop_ != nullptr && places_ > 0) {
          loop = loop_;
          --places_;
          ++active_;
        }
      }
      if (loop == nullptr) continue;
      loop->work();
      const std::lock_guard lock(mutex_);
      if (--active_ == 0) done_.notify_one();
    }
  }

  // Spins for some microseconds, because the loops of a training step follow one another closely, then sleeps.
  void await_offer(uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      if (offers_.load(std::memory_order_acquire) != seen) return;
#if defined(__SSE2__)
      _mm_pause();
#endif
    }
    std::unique_lock lock(mutex_);
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, [&] { return offers_.load(std::memory_order_relaxed) != seen; });
    sleeping_.fetch_sub(1, std::memory_order_relaxed);
  }

  static constexpr int kSpins = 1000;
  std::mutex caller_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  std::atomic<uint64_t> offers_{0};
  std::atomic<int> sleeping_{0};
  Loop* loop_ = nullptr;
  int places_ = 0, active_ = 0;
  bool ending_ = false;
};

}  // namespace

void set_num_threads(int n) {
  require(n >= 1 && n <= kMaxThreads, "set_num_threads", "the number of threads is out of range: got ", n,
          ", expected 1 .. ", kMaxThreads, '.');
  g_threads.store(n, std::memory_order_relaxed);
}

int available_cores() { return threads_of_affinity(); }

int num_threads() {
  int n = g_threads.load(std::memory_order_relaxed);
  if (n == 0) {
    const int wanted = threads_of_affinity();
    // Another thread may have set a number meanwhile, which then stays.
    n = g_threads.compare_exchange_strong(n, wanted, std::memory_order_relaxed) ? wanted : n;
  }
  return n;
}

namespace {

// The system refused a thread: do not try again until set_num_threads is called.
void keep_to(int threads, int wanted) {
  if (g_threads.compare_exchange_strong(wanted, threads, std::memory_order_relaxed))
    log(LogLevel::kWarning, concat("the system provides no more than ", threads, " of ", wanted,
                                   " threads (a memory or process limit): the run continues with these. "
                                   "Results are the same; request fewer, or raise `ulimit -v` or `ulimit -u`."));
}

}  // namespace

namespace detail {

bool loops_run_inline() { return t_inside || num_threads() == 1; }

void parallel_for_impl(int64_t chunks, void (*call)(void*, int64_t), void* context) {
  if (chunks <= 0) return;
  const int threads = chunks == 1 || loops_run_inline() || !current_device().is_cpu() ? 1 : num_threads();
  if (threads > 1) {
    Loop loop(chunks, call, context);
    if (const int helpers = Pool::instance().run(loop, threads - 1); helpers >= 0) {
      if (helpers < threads - 1) keep_to(helpers + 1, threads);
      loop.rethrow();
      return;
    }
  }
  // Chunks of a top-level loop that runs on one thread may start parallel loops of their own.
  const DefaultFloatMode mode;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) call(context, chunk);
}

}  // namespace detail
}  // namespace bitgrad
