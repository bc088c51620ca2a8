// Communicators: how the ranks that train one model exchange and sum numbers. docs/numerics.md section 6.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

inline constexpr std::chrono::minutes kRankTimeout{10};

class DeviceLink;  // dist/device_link.h

// Where a rank runs.
struct RankInfo {
  std::string engine = {};  // what moves the bytes: "threads", "mpi (Open MPI 4.1.4)"
  std::string host = {};
  int64_t local_rank = 0, local_size = 1;  // among the ranks of the same host
  int64_t cores = 0;  // that this rank may use, its part of those that others may use too; 0: unknown
};

// A movement of bytes that was started and not yet waited for.
enum class Transfer : int64_t {};

// One of several ranks. All ranks must make the same calls in the same order, each rank from one thread at a time. An
// engine moves bytes between ranks and adds nothing, so that the order of a sum is the same for every engine: sums are
// the functions below. Memory is the host's.
class Communicator {
 public:
  using Bytes = std::span<std::byte>;
  using ConstBytes = std::span<const std::byte>;

  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;  // 0 .. size()-1
  virtual int64_t size() const = 0;
  virtual RankInfo info() const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;  // after which a silent rank ends all
  // Both start a movement whose memory must stay in place until `wait`, and must be as long on both sides. Nothing is
  // moved from a rank to itself; parts may be empty.
  // exchange: to[r] goes to rank r, from[r] comes from rank r; each has size() parts.
  virtual Transfer exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) = 0;
  // gather: `own` goes to every other rank, all[r] comes from rank r; size() parts.
  virtual Transfer gather(ConstBytes own, std::span<const Bytes> all) = 0;
  // Makes progress. Whether the transfer has ended: then its memory is free. Throws as wait, but for the limit of time.
  virtual bool done(Transfer transfer) = 0;
  // Returns when the transfer has ended. Throws the Error with which another rank has cancelled, under its code; and
  // Error(kDevice) if a rank does not answer in time, or if the calls or lengths of two ranks differ.
  virtual void wait(Transfer transfer) = 0;
  // This rank cannot continue: current and future calls of all other ranks throw this Error, with the rank's number.
  // Returns when no other rank reads or writes memory of this rank's transfers, all of which have ended.
  virtual void cancel(const Error& why) = 0;
  // Throws the Error with which another rank has cancelled, if one has.
  virtual void check() = 0;
  // Sent to other ranks so far, between devices too.
  int64_t bytes_sent() const { return bytes_sent_; }

 protected:
  int64_t bytes_sent_ = 0;

 private:
  friend class DeviceLink;
  std::optional<Device> linked_ = {};  // the device of this rank, once it is known whether there is a link
  std::shared_ptr<DeviceLink> link_ = {};
};

// Replaces the values (fp32 or bf16, contiguous, same shapes on all ranks) by their sums over the ranks, with the same
// bits on every rank: the tree of docs/numerics.md section 6, in rank order. Every rank adds a part of the elements, so
// that 2 * (size - 1) / size of the bytes travel. Values are on the host or on one device, the same ones on all ranks;
// those on a device are exchanged between devices where a library can (docs/ranks.md, "GPUs"), else by the hosts.
// Throws as Communicator::wait.
void sum_over_ranks(Communicator& ranks, std::span<const Tensor> values);
// The same for integers: counts of elements, flags. Same length on all ranks.
void sum_over_ranks(Communicator& ranks, std::span<int64_t> counts);
// Compares a text of each rank. Throws Error(kUsage), on all ranks, with `what` and the first lines that differ if it
// is not the same on all.
void require_same(Communicator& ranks, std::string_view what, const std::string& own);
// A text of each rank, in rank order.
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& own);
// The same number of values from every rank, in rank order.
template <typename T>
std::vector<T> gather_values(Communicator& ranks, std::span<const T> own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(own.size() * static_cast<size_t>(ranks.size()));
  std::vector<Communicator::Bytes> parts;
  for (size_t r = 0; r < static_cast<size_t>(ranks.size()); ++r)
    parts.push_back(std::as_writable_bytes(std::span(all).subspan(r * own.size(), own.size())));
  std::copy(own.begin(), own.end(), all.begin() + ranks.rank() * std::ssize(own));
  ranks.wait(ranks.gather(std::as_bytes(own), parts));
  return all;
}
// Any number of values from every rank, in rank order.
template <typename T>
std::vector<std::vector<T>> gather_lists(Communicator& ranks, std::span<const T> own) {
  static_assert(std::is_trivially_copyable_v<T>);
  const int64_t length = std::ssize(own);
  std::vector<std::vector<T>> all;
  std::vector<Communicator::Bytes> parts;
  all.reserve(static_cast<size_t>(ranks.size()));
  parts.reserve(static_cast<size_t>(ranks.size()));
  for (const int64_t n : gather_values(ranks, std::span(&length, 1))) {
    all.emplace_back(static_cast<size_t>(n));
    parts.push_back(std::as_writable_bytes(std::span(all.back())));
  }
  std::copy(own.begin(), own.end(), all[static_cast<size_t>(ranks.rank())].begin());
  ranks.wait(ranks.gather(std::as_bytes(own), parts));
  return all;
}

// Ranks that are threads of this process, each used by its own thread. Element i is rank i. A rank that gets no answer
// within `timeout` ends all. Throws Error if size < 1.
std::vector<std::shared_ptr<Communicator>> make_thread_ranks(int64_t size,
                                                             std::chrono::milliseconds timeout = kRankTimeout);

// Summation in a fixed tree: terms 2i and 2i + 1 are added first, then those sums in the same way, level by level. A
// run of 2^k terms that starts at a multiple of 2^k is one subtree, so its sum may be computed elsewhere (another
// rank).

// Adds terms incrementally, holding at most log2(terms) + 1 partial sums. `T` is moved; an empty level holds T{}.
// `join(left, right)` returns left + right.
template <typename T, typename Join>
class TreeSum {
 public:
  explicit TreeSum(Join join) : join_(std::move(join)) {}

  void add(T term) {
    size_t level = 0;
    for (; (terms_ >> level) & 1; ++level) term = join_(std::exchange(levels_[level], T{}), std::move(term));
    if (level == levels_.size()) levels_.emplace_back();
    levels_[level] = std::move(term);
    ++terms_;
  }
  // Returns the sum of all terms and resets the object. Requires terms() > 0. Incomplete levels are joined starting
  // from the last terms.
  T finish() {
    T sum{};
    bool first = true;
    for (size_t level = 0; level < levels_.size(); ++level) {
      if (((terms_ >> level) & 1) == 0) continue;
      T part = std::exchange(levels_[level], T{});
      sum = first ? std::move(part) : join_(std::move(part), std::move(sum));
      first = false;
    }
    terms_ = 0;
    return sum;
  }
  int64_t terms() const { return terms_; }
  void clear() {
    levels_.clear();
    terms_ = 0;
  }

 private:
  Join join_;
  std::vector<T> levels_;
  int64_t terms_ = 0;
};

}  // namespace bitgrad
