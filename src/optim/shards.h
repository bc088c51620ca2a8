// Which rows of a large parameter each rank updates, and how gradients reach that rank and new rows the others (ZeRO-1,
// Rajbhandari et al. 2020, with packed codes in place of weights). docs/numerics.md section 6.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/dist/communicator.h"
#include "bitgrad/dist/wire_format.h"

namespace bitgrad::detail {

// Gradients of fewer bytes (fp32) are summed and updated by every rank. A test sets it to 1.
inline int64_t least_shared_bytes = int64_t{64} << 10;
// Elements of a parameter whose rows all have one owner, at most, in units of 1/size of those of all such parameters:
// its owner receives size - 1 gradients of it, and a sum that all ranks share 2 (size - 1) / size. A test sets it
// higher.
inline int64_t most_of_one_owner = 2;
// For tests: rows of other ranks become NaN after every update, so that nothing may read them.
inline bool poison_foreign_rows = false;

// Rank r updates rows [begin(r), end(r)): runs of whole units, in the order of ranks, as even as possible. A rank may
// have none.
class RowShares {
 public:
  // `unit`: rows that stay together. The ranks `turn`, turn + 1, .. (modulo size) get the units that are left over.
  RowShares(int64_t rows, int64_t unit, int64_t size, int64_t turn);
  // All rows belong to `owner`; they travel in multiples of `cut`.
  static RowShares of_one(int64_t rows, int64_t cut, int64_t size, int64_t owner);
  int64_t begin(int64_t rank) const { return begins_[static_cast<size_t>(rank)]; }
  int64_t end(int64_t rank) const { return begins_[static_cast<size_t>(rank) + 1]; }
  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }
  // Slices that travel one after another: rows [first, second) of each rank, at most `most` (at least a unit, or a cut)
  // of each.
  using Slice = std::vector<std::pair<int64_t, int64_t>>;
  std::vector<Slice> slices(int64_t most) const;

 private:
  std::vector<int64_t> begins_;
  int64_t cut_ = 1;  // slices begin at multiples of it
};

// Bytes of gradients, codes or state to one rank that travel together.
inline constexpr int64_t kBucketBytes = int64_t{1} << 20;
inline constexpr size_t kInFlight = 4;  // such buckets
// Of gradients: more of them, while they hold fewer bytes. A test sets it to 0, and the buckets to 1.
inline int64_t gradient_bytes_in_flight = int64_t{32} << 20;
inline size_t gradient_buckets_in_flight = kInFlight;

// A gradient, fp32 or bf16 [rows, cols] on the host, whose rows are summed by their owners.
struct SharedGradient {
  Tensor gradient;
  const RowShares* shares = nullptr;
  RandomStream draws = {};  // for kInt8; element: row-major index
};
// Bytes that `elements` of a gradient are on their way: whole words.
int64_t wire_bytes(DType gradient, int64_t elements, WireFormat wire);

// Replaces the own rows of gradients by their sums over the ranks, in the tree of docs/numerics.md section 6; other
// rows keep what they hold. Parts of other ranks have gone through `wire`. They travel in buckets while gradients that
// are not added yet are still computed. All ranks add the same gradients in the same order, and make no other calls of
// the communicator between the first and finish, after which more may be added. Errors are those of Communicator::wait;
// if it goes while gradients are not summed, it cancels the ranks.
class RowSums {
 public:
  RowSums(Communicator& ranks, WireFormat wire);
  RowSums(const RowSums&) = delete;
  RowSums& operator=(const RowSums&) = delete;
  ~RowSums();
  // Its values stay in place until finish. Returns without waiting for other ranks.
  void add(SharedGradient gradient);
  // Sums what has come, and sends what waits for memory.
  void poll();
  // Waits for the sums of all.
  void finish();

 private:
  struct Slice;
  struct Bucket;
  bool has_room() const;
  void start_first();
  void land();
  void add_slice(const Bucket& bucket, const Slice& slice, int64_t at) const;

  Communicator& ranks_;
  const WireFormat wire_;
  std::deque<SharedGradient> gradients_;
  std::deque<Bucket> waiting_, flying_;
  int64_t room_ = 0;          // bytes of the largest part of the last bucket that waits, which more slices may join
  int64_t flying_bytes_ = 0;  // that buckets on their way hold
};

// Rows of something, in bytes: those that each rank gives.
struct SharedRows {
  RowShares::Slice rows = {};
  std::function<int64_t(int64_t begin, int64_t end)> bytes = {};
  std::function<void(int64_t begin, int64_t end, std::byte* to)> give = {};
  std::function<void(int64_t begin, int64_t end, const std::byte* from)> take = {};
};
// A dense tensor that holds one entry for `each` consecutive elements of [rows, cols].
class TensorRows {
 public:
  TensorRows(Tensor t, int64_t rows, int64_t cols, int64_t each = 1)
      : t_(std::move(t)), rows_(rows), cols_(cols), each_(each) {}
  // The first byte of a row, which begins with an entry; of the row after the last: the end.
  int64_t at(int64_t row) const {
    return (row == rows_ ? (rows_ * cols_ + each_ - 1) / each_ : row * cols_ / each_) * (t_.dtype().bits() / 8);
  }
  SharedRows slice(RowShares::Slice rows) const;
  // Rows whose bytes, for one rank, fill a bucket.
  int64_t rows_in_bucket() const { return kBucketBytes * rows_ / std::max<int64_t>(at(rows_), 1); }

 private:
  Tensor t_;
  int64_t rows_, cols_, each_;
};

// Calls `body`, in which transfers are under way; an exception cancels the ranks before their memory goes.
void with_transfers(Communicator& ranks, const std::function<void()>& body);

// Sends own rows to all ranks, or to the first alone, and takes theirs. Small rows travel together.
class RowGather {
 public:
  explicit RowGather(Communicator& ranks, bool to_first = false) : ranks_(ranks), to_first_(to_first) {}
  // Use it inside with_transfers.
  void add(SharedRows rows);
  // Waits for all, and takes the rows of others in the order of add.
  void finish();

 private:
  struct Flight {
    std::vector<SharedRows> rows;
    std::vector<std::vector<std::byte>> parts;  // by rank
    Transfer transfer{};
  };
  bool here() const { return !to_first_ || ranks_.rank() == 0; }
  void send();
  void land();

  Communicator& ranks_;
  const bool to_first_;
  std::vector<SharedRows> waiting_;
  int64_t waiting_bytes_ = 0;
  std::deque<Flight> flights_;
};

}  // namespace bitgrad::detail
