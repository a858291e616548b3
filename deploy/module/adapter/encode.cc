#include "encode.hpp"

#include <algorithm>
#include <utility>

#include <process/clock.hpp>

#include "short_form.h"

namespace longshare {
namespace adapter {

using mesos::Resource;
using mesos::Resources;

namespace {

// Largest number of lists of resources that an OfferParser keeps. Their bytes and objects need at most about 100 MB.
constexpr std::size_t kMostKept = 8192;
// Longest list, in bytes, that an OfferParser keeps.
constexpr std::size_t kLongestKept = 2048;

}  // namespace

Holdings::Holdings(const Used& used) {
  for (const auto& held : used) {
    (*this)[held.first.value()].resources = held.second;
  }
}

Holdings::iterator Holdings::find(const std::string& framework) { return find(HashOfId()(framework), framework); }

Holdings::iterator Holdings::find(std::size_t hash, const std::string& framework) {
  return std::find_if(begin(), end(), [&](const Holding& holding) { return holding.hash == hash && holding.framework == framework; });
}

Holding& Holdings::operator[](const std::string& framework) {
  const std::size_t hash = HashOfId()(framework);
  const iterator known = find(hash, framework);
  if (known != end()) {
    return *known;
  }
  if (size_ == holdings_.size()) {
    holdings_.emplace_back();
  }
  Holding& added = holdings_[size_++];
  added.hash = hash;
  added.framework = framework;
  return added;
}

void Holdings::erase(iterator holding) {
  clear(&holding->resources);
  holding->offer.reset();
  std::swap(*holding, holdings_[--size_]);
}

int64_t now() { return process::Clock::now().duration().ns(); }

void encode(const Resources& resources, Bytes* into) {
  for (const Resource& resource : resources) {
    const std::size_t copies = resource.has_shared() ? resources.count(resource) : 1;
    for (std::size_t copy = 0; copy < copies; ++copy) {
      std::string* bytes = into->Add();
      resource.SerializePartialToString(bytes);
      shorten(bytes);
    }
  }
}

void encode(const Used& used, google::protobuf::RepeatedPtrField<v1::Allocation>* into) {
  for (const auto& held : used) {
    v1::Allocation* allocation = into->Add();
    allocation->set_framework_id(held.first.value());
    encode(held.second, allocation->mutable_resources());
  }
}

void encode(const Holdings& holdings, google::protobuf::RepeatedPtrField<v1::Allocation>* into) {
  for (const Holding& holding : holdings) {
    v1::Allocation* allocation = into->Add();
    allocation->set_framework_id(holding.framework);
    encode(holding.resources, allocation->mutable_resources());
  }
}

void encode(const std::set<std::string>& names, Names* into) {
  for (const std::string& name : names) {
    *into->Add() = name;
  }
}

void encode(const std::vector<mesos::SlaveInfo::Capability>& capabilities, google::protobuf::RepeatedField<int>* into) {
  for (const auto& capability : capabilities) {
    into->Add(capability.type());
  }
}

void encode(const mesos::allocator::Options& options, v1::Options* into) {
  into->set_allocation_interval_ns(options.allocationInterval.ns());
  into->set_filter_gpu_resources(options.filterGpuResources);
  into->set_tells_running(kTellsRunning);
  const Recovery recovery(options);
  into->set_recovery_timeout_ns(recovery.timeout.ns());
  into->set_recovery_factor(recovery.factor);
  if (options.fairnessExcludeResourceNames.isSome()) {
    encode(options.fairnessExcludeResourceNames.get(), into->mutable_fairness_excluded());
  }
  if (options.domain.isSome()) {
    into->set_domain(options.domain->SerializePartialAsString());
  }
  if (options.minAllocatableResources.isSome()) {
    for (const auto& alternative : options.minAllocatableResources.get()) {
      auto* amounts = into->add_min_allocatable()->mutable_amounts();
      for (const auto& amount : alternative) {
        (*amounts)[amount.first] = amount.second.value();
      }
    }
  }
}

void encode(const Option<hashset<std::string>>& whitelist, v1::UpdateWhitelist* into) {
  if (whitelist.isSome()) {
    v1::Whitelist* listed = into->mutable_whitelist();
    for (const std::string& hostname : whitelist.get()) {
      listed->add_hostnames(hostname);
    }
  }
}

void encode(const RoleQuota& quota, v1::SetQuota* into) {
  mesos::quota::QuotaInfo info;
  info.set_role(quota.role);
  for (const auto& amount : quota.guarantees) {
    Resource* resource = info.add_guarantee();
    resource->set_name(amount.first);
    resource->set_type(mesos::Value::SCALAR);
    resource->mutable_scalar()->set_value(amount.second);
  }
  into->set_role(quota.role);
  into->set_info(info.SerializePartialAsString());
}

void encode(const RoleQuota& quota, v1::UpdateQuota* into) {
  into->set_role(quota.role);
  into->mutable_guarantees()->mutable_amounts()->insert(quota.guarantees.begin(), quota.guarantees.end());
  into->mutable_limits()->mutable_amounts()->insert(quota.limits.begin(), quota.limits.end());
}

std::map<std::string, Resources> by_role(const Resources& resources) {
  std::map<std::string, Resources> allocated;
  for (const Resource& resource : resources) {
    if (resource.allocation_info().has_role()) {
      allocated[resource.allocation_info().role()] += resource;
    }
  }
  return allocated;
}

namespace {

Try<Resources> decode(const v1::Offer& offer) {
  Resources resources;
  for (const std::string& bytes : offer.resources()) {
    Resource resource;
    if (!resource.ParsePartialFromString(bytes)) {
      return Error("a resource cannot be read");
    }
    // Mesos's arithmetic aborts on either deprecated field, and silently drops invalid resources.
    if (resource.has_role() || resource.has_reservation()) {
      return Error("resource '" + resource.name() + "' has a deprecated field");
    }
    const Option<Error> invalid = Resources::validate(resource);
    if (invalid.isSome()) {
      return Error("resource '" + resource.name() + "' is invalid: " + invalid->message);
    }
    if (resource.allocation_info().role() != offer.role()) {
      return Error("resource '" + resource.name() + "' is allocated to '" + resource.allocation_info().role() + "', not to '" +
                   offer.role() + "'");
    }
    resources += resource;
  }
  if (resources.empty()) {
    return Error("it is empty");
  }
  return resources;
}

}  // namespace

Try<std::shared_ptr<const OfferedResources>> OfferParser::parse(const v1::Offer& offer) {
  const std::shared_ptr<const OfferedResources> kept = find(offer.resources());
  if (kept != nullptr && kept->role == offer.role()) {
    return kept;
  }
  const Try<Resources> decoded = decode(offer);
  if (decoded.isError()) {
    return Error(decoded.error());
  }
  Resources unallocated = decoded.get();
  unallocated.unallocate();
  const auto parsed = std::make_shared<const OfferedResources>(
      OfferedResources{offer.role(), decoded.get(), unallocated.nonShared(), unallocated.shared(), offer.resources()});
  if (key_.size() <= kLongestKept) {
    if (kept_.size() >= kMostKept) {
      kept_.clear();
    }
    kept_.emplace(key_, parsed);
  }
  return parsed;
}

std::shared_ptr<const OfferedResources> OfferParser::find(const Bytes& resources) {
  write_key(resources);
  const auto found = kept_.find(key_);
  return found == kept_.end() ? nullptr : found->second;
}

void OfferParser::write_key(const Bytes& resources) {
  key_.clear();
  for (const std::string& bytes : resources) {
    const std::size_t size = bytes.size();  // without sizes, different lists could have one key
    key_.append(reinterpret_cast<const char*>(&size), sizeof size).append(bytes);
  }
}

bool equal(const Bytes& left, const Bytes& right) {
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin());
}

void clear(Resources* resources) {
  static const Resources none;
  *resources = none;  // an assignment from a temporary object would free the list
}

void add(const Resources& resources, Resources* to) {
  if (to->empty()) {
    *to = resources;
  } else {
    *to += resources;
  }
}

void subtract(const Resources& resources, Resources* from) {
  if (identical(resources, *from)) {
    clear(from);
  } else {
    *from -= resources;
  }
}

bool identical(const Resources& left, const Resources& right) {
  return left.size() == right.size() &&
         std::equal(left.begin(), left.end(), right.begin(), [](const Resource& one, const Resource& other) { return &one == &other; });
}

}  // namespace adapter
}  // namespace longshare
