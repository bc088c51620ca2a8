// What carries messages between ranks that are processes. A module such as bitgrad_mpi.so implements it; what the
// messages mean is said in dist/wire_calls.h. No function of the library is called by a module, so that any program can
// load one, however it is linked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace bitgrad::detail {

// Used by one thread, the one that opened it. Failures are std::runtime_error.
class Wire {
 public:
  // A message that has ended: its memory is free.
  struct Ended {
    int64_t id = 0;
    size_t bytes = 0;  // of a received one
  };

  Wire() = default;
  virtual ~Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual int64_t local_rank() const = 0;  // among the ranks of this machine
  virtual int64_t local_size() const = 0;
  virtual int max_tag() const = 0;
  // Start a message whose memory must stay in place until `poll` names its id. Those from one rank to another with one
  // tag arrive in their order. A received one may be shorter than its place.
  virtual void send(int64_t to, int tag, std::span<const std::byte> bytes, int64_t id) = 0;
  virtual void receive(int64_t from, int tag, std::span<std::byte> bytes, int64_t id) = 0;
  // Appends what has ended since the last call. Never waits.
  virtual void poll(std::vector<Ended>& ended) = 0;
  // Whether all ranks have asked this: then close() takes no time. Never waits.
  virtual bool may_close() = 0;
  virtual void close() = 0;
  // Ends the processes of all ranks with this exit code, as far as they can be reached.
  virtual void end_all(int code) = 0;
};

// Version of the entry point of a module. The first two members of WireModule never change.
inline constexpr unsigned kWireInterface = 1;
inline constexpr const char* kWireEntryPoint = "bitgrad_wire";

struct WireModule {
  unsigned interface = kWireInterface;
  const char* build = nullptr;    // build of the module's headers: BITGRAD_WIRE_BUILD
  const char* kind = nullptr;     // "openmpi" or "mpich"
  const char* version = nullptr;  // "Open MPI 4.1.4"
  std::unique_ptr<Wire> (*open)() = nullptr;
  void (*end_process)(int code) = nullptr;  // this one, at once; any thread may call it
};

#define BITGRAD_WIRE_TEXT_(x) #x
#define BITGRAD_WIRE_NUMBER_(x) BITGRAD_WIRE_TEXT_(x)
// The build of headers of this version and commit, a text. The class above crosses the module's border.
#define BITGRAD_WIRE_BUILD(version, commit) \
  "bitgrad " version " (" commit "), C++ ABI " BITGRAD_WIRE_NUMBER_(__GXX_ABI_VERSION)

}  // namespace bitgrad::detail
