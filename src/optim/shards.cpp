#include "optim/shards.h"

#include <algorithm>
#include <utility>

namespace bitgrad::detail {
namespace {

using Bytes = Communicator::Bytes;
using ConstBytes = Communicator::ConstBytes;

int64_t bytes_of(const SharedRows& rows, int64_t rank) {
  const auto [begin, end] = rows.rows[static_cast<size_t>(rank)];
  return rows.bytes(begin, end);
}

}  // namespace

RowShares::RowShares(int64_t rows, int64_t unit, int64_t size, int64_t turn) : cut_(unit) {
  const int64_t units = (rows + unit - 1) / unit;
  int64_t done = 0;
  begins_.push_back(0);
  for (int64_t r = 0; r < size; ++r) {
    const int64_t place = ((r - turn) % size + size) % size;
    done += units / size + (place < units % size ? 1 : 0);
    begins_.push_back(std::min(done * unit, rows));
  }
}

RowShares RowShares::of_one(int64_t rows, int64_t cut, int64_t size, int64_t owner) {
  RowShares shares(rows, std::max<int64_t>(rows, 1), size, owner);
  shares.cut_ = cut;
  return shares;
}

std::vector<RowShares::Slice> RowShares::slices(int64_t most) const {
  const int64_t step = std::max(most / cut_, int64_t{1}) * cut_;
  int64_t longest = 0;
  for (int64_t r = 0; r < size(); ++r) longest = std::max(longest, end(r) - begin(r));
  std::vector<Slice> all;
  for (int64_t first = 0; first < longest; first += step) {
    Slice& slice = all.emplace_back();
    for (int64_t r = 0; r < size(); ++r)
      slice.emplace_back(std::min(begin(r) + first, end(r)), std::min(begin(r) + first + step, end(r)));
  }
  return all;
}

void with_transfers(Communicator& ranks, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    ranks.cancel(error);
    throw;
  } catch (...) {
    ranks.cancel(Error("an exception that is not an Error", ErrorCode::kBug));
    throw;
  }
}

SharedRows TensorRows::slice(RowShares::Slice rows) const {
  auto* const data = static_cast<std::byte*>(t_.data());
  return {std::move(rows), [*this](int64_t begin, int64_t end) { return at(end) - at(begin); },
          [*this, data](int64_t begin, int64_t end, std::byte* to) { std::copy(data + at(begin), data + at(end), to); },
          [*this, data](int64_t begin, int64_t end, const std::byte* from) {
            std::copy_n(from, at(end) - at(begin), data + at(begin));
          }};
}

void RowGather::add(SharedRows rows) {
  int64_t most = 0;  // of a rank: all have the same buckets
  for (const auto& [begin, end] : rows.rows) most = std::max(most, rows.bytes(begin, end));
  waiting_bytes_ += most;
  waiting_.push_back(std::move(rows));
  if (waiting_bytes_ >= kBucketBytes) send();
}

void RowGather::send() {
  if (waiting_.empty()) return;
  while (flights_.size() >= kInFlight) land();
  Flight& flight = flights_.emplace_back();
  flight.rows = std::exchange(waiting_, {});
  waiting_bytes_ = 0;
  std::vector<Bytes> all;
  for (int64_t r = 0; r < ranks_.size(); ++r) {
    int64_t bytes = 0;
    if (!here() && r != ranks_.rank()) {
      flight.parts.emplace_back();
      continue;
    }
    for (const SharedRows& rows : flight.rows) bytes += bytes_of(rows, r);
    flight.parts.emplace_back(static_cast<size_t>(bytes));
  }
  for (std::vector<std::byte>& part : flight.parts) all.emplace_back(part);
  const int64_t own = ranks_.rank();
  std::byte* at = flight.parts[static_cast<size_t>(own)].data();
  for (const SharedRows& rows : flight.rows) {
    const auto [begin, end] = rows.rows[static_cast<size_t>(own)];
    rows.give(begin, end, at);
    at += bytes_of(rows, own);
  }
  if (!to_first_) {
    flight.transfer = ranks_.gather(flight.parts[static_cast<size_t>(own)], all);
    return;
  }
  std::vector<ConstBytes> to(flight.parts.size());
  if (own != 0) {
    to[0] = flight.parts[static_cast<size_t>(own)];
    all[static_cast<size_t>(own)] = {};
  }
  flight.transfer = ranks_.exchange(to, all);
}

void RowGather::land() {
  Flight& flight = flights_.front();
  ranks_.wait(flight.transfer);
  for (int64_t r = 0; r < ranks_.size(); ++r) {
    if (r == ranks_.rank() || !here()) continue;
    const std::byte* at = flight.parts[static_cast<size_t>(r)].data();
    for (const SharedRows& rows : flight.rows) {
      const auto [begin, end] = rows.rows[static_cast<size_t>(r)];
      rows.take(begin, end, at);
      at += bytes_of(rows, r);
    }
  }
  flights_.pop_front();
}

void RowGather::finish() {
  send();
  while (!flights_.empty()) land();
}

}  // namespace bitgrad::detail
