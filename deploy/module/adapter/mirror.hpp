// What a snapshot needs to know, kept with Mesos's own arithmetic; and the admission of offers.

#pragma once

#include <map>
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

// How a framework was asked to leave an agent.
struct InverseOffer {
  bool outstanding = false;
  Option<mesos::allocator::InverseOfferStatus> status;
};

struct Agent {
  mesos::SlaveInfo info;
  std::vector<mesos::SlaveInfo::Capability> capabilities;
  Option<mesos::Unavailability> unavailability;
  bool active = true;
  mesos::Resources total;
  Used used;     // outstanding offers included
  Used running;  // the part of it that is not only offered, if the master tells
  hashmap<mesos::FrameworkID, InverseOffer> inverse_offers;
  uint64_t added = 0;        // number of the event
  uint64_t unavailable = 0;  // number of the event that set or changed this

  mesos::Resources available() const;
};

struct Framework {
  mesos::FrameworkInfo info;
  bool active = false;
  std::set<std::string> suppressed;
  Excludes excludes;  // may be empty

  std::set<std::string> roles() const;
};

// Everything that the master has told its allocator and an allocator that begins anew must know. Not thread-safe. Calls
// about agents and frameworks that are not known change nothing.
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
  void set_added(const mesos::SlaveID& id, uint64_t sequence) { agents_[id].added = sequence; }
  void remove_agent(const mesos::SlaveID& id);
  void update_agent(const mesos::SlaveID& id, const mesos::SlaveInfo& info, const Option<mesos::Resources>& total,
                    const Option<std::vector<mesos::SlaveInfo::Capability>>& capabilities);
  void add_resource_provider(const mesos::SlaveID& id, const mesos::Resources& total, const Used& used);
  void set_agent_active(const mesos::SlaveID& id, bool active);
  void set_whitelist(const Option<hashset<std::string>>& whitelist) { whitelist_ = whitelist; }
  void set_unavailability(const mesos::SlaveID& id, const Option<mesos::Unavailability>& unavailability, uint64_t sequence);
  void answer_inverse_offer(const mesos::SlaveID& agent, const mesos::FrameworkID& framework,
                            const Option<mesos::allocator::InverseOfferStatus>& status);
  // Returns the part that was held. The rest is of an agent or framework that is gone, perhaps to come again under its id.
  mesos::Resources recover_resources(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                                     bool allocated);
  // Resources of one agent and one role run from now on. Returns whose they must be, as the master does not say: the first
  // framework that is offered all of them there.
  Option<mesos::FrameworkID> launched(const mesos::SlaveID& agent, const mesos::Resources& resources);
  void set_quota(const RoleQuota& quota);
  void remove_quota(const std::string& role) { quotas_.erase(role); }
  void set_weight(const std::string& role, double weight) { weights_[role] = weight; }
  void set_paused(bool paused) { paused_ = paused; }

  // An error: master and mirror have diverged.
  Try<Nothing> update_allocation(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& offered,
                                 const std::vector<mesos::ResourceConversion>& conversions);
  // An error: it cannot be applied to what the agent has.
  Try<Nothing> update_available(const mesos::SlaveID& agent, const std::vector<mesos::Offer::Operation>& operations);

  enum class Verdict { ADMITTED, STALE, REFUSED };
  struct Admission {
    Verdict verdict;
    std::string reason;  // of a refusal
    mesos::Resources resources;
  };
  // Whether the master may be shown an offer that knows of the events up to `applied`; if so, it is booked. Stale is one
  // that the service will forget by itself, when it hears that the agent is gone. The framework need not be known.
  Admission admit(const mesos::FrameworkID& framework, const v1::Offer& offer, uint64_t applied);
  // Likewise with an inverse offer.
  Verdict admit(const mesos::FrameworkID& framework, const v1::InverseOffer& inverse, uint64_t applied);

  // The frameworks that are not offered an agent, and those that have been unlisted since the last call.
  void write_excluded(const mesos::SlaveID& agent, v1::ExclusionList* into);
  // The agents that a framework is not offered: `Call` is AddFramework or UpdateFramework.
  template <typename Call>
  void write_excluded(const mesos::FrameworkID& framework, Call* call) const {
    call->set_excluded_unlisted(exclusions_.unlisted(framework.value()));
    for (const auto& excluded : exclusions_.of(framework.value())) {
      v1::ExcludedAgents* agents = call->add_excluded();
      agents->set_role(excluded.first);
      encode(excluded.second, agents->mutable_agent_ids());
    }
  }
  // The frameworks that have been unlisted since the last call: offers to them must end.
  std::vector<mesos::FrameworkID> take_unlisted();
  void write(int64_t time_ns, v1::Snapshot* snapshot) const;

  using InverseStatuses = hashmap<mesos::SlaveID, hashmap<mesos::FrameworkID, mesos::allocator::InverseOfferStatus>>;
  InverseStatuses inverse_statuses() const;

  const hashmap<mesos::SlaveID, Agent>& agents() const { return agents_; }
  const hashmap<mesos::FrameworkID, Framework>& frameworks() const { return frameworks_; }
  const std::map<std::string, RoleQuota>& quotas() const { return quotas_; }
  double weight(const std::string& role) const;

 private:
  // Asks a framework about an agent.
  void ask(const mesos::FrameworkID& id, const Framework& framework, const std::set<std::string>& roles, const mesos::SlaveID& agent,
           const mesos::SlaveInfo& info);
  void ask_all(const mesos::SlaveID& agent, const mesos::SlaveInfo& info);
  Agent* agent(const mesos::SlaveID& id);
  Framework* framework(const mesos::FrameworkID& id);

  hashmap<mesos::SlaveID, Agent> agents_;
  hashmap<mesos::FrameworkID, Framework> frameworks_;
  Exclusions exclusions_{kMostExclusions, kMostExclusionsOfAll};
  Recovery recovery_{mesos::allocator::Options()};
  std::map<std::string, RoleQuota> quotas_;
  std::map<std::string, double> weights_;
  Option<hashset<std::string>> whitelist_;
  bool paused_ = false;
  int64_t leading_since_ = 0;
  int64_t agents_needed_ = 0;    // to end the hold-off after an election; 0: it is over
  int64_t agents_expected_ = 0;  // registered before the election; 0: all are back, or no longer awaited
  int64_t hold_off_until_ = 0;
};

}  // namespace adapter
}  // namespace longshare
