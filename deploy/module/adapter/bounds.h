// Bounds: keeps each message acceptable to the service, however long the descriptions of frameworks and agents are. Needs
// messages of the contract, but no header of Mesos.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "allocator/contract/allocator.pb.h"

namespace longshare {
namespace adapter {

// A message's size: its bytes, and its parts as the service weighs them (`_weigh_in_steps` in allocator/service/masters/wire.py).
struct Size {
  explicit Size(std::size_t of_bytes = 0, std::size_t of_parts = 0) : bytes(of_bytes), parts(of_parts) {}

  std::size_t bytes;
  std::size_t parts;
};

// The service refuses a message of more than `listen.largest_message`, by default 256 MiB, or with more than
// `listen.most_parts`, by default 2^25. An eighth is left for the frame of a message and for the service's estimates.
constexpr std::size_t kMostBytes = (std::size_t{256} << 20) / 8 * 7;
constexpr std::size_t kMostParts = (std::size_t{1} << 25) / 8 * 7;
// Largest fraction of the bytes, and of the parts, that one framework or one agent may take.
constexpr std::size_t kOfOneInBytes = 16;
constexpr std::size_t kOfOneInParts = 64;
// Largest description of a framework or agent (FrameworkInfo, SlaveInfo) in bytes. The service's own limit
// (limits.subscription) is by default a quarter of it.
constexpr std::size_t kMostDescribed = std::size_t{4} << 20;
// Largest event in bytes: a snapshot replaces a larger event.
constexpr std::size_t kMostOfEvent = std::size_t{64} << 20;

// Return the size of an agent or framework in a snapshot.
Size size(const v1::AddAgent& agent);
Size size(const v1::AddFramework& framework);

// Return a serialised FrameworkInfo with the fields only that identify its framework, roles and capabilities, and a serialised
// SlaveInfo without resources and attributes. A field of more than 16 KiB, or beyond 64 KiB of fields, is left out, too.
std::string essential_framework(const std::string& info);
std::string essential_agent(const std::string& info);

// Shorten a framework or agent that exceeds the limits of one. Return whether it was shortened. The service makes no offers to a
// shortened framework: its description is essential, and its lists are left out. An agent is shortened in stages. First, its
// resources of more than 1,000 bytes get their short forms. Then the resources that one principal reserved are added up, those of
// the principal with the most parts first. If the agent is still too large, it has no resources: the service sets it aside by name.
bool bound(v1::AddFramework* framework);
bool bound(v1::UpdateFramework* framework);
bool bound(v1::AddAgent* agent);
bool bound(v1::UpdateAgent* agent);

// The IDs of shortened frameworks, and of agents without resources.
struct Shortened {
  std::vector<std::string> frameworks;
  std::vector<std::string> agents;

  // Returns text for a log: numbers, and some IDs.
  std::string text() const;
};

// Shorten frameworks and agents until a snapshot has at most `most`. The largest framework of the principal with the largest sum
// is shortened first. So frameworks of one principal do not shorten a framework of another principal.
// The largest agent is shortened first, in these stages. Frameworks together, and agents together, may always take half of `most`.
Shortened bound(v1::Snapshot* snapshot, const Size& most = Size(kMostBytes, kMostParts));

}  // namespace adapter
}  // namespace longshare
