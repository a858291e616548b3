// Mirror: a copy of the master's state. Snapshots are made from the mirror, and offers are checked against the mirror. Its
// arithmetic is Mesos's own.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <mesos/allocator/allocator.hpp>
#include <mesos/maintenance/maintenance.hpp>
#include <mesos/mesos.hpp>
#include <mesos/resources.hpp>
#include <mesos/type_utils.hpp>
#include <stout/hashmap.hpp>
#include <stout/hashset.hpp>
#include <stout/nothing.hpp>
#include <stout/option.hpp>
#include <stout/try.hpp>

#include "encode.hpp"
#include "exclusions.h"
#include "mesos_version.hpp"

namespace longshare {
namespace adapter {

// The state of the inverse offer of one agent to one framework.
struct InverseOffer {
  bool outstanding = false;
  Option<mesos::allocator::InverseOfferStatus> status;
};

// An agent, as the master described it.
struct Agent {
  Holdings used;       // allocated and offered resources, by framework
  uint64_t added = 0;  // sequence number of the AddAgent event

 private:
  // Here, because each offer reads the members above as well.
  mesos::Resources free_;
  // Whether `total` contains the resources in `used` and no two frameworks have the same. Only then may recovered resources be
  // added to `free_`.
  bool disjoint_ = true;

 public:
  mesos::SlaveInfo info;
  std::vector<mesos::SlaveInfo::Capability> capabilities;
  Option<mesos::Unavailability> unavailability;
  bool active = true;
  mesos::Resources total;
  Holdings running;  // the allocated part of `used`, if the master reports that part
  hashmap<mesos::FrameworkID, InverseOffer> inverse_offers;
  uint64_t unavailable = 0;  // sequence number of the last event that changed `unavailability`

  // Computes `free` after a change of `total` or `used`.
  void compute_free();
  // Change `free` after a change of `used`: subtract resources that a framework got, or add resources that it no longer has. The
  // resources have no allocation, and none of them is shared.
  void take(const mesos::Resources& resources);
  void give_back(const mesos::Resources& resources);
  // Returns the resources that are neither allocated nor offered, without shared resources, which stay available.
  const mesos::Resources& free() const { return free_; }
};

// A framework, as the master described it.
struct Framework {
  mesos::FrameworkInfo info;
  std::set<std::string> roles;  // roles to which the framework is subscribed
  bool active = false;
  std::set<std::string> suppressed;
  Excludes excludes;  // empty: no agent is excluded
};

// Sums of scalar resources over all agents, for metrics. Each change of an agent is added to them. The sums are whole
// thousandths, the precision of Mesos's arithmetic, so that they stay exact.
class Sums {
 public:
  // Add resources of an agent, or the allocated resources of a framework on an agent; subtract them if `sign` is -1.
  void add_total(const mesos::Resources& resources, int sign);
  void add_allocated(const mesos::Resources& resources, int sign);

  double total(const std::string& name) const;
  double allocated(const std::string& name) const;
  double allocated(const std::string& role, const std::string& name) const;
  // Returns the largest share of a role in the total of a resource. Resources in `excluded` do not count.
  double share(const std::string& role, const std::set<std::string>& excluded) const;
  // Returns the roles that have resources.
  std::set<std::string> roles() const;
  // Returns a number that changes with the roles that have resources.
  uint64_t changes_of_roles() const { return changes_of_roles_; }

 private:
  using Thousandths = std::map<std::string, double>;

  struct Role {
    Thousandths scalars;
    int64_t resources = 0;  // number of resources of any type
  };

  Thousandths total_;
  std::map<std::string, Role> roles_;
  uint64_t changes_of_roles_ = 0;
};

// The state that the master has reported to its allocator and that a restarted allocator needs. Not thread-safe. Calls about
// unknown agents and frameworks have no effect.
class Mirror {
 public:
  void initialize(const Recovery& recovery) { recovery_ = recovery; }
  void elected(int64_t time_ns) { leading_since_ = time_ns; }
  void recovered(int64_t time_ns, int expected_agents, const std::vector<RoleQuota>& quotas);
  void add_framework(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, bool active, const std::set<std::string>& suppressed,
                     const Excludes& excludes);
  void remove_framework(const mesos::FrameworkID& id);
  void set_framework_active(const mesos::FrameworkID& id, bool active);
  void update_framework(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, const std::set<std::string>& suppressed,
                        const Excludes& excludes);
  void suppress(const mesos::FrameworkID& id, const std::set<std::string>& roles);
  void revive(const mesos::FrameworkID& id, const std::set<std::string>& roles);
  void add_agent(const mesos::SlaveID& id, Agent agent, int64_t time_ns);
  void set_added(const mesos::SlaveID& id, uint64_t sequence) { agents_[id.value()].added = sequence; }
  void remove_agent(const mesos::SlaveID& id);
  void update_agent(const mesos::SlaveID& id, const mesos::SlaveInfo& info, const Option<mesos::Resources>& total,
                    const Option<std::vector<mesos::SlaveInfo::Capability>>& capabilities);
  void add_resource_provider(const mesos::SlaveID& id, const mesos::Resources& total, const Used& used);
  void set_agent_active(const mesos::SlaveID& id, bool active);
  void set_whitelist(const Option<hashset<std::string>>& whitelist) { whitelist_ = whitelist; }
  void set_unavailability(const mesos::SlaveID& id, const Option<mesos::Unavailability>& unavailability, uint64_t sequence);
  void answer_inverse_offer(const mesos::SlaveID& agent, const mesos::FrameworkID& framework,
                            const Option<mesos::allocator::InverseOfferStatus>& status);
  // Releases resources of a framework on an agent, and writes the part that the framework held. Returns whether that part has
  // any resource. Other resources belonged to an agent or framework that was removed, and perhaps added again under the same ID.
  bool recover_resources(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                         bool allocated, Bytes* released);
  // Records that offered resources of one agent and one role are now allocated. The master does not name the framework.
  // Returns the first framework that is offered all of these resources on the agent.
  Option<mesos::FrameworkID> launched(const mesos::SlaveID& agent, const mesos::Resources& resources);
  void set_quota(const RoleQuota& quota);
  void remove_quota(const std::string& role);
  void set_weight(const std::string& role, double weight) { weights_[role] = weight; }
  void set_paused(bool paused) { paused_ = paused; }

  // Converts resources of a framework. Returns an error if the state of the master and the mirror differ.
  Try<Nothing> update_allocation(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& offered,
                                 const std::vector<mesos::ResourceConversion>& conversions);
  // Applies an operator's operations to an agent. Returns an error if the agent's resources do not allow them.
  Try<Nothing> update_available(const mesos::SlaveID& agent, const std::vector<mesos::Offer::Operation>& operations);

  enum class Verdict { ADMITTED, STALE, REFUSED };
  struct Admission {
    Verdict verdict;
    std::string reason;                                 // why the offer is refused; else empty
    std::shared_ptr<const OfferedResources> resources;  // the resources of an admitted offer
  };
  // Checks an offer that the service made after it applied the events up to `applied`. An admitted offer is recorded as
  // offered resources. The framework may be unknown. Verdicts:
  //   ADMITTED  The offer agrees with the mirror.
  //   STALE     The agent was removed after `applied`. The service withdraws the offer when it learns of the removal.
  //   REFUSED   The offer is invalid for another reason, and the service must be told.
  Admission admit(const std::string& framework, const v1::Offer& offer, uint64_t applied);
  // Checks an inverse offer in the same way. The offer is also STALE if the agent's unavailability changed after `applied`.
  Verdict admit(const mesos::FrameworkID& framework, const v1::InverseOffer& inverse, uint64_t applied);

  // Writes the frameworks that exclude an agent, and the frameworks that became unlisted since the last call.
  void write_excluded(const mesos::SlaveID& agent, v1::ExclusionList* into);
  // Writes the agents that a framework excludes. `Call` is AddFramework or UpdateFramework.
  template <typename Call>
  void write_excluded(const mesos::FrameworkID& framework, Call* call) const {
    call->set_excluded_unlisted(exclusions_.unlisted(framework.value()));
    for (const auto& excluded : exclusions_.of(framework.value())) {
      v1::ExcludedAgents* agents = call->add_excluded();
      agents->set_role(excluded.first);
      encode(excluded.second, agents->mutable_agent_ids());
    }
  }
  // Returns the frameworks that became unlisted since the last call. Offers to these frameworks must end.
  std::vector<mesos::FrameworkID> take_unlisted();
  // Writes the whole state into a snapshot of the time `time_ns`. The snapshot may be too large to send; see bounds.h.
  void write(int64_t time_ns, v1::Snapshot* snapshot) const;

  using InverseStatuses = hashmap<mesos::SlaveID, hashmap<mesos::FrameworkID, mesos::allocator::InverseOfferStatus>>;
  // Returns the latest answers of frameworks to inverse offers, by agent and framework.
  InverseStatuses inverse_statuses() const;

  const Table<Agent>& agents() const { return agents_; }
  const Table<Framework>& frameworks() const { return frameworks_; }
  const std::map<std::string, RoleQuota>& quotas() const { return quotas_; }
  double weight(const std::string& role) const;
  const Sums& sums() const { return sums_; }
  // Returns a number that changes with the roles, the quotas, and the frameworks with their roles.
  uint64_t changes_of_names() const { return changes_of_names_ + sums_.changes_of_roles(); }

 private:
  // Evaluates the offer constraints of a framework for an agent, and records the result for each role.
  void ask(const std::string& id, const Framework& framework, const std::string& agent, const mesos::SlaveInfo& info);
  // Evaluates the offer constraints of all frameworks for an agent.
  void ask_all(const std::string& agent, const mesos::SlaveInfo& info);
  // Adds an agent's resources to the sums, or subtracts them if `sign` is -1.
  void count(const Agent& agent, int sign);
  // Replace an agent's resources, or the resources of one framework on an agent. The caller changes
  // the agent's `free`.
  void set_total(Agent* agent, const mesos::Resources& total);
  void set_used(Agent* agent, const std::string& framework, mesos::Resources used);
  // Return a known agent or framework; else nullptr.
  Agent* agent(const std::string& id);
  Framework* framework(const std::string& id);

  Table<Agent> agents_;
  Table<Framework> frameworks_;
  OfferParser parser_;
  Sums sums_;
  uint64_t changes_of_names_ = 0;
  Exclusions exclusions_{kMostExclusions, kMostExclusionsOfAll};
  Recovery recovery_{mesos::allocator::Options()};
  std::map<std::string, RoleQuota> quotas_;
  std::map<std::string, double> weights_;
  Option<hashset<std::string>> whitelist_;
  bool paused_ = false;
  int64_t leading_since_ = 0;
  int64_t agents_needed_ = 0;    // number of agents that ends failover recovery; 0: the recovery is over
  int64_t agents_expected_ = 0;  // agents registered before the election; 0: all are back, or no longer expected
  int64_t hold_off_until_ = 0;
};

}  // namespace adapter
}  // namespace longshare
