#include "bitgrad/dist/device_link.h"

#include <array>
#include <atomic>

#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"

namespace bitgrad {
namespace {

std::atomic<const DeviceLinks*>& links_of(DeviceKind kind) {
  static std::array<std::atomic<const DeviceLinks*>, kDeviceKinds> all{};
  return all.at(static_cast<size_t>(kind));
}

// Why the ranks have no library in common; the same on all. Empty if they have.
std::string why_no_library(Communicator& ranks, const DeviceLinks* links) {
  std::string why = "this build has no library for it";
  const std::string version = links != nullptr ? links->version(why) : "";
  const std::vector<std::string> versions = gather_texts(ranks, version), reasons = gather_texts(ranks, why);
  for (size_t r = 0; r < versions.size(); ++r) {
    if (versions[r].empty()) return concat("rank ", r, ": ", printable(reasons[r]));
    if (versions[r] != versions[0])
      return concat("rank 0 has ", printable(versions[0]), " and rank ", r, ' ', printable(versions[r]));
  }
  return {};
}

}  // namespace

void register_device_links(DeviceKind kind, const DeviceLinks* links) { links_of(kind) = links; }

std::string shared_card(Communicator& ranks, Device device) {
  const DeviceGuard guard(device);
  const std::vector<std::string> cards =
      gather_texts(ranks, concat(device_backend(device).describe(), " of ", ranks.info().host));
  for (size_t r = 1; r < cards.size(); ++r)
    for (size_t other = 0; other < r; ++other)
      if (cards[other] == cards[r])
        return concat("ranks ", other, " and ", r, " have the same device (", printable(cards[r]), ')');
  return {};
}

DeviceLink* DeviceLink::between(Communicator& ranks, Device device) {
  if (ranks.size() == 1) return nullptr;
  if (ranks.linked_ && ranks.link_ == nullptr) return nullptr;
  if (ranks.linked_) {
    require(*ranks.linked_ == device, "ranks", "got values on ", to_string(device), ", expected ",
            to_string(*ranks.linked_), ", the device of this rank's first sum");
    return ranks.link_.get();
  }
  const DeviceGuard guard(device);
  const DeviceLinks* const links = links_of(device.kind);
  std::string why = why_no_library(ranks, links);
  const LogLevel level = why.empty() ? LogLevel::kInfo : LogLevel::kWarning;  // a run warns of shared cards itself
  if (why.empty()) why = shared_card(ranks, device);
  if (why.empty()) ranks.link_ = links->open(ranks);
  ranks.linked_ = device;
  std::string none;
  if (ranks.rank() == 0)
    log(level, why.empty() ? concat("[ranks] devices are connected by ", links->version(none))
                           : concat("[ranks] gradients go from device to device by the hosts: ", why));
  return ranks.link_.get();
}

}  // namespace bitgrad
