// Parallel loops on a pool of threads. Threads draw chunk numbers from one counter, so every chunk below a running one
// has started. The caller works too, and at the end waits only for chunks that a worker has begun: a worker that the
// system has not scheduled costs nothing. (An OpenMP region ends when the whole team has arrived: on a busy machine 14
// ms a loop.)
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
  // The kernel refuses a mask shorter than its own, so try longer ones.
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

// Rounding to nearest, no flush to zero, no denormals are zero, whatever the creator of this thread had (a program
// linked with -ffast-math sets these for every thread made later). Restored at the end, so that the caller's choice is
// its own.
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

// One loop that several threads work on.
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
  // The error of the lowest chunk: the one that a serial loop would throw, for any number of threads. A chunk below the
  // failed one has been drawn before it and is finished by its thread.
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

// The workers. One loop at a time; a second caller meanwhile runs its loop alone.
class Pool {
 public:
  static Pool& instance() {
    static Pool pool;
    return pool;
  }

  // Runs the loop on the calling thread and up to `helpers` workers. Returns how many there were, -1: the pool is busy,
  // nothing was done.
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
    loop_ = nullptr;  // workers that come now find nothing
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

  // Makes workers until there are `wanted`, or the system has no more (a limit of memory or of processes): a result
  // does not depend on how many there are. Returns how many of the wanted ones there are.
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

  // Looks for a new offer for some microseconds, as the loops of a training step follow one another, then sleeps.
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
    // Another thread may have chosen meanwhile: its number stays.
    n = g_threads.compare_exchange_strong(n, wanted, std::memory_order_relaxed) ? wanted : n;
  }
  return n;
}

namespace {

// The system refused a thread: it is not asked again, until set_num_threads.
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
  // A single chunk at the top may still start loops of its own.
  const DefaultFloatMode mode;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) call(context, chunk);
}

}  // namespace detail
}  // namespace bitgrad
