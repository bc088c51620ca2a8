// How ranks move bytes between the memories of their devices, without the hosts. docs/ranks.md, "GPUs".
#pragma once

#include <memory>
#include <span>
#include <string>

#include "bitgrad/base/device.h"
#include "bitgrad/dist/communicator.h"

namespace bitgrad {

// A library that connects devices. All ranks make the same calls in the same order, with their device current.
class DeviceLink {
 public:
  using Bytes = Communicator::Bytes;
  using ConstBytes = Communicator::ConstBytes;

  virtual ~DeviceLink() = default;
  // As those of Communicator, but in the order of the work on the device: it reads what was queued before, and what is
  // queued afterwards reads what comes. Lengths are not compared. Throw as wait.
  virtual void exchange(Communicator& ranks, std::span<const ConstBytes> to, std::span<const Bytes> from) = 0;
  virtual void gather(Communicator& ranks, ConstBytes own, std::span<const Bytes> all) = 0;
  // Returns when all of that has ended on this rank. Throws the Error with which another rank has cancelled, and
  // Error(kDevice) if the library fails or ranks.timeout() has passed: from then on nothing is moved any more.
  virtual void wait(Communicator& ranks) = 0;
  // This rank cannot go on: from now on nothing is moved any more, and all calls throw.
  virtual void end() noexcept = 0;

  // The link of these ranks; nullptr: there is none, and bytes go by the hosts. Made at the first call, of all ranks,
  // where rank 0 logs which it is, or why there is none. Throws Error(kDevice) if the library cannot connect, and Error
  // if it was made for another device.
  static DeviceLink* between(Communicator& ranks, Device device);

 protected:
  // A movement sends these bytes to other ranks.
  static void count(Communicator& ranks, int64_t bytes) { ranks.bytes_sent_ += bytes; }
};

// What a kind of device registers.
struct DeviceLinks {
  // Name and version of the library ("NCCL 2.28.9"), which ranks compare; or "" and why there is none.
  std::string (*version)(std::string& why) = nullptr;
  // Called by all ranks, if all have the same version and devices of their own.
  std::unique_ptr<DeviceLink> (*open)(Communicator& ranks) = nullptr;
};
void register_device_links(DeviceKind kind, const DeviceLinks* links);  // `links` must outlive all use of them

// "ranks 0 and 1 have the same device (its text)"; empty if each rank has its own. Called by all ranks.
std::string shared_card(Communicator& ranks, Device device);

}  // namespace bitgrad
