// The protocol of ranks that are processes: what the messages between them mean. Written for one thread, which also
// runs the wire (dist/wire_ranks.h).
//
// Two ranks have two ordered streams, one each way, of short records: calls, an end, questions whether a rank is alive.
// A call is announced to every other rank, with its kind and the bytes that go each way; short bytes are part of the
// announcement. Longer ones follow as messages of their own once both announcements of a pair have crossed: from then
// on both ranks serve them, even if one has failed since. The last record of a stream is its end: a rank leaves, or has
// failed and says why. Once both ends of a pair have crossed, both know which messages were agreed, and when those
// have ended nothing touches the memory of their transfers any more.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/dist/communicator.h"
#include "dist/wire.h"

namespace bitgrad::detail {

using Clock = std::chrono::steady_clock;

struct WireOptions {
  std::chrono::milliseconds timeout = kRankTimeout;
  std::function<bool()> stop = {};        // whether this process was asked to end
  size_t piece = size_t{1} << 30;         // most bytes of a message: counts of MPI are int
  std::chrono::milliseconds gone{300};    // a rank that says nothing for so long after it was asked
  std::chrono::milliseconds drain{2000};  // the longest time in which agreed messages end after a failure
};

enum class CallKind : int32_t { kExchange, kGather };

struct WireCall {
  // Of one other rank.
  struct Part {
    bool met = false;    // both announcements have crossed
    int64_t pieces = 0;  // messages under way
  };

  int64_t number = 0;
  CallKind kind = CallKind::kExchange;
  std::vector<std::span<const std::byte>> to = {};
  std::vector<std::span<std::byte>> from = {};
  std::vector<Part> parts = {};
  int64_t open = 0;  // ranks whose part has not ended

  // Guarded by WireShared::mutex.
  bool ended = false;
  std::optional<Clock::time_point> deadline = {};  // once a rank waits for it
};

// What the thread of the wire and the thread of the rank both see.
struct WireShared {
  std::mutex mutex;
  std::condition_variable changed;
  // The members below are guarded by it.
  std::optional<Error> failure;  // of all ranks
  bool quiet = false;            // after a failure: nothing touches the memory of transfers
  // Since when the rank has waited for a movement that devices make, without calls of this wire; when it looked last.
  std::optional<Clock::time_point> devices_since = {}, devices_seen = {};
};

// Messages with what happens at their end.
class WireMessages {
 public:
  using Then = std::function<void(size_t bytes)>;

  explicit WireMessages(std::unique_ptr<Wire> wire) : wire_(std::move(wire)) {}
  Wire& wire() { return *wire_; }
  void send(int64_t to, int tag, std::span<const std::byte> bytes, Then then);
  void receive(int64_t from, int tag, std::span<std::byte> bytes, Then then);
  bool poll();  // whether anything has ended

 private:
  std::unique_ptr<Wire> wire_;
  std::map<int64_t, Then> open_;
  std::vector<Wire::Ended> ended_;
  int64_t next_ = 0;
};

// The calls of one communicator.
class WireCalls {
 public:
  // `index` counts the communicators of a process; equal on all ranks.
  WireCalls(WireMessages& messages, int index, WireOptions options, std::shared_ptr<WireShared> shared);
  WireCalls(const WireCalls&) = delete;
  WireCalls& operator=(const WireCalls&) = delete;

  void start(const std::shared_ptr<WireCall>& call);
  // Ends all ranks with this error, unless they have ended.
  void fail(const Error& why);
  void leave();  // no further call of this rank
  // The wire is not used any more.
  void lose(const Error& why);
  // Looks at the clock.
  void tick(Clock::time_point now);
  bool busy() const { return !calls_.empty() || (failure_ && !quiet_); }
  // After a failure or leave(): nothing is under way, and no rank will send anything.
  bool finished() const;
  const std::optional<Error>& failure() const { return failure_; }
  // A rank did not end in time after a failure.
  bool broken() const { return broken_; }
  // This process was asked to end because a rank is gone: its launcher will not wait.
  bool gone() const {
    return std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.gone; });
  }

 private:
  struct Record;
  struct Peer {
    std::vector<std::byte> inbox = {};
    std::deque<std::vector<std::byte>> early = {};  // announcements of calls that this rank has not made
    bool ended = false;                             // its stream
    bool failed = false;                            // and why
    int64_t calls = 0;                              // that it made, once it has ended
    bool gone = false;                              // its process does not answer
    int64_t under_way = 0;                          // messages to and from it, but for the one that is listened for
    Clock::time_point heard = {};
    std::optional<Clock::time_point> asked = {};  // whether it is alive
  };

  int64_t own() const { return rank_; }
  int64_t size() const { return std::ssize(peers_); }
  Peer& peer(int64_t rank) { return peers_[static_cast<size_t>(rank)]; }
  void listen(int64_t rank);
  void say(int64_t rank, const Record& record, std::span<const std::byte> bytes);
  void say_end(const Record& record, const std::string& text);
  void hear(int64_t rank, std::span<const std::byte> message);
  void hear_end(int64_t rank, const Record& record, std::span<const std::byte> text);
  void meet(int64_t rank, const std::shared_ptr<WireCall>& call, std::span<const std::byte> message);
  bool agree(int64_t rank, const WireCall& call, const Record& theirs);
  void move_pieces(int64_t rank, const std::shared_ptr<WireCall>& call, const Record& theirs);
  void part_ended(const std::shared_ptr<WireCall>& call);
  void check_left(int64_t rank);
  void watch_devices(Clock::time_point now);
  std::vector<int64_t> ask(const std::vector<int64_t>& ranks, Clock::time_point now);
  void fail_without(const std::vector<int64_t>& gone, const std::string& place);
  void drain(Clock::time_point now);
  std::vector<int64_t> silent(const WireCall& call) const;

  WireMessages& messages_;
  const int tag_;  // of records; pieces have the next one
  const WireOptions options_;
  std::shared_ptr<WireShared> shared_;
  const int64_t rank_;
  std::vector<Peer> peers_;
  std::map<int64_t, std::shared_ptr<WireCall>> calls_;  // not ended
  int64_t made_ = 0;                                    // calls of this rank
  bool said_end_ = false, quiet_ = false, broken_ = false;
  std::optional<Error> failure_;
  Clock::time_point failed_at_ = {};
};

const char* name_of(CallKind kind);

}  // namespace bitgrad::detail
