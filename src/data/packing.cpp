#include <algorithm>
#include <numeric>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/rng.h"
#include "data/conversations.h"

namespace bitgrad::data {
namespace {

constexpr uint64_t kOrderSeed = 1;  // of the order in which windows are filled

// The room that is left in each window, and the first window with enough of it: a tree of maxima.
class Rooms {
 public:
  // Room for `windows` windows of `context` ids.
  Rooms(int64_t windows, int64_t context) {
    while (leaves_ < static_cast<size_t>(windows)) leaves_ *= 2;
    room_.assign(2 * leaves_, context);
  }
  // The first window with room for n ids.
  size_t first(int64_t n) const {
    size_t at = 1;
    while (at < leaves_) at = room_[2 * at] >= n ? 2 * at : 2 * at + 1;
    return at - leaves_;
  }
  void take(size_t window, int64_t n) {
    size_t at = window + leaves_;
    room_[at] = std::max<int64_t>(0, room_[at] - n);
    for (at /= 2; at > 0; at /= 2) room_[at] = std::max(room_[2 * at], room_[2 * at + 1]);
  }

 private:
  size_t leaves_ = 1;
  std::vector<int64_t> room_;
};

std::vector<int64_t> filling_order(int64_t n, bool shuffled) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const RandomStream draws{kOrderSeed, Purpose::kDataset, site_id("data.jsonl"), 0};
  for (size_t i = order.size(); shuffled && i > 1; --i) std::swap(order[i - 1], order[draws.bits64(i) % i]);
  return order;
}

class PackedDataset final : public Dataset {
 public:
  PackedDataset(const Conversations& all, Packing packing) : p_(std::move(packing)) {
    std::vector<std::vector<int64_t>> windows;  // the conversations of each
    if (p_.pack) {
      Rooms rooms(all.size(), p_.context);
      for (const int64_t i : filling_order(all.size(), p_.shuffled)) {
        const size_t at = rooms.first(all.length(i));
        if (at >= windows.size()) windows.resize(at + 1);
        windows[at].push_back(i);
        rooms.take(at, all.length(i) + (ends(all, i) ? 0 : 1));
      }
    } else {
      for (int64_t i = 0; i < all.size(); ++i) windows.push_back({i});
    }
    size_ = std::ssize(windows);
    ids_ = TrackedBytes(4 * size_ * p_.context, MemoryKind::kDataset);
    targets_ = TrackedBytes(size_ * p_.context, MemoryKind::kDataset);
    std::fill_n(ids(0), size_ * p_.context, p_.end);
    std::fill_n(targets_.data(), targets_.size(), uint8_t{0});
    for (int64_t w = 0; w < size_; ++w) fill(w, all, windows[static_cast<size_t>(w)]);
    tell(all);
  }

  std::string name() const override { return p_.name + filled_; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return {p_.context}; }
  int64_t classes() const override { return p_.vocabulary; }
  int64_t vocabulary() const override { return p_.vocabulary; }
  int64_t document_end() const override { return p_.pack ? p_.end : -1; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return p_.tokenizer; }
  std::vector<std::string> notes() const override { return p_.notes; }
  TargetForm target_form() const override {
    return {.shape = Shape{p_.context}, .classes = p_.vocabulary, .bytes_per_target = 0};
  }
  EpochOrder epoch_order() const override {
    return {p_.shuffled ? EpochOrder::Kind::kShuffled : EpochOrder::Kind::kSequential, size_};
  }
  int64_t memory_bytes() const override { return ids_.size() + targets_.size(); }

  void example(int64_t index, void* x, void* target) const override {
    check_index(index);
    const int32_t* const from = ids(index);
    const uint8_t* const counts = targets_.data() + index * p_.context;
    auto* const labels = static_cast<int32_t*>(target);
    std::copy_n(from, p_.context, static_cast<int32_t*>(x));
    for (int64_t p = 0; p + 1 < p_.context; ++p) labels[p] = counts[p + 1] != 0 ? from[p + 1] : kIgnoredClass;
    labels[p_.context - 1] = kIgnoredClass;  // what follows is in no window
  }

 private:
  int32_t* ids(int64_t window) const { return reinterpret_cast<int32_t*>(ids_.data()) + window * p_.context; }
  // Whether its own last id ends it.
  bool ends(const Conversations& all, int64_t i) const {
    return all.ids[static_cast<size_t>(all.begins[static_cast<size_t>(i) + 1]) - 1] == p_.end;
  }
  void fill(int64_t window, const Conversations& all, const std::vector<int64_t>& parts) {
    int64_t at = 0;
    for (const int64_t i : parts) {
      const int64_t begin = all.begins[static_cast<size_t>(i)], n = all.length(i);
      std::copy_n(all.ids.begin() + begin, n, ids(window) + at);
      std::copy_n(all.targets.begin() + begin, n, targets_.data() + window * p_.context + at);
      at += n + (ends(all, i) ? 0 : 1);
    }
  }
  void tell(const Conversations& all) {
    const auto percent = [&](int64_t n) {
      TextWriter text;
      text.precision(3);
      text << 100.0 * static_cast<double>(n) / static_cast<double>(size_ * p_.context) << " %";
      return text.str();
    };
    const int64_t targets = std::accumulate(targets_.data(), targets_.data() + targets_.size(), int64_t{0});
    filled_ =
        concat(" (", all.size(), " conversations in windows that are filled to ", percent(std::ssize(all.ids)), ')');
    log(LogLevel::kInfo, concat(p_.name, ": ", all.size(), " conversations in ", size_, " windows of ", p_.context,
                                " ids: ", percent(std::ssize(all.ids)), " of the positions hold their ids, ",
                                percent(targets), " are targets (", targets, ')'));
  }

  Packing p_;
  std::string filled_;  // how full the windows are, for the name
  int64_t size_ = 0;
  TrackedBytes ids_, targets_;
};

}  // namespace

std::unique_ptr<Dataset> packed_dataset(const Conversations& all, Packing packing) {
  return std::make_unique<PackedDataset>(all, std::move(packing));
}

}  // namespace bitgrad::data
