// Ranks whose devices are connected by NCCL: a library that is loaded, here one for threads with emulated devices
// (bin/tests/libfake_nccl.so).
#include "cuda/dist/nccl.h"

#include <dlfcn.h>

#include "bitgrad/base/rng.h"
#include "cuda/same_as_cpu.h"
#include "dist/add.h"
#include "dist/memory_wire.h"
#include "support/log_lines.h"
#include "support/paths.h"
#include "support/rank_cases.h"
#include "train/run_ranks.h"
#include "train/small_runs.h"

namespace bitgrad {
namespace {

using namespace test;
using std::chrono::milliseconds;

// The library, and what it is told while this lives.
class Fake {
 public:
  Fake() {
    gpu();
    INFO(why);
    REQUIRE(library != nullptr);
    register_device_links(DeviceKind::kCuda, &kLinks);
    *number("fake_nccl_destroyed") = *number("fake_nccl_aborted") = *number("fake_nccl_abort_returned") = 0;
  }
  ~Fake() {
    register_device_links(DeviceKind::kCuda, &cuda::kNcclLinks);
    fail("", -1);
    *number("fake_nccl_hangs") = 0;
    *number("fake_nccl_version") = 21800;
  }
  Fake(const Fake&) = delete;
  Fake& operator=(const Fake&) = delete;

  static std::string path() { return build_path("bin/tests/libfake_nccl.so"); }
  void fail(const char* function, int rank) {
    *static_cast<const char**>(symbol("fake_nccl_fails")) = function;
    *number("fake_nccl_rank") = rank;
  }
  // How ncclCommAbort ends from now on. Returns the number of its calls that have returned.
  int set_abort(int how) { return reinterpret_cast<int (*)(int)>(symbol("fake_nccl_set_abort"))(how); }
  int* number(const char* name) { return static_cast<int*>(symbol(name)); }

  static inline std::string why;
  static inline std::shared_ptr<cuda::Nccl> library = cuda::open_nccl({"/nowhere/x.so", path()}, why);

 private:
  static void* symbol(const char* name) {
    static void* const handle = dlopen(path().c_str(), RTLD_NOW);
    return dlsym(handle, name);
  }
  static constexpr DeviceLinks kLinks{[](std::string&) { return cuda::version_of(*library); },
                                      [](Communicator& ranks) { return cuda::connect(library, ranks); }};
};

// Threads whose current device is one of their own, or for calls of the link alone the same.
class Devices final : public RankMaker {
 public:
  explicit Devices(bool same = false) : same_(same) {}
  std::vector<int64_t> sizes(std::vector<int64_t> wanted) const override {
    if (!same_) std::erase_if(wanted, [](int64_t size) { return size > device_count(DeviceKind::kCuda); });
    return wanted;
  }
  std::vector<std::string> errors(int64_t size, const Work& work, milliseconds timeout = kRankTimeout) const override {
    return ThreadRankMaker::errors_of(make_thread_ranks(size, timeout), [&](Communicator& rank, size_t own) {
      const DeviceGuard guard(gpu(same_ ? 0 : static_cast<int>(own)));
      work(rank, own);
    });
  }

 private:
  bool same_;
};

// Ranks that connect and gather two values from each rank.
std::unique_ptr<DeviceLink> begin_to_move(Communicator& rank, const Tensor& all,
                                          std::vector<Communicator::Bytes>& places) {
  auto link = cuda::connect(Fake::library, rank);
  for (int64_t r = 0; r < rank.size(); ++r) places.emplace_back(static_cast<std::byte*>(all.data()) + 8 * r, size_t{8});
  link->gather(rank, places[static_cast<size_t>(rank.rank())], places);
  return link;
}

// What ranks end with that connect, move two values to each and wait; on an error they tell the others, as a run does.
std::vector<std::string> moved(int64_t size, milliseconds timeout = kRankTimeout,
                               const std::function<void(Communicator&)>& before_wait = nullptr) {
  return Devices(/*same=*/true)
      .errors(
          size,
          [&](Communicator& rank, size_t own) {
            try {
              const Tensor all = random_tensor({rank.size(), 2}, dtypes::fp32, own);
              std::vector<Communicator::Bytes> places;
              const auto link = begin_to_move(rank, all, places);
              if (before_wait) before_wait(rank);
              link->wait(rank);
              const Tensor values = all.on_host();
              for (int64_t r = 0; r < rank.size(); ++r) {
                const Tensor theirs = random_tensor({rank.size(), 2}, dtypes::fp32, static_cast<uint64_t>(r)).on_host();
                require(std::memcmp(static_cast<std::byte*>(values.data()) + 8 * r,
                                    static_cast<std::byte*>(theirs.data()) + 8 * r, 8) == 0,
                        "test", "other values of rank ", r);
              }
            } catch (const Error& error) {
              rank.cancel(error);
              throw;
            }
          },
          timeout);
}

TEST_CASE("NCCL is looked for under its own name alone where one is set, and refused with the reason") {
  std::string why;
  CHECK(cuda::open_nccl({}, why) == nullptr);
  CHECK(cuda::open_nccl({"/nowhere/libmine.so", "libc.so.6"}, why) == nullptr);
  CHECK(contains(why, "/nowhere/libmine.so: cannot open"));
  CHECK(contains(why, "libc.so.6 has no function ncclGetVersion"));
  Fake fake;
  CHECK(cuda::version_of(*Fake::library) == "NCCL 2.18.0");
  *fake.number("fake_nccl_version") = 21705;
  why.clear();
  CHECK(cuda::open_nccl({Fake::path()}, why) == nullptr);
  CHECK(why == Fake::path() + ": got NCCL 2.17.5, expected 2.18 or newer");
  ::setenv("BITGRAD_NCCL", Fake::path().c_str(), 1);
  CHECK(cuda::nccl_candidates() == std::vector<std::string>{Fake::path()});
  ::unsetenv("BITGRAD_NCCL");
}

TEST_CASE("The NCCL of this machine has all functions") {
  std::string why;
  for (const char* name : {"libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2"})
    if (const auto library = cuda::open_nccl({name}, why)) {
      CHECK(contains(cuda::version_of(*library), "NCCL 2."));
      return;
    }
  WARN("skipped: " << why);
}

TEST_CASE("Parts of any lengths move between devices") {
  const Fake fake;
  for (const int64_t size : {2, 3, 4, 5}) {
    CHECK(moved(size) == std::vector<std::string>(static_cast<size_t>(size)));
    check_no_errors(Devices(/*same=*/true).errors(size, [](Communicator& rank, size_t own) {
      const auto link = cuda::connect(Fake::library, rank);
      for (uint32_t n = 0; n < 20; ++n) {
        std::vector<Tensor> to, from;
        std::vector<Communicator::ConstBytes> out;
        std::vector<Communicator::Bytes> in;
        const auto values = [](const Values& v) {
          Tensor host = [&] {
            const DeviceGuard cpu(Device::cpu());
            return Tensor::empty({std::ssize(v)}, dtypes::fp32);
          }();
          if (!v.empty()) std::memcpy(host.data(), v.data(), v.size() * 4);
          return host;
        };
        for (size_t r = 0; r < static_cast<size_t>(rank.size()); ++r) {
          const Tensor sent = values(rank_message(own, r, n));
          to.push_back(Tensor::empty(sent.shape(), dtypes::fp32));
          to.back().copy_from(sent);
          from.push_back(Tensor::empty({std::ssize(rank_message(r, own, n))}, dtypes::fp32));
          out.emplace_back(static_cast<const std::byte*>(to.back().data()), static_cast<size_t>(to.back().bytes()));
          in.emplace_back(static_cast<std::byte*>(from.back().data()), static_cast<size_t>(from.back().bytes()));
        }
        link->exchange(rank, out, in);
        link->wait(rank);
        for (size_t r = 0; r < from.size(); ++r) {
          const Values theirs = rank_message(r, own, n);
          const Tensor got = from[r].on_host();
          require(r == own || theirs.empty() || std::memcmp(got.data(), theirs.data(), theirs.size() * 4) == 0, "test",
                  "other values from rank ", r);
        }
      }
    }));
  }
}

TEST_CASE("Sums between devices have the bits of sums between hosts") {
  Fake fake;
  const int64_t bucket = std::exchange(bitgrad::detail::device_bucket_bytes, 1 << 16);
  check_sums(Devices());
  check_sums_of_many(Devices());
  bitgrad::detail::device_bucket_bytes = bucket;
  CHECK(*fake.number("fake_nccl_aborted") == 0);
  CHECK((*fake.number("fake_nccl_destroyed") > 0) == (device_count(DeviceKind::kCuda) > 1));
}

TEST_CASE("Without NCCL, with several versions, or one card, sums go by the hosts, and rank 0 says why") {
  Fake fake;
  bool warned = false;
  const auto said = [&warned](const DeviceLinks& links, const RankMaker& maker) {
    register_device_links(DeviceKind::kCuda, &links);
    const LogLines log;
    check_no_errors(maker.errors(2, [](Communicator& rank, size_t own) {
      const Tensor sum = random_tensor({70}, dtypes::fp32, own);
      sum_over_ranks(rank, std::span(&sum, 1));
      const std::vector<double> host = sum.elements();
      std::vector<std::vector<double>> terms;
      for (uint64_t r = 0; r < 2; ++r) terms.push_back(random_tensor({70}, dtypes::fp32, r).elements());
      for (size_t i = 0; i < host.size(); ++i)
        require(host[i] == tree_sum_of(terms, i, dtypes::fp32), "test", "other sum at ", i);
    }));
    REQUIRE(log.lines.size() == 1);
    warned = log.warnings.size() == 1;
    return log.lines[0];
  };
  const std::string by_hosts = "[ranks] gradients go from device to device by the hosts: ";
  static constexpr DeviceLinks kNone{[](std::string& why) {
                                       why = "NCCL was not found: libnccl.so.2: cannot open";
                                       return std::string();
                                     },
                                     nullptr};
  CHECK(said(kNone, Devices(true)) == by_hosts + "rank 0: NCCL was not found: libnccl.so.2: cannot open");
  CHECK(warned);
  static std::atomic<int> asked{0};
  static constexpr DeviceLinks kSeveral{[](std::string&) { return concat("NCCL 2.", asked++ % 2 + 18, ".0"); },
                                        nullptr};
  const std::string several = said(kSeveral, Devices(true));
  CHECK(contains(several, by_hosts + "rank 0 has NCCL 2.1"));
  CHECK(contains(several, " and rank 1 NCCL 2.1"));
  static constexpr DeviceLinks kEach{[](std::string&) { return std::string("NCCL 2.18.0"); }, nullptr};
  CHECK(contains(said(kEach, Devices(true)), by_hosts + "ranks 0 and 1 have the same device (emulated device 0"));
  CHECK_FALSE(warned);  // a run does
}

TEST_CASE("Tensors of which ranks have other lengths, and a second device, are refused") {
  if (device_count(gpu().kind) < 2) {
    WARN("skipped: there is one device");
    return;
  }
  const Fake fake;
  const auto errors = Devices().errors(2, [](Communicator& rank, size_t own) {
    const Tensor sum = random_tensor({own == 0 ? 70 : 71}, dtypes::bf16, own);
    sum_over_ranks(rank, std::span(&sum, 1));
  });
  for (const std::string& e : errors)
    CHECK(e == "6 [ranks] sum: rank 0 has 70 values of bf16, rank 1 has 71, expected as many");
  const auto others = Devices().errors(2, [](Communicator& rank, size_t own) {
    for (const size_t device : {own, 1 - own}) {
      const DeviceGuard guard(gpu(static_cast<int>(device)));
      const Tensor sum = random_tensor({7}, dtypes::fp32, 1);
      sum_over_ranks(rank, std::span(&sum, 1));
    }
  });
  CHECK(others[0] == "2 [ranks] got values on cuda:1, expected cuda:0, the device of this rank's first sum");
}

TEST_CASE("A failure of NCCL on one rank ends all, with the function and what the library says") {
  Fake fake;
  const std::string hint = ". Hint: NCCL_DEBUG=WARN prints why; BITGRAD_NCCL=off sends by the hosts";
  const auto error_of_1 = [](const std::string& what) { return concat("6 [ranks] rank 1 ended: ", what); };
  for (const int64_t size : {2, 3}) {
    fake.fail("GetUniqueId", 0);
    for (const std::string& e : moved(size))
      CHECK(contains(e, "[ranks] NCCL: ncclGetUniqueId of rank 0: got status 2 (some error), expected 0" + hint));
    for (const auto& [function, text] : {std::pair<const char*, const char*>{"CommInitRankConfig",
                                                                             "ncclCommInitRankConfig: got status 4 "
                                                                             "(some error)"},
                                         {"Send", "gather: got status 4 (some error; told to)"}}) {
      fake.fail(function, 1);
      const std::vector<std::string> errors = moved(size);
      const std::string own = concat("[ranks] NCCL: ", text, ", expected 0", hint);
      INFO(function);
      CHECK(errors[1] == "6 " + own);
      for (size_t r = 0; r < errors.size(); ++r) CHECK((r == 1 || errors[r] == error_of_1(own)));
    }
    fake.fail("CommGetAsyncError", 1);
    CHECK(contains(moved(size)[1],
                   "[ranks] NCCL: ncclCommInitRankConfig: got status 6 (remote error; told to), expected 0"));
    fake.fail("", -1);
  }
  CHECK(*fake.number("fake_nccl_aborted") > 0);
  CHECK(moved(2) == std::vector<std::string>(2));
}

TEST_CASE("A movement that does not end is given up after the time limit, or when another rank ends") {
  Fake fake;
  *fake.number("fake_nccl_hangs") = 1 << 1;
  for (const int64_t size : {2, 3}) {
    const auto errors = moved(size, milliseconds(50));
    size_t timed_out = 0;
    for (const std::string& e : errors) timed_out += contains(e, ": not ended in 0.05 s") ? 1 : 0;
    CHECK(timed_out == errors.size());
  }
  *fake.number("fake_nccl_hangs") = 0;
  const auto errors = moved(3, kRankTimeout, [&](Communicator& rank) {
    if (rank.rank() == 2) throw Error("[data] no samples left", ErrorCode::kData);
    *fake.number("fake_nccl_hangs") = 1 << 0 | 1 << 1;
  });
  const std::string of_2 = "3 [ranks] rank 2 ended: [data] no samples left";
  CHECK(errors == std::vector<std::string>{of_2, of_2, "3 [data] no samples left"});
}

TEST_CASE("A process that is gone inside a movement ends the one that waits for it, which names it") {
  const Fake fake;
  const MemoryRanks ranks(2, milliseconds(1000));
  std::atomic<bool> stop = false;
  const auto errors = ThreadRankMaker::errors_of(
      ranks.communicators({.stop = [&stop] { return stop.load(); }, .drain = milliseconds(200)}),
      [&](Communicator& rank, size_t own) {
        const DeviceGuard guard(gpu());
        const Tensor all = random_tensor({rank.size(), 2}, dtypes::fp32, own);
        std::vector<Communicator::Bytes> places;
        if (own == 0) begin_to_move(rank, all, places)->wait(rank);
        const auto link = cuda::connect(Fake::library, rank);
        ranks.make_silent(1);
        stop = true;  // as mpirun does that has lost it
      });
  CHECK(errors[0] ==
        "6 [ranks] rank 1 is gone: no answer in 0.3 s after this process was asked to end, in a movement between "
        "devices");
}

// What a process does whose NCCL does not abort, during the life of this.
class End {
 public:
  explicit End(const cuda::NcclEnd& end) : before_(std::exchange(cuda::nccl_end, end)) {}
  ~End() { cuda::nccl_end = before_; }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

 private:
  cuda::NcclEnd before_;
};

TEST_CASE("NCCL that aborts once all ranks do so ends all of them") {
  Fake fake;
  const End never({std::chrono::minutes(10), [](int) {}});  // longer than the test may last
  fake.set_abort(1);
  for (const int64_t size : {2, 3}) {
    fake.fail("Send", 1);
    const std::vector<std::string> errors = moved(size);
    CHECK(errors[0] == concat("6 [ranks] rank 1 ended: ", errors[1].substr(2)));
    fake.fail("", -1);
  }
  CHECK(fake.set_abort(0) == *fake.number("fake_nccl_aborted"));
  CHECK(*fake.number("fake_nccl_aborted") == 2 + 3);
}

TEST_CASE("A process whose NCCL does not abort says so, throws its error and ends") {
  Fake fake;
  static std::atomic<int> ended{0};
  const End soon({milliseconds(20), [](int code) { ended += code; }});
  const LogLines log;
  fake.set_abort(2);
  fake.fail("Send", 1);
  const std::vector<std::string> errors = moved(2);
  CHECK(contains(errors[1], "6 [ranks] NCCL: gather: got status 4"));
  CHECK(errors[0] == concat("6 [ranks] rank 1 ended: ", errors[1].substr(2)));
  const auto wait_until = [](const auto& done) {
    while (!done()) std::this_thread::sleep_for(milliseconds(1));
  };
  wait_until([] { return ended == 2 * 6; });
  CHECK(std::count(
            log.lines.begin(), log.lines.end(),
            "[ranks] NCCL: ncclCommAbort did not return in 0.02 s: this process ends in 0.02 s, unless it does") == 2);
  fake.set_abort(0);
  wait_until([&] { return fake.set_abort(0) == 2; });
}

TEST_CASE("Runs whose gradients go from device to device come to the state of one process on the CPU") {
  const KeepModes keep;
  for (const char* net : {kSmallTfc, kSmallInt4}) {
    const std::vector<std::string> common = {"run.bits=strict",
                                             "batch.micro=2",
                                             "batch.global=16",
                                             "batch.sum=tree",
                                             "quant.observer_update=window",
                                             "train.stop=3 steps",
                                             "quant.requantize_every=8"};
    const auto config = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = common;
      all.insert(all.end(), more.begin(), more.end());
      return small_config(all, net);
    };
    const TrainOutcome one = run_all(config({"device.kind=cpu"}));
    for (const int64_t size : Devices().sizes({2, 4})) {
      const Fake fake;
      const LogLines log;
      const auto trainers = trainers_of(size, [&](int64_t r) {
        return config({"device.kind=cuda", concat("device.index=", r)});
      });
      for (const RankEnd& end : run_ranks(trainers, "", std::vector<TrainHooks>(static_cast<size_t>(size)))) {
        CHECK(end.error.empty());
        CHECK(end.outcome.state_hash == one.state_hash);
      }
      CHECK(std::count(log.lines.begin(), log.lines.end(), "[ranks] devices are connected by NCCL 2.18.0") == 1);
      CHECK(log.warnings.empty());
    }
  }
}

}  // namespace
}  // namespace bitgrad
