// Flag words: what a kernel found in its data (NaN, a scale out of range), and the error that follows.
//
//   FlagWord flag;
//   args.flags = flag.word();
//   reduce(args);
//   flag.check([=] { fail_with(ErrorCode::kNonFinite, ...); });
//
// On the CPU the error is thrown immediately. On another device the word is in device memory; the check is kept, and
// made when the flags are next read (poll_errors). In training a device's errors are polled once in a microbatch, in
// that of an optimizer step before anything moves; what its updates find is read with the flags of the next microbatch,
// or when the model is evaluated or saved. Of several the first check fails.
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

  // In memory of the device that was current when it was made. Kernels OR bits into it.
  uint32_t* word() const { return word_; }
  // `fail` throws; it holds what it names by value. Called when a bit is set.
  void check(std::function<void()> fail) const;
  // `take` gets the word, whatever it holds, when the errors are polled: a number of 4 bytes that a kernel wrote there.
  // On the CPU immediately.
  void read(std::function<void(uint32_t word)> take) const;

 private:
  uint32_t on_host_ = 0;
  uint32_t* word_;
};

// Reads the flags of the current device and makes the checks that are kept; they are forgotten then, also when one
// throws. Waits for the device. Nothing to do on the CPU.
void poll_errors();
// Forgets them, with what was to be checked: after an error of the step that they belong to.
void discard_errors();
// Calls `then` when the errors are polled, in its turn among the checks; on the CPU immediately.
void on_poll(std::function<void()> then);

// The words and checks of work that a device records (base/device_work.h) and does again: they are apart from the
// others.
class FlagRecord {
 public:
  FlagRecord();  // on the current device
  ~FlagRecord();
  FlagRecord(const FlagRecord&) = delete;
  FlagRecord& operator=(const FlagRecord&) = delete;

  // While it lives, words and checks of this thread go to the record.
  class Scope {
   public:
    explicit Scope(FlagRecord& record);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    void* outer_;
  };
  // The work was asked for once more: its checks are made when the errors are polled.
  void expect();

 private:
  friend class Scope;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Errors of the checks of this scope pass `handler` first, the inner scope's first, whenever they are made: it may
// throw another error in their place (one that names the parameter, say). It holds what it names by value. For checks
// of devices: on the CPU they throw inside the scope, where try and catch see them.
class ErrorContext {
 public:
  using Handler = std::function<void(const std::exception& error)>;
  explicit ErrorContext(Handler handler);
  ~ErrorContext();
  ErrorContext(const ErrorContext&) = delete;
  ErrorContext& operator=(const ErrorContext&) = delete;
};

}  // namespace bitgrad
