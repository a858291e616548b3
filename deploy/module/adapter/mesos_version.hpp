// Contains all code that depends on the version of Mesos for which the module is built.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
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

// Whether the master distinguishes allocated (running) resources from offered resources.
constexpr bool kTellsRunning = LONGSHARE_MESOS_AT_LEAST(10);

// The quota of one role, for any version of Mesos.
struct RoleQuota {
  std::string role;
  std::map<std::string, double> guarantees;
  std::map<std::string, double> limits;  // an absent resource has no limit
  bool capped = false;                   // true for Mesos 1.8, where the guarantee is also the limit
};

// Returns whether a framework's offer constraints exclude an agent for a role.
using Excludes = std::function<bool(const std::string& role, const mesos::SlaveInfo& agent)>;

// Parameters of failover recovery: the timeout, and the fraction of the expected agents that ends the recovery.
struct Recovery {
#if LONGSHARE_MESOS_AT_LEAST(11)
  explicit Recovery(const mesos::allocator::Options& options) : timeout(options.recoveryTimeout), factor(options.agentRecoveryFactor) {}
#else
  explicit Recovery(const mesos::allocator::Options&) {}
#endif
  Duration timeout = Minutes(10);
  double factor = 0.8;
};

// Mesos's allocator interface. Converts each call whose signature depends on the version to one common signature.
class VersionedAllocator : public mesos::allocator::Allocator {
 public:
  using Held = hashmap<mesos::SlaveID, mesos::Resources>;

#if LONGSHARE_MESOS_AT_LEAST(9)
  void recover(const int expected, const hashmap<std::string, mesos::Quota>& quotas) override {
    std::vector<RoleQuota> converted;
    for (const auto& quota : quotas) {
      converted.push_back(role_quota(quota.first, quota.second));
    }
    recovered(expected, converted);
  }

  void updateQuota(const std::string& role, const mesos::Quota& quota) override { quota_set(role_quota(role, quota)); }
#else
  void recover(const int expected, const hashmap<std::string, ::Quota>& quotas) override {
    std::vector<RoleQuota> converted;
    for (const auto& quota : quotas) {
      converted.push_back(role_quota(quota.first, quota.second));
    }
    recovered(expected, converted);
  }

  void setQuota(const std::string& role, const ::Quota& quota) override { quota_set(role_quota(role, quota)); }
  void removeQuota(const std::string& role) override { quota_removed(role); }
#endif

#if LONGSHARE_MESOS_AT_LEAST(10)
  void recoverResources(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                        const Option<mesos::Filters>& filters, bool allocated) override {
    resources_recovered(framework, agent, resources, filters, allocated);
  }

  void transitionOfferedToAllocated(const mesos::SlaveID& agent, const mesos::Resources& resources) override { launched(agent, resources); }
#else
  void recoverResources(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                        const Option<mesos::Filters>& filters) override {
    resources_recovered(framework, agent, resources, filters, false);
  }
#endif

#if LONGSHARE_MESOS_AT_LEAST(11)
  void addFramework(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, const Held&, bool active,
                    mesos::allocator::FrameworkOptions&& options) override {
    framework_added(id, info, active, options.suppressedRoles, excludes(&options));
  }

  void updateFramework(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, mesos::allocator::FrameworkOptions&& options) override {
    framework_updated(id, info, options.suppressedRoles, excludes(&options));
  }
#else
  void addFramework(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, const Held&, bool active,
                    const std::set<std::string>& suppressed) override {
    framework_added(id, info, active, suppressed, nullptr);
  }

  void updateFramework(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, const std::set<std::string>& suppressed) override {
    framework_updated(id, info, suppressed, nullptr);
  }
#endif

 protected:
  virtual void recovered(int expected, const std::vector<RoleQuota>& quotas) = 0;
  virtual void quota_set(const RoleQuota& quota) = 0;  // without guarantees and limits, and not capped: removes the quota
  virtual void quota_removed(const std::string& role) = 0;
  virtual void resources_recovered(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                                   const Option<mesos::Filters>& filters, bool allocated) = 0;
  virtual void launched(const mesos::SlaveID& agent, const mesos::Resources& resources) = 0;
  // An empty `excludes` means that the framework excludes no agent.
  virtual void framework_added(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, bool active,
                               const std::set<std::string>& suppressed, const Excludes& excludes) = 0;
  virtual void framework_updated(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, const std::set<std::string>& suppressed,
                                 const Excludes& excludes) = 0;

 private:
#if LONGSHARE_MESOS_AT_LEAST(9)
  static RoleQuota role_quota(const std::string& role, const mesos::Quota& quota) {
    RoleQuota converted;
    converted.role = role;
    for (const auto& amount : quota.guarantees) {
      converted.guarantees[amount.first] = amount.second.value();
    }
    for (const auto& amount : quota.limits) {
      converted.limits[amount.first] = amount.second.value();
    }
    return converted;
  }
#else
  static RoleQuota role_quota(const std::string& role, const ::Quota& quota) {
    RoleQuota converted;
    converted.role = role;
    converted.capped = true;
    for (const mesos::Resource& resource : quota.info.guarantee()) {
      converted.guarantees[resource.name()] = resource.scalar().value();
    }
    return converted;
  }
#endif

#if LONGSHARE_MESOS_AT_LEAST(11)
  // The filter is in a shared pointer, because std::function needs a copyable object and the filter is only movable.
  static Excludes excludes(mesos::allocator::FrameworkOptions* options) {
    const auto filter = std::make_shared<mesos::allocator::OfferConstraintsFilter>(std::move(options->offerConstraintsFilter));
    return [filter](const std::string& role, const mesos::SlaveInfo& agent) { return filter->isAgentExcluded(role, agent); };
  }
#endif
};

}  // namespace adapter
}  // namespace longshare
