// A wire in the memory of one process, for the protocol of dist/wire_calls.h without MPI. Long messages wait for their
// receiver, as those of MPI do, and a rank can be made silent.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "dist/wire.h"
#include "dist/wire_ranks.h"
#include "support/rank_cases.h"

namespace bitgrad::test {

// What the ranks share.
struct MemoryNet {
  explicit MemoryNet(int64_t ranks)
      : size(ranks), ended(static_cast<size_t>(ranks)), silent(static_cast<size_t>(ranks)) {}

  struct Sent {
    std::span<const std::byte> bytes = {};
    std::vector<std::byte> copy = {};  // of a short message, whose sender is done
    int64_t id = -1;
  };
  struct Place {
    std::span<std::byte> bytes = {};
    int64_t id = 0;
  };
  struct Lane {
    std::deque<Sent> sent = {};
    std::deque<Place> places = {};
  };

  const int64_t size;
  std::mutex mutex;
  // The members below are guarded by it.
  std::map<std::tuple<int64_t, int64_t, int>, Lane> lanes;  // from, to, tag
  std::vector<std::vector<detail::Wire::Ended>> ended;      // of each rank
  std::vector<char> silent;
  int64_t closing = 0;
  std::vector<int> end_codes;
  size_t longest = 0;  // message
};

class MemoryWire final : public detail::Wire {
 public:
  MemoryWire(std::shared_ptr<MemoryNet> net, int64_t rank) : net_(std::move(net)), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return net_->size; }
  int64_t local_rank() const override { return rank_; }
  int64_t local_size() const override { return net_->size; }
  int max_tag() const override { return 32767; }

  void send(int64_t to, int tag, std::span<const std::byte> bytes, int64_t id) override {
    const std::lock_guard lock(net_->mutex);
    if (net_->silent[static_cast<size_t>(rank_)] != 0) return;
    net_->longest = std::max(net_->longest, bytes.size());
    MemoryNet::Sent sent{bytes, {}, id};
    if (bytes.size() <= 4096) {
      sent.copy.assign(bytes.begin(), bytes.end());
      sent.bytes = sent.copy;
      sent.id = -1;
      ended().push_back({id, 0});
    }
    auto& lane = net_->lanes[{rank_, to, tag}];
    lane.sent.push_back(std::move(sent));
    match(rank_, to, lane);
  }
  void receive(int64_t from, int tag, std::span<std::byte> bytes, int64_t id) override {
    const std::lock_guard lock(net_->mutex);
    auto& lane = net_->lanes[{from, rank_, tag}];
    lane.places.push_back({bytes, id});
    match(from, rank_, lane);
  }
  void poll(std::vector<Ended>& ended_now) override {
    const std::lock_guard lock(net_->mutex);
    if (net_->silent[static_cast<size_t>(rank_)] != 0) return;
    ended_now.insert(ended_now.end(), ended().begin(), ended().end());
    ended().clear();
  }
  bool may_close() override {
    const std::lock_guard lock(net_->mutex);
    net_->closing += std::exchange(asked_, true) ? 0 : 1;
    return net_->closing == net_->size;
  }
  void close() override {}
  void end_all(int code) override {
    const std::lock_guard lock(net_->mutex);
    net_->end_codes.push_back(code);
  }

 private:
  std::vector<Ended>& ended() { return net_->ended[static_cast<size_t>(rank_)]; }
  void match(int64_t from, int64_t to, MemoryNet::Lane& lane) {
    while (!lane.sent.empty() && !lane.places.empty()) {
      const MemoryNet::Sent& sent = lane.sent.front();
      const MemoryNet::Place& place = lane.places.front();
      if (!sent.bytes.empty()) std::memcpy(place.bytes.data(), sent.bytes.data(), sent.bytes.size());
      net_->ended[static_cast<size_t>(to)].push_back({place.id, sent.bytes.size()});
      if (sent.id >= 0) net_->ended[static_cast<size_t>(from)].push_back({sent.id, 0});
      lane.sent.pop_front();
      lane.places.pop_front();
    }
  }

  std::shared_ptr<MemoryNet> net_;
  int64_t rank_;
  bool asked_ = false;
};

// The threads of the wires of all ranks; they end as processes do, all together.
class MemoryRanks {
 public:
  explicit MemoryRanks(int64_t size, std::chrono::milliseconds timeout = std::chrono::seconds(10))
      : net(std::make_shared<MemoryNet>(size)) {
    for (int64_t r = 0; r < size; ++r)
      threads_.push_back(std::make_unique<detail::WireThread>(
          "memory", [net = net, r] { return std::make_unique<MemoryWire>(net, r); }, [](int) {}, timeout));
    for (const auto& thread : threads_) thread->wait_until_open();
  }
  ~MemoryRanks() { close(); }
  MemoryRanks(const MemoryRanks&) = delete;
  MemoryRanks& operator=(const MemoryRanks&) = delete;

  std::vector<std::shared_ptr<Communicator>> communicators(const detail::WireOptions& options) const {
    std::vector<std::shared_ptr<Communicator>> ranks;
    ranks.reserve(threads_.size());
    for (const auto& thread : threads_) ranks.push_back(thread->communicator(options));
    return ranks;
  }
  void close() {
    std::vector<std::thread> closing;
    closing.reserve(threads_.size());
    for (const auto& thread : threads_) closing.emplace_back([&thread] { thread->close(); });
    for (std::thread& t : closing) t.join();
  }
  void make_silent(size_t rank) const {
    const std::lock_guard lock(net->mutex);
    net->silent[rank] = 1;
  }

  const std::shared_ptr<MemoryNet> net;

 private:
  std::vector<std::unique_ptr<detail::WireThread>> threads_;
};

class MemoryRankMaker final : public RankMaker {
 public:
  std::vector<std::string> errors(int64_t size, const Work& work, std::chrono::milliseconds timeout) const override {
    const MemoryRanks ranks(size);
    return ThreadRankMaker::errors_of(ranks.communicators({.timeout = timeout, .piece = 1000}), work);
  }
};

}  // namespace bitgrad::test
