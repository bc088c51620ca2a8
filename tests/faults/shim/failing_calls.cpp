// Preloaded into a program (LD_PRELOAD): makes its n-th allocation, file call or new thread fail, and makes things
// happen to the program at a count of such calls instead of a time. Linux, glibc.
//
// FAULT_MALLOC=n        the n-th allocation (from 1) gives no memory; FAULT_MALLOC_FOR=k: and the k-1 after it
// FAULT_FILE=n          the n-th open for writing, write, fsync, close or rename fails with FAULT_ERRNO, not done
// FAULT_KILL=n          at that file call, FAULT_KILL_MALLOC=n: at the n-th allocation, the process gets the signal
//                       FAULT_SIGNAL (SIGKILL)
// FAULT_HOLD=n          that file call and each later one makes the file FAULT_HELD and waits until it is removed
// FAULT_THREADS=n       only the first n threads can be made
// FAULT_CLOCK=ms        each look at the clock finds it so many milliseconds later
// FAULT_COUNT=path      at the end: "allocations file-calls threads allocations-before-main allocated-bytes
//                       comparisons" into this file; a comparison is a call of memcmp
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

struct Settings {
  long memory = -1, memory_for = 1, file = -1, error = EIO, threads = -1;
  long kill = -1, kill_memory = -1, signal = SIGKILL, hold = -1, clock = 0;
  const char* held = nullptr;
};

long number(const char* name, long otherwise) {
  const char* const text = getenv(name);
  return text == nullptr ? otherwise : atol(text);
}

// Read by the first call; no allocation, as that call may be malloc.
const Settings& settings() {
  static constinit Settings s;
  static constinit std::atomic<int> state{0};
  if (state.load(std::memory_order_acquire) == 1 || environ == nullptr) return s;
  Settings read;
  read.memory = number("FAULT_MALLOC", -1);
  read.memory_for = number("FAULT_MALLOC_FOR", 1);
  read.file = number("FAULT_FILE", -1);
  read.error = number("FAULT_ERRNO", EIO);
  read.threads = number("FAULT_THREADS", -1);
  read.kill = number("FAULT_KILL", -1);
  read.kill_memory = number("FAULT_KILL_MALLOC", -1);
  read.signal = number("FAULT_SIGNAL", SIGKILL);
  read.hold = number("FAULT_HOLD", -1);
  read.clock = number("FAULT_CLOCK", 0);
  read.held = getenv("FAULT_HELD");
  s = read;
  state.store(1, std::memory_order_release);
  return s;
}

constinit std::atomic<long> g_allocations{0}, g_files{0}, g_threads{0}, g_bytes{0}, g_comparisons{0}, g_looks{0};
constinit long g_before_main = 0;             // allocations
constinit std::atomic<bool> g_written[1024];  // descriptors that are open for writing

bool no_memory(size_t bytes) {
  const Settings& s = settings();
  const long now = ++g_allocations;
  g_bytes += static_cast<long>(bytes);
  if (now == s.kill_memory) raise(static_cast<int>(s.signal));
  if (s.memory < 0 || now < s.memory || now >= s.memory + s.memory_for) return false;
  errno = ENOMEM;
  return true;
}

void hold(const char* path) {
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, 0644));
  if (fd < 0) abort();
  syscall(SYS_close, fd);
  const timespec pause{0, 1'000'000};
  while (access(path, F_OK) == 0) nanosleep(&pause, nullptr);
}

bool fails() {
  const Settings& s = settings();
  const long now = ++g_files;
  if (s.hold >= 0 && now >= s.hold) hold(s.held);
  if (now == s.kill) raise(static_cast<int>(s.signal));
  if (now != s.file) return false;
  errno = static_cast<int>(s.error);
  return true;
}

bool is_written(int fd) { return fd > 2 && fd < 1024 && g_written[fd].load(); }

int open_counted(const char* path, int flags, mode_t mode) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (writes && fails()) return -1;
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (fd >= 0 && fd < 1024) g_written[fd].store(writes);
  return fd;
}

[[gnu::destructor]] void report() {
  const char* const path = getenv("FAULT_COUNT");
  if (path == nullptr) return;
  char text[160];
  const int length = snprintf(text, sizeof text, "%ld %ld %ld %ld %ld %ld\n", g_allocations.load(), g_files.load(),
                              g_threads.load(), g_before_main, g_bytes.load(), g_comparisons.load());
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
  if (fd < 0) return;
  syscall(SYS_write, fd, text, static_cast<size_t>(length));
  syscall(SYS_close, fd);
}

}  // namespace

namespace {

using Main = int (*)(int, char**, char**);
Main g_main = nullptr;
int counted_main(int argc, char** argv, char** environment) {
  g_before_main = g_allocations.load();
  return g_main(argc, argv, environment);
}

}  // namespace

extern "C" {

// The constructors of the program and its libraries ran before main.
int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                      void* stack) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  g_main = main;
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(counted_main, argc, argv, init, fini, rtld_fini, stack);
}

void* malloc(size_t bytes) noexcept { return no_memory(bytes) ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) noexcept {
  return no_memory(count * bytes) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) noexcept { return no_memory(bytes) ? nullptr : __libc_realloc(old, bytes); }
void* memalign(size_t alignment, size_t bytes) noexcept {
  return no_memory(bytes) ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) noexcept {
  void* const block = memalign(alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

int memcmp(const void* a, const void* b, size_t bytes) noexcept {
  ++g_comparisons;
  const auto *x = static_cast<const unsigned char*>(a), *y = static_cast<const unsigned char*>(b);
  size_t i = 0;
  for (uint64_t p, q; i + 8 <= bytes; i += 8) {
    __builtin_memcpy(&p, x + i, 8);
    __builtin_memcpy(&q, y + i, 8);
    if (p != q) break;
  }
  for (; i < bytes; ++i)
    if (x[i] != y[i]) return x[i] - y[i];
  return 0;
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  const long later = settings().clock * ++g_looks;
  now->tv_sec += later / 1000;
  now->tv_nsec += later % 1000 * 1'000'000;
  if (now->tv_nsec >= 1'000'000'000) {
    ++now->tv_sec;
    now->tv_nsec -= 1'000'000'000;
  }
  return static_cast<int>(result);
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_counted(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_counted(path, flags, mode);
}
ssize_t write(int fd, const void* data, size_t bytes) {
  if (is_written(fd) && fails()) return -1;
  return syscall(SYS_write, fd, data, bytes);
}
int fsync(int fd) {
  if (fails()) return -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}
int rename(const char* from, const char* to) noexcept {
  if (fails()) return -1;
  return static_cast<int>(syscall(SYS_rename, from, to));
}
// The descriptor is gone all the same, as on Linux.
int close(int fd) {
  const bool failing = is_written(fd) && fails();
  if (fd >= 0 && fd < 1024) g_written[fd].store(false);
  const int saved = errno, result = static_cast<int>(syscall(SYS_close, fd));
  if (!failing) return result;
  errno = saved;
  return -1;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const Create create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  const Settings& s = settings();
  if (s.threads >= 0 && ++g_threads > s.threads) return EAGAIN;
  return create(thread, attributes, run, argument);
}

}  // extern "C"
