// What differs between the versions of Mesos that this module can be built for. All of it is here.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include <mesos/allocator/allocator.hpp>
#include <mesos/mesos.hpp>
#include <mesos/quota/quota.hpp>
#include <mesos/resources.hpp>
#include <mesos/version.hpp>

#define LONGSHARE_MESOS_AT_LEAST(minor) (MESOS_MAJOR_VERSION_NUM > 1 || MESOS_MINOR_VERSION_NUM >= (minor))

namespace longshare {
namespace adapter {

// Mesos's interface, with the calls that changed after 1.8 told in the terms of 1.8.
class VersionedAllocator : public mesos::allocator::Allocator {
#if LONGSHARE_MESOS_AT_LEAST(9)
 public:
  void recover(const int expected, const hashmap<std::string, mesos::Quota>& quotas) override {
    std::vector<std::pair<std::string, mesos::quota::QuotaInfo>> infos;
    for (const auto& quota : quotas) {
      infos.emplace_back(quota.first, quota_info(quota.first, quota.second));
    }
    recovered(expected, infos);
  }

  void updateQuota(const std::string& role, const mesos::Quota& quota) override {
    quota_removed(role);
    if (!quota.guarantees.empty()) {
      quota_set(role, quota_info(role, quota));
    }
  }

 private:
  // The guarantee only: that of 1.8 is the limit, too.
  static mesos::quota::QuotaInfo quota_info(const std::string& role, const mesos::Quota& quota) {
    mesos::quota::QuotaInfo info;
    info.set_role(role);
    for (const auto& amount : quota.guarantees) {
      mesos::Resource* resource = info.add_guarantee();
      resource->set_name(amount.first);
      resource->set_type(mesos::Value::SCALAR);
      resource->mutable_scalar()->CopyFrom(amount.second);
    }
    return info;
  }
#else
 public:
  void recover(const int expected, const hashmap<std::string, ::Quota>& quotas) override {
    std::vector<std::pair<std::string, mesos::quota::QuotaInfo>> infos;
    for (const auto& quota : quotas) {
      infos.emplace_back(quota.first, quota.second.info);
    }
    recovered(expected, infos);
  }

  void setQuota(const std::string& role, const ::Quota& quota) override { quota_set(role, quota.info); }
  void removeQuota(const std::string& role) override { quota_removed(role); }
#endif

#if LONGSHARE_MESOS_AT_LEAST(10)
 public:
  void recoverResources(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                        const Option<mesos::Filters>& filters, bool) override {
    resources_recovered(framework, agent, resources, filters);
  }

  // What is offered and what is used are the same to Longshare: both are allocated.
  void transitionOfferedToAllocated(const mesos::SlaveID&, const mesos::Resources&) override {}
#else
 public:
  void recoverResources(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                        const Option<mesos::Filters>& filters) override {
    resources_recovered(framework, agent, resources, filters);
  }
#endif

 protected:
  virtual void recovered(int expected, const std::vector<std::pair<std::string, mesos::quota::QuotaInfo>>& quotas) = 0;
  virtual void quota_set(const std::string& role, const mesos::quota::QuotaInfo& quota) = 0;
  virtual void quota_removed(const std::string& role) = 0;
  virtual void resources_recovered(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                                   const Option<mesos::Filters>& filters) = 0;
};

}  // namespace adapter
}  // namespace longshare
