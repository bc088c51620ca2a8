#include "dist/wire_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bitgrad/base/text.h"

namespace bitgrad::detail {
namespace {

enum class Type : int32_t { kCall, kEnd, kAsk, kAlive };

constexpr int32_t kProtocol = 1;
constexpr size_t kRecordBytes = 4096;  // most libraries send so much at once, without asking first

constexpr std::chrono::seconds kLooks{1};  // a rank that waits for devices looks more often
constexpr const char* kDevices = "a movement between devices";

// As much of a text as fits, in whole characters.
std::span<const std::byte> first_bytes(const std::string& text, size_t most) {
  size_t n = std::min(text.size(), most);
  if (n < text.size())
    while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return std::as_bytes(std::span(text.data(), n));
}

std::string ranks_text(const std::vector<int64_t>& ranks) { return concat("rank ", joined(ranks)); }

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

// What begins every message of a stream. Ranks run on machines of one kind: no other byte order is expected.
struct WireCalls::Record {
  int32_t protocol = kProtocol;
  Type type = Type::kCall;
  int32_t kind = 0;                // CallKind
  int32_t code = 0;                // of an end: ErrorCode, 0 if the rank leaves
  int64_t number = 0;              // of a call; of an end: calls that were made
  int64_t sends = 0, expects = 0;  // bytes to and from the rank that gets this record
  int64_t piece = 0;               // most bytes of a message that follows
};

const char* name_of(CallKind kind) { return kind == CallKind::kExchange ? "exchange" : "gather"; }

void WireMessages::send(int64_t to, int tag, std::span<const std::byte> bytes, Then then) {
  open_.emplace(next_, std::move(then));
  wire_->send(to, tag, bytes, next_++);
}
void WireMessages::receive(int64_t from, int tag, std::span<std::byte> bytes, Then then) {
  open_.emplace(next_, std::move(then));
  wire_->receive(from, tag, bytes, next_++);
}
bool WireMessages::poll() {
  ended_.clear();
  wire_->poll(ended_);
  for (const Wire::Ended& message : ended_) {
    const auto at = open_.find(message.id);
    const Then then = std::move(at->second);
    open_.erase(at);
    then(message.bytes);
  }
  return !ended_.empty();
}

WireCalls::WireCalls(WireMessages& messages, int index, WireOptions options, std::shared_ptr<WireShared> shared)
    : messages_(messages),
      tag_(2 * index),
      options_(std::move(options)),
      shared_(std::move(shared)),
      rank_(messages.wire().rank()),
      peers_(static_cast<size_t>(messages.wire().size())) {
  for (int64_t r = 0; r < size(); ++r) {
    if (r == own()) continue;
    peer(r).inbox.resize(kRecordBytes);
    listen(r);
  }
}

void WireCalls::listen(int64_t rank) {
  Peer& p = peer(rank);
  messages_.receive(rank, tag_, p.inbox, [this, rank, &p](size_t bytes) {
    hear(rank, std::span(p.inbox).first(bytes));
    if (!p.ended) listen(rank);
  });
}

void WireCalls::say(int64_t rank, const Record& record, std::span<const std::byte> bytes) {
  const auto message = std::make_shared<std::vector<std::byte>>(sizeof(Record) + bytes.size());
  std::memcpy(message->data(), &record, sizeof(Record));
  std::copy(bytes.begin(), bytes.end(), message->begin() + sizeof(Record));
  Peer& p = peer(rank);
  ++p.under_way;
  messages_.send(rank, tag_, *message, [message, &p](size_t) { --p.under_way; });
}

void WireCalls::say_end(const Record& record, const std::string& text) {
  said_end_ = true;
  for (int64_t r = 0; r < size(); ++r)
    if (r != own()) say(r, record, first_bytes(text, kRecordBytes - sizeof(Record)));
}

void WireCalls::start(const std::shared_ptr<WireCall>& call) {
  made_ = call->number + 1;
  if (said_end_) return;
  call->parts.resize(peers_.size());
  call->open = size();  // this rank counts, too, so that the call does not end in the loops below
  calls_[call->number] = call;
  for (int64_t r = 0; r < size(); ++r) {
    if (r == own()) continue;
    const auto to = call->to[static_cast<size_t>(r)];
    Record record{.kind = static_cast<int32_t>(call->kind), .number = call->number};
    record.sends = std::ssize(to);
    record.expects = std::ssize(call->from[static_cast<size_t>(r)]);
    record.piece = static_cast<int64_t>(options_.piece);
    say(r, record, to.size() <= kRecordBytes - sizeof(Record) ? to : std::span<const std::byte>());
  }
  for (int64_t r = 0; r < size(); ++r) {
    if (r == own()) continue;
    if (!peer(r).early.empty()) {
      const std::vector<std::byte> message = std::move(peer(r).early.front());
      peer(r).early.pop_front();
      meet(r, call, message);
    }
    check_left(r);
  }
  part_ended(call);
}

void WireCalls::fail(const Error& why) {
  if (failure_ || said_end_) return;
  failure_ = why;
  failed_at_ = Clock::now();
  say_end({.type = Type::kEnd, .code = static_cast<int32_t>(why.code()), .number = made_}, why.what());
  const std::lock_guard lock(shared_->mutex);
  shared_->failure = why;
  shared_->changed.notify_all();
}

void WireCalls::lose(const Error& why) {
  if (!failure_) failure_ = why;
  quiet_ = true;
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->failure) shared_->failure = *failure_;
  shared_->quiet = true;
  shared_->changed.notify_all();
}

void WireCalls::leave() {
  if (!said_end_) say_end({.type = Type::kEnd, .number = made_}, "");
}

void WireCalls::hear(int64_t rank, std::span<const std::byte> message) {
  Record record;
  if (message.size() >= sizeof(Record)) std::memcpy(&record, message.data(), sizeof(Record));
  Peer& p = peer(rank);
  p.heard = Clock::now();
  if (message.size() < sizeof(Record) || record.protocol != kProtocol) {
    p.ended = true;
    return fail(
        Error(concat("[ranks] rank ", rank, " has another version of bitgrad, or another program wrote to rank ", own(),
                     ": got a record of protocol ", record.protocol, ", expected ", kProtocol),
              ErrorCode::kDevice));
  }
  switch (record.type) {
    case Type::kCall:
      if (const auto call = calls_.find(record.number); call != calls_.end())
        meet(rank, std::shared_ptr(call->second), message);
      else if (!said_end_)
        p.early.emplace_back(message.begin(), message.end());
      break;
    case Type::kEnd:
      hear_end(rank, record, message.subspan(sizeof(Record)));
      break;
    case Type::kAsk:
      if (!said_end_) say(rank, {.type = Type::kAlive}, {});
      break;
    case Type::kAlive:
      break;
  }
}

void WireCalls::hear_end(int64_t rank, const Record& record, std::span<const std::byte> text) {
  Peer& p = peer(rank);
  p.ended = true;
  p.failed = record.code != 0;
  p.calls = record.number;
  if (p.failed)
    fail(Error({reinterpret_cast<const char*>(text.data()), text.size()}, static_cast<ErrorCode>(record.code)));
  else
    check_left(rank);
}

// A rank that has left will make no further call.
void WireCalls::check_left(int64_t rank) {
  const Peer& p = peer(rank);
  if (!p.ended || p.failed) return;
  for (const auto& entry : calls_)
    if (entry.first >= p.calls)
      return fail(Error(concat("[ranks] rank ", rank, " left after ", p.calls, " calls, and rank ", own(),
                               " waits for it in ", name_of(entry.second->kind), ' ', entry.first),
                        ErrorCode::kDevice));
}

// The announcements of both ranks are there.
void WireCalls::meet(int64_t rank, const std::shared_ptr<WireCall>& call, std::span<const std::byte> message) {
  Record theirs;
  std::memcpy(&theirs, message.data(), sizeof(Record));
  call->parts[static_cast<size_t>(rank)].met = true;
  if (!agree(rank, *call, theirs)) return;
  const std::span<const std::byte> bytes = message.subspan(sizeof(Record));
  std::copy(bytes.begin(), bytes.end(), call->from[static_cast<size_t>(rank)].begin());
  move_pieces(rank, call, theirs);
}

// Both ranks come to the same result, with the same text.
bool WireCalls::agree(int64_t rank, const WireCall& call, const Record& theirs) {
  const auto fail_all = [&](const std::string& what) {
    fail(Error("[ranks] " + what, ErrorCode::kDevice));
    return false;
  };
  const auto kind = static_cast<CallKind>(theirs.kind);
  if (call.number != theirs.number || call.kind != kind) {
    const CallKind first = own() < rank ? call.kind : kind, second = own() < rank ? kind : call.kind;
    return fail_all(concat("call ", call.number, ": rank ", std::min(own(), rank), " calls ", name_of(first),
                           ", another rank ", name_of(second)));
  }
  struct Way {
    int64_t from, to, sends, expects;
  };
  Way ways[] = {{own(), rank, std::ssize(call.to[static_cast<size_t>(rank)]), theirs.expects},
                {rank, own(), theirs.sends, std::ssize(call.from[static_cast<size_t>(rank)])}};
  if (rank < own()) std::swap(ways[0], ways[1]);
  for (const Way& way : ways)
    if (way.sends != way.expects)
      return fail_all(concat(name_of(call.kind), ' ', call.number, ": rank ", way.from, " sends ", way.sends,
                             " bytes to rank ", way.to, ", which expects ", way.expects));
  return true;
}

// What was too long for the announcements.
void WireCalls::move_pieces(int64_t rank, const std::shared_ptr<WireCall>& call, const Record& theirs) {
  constexpr size_t kShort = kRecordBytes - sizeof(Record);
  WireCall::Part& part = call->parts[static_cast<size_t>(rank)];
  Peer& p = peer(rank);
  const auto ended = [this, call, &part, &p](size_t) {
    p.heard = Clock::now();
    --p.under_way;
    if (--part.pieces == 0) part_ended(call);
  };
  const auto split = [&part, &p](auto bytes, size_t piece, auto begin) {
    if (bytes.size() <= kShort) return;
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(piece, bytes.size()))) {
      ++part.pieces, ++p.under_way;
      begin(bytes.first(std::min(piece, bytes.size())));
    }
  };
  ++part.pieces;  // until all have begun
  split(call->from[static_cast<size_t>(rank)], static_cast<size_t>(theirs.piece),
        [&](std::span<std::byte> bytes) { messages_.receive(rank, tag_ + 1, bytes, ended); });
  split(call->to[static_cast<size_t>(rank)], options_.piece,
        [&](std::span<const std::byte> bytes) { messages_.send(rank, tag_ + 1, bytes, ended); });
  if (--part.pieces == 0) part_ended(call);
}

void WireCalls::part_ended(const std::shared_ptr<WireCall>& call) {
  if (--call->open > 0) return;
  calls_.erase(call->number);
  const std::lock_guard lock(shared_->mutex);
  call->ended = true;
  shared_->changed.notify_all();
}

std::vector<int64_t> WireCalls::silent(const WireCall& call) const {
  std::vector<int64_t> without_call, moving;
  for (int64_t r = 0; r < std::ssize(call.parts); ++r) {
    const WireCall::Part& part = call.parts[static_cast<size_t>(r)];
    if (r == own()) continue;
    if (!part.met) without_call.push_back(r);
    if (part.pieces > 0) moving.push_back(r);
  }
  return without_call.empty() ? moving : without_call;
}

void WireCalls::tick(Clock::time_point now) {
  if (failure_) return drain(now);
  for (const auto& entry : calls_) {
    const WireCall& call = *entry.second;
    const auto deadline = [&] {
      const std::lock_guard lock(shared_->mutex);
      return call.deadline;
    }();
    if (!deadline) continue;
    if (now >= *deadline)
      return fail(Error(concat("[ranks] no answer from ", ranks_text(silent(call)), " in ", seconds(options_.timeout),
                               " s, in ", name_of(call.kind), ' ', call.number),
                        ErrorCode::kDevice));
    // A launcher that has lost a rank asks all others to end. So does one that wants the run to be saved: then the
    // silent rank is alive, and answers, however long it computes.
    if (options_.stop && options_.stop())
      return fail_without(ask(silent(call), now), concat(name_of(call.kind), ' ', call.number));
  }
  watch_devices(now);
}

// Devices move bytes, and tell nothing of a process that is gone.
void WireCalls::watch_devices(Clock::time_point now) {
  const auto since = [&] {
    const std::lock_guard lock(shared_->mutex);
    const bool looks = shared_->devices_seen && now - *shared_->devices_seen < kLooks;
    return looks ? shared_->devices_since : std::nullopt;
  }();
  if (!since) return;
  const bool stop = options_.stop && options_.stop();
  if (!stop && now - *since < options_.timeout / 2) return;
  std::vector<int64_t> others;
  for (int64_t r = 0; r < size(); ++r)
    if (r != own() && !peer(r).ended) others.push_back(r);
  const std::vector<int64_t> gone = ask(others, now);
  if (stop) return fail_without(gone, kDevices);
  if (!gone.empty() && now - *since >= options_.timeout)
    fail(Error(
        concat("[ranks] no answer from ", ranks_text(gone), " in ", seconds(options_.timeout), " s, in ", kDevices),
        ErrorCode::kDevice));
}

// Asks these ranks whether they are alive. Returns those that were asked a while ago and have said nothing since.
std::vector<int64_t> WireCalls::ask(const std::vector<int64_t>& ranks, Clock::time_point now) {
  std::vector<int64_t> gone;
  for (const int64_t r : ranks) {
    Peer& p = peer(r);
    if (p.asked && now - *p.asked < options_.gone) continue;
    if (p.asked && p.heard < *p.asked) {
      gone.push_back(r);
      continue;
    }
    p.asked = now;
    say(r, {.type = Type::kAsk}, {});
  }
  return gone;
}

void WireCalls::fail_without(const std::vector<int64_t>& gone, const std::string& place) {
  if (gone.empty()) return;
  for (const int64_t r : gone) peer(r).gone = true;
  fail(Error(concat("[ranks] ", ranks_text(gone), gone.size() == 1 ? " is" : " are", " gone: no answer in ",
                    seconds(options_.gone), " s after this process was asked to end, in ", place),
             ErrorCode::kDevice));
}

bool WireCalls::finished() const {
  for (int64_t r = 0; r < size(); ++r) {
    const Peer& p = peers_[static_cast<size_t>(r)];
    if (r != own() && (!p.ended || p.under_way > 0)) return false;
  }
  return said_end_;
}

void WireCalls::drain(Clock::time_point now) {
  if (quiet_) return;
  bool all = true, gone = false;
  for (int64_t r = 0; r < size(); ++r) {
    const Peer& p = peers_[static_cast<size_t>(r)];
    if (r == own()) continue;
    gone = gone || p.gone;
    all = all && (p.gone || (p.ended && p.under_way == 0));
  }
  if (!all && now - failed_at_ < options_.drain) return;
  quiet_ = true;
  broken_ = !all || gone;
  const std::lock_guard lock(shared_->mutex);
  shared_->quiet = true;
  shared_->changed.notify_all();
}

}  // namespace bitgrad::detail
