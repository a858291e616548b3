// Converts Mesos's types to messages of the contract. All messages are serialised with the "Partial" functions. The other
// functions of protobuf abort the master if a required field is missing.

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
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

// Hashes an ID. Because this function is not std::hash, libstdc++ keeps no hash code behind each element of a `Table`, and a
// look-up reads less memory.
struct HashOfId {
  std::size_t operator()(const std::string& id) const noexcept { return std::hash<std::string>()(id); }
};

// Objects by the ID of an agent or a framework.
template <typename Value>
using Table = std::unordered_map<std::string, Value, HashOfId>;

// The valid resources of an offer.
struct OfferedResources {
  std::string role;             // role to which all resources are allocated
  mesos::Resources resources;   // all resources, with their allocation
  mesos::Resources non_shared;  // the resources that only one framework may have, without their allocation
  mesos::Resources shared;      // the shared volumes, without their allocation
  Bytes bytes;                  // all resources, as the service wrote them
};

// The resources of one framework on one agent.
struct Holding {
  std::size_t hash = 0;   // of `framework`
  std::string framework;  // ID
  mesos::Resources resources;
  std::shared_ptr<const OfferedResources> offer;  // not empty: the resources are exactly those of this offer
};

// Holdings of one agent, in a list, because few frameworks hold resources of one agent. An erased holding leaves its memory to
// the next one, which another thread may add.
class Holdings {
 public:
  Holdings() = default;
  Holdings(const Used& used);  // NOLINT: implicit, because Mesos's calls have `Used`

  using iterator = std::vector<Holding>::iterator;
  using const_iterator = std::vector<Holding>::const_iterator;
  iterator begin() { return holdings_.begin(); }
  iterator end() { return holdings_.begin() + static_cast<std::ptrdiff_t>(size_); }
  const_iterator begin() const { return holdings_.begin(); }
  const_iterator end() const { return holdings_.begin() + static_cast<std::ptrdiff_t>(size_); }
  std::size_t size() const { return size_; }

  // Returns the holding of a framework, or `end`.
  iterator find(const std::string& framework);
  // Returns the holding of a framework. A new holding has no resources.
  Holding& operator[](const std::string& framework);
  void erase(iterator holding);

 private:
  iterator find(std::size_t hash, const std::string& framework);

  std::vector<Holding> holdings_;  // followed by erased ones
  std::size_t size_ = 0;
};

// Returns the time of libprocess's clock in nanoseconds since the Unix epoch.
int64_t now();

// Writes a shared volume once for each copy that is allocated. Mesos's own conversion drops the number of copies. A resource of
// a too long kind is written in its short form.
void encode(const mesos::Resources& resources, Bytes* into);
void encode(const Used& used, google::protobuf::RepeatedPtrField<v1::Allocation>* into);
void encode(const Holdings& holdings, google::protobuf::RepeatedPtrField<v1::Allocation>* into);
void encode(const std::set<std::string>& names, Names* into);
void encode(const std::vector<mesos::SlaveInfo::Capability>& capabilities, google::protobuf::RepeatedField<int>* into);
void encode(const mesos::allocator::Options& options, v1::Options* into);
void encode(const Option<hashset<std::string>>& whitelist, v1::UpdateWhitelist* into);
void encode(const RoleQuota& quota, v1::SetQuota* into);
void encode(const RoleQuota& quota, v1::UpdateQuota* into);

// Returns allocated resources by role. Unallocated resources are omitted; Mesos's own function aborts the master for them.
std::map<std::string, mesos::Resources> by_role(const mesos::Resources& resources);

// Parses resources of offers, and keeps the results, because most offers repeat the bytes of an earlier offer. The results
// of equal bytes share their `Resource` objects (Mesos copies these objects on write), so that `identical` holds. Not
// thread-safe.
class OfferParser {
 public:
  // Parses and validates the resources of an offer. Returns an error that describes the problem if they are invalid.
  Try<std::shared_ptr<const OfferedResources>> parse(const v1::Offer& offer);

  // Returns the kept result of these bytes, or nullptr.
  std::shared_ptr<const OfferedResources> find(const Bytes& resources);

 private:
  // Writes the bytes of all resources into `key_`.
  void write_key(const Bytes& resources);

  std::unordered_map<std::string, std::shared_ptr<const OfferedResources>> kept_;
  std::string key_;  // a member, so that its memory is used again
};

// Returns whether two objects share all their `Resource` objects. If not, their values may still be equal.
bool identical(const mesos::Resources& left, const mesos::Resources& right);

// Return whether two lists have the same bytes.
bool equal(const Bytes& left, const Bytes& right);

// Remove all resources, and keep the memory of their list.
void clear(mesos::Resources* resources);

// Add or subtract resources as Mesos's operators do. If `to` is empty, or the objects are `identical`, no resource is copied.
void add(const mesos::Resources& resources, mesos::Resources* to);
void subtract(const mesos::Resources& resources, mesos::Resources* from);

}  // namespace adapter
}  // namespace longshare
