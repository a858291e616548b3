// Writes what Mesos says as messages of the contract. Messages are serialised "partially" throughout: protobuf would end
// the master for one that lacks a required field.

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

// Nanoseconds of libprocess's clock.
int64_t now();

// What a framework says of itself is sent up to this size: far more than the service takes (limits.subscription), which sets
// the framework aside. So the descriptions of a few frameworks cannot make a snapshot larger than may be sent.
constexpr std::size_t kMostDescribed = 4 << 20;
std::string encode(const mesos::FrameworkInfo& info);
// A shared volume as often as it is held, which Mesos's own conversion forgets.
void encode(const mesos::Resources& resources, Bytes* into);
void encode(const Used& used, google::protobuf::RepeatedPtrField<v1::Allocation>* into);
void encode(const std::set<std::string>& names, Names* into);
void encode(const std::vector<mesos::SlaveInfo::Capability>& capabilities, google::protobuf::RepeatedField<int>* into);
void encode(const mesos::allocator::Options& options, v1::Options* into);
void encode(const Option<hashset<std::string>>& whitelist, v1::UpdateWhitelist* into);
void encode(const RoleQuota& quota, v1::SetQuota* into);
void encode(const RoleQuota& quota, v1::UpdateQuota* into);

// What is allocated, by role. What is allocated to nobody is left out, where Mesos's own function ends the master.
std::map<std::string, mesos::Resources> by_role(const mesos::Resources& resources);

// Reads what the service offers; an error says what is wrong with it.
Try<mesos::Resources> decode_offer(const v1::Offer& offer);

}  // namespace adapter
}  // namespace longshare
