// Converts Mesos's types to messages of the contract. All messages are serialised with the "Partial" functions. The other
// functions of protobuf abort the master if a required field is missing.

#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <mesos/allocator/allocator.hpp>
#include <mesos/mesos.hpp>
#include <mesos/resources.hpp>
#include <mesos/type_utils.hpp>
#include <stout/hashmap.hpp>

#include "allocator/contract/allocator.pb.h"
#include "mesos_version.hpp"

namespace longshare {
namespace adapter {

using Bytes = google::protobuf::RepeatedPtrField<std::string>;
using Names = google::protobuf::RepeatedPtrField<std::string>;
using Used = hashmap<mesos::FrameworkID, mesos::Resources>;

// Returns the time of libprocess's clock in nanoseconds since the Unix epoch.
int64_t now();

// Writes a shared volume once for each copy that is allocated. Mesos's own conversion drops the number of copies.
void encode(const mesos::Resources& resources, Bytes* into);
void encode(const Used& used, google::protobuf::RepeatedPtrField<v1::Allocation>* into);
void encode(const std::set<std::string>& names, Names* into);
void encode(const std::vector<mesos::SlaveInfo::Capability>& capabilities, google::protobuf::RepeatedField<int>* into);
void encode(const mesos::allocator::Options& options, v1::Options* into);
void encode(const Option<hashset<std::string>>& whitelist, v1::UpdateWhitelist* into);
void encode(const RoleQuota& quota, v1::SetQuota* into);
void encode(const RoleQuota& quota, v1::UpdateQuota* into);

// Returns allocated resources by role. Unallocated resources are omitted; Mesos's own function aborts the master for them.
std::map<std::string, mesos::Resources> by_role(const mesos::Resources& resources);

// Parses and validates the resources of an offer. Returns an error that describes the problem if they are invalid.
Try<mesos::Resources> decode_offer(const v1::Offer& offer);

}  // namespace adapter
}  // namespace longshare
