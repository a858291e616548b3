// Short forms of resources: they count for their role, but cannot be offered. Needs protobuf, but no header of Mesos.

#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <set>
#include <string>

namespace longshare {
namespace adapter {

// Longest kind of a resource in bytes of the texts that distinguish the kind: mostly the labels of reservations. Each reservation
// and label counts as 128 bytes more. The service's own limit (limits.resource_kind) is by default the same.
constexpr std::size_t kLongestKind = 8192;
// A resource of at most so many bytes exceeds no limit.
constexpr std::size_t kSmall = 256;

// Replaces a serialised mesos.Resource by its short form, if its kind has more than `longest` bytes. Returns whether the resource
// was replaced.
//
// Fields that the service does not know are left out if the kind has more than `longest` bytes together with them. Mesos ignores
// them when it compares resources, so the resource stays of the same kind. A framework can add them to its reservations.
//
// The short form is the same as the service's (`shortened` in allocator/cluster/resources/kinds.py). It has the same amount and
// allocation, and the identifiers of a disk. Its only reservation is for a role that cannot exist, below the role of the last
// reservation. Equal kinds have equal short forms, so events and snapshots agree.
//
// A tenant decides the length of labels, and can reserve parts of all agents. Without short forms, a snapshot would leave out
// agents.
bool shorten(std::string* resource, std::size_t longest = kLongestKind);

// Stores the principal that reserved a serialised mesos.Resource. Returns whether `merge_reservations` can add the resource to others:
// its last reservation is dynamic, and it is no indivisible disk, of which an agent has few.
bool reserver(const std::string& resource, std::string* principal);

// Adds up the resources that one principal reserved, whatever their roles, labels and volumes. The sums count for the roles that
// hold them, but cannot be offered: their reservation is for a role that cannot exist. Resources that are reserved for a top-level
// role in `quotas`, or for a sub-role, have a separate sum, which counts against the quota. The service's
// merge_reservations in allocator/cluster/resources/kinds.py does the same.
//
// Shared volumes count for their agent only, because several frameworks may use them at the same time.
void merge_reservations(const std::string& principal, const std::set<std::string>& quotas, bool are_used,
                        google::protobuf::RepeatedPtrField<std::string>* resources);

}  // namespace adapter
}  // namespace longshare
