// Flag words: conditions that a kernel detects in its data (NaN, a scale out of range), and the errors they raise.
//
//   FlagWord flag;
//   args.flags = flag.word();
//   reduce(args);
//   flag.check([=] { fail_with(ErrorCode::kNonFinite, ...); });
//
// On the CPU, check throws immediately. On other devices the word is in device memory; the check is queued and runs
// when the flags are next read (poll_errors). In training, device errors are polled once per microbatch; in the
// microbatch of an optimizer step, before any update. Errors found by the updates themselves are reported with the next
// microbatch, or when the model is evaluated or saved. If several checks fail, the first one throws.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

namespace bitgrad {

class FlagWord {
 public:
  FlagWord();  // zero
  FlagWord(const FlagWord&) = delete;
  FlagWord& operator=(const FlagWord&) = delete;

  // In memory of the device that was current at construction. Kernels OR bits into it.
  uint32_t* word() const { return word_; }
  // `fail` must throw, and must capture what it names by value. It is called if any bit is set.
  void check(std::function<void()> fail) const;
  // Calls `take` with the word, whatever its value, when the errors are polled; for 4-byte values that a kernel writes
  // there. Called immediately on the CPU.
  void read(std::function<void(uint32_t word)> take) const;

 private:
  uint32_t on_host_ = 0;
  uint32_t* word_;
};

// Reads the flags of the current device and runs the queued checks, which are removed even if one throws. Waits for the
// device. No effect on the CPU.
void poll_errors();
// Discards the flags and queued checks, after the step that they belong to has failed.
void discard_errors();
// Calls `then` when the errors are polled, in order with the checks; immediately on the CPU.
void on_poll(std::function<void()> then);

// Holds the words and checks of work that a device records (base/device.h) and replays, separately from others.
class FlagRecord {
 public:
  FlagRecord();  // on the current device
  ~FlagRecord();
  FlagRecord(const FlagRecord&) = delete;
  FlagRecord& operator=(const FlagRecord&) = delete;

  // While it exists, words and checks of this thread go to the record.
  class Scope {
   public:
    explicit Scope(FlagRecord& record);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    void* outer_;
  };
  // Call once per replay: the checks of the record then run when the errors are next polled.
  void expect();

 private:
  friend class Scope;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Exceptions of checks made in this scope pass through `handler`, innermost scope first, whenever the checks run. It
// may throw another error instead (for example, one that names the parameter), and must capture what it names by value.
// Only affects checks on devices: on the CPU they throw inside the scope, where an ordinary try/catch sees them.
class ErrorContext {
 public:
  using Handler = std::function<void(const std::exception& error)>;
  explicit ErrorContext(Handler handler);
  ~ErrorContext();
  ErrorContext(const ErrorContext&) = delete;
  ErrorContext& operator=(const ErrorContext&) = delete;
};

}  // namespace bitgrad
