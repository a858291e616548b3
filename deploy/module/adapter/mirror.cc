#include "mirror.hpp"

#include <algorithm>
#include <cmath>

#include <stout/duration.hpp>

namespace longshare {
namespace adapter {

using mesos::FrameworkID;
using mesos::FrameworkInfo;
using mesos::Resource;
using mesos::ResourceConversion;
using mesos::Resources;
using mesos::SlaveID;
using mesos::Unavailability;
using mesos::allocator::InverseOfferStatus;

namespace {

std::set<std::string> roles_of(const FrameworkInfo& info) {
  for (const auto& capability : info.capabilities()) {
    if (capability.type() == FrameworkInfo::Capability::MULTI_ROLE) {
      return {info.roles().begin(), info.roles().end()};
    }
  }
  return {info.role()};
}

// Returns resources without their allocation. Equal resources of several roles become one.
Resources unallocated(Resources resources) {
  resources.unallocate();
  Resources merged;
  merged += resources;
  return merged;
}

template <typename Id>
Id id_of(const std::string& value) {
  Id id;
  id.set_value(value);
  return id;
}

double thousandths(const Resource& resource) { return std::round(resource.scalar().value() * 1000.0); }

}  // namespace

void Agent::compute_free() {
  free_ = total.nonShared();
  disjoint_ = true;
  for (const Holding& held : used) {
    const Resources part = unallocated(held.resources.nonShared());
    disjoint_ = disjoint_ && free_.contains(part);
    free_ -= part;
  }
}

void Agent::take(const Resources& resources) { subtract(resources, &free_); }

void Agent::give_back(const Resources& resources) {
  if (disjoint_) {
    add(resources, &free_);
  } else {
    compute_free();
  }
}

void Sums::add_total(const Resources& resources, int sign) {
  for (const Resource& resource : resources) {
    if (resource.type() == mesos::Value::SCALAR) {
      total_[resource.name()] += sign * thousandths(resource);
    }
  }
}

void Sums::add_allocated(const Resources& resources, int sign) {
  auto role = roles_.end();
  for (const Resource& resource : resources) {
    if (!resource.allocation_info().has_role()) {
      continue;
    }
    if (role == roles_.end() || role->first != resource.allocation_info().role()) {
      role = roles_.emplace(resource.allocation_info().role(), Role()).first;
    }
    if (role->second.resources == 0) {
      ++changes_of_roles_;
    }
    role->second.resources += sign;
    if (resource.type() == mesos::Value::SCALAR) {
      role->second.scalars[resource.name()] += sign * thousandths(resource);
    }
    if (role->second.resources == 0) {
      ++changes_of_roles_;
      roles_.erase(role);
      role = roles_.end();
    }
  }
}

double Sums::total(const std::string& name) const {
  const auto found = total_.find(name);
  return found == total_.end() ? 0.0 : found->second / 1000.0;
}

double Sums::allocated(const std::string& name) const {
  double sum = 0.0;
  for (const auto& role : roles_) {
    sum += allocated(role.first, name);
  }
  return std::round(sum * 1000.0) / 1000.0;
}

double Sums::allocated(const std::string& role, const std::string& name) const {
  const auto found = roles_.find(role);
  if (found == roles_.end()) {
    return 0.0;
  }
  const auto scalar = found->second.scalars.find(name);
  return scalar == found->second.scalars.end() ? 0.0 : scalar->second / 1000.0;
}

double Sums::share(const std::string& role, const std::set<std::string>& excluded) const {
  const auto found = roles_.find(role);
  if (found == roles_.end()) {
    return 0.0;
  }
  double dominant = 0.0;
  for (const auto& scalar : found->second.scalars) {
    const auto of = total_.find(scalar.first);
    if (of != total_.end() && of->second > 0.0 && excluded.count(scalar.first) == 0) {
      dominant = std::max(dominant, scalar.second / of->second);
    }
  }
  return dominant;
}

std::set<std::string> Sums::roles() const {
  std::set<std::string> names;
  for (const auto& role : roles_) {
    names.insert(role.first);
  }
  return names;
}

void Mirror::recovered(int64_t time_ns, int expected_agents, const std::vector<RoleQuota>& quotas) {
  for (const RoleQuota& quota : quotas) {
    set_quota(quota);
  }
  agents_needed_ = static_cast<int64_t>(expected_agents * recovery_.factor);
  agents_expected_ = expected_agents;
  hold_off_until_ = time_ns + recovery_.timeout.ns();
}

void Mirror::add_framework(const FrameworkID& id, const FrameworkInfo& info, bool active, const std::set<std::string>& suppressed,
                           const Excludes& excludes) {
  frameworks_[id.value()] = Framework();
  frameworks_[id.value()].active = active;
  update_framework(id, info, suppressed, excludes);
}

void Mirror::remove_framework(const FrameworkID& id) {
  frameworks_.erase(id.value());
  ++changes_of_names_;
  exclusions_.forget(id.value());
  for (auto& agent : agents_) {
    if (agent.second.used.find(id.value()) != agent.second.used.end()) {
      set_used(&agent.second, id.value(), Resources());
      agent.second.compute_free();
    }
    const auto running = agent.second.running.find(id.value());
    if (running != agent.second.running.end()) {
      agent.second.running.erase(running);
    }
    agent.second.inverse_offers.erase(id);
  }
}

void Mirror::set_framework_active(const FrameworkID& id, bool active) {
  Framework* found = framework(id.value());
  if (found == nullptr) {
    return;
  }
  found->active = active;
  if (!active) {
    for (auto& agent : agents_) {
      const auto inverse = agent.second.inverse_offers.find(id);
      if (inverse != agent.second.inverse_offers.end()) {
        inverse->second.outstanding = false;
      }
    }
  }
}

void Mirror::update_framework(const FrameworkID& id, const FrameworkInfo& info, const std::set<std::string>& suppressed,
                              const Excludes& excludes) {
  Framework* found = framework(id.value());
  if (found == nullptr) {
    return;
  }
  found->info = info;
  found->roles = roles_of(info);
  ++changes_of_names_;
  found->suppressed = suppressed;
  found->excludes = excludes;
  exclusions_.forget(id.value());
  if (excludes) {
    exclusions_.set_principal(id.value(), info.principal());
  }
  for (const auto& agent : agents_) {
    ask(id.value(), *found, agent.first, agent.second.info);
  }
}

void Mirror::suppress(const FrameworkID& id, const std::set<std::string>& roles) {
  Framework* found = framework(id.value());
  if (found != nullptr) {
    const std::set<std::string> named = roles.empty() ? found->roles : roles;
    found->suppressed.insert(named.begin(), named.end());
  }
}

void Mirror::revive(const FrameworkID& id, const std::set<std::string>& roles) {
  Framework* found = framework(id.value());
  if (found == nullptr) {
    return;
  }
  if (roles.empty()) {
    found->suppressed.clear();
  }
  for (const std::string& role : roles) {
    found->suppressed.erase(role);
  }
}

void Mirror::add_agent(const SlaveID& id, Agent agent, int64_t time_ns) {
  Agent& added = agents_[id.value()];
  count(added, -1);
  added = std::move(agent);
  added.compute_free();
  count(added, +1);
  ask_all(id.value(), added.info);
  const int64_t known = static_cast<int64_t>(agents_.size());
  if (known >= agents_needed_ || time_ns >= hold_off_until_) {
    agents_needed_ = 0;
  }
  if (known >= agents_expected_ || time_ns >= hold_off_until_) {
    agents_expected_ = 0;
  }
}

void Mirror::remove_agent(const SlaveID& id) {
  const Agent* removed = agent(id.value());
  if (removed != nullptr) {
    count(*removed, -1);
    agents_.erase(id.value());
  }
  exclusions_.forget_agent(id.value());
}

void Mirror::update_agent(const SlaveID& id, const mesos::SlaveInfo& info, const Option<Resources>& total,
                          const Option<std::vector<mesos::SlaveInfo::Capability>>& capabilities) {
  Agent* found = agent(id.value());
  if (found == nullptr) {
    return;
  }
  found->info = info;
  ask_all(id.value(), info);
  if (total.isSome()) {
    set_total(found, total.get());
    found->compute_free();
  }
  if (capabilities.isSome()) {
    found->capabilities = capabilities.get();
  }
}

void Mirror::add_resource_provider(const SlaveID& id, const Resources& total, const Used& used) {
  Agent* found = agent(id.value());
  if (found == nullptr) {
    return;
  }
  set_total(found, found->total + total);
  for (const auto& held : used) {
    const std::string& framework = held.first.value();
    set_used(found, framework, found->used[framework].resources + held.second);
    if (kTellsRunning) {
      found->running[framework].resources += held.second;
    }
  }
  found->compute_free();
}

void Mirror::set_agent_active(const SlaveID& id, bool active) {
  Agent* found = agent(id.value());
  if (found == nullptr) {
    return;
  }
  found->active = active;
  if (!active) {
    for (auto& inverse : found->inverse_offers) {
      inverse.second.outstanding = false;
    }
  }
}

void Mirror::set_unavailability(const SlaveID& id, const Option<Unavailability>& unavailability, uint64_t sequence) {
  Agent* found = agent(id.value());
  if (found != nullptr) {
    found->unavailability = unavailability;
    found->unavailable = sequence;
    found->inverse_offers.clear();
  }
}

void Mirror::answer_inverse_offer(const SlaveID& agent_id, const FrameworkID& framework, const Option<InverseOfferStatus>& status) {
  Agent* found = agent(agent_id.value());
  if (found == nullptr || found->unavailability.isNone()) {
    return;
  }
  InverseOffer& inverse = found->inverse_offers[framework];
  if (inverse.outstanding) {
    inverse.outstanding = false;
    if (status.isSome()) {
      inverse.status = status;
    }
  }
}

bool Mirror::recover_resources(const FrameworkID& framework, const SlaveID& agent_id, const Resources& resources, bool allocated,
                               Bytes* released) {
  Agent* found = agent(agent_id.value());
  if (found == nullptr) {
    return false;
  }
  if (allocated) {
    const auto running = found->running.find(framework.value());
    if (running != found->running.end()) {
      running->resources -= resources;
      if (running->resources.empty()) {
        found->running.erase(running);
      }
    }
  }
  const auto held = found->used.find(framework.value());
  if (held == found->used.end()) {
    return false;
  }
  const OfferedResources* whole = held->offer.get();
  if (whole != nullptr && identical(held->resources, resources)) {
    *released = whole->bytes;
  } else {
    encode(resources, released);
  }
  if (whole != nullptr && equal(*released, whole->bytes)) {
    const std::shared_ptr<const OfferedResources> offer = std::move(held->offer);
    sums_.add_allocated(held->resources, -1);
    found->used.erase(held);
    found->give_back(offer->non_shared);
    return true;
  }
  const std::shared_ptr<const OfferedResources> offered = parser_.find(*released);
  if (offered != nullptr && held->resources.contains(offered->resources)) {
    set_used(found, framework.value(), held->resources - offered->resources);
    found->give_back(offered->non_shared);
    return true;
  }
  const Resources after = held->resources - resources;
  const Resources part = held->resources - after;
  set_used(found, framework.value(), after);
  found->give_back(unallocated(part.nonShared()));
  released->Clear();
  encode(part, released);
  return !part.empty();
}

Option<FrameworkID> Mirror::launched(const SlaveID& agent_id, const Resources& resources) {
  Agent* found = agent(agent_id.value());
  if (found == nullptr) {
    return None();
  }
  for (const Holding& held : found->used) {
    Resources offered = held.resources;
    const auto running = found->running.find(held.framework);
    if (running != found->running.end()) {
      offered -= running->resources;
    }
    if (offered.contains(resources)) {
      found->running[held.framework].resources += resources;
      return id_of<FrameworkID>(held.framework);
    }
  }
  return None();
}

void Mirror::set_quota(const RoleQuota& quota) {
  if (quota.capped || !quota.guarantees.empty() || !quota.limits.empty()) {
    quotas_[quota.role] = quota;
  } else {
    quotas_.erase(quota.role);
  }
  ++changes_of_names_;
}

void Mirror::remove_quota(const std::string& role) {
  quotas_.erase(role);
  ++changes_of_names_;
}

Try<Nothing> Mirror::update_allocation(const FrameworkID& framework, const SlaveID& agent_id, const Resources& offered,
                                       const std::vector<ResourceConversion>& conversions) {
  Agent* found = agent(agent_id.value());
  if (found == nullptr) {
    return Error("agent " + agent_id.value() + " is not known");
  }
  const auto held = found->used.find(framework.value());
  if (held == found->used.end() || !held->resources.contains(offered)) {
    return Error("framework " + framework.value() + " does not hold what it converts");
  }
  Resources updated = offered;
  Resources total = found->total;
  for (const ResourceConversion& conversion : conversions) {
    // The mirror skips the validation of the conversion, because the master has validated the conversion already.
    const ResourceConversion bare(conversion.consumed, conversion.converted);
    const Try<Resources> converted = updated.apply(bare);
    if (converted.isError()) {
      return Error("cannot convert what was offered: " + converted.error());
    }
    updated = converted.get();
    if (!conversion.consumed.empty()) {
      Resources consumed = conversion.consumed;
      Resources produced = conversion.converted;
      consumed.unallocate();
      produced.unallocate();
      const Try<Resources> changed = total.apply(ResourceConversion(consumed, produced));
      if (changed.isError()) {
        return Error("cannot convert what the agent has: " + changed.error());
      }
      total = changed.get();
    }
  }
  set_used(found, framework.value(), held->resources - offered + updated);
  set_total(found, total);
  found->compute_free();
  return Nothing();
}

Try<Nothing> Mirror::update_available(const SlaveID& agent_id, const std::vector<mesos::Offer::Operation>& operations) {
  Agent* found = agent(agent_id.value());
  if (found == nullptr) {
    return Error("the agent is gone");
  }
  const Try<Resources> total = found->total.apply(operations);
  if (total.isError()) {
    return Error(total.error());
  }
  set_total(found, total.get());
  found->compute_free();
  return Nothing();
}

Mirror::Admission Mirror::admit(const std::string& framework_id, const v1::Offer& offer, uint64_t applied) {
  const auto refused = [](const std::string& reason) { return Admission{Verdict::REFUSED, reason, nullptr}; };
  Agent* offered = agent(offer.agent_id());
  if (offered == nullptr || applied < offered->added) {
    // The agent was removed, and perhaps added again under the same ID. The service withdraws the offer when it learns of the
    // removal.
    return Admission{Verdict::STALE, "", nullptr};
  }
  const Framework* to = framework(framework_id);
  if (to == nullptr || !to->active) {
    return refused("the framework is gone or inactive");
  }
  if (to->roles.count(offer.role()) == 0) {
    return refused("the framework has left role '" + offer.role() + "'");
  }
  const Try<std::shared_ptr<const OfferedResources>> parsed = parser_.parse(offer);
  if (parsed.isError()) {
    return refused(parsed.error());
  }
  const OfferedResources& part = *parsed.get();
  const bool available = identical(offered->free(), part.non_shared) || offered->free().contains(part.non_shared);
  if (!available || !(part.shared.empty() || offered->total.contains(part.shared))) {
    return refused("the agent no longer has that free");
  }
  Holding& held = offered->used[framework_id];
  if (held.resources.empty()) {
    sums_.add_allocated(part.resources, +1);
    held.resources = part.resources;
    held.offer = parsed.get();
  } else {
    set_used(offered, framework_id, held.resources + part.resources);
  }
  offered->take(part.non_shared);
  return Admission{Verdict::ADMITTED, "", parsed.get()};
}

Mirror::Verdict Mirror::admit(const FrameworkID& framework_id, const v1::InverseOffer& inverse, uint64_t applied) {
  Agent* of = agent(inverse.agent_id());
  if (of == nullptr || applied < std::max(of->added, of->unavailable)) {
    return Verdict::STALE;
  }
  const Framework* to = framework(framework_id.value());
  if (to == nullptr || !to->active || !of->active || of->unavailability.isNone()) {
    return Verdict::REFUSED;
  }
  of->inverse_offers[framework_id].outstanding = true;
  return Verdict::ADMITTED;
}

void Mirror::ask(const std::string& id, const Framework& framework, const std::string& agent, const mesos::SlaveInfo& info) {
  if (!framework.excludes) {
    return;
  }
  for (const std::string& role : framework.roles) {
    if (exclusions_.unlisted(id)) {
      return;
    }
    exclusions_.set(id, role, agent, framework.excludes(role, info));
  }
}

void Mirror::ask_all(const std::string& agent, const mesos::SlaveInfo& info) {
  for (const auto& entry : frameworks_) {
    if (entry.second.excludes && !exclusions_.unlisted(entry.first)) {
      ask(entry.first, entry.second, agent, info);
    }
  }
}

void Mirror::write_excluded(const SlaveID& agent, v1::ExclusionList* into) {
  exclusions_.visit_agent(agent.value(), [into](const std::string& framework, const std::string& role) {
    v1::Exclusion* exclusion = into->add_exclusions();
    exclusion->set_framework_id(framework);
    exclusion->set_role(role);
  });
  for (const std::string& framework : exclusions_.take_unlisted()) {
    into->add_unlisted(framework);
  }
}

std::vector<FrameworkID> Mirror::take_unlisted() {
  std::vector<FrameworkID> taken;
  for (const std::string& name : exclusions_.take_unlisted()) {
    taken.push_back(id_of<FrameworkID>(name));
  }
  return taken;
}

void Mirror::write(int64_t time_ns, v1::Snapshot* snapshot) const {
  snapshot->set_time_ns(time_ns);
  snapshot->set_paused(paused_);
  snapshot->set_leading_since_ns(leading_since_);
  if (agents_expected_ > 0 && time_ns < hold_off_until_) {
    snapshot->mutable_hold_off()->set_agents_needed(agents_needed_);
    snapshot->mutable_hold_off()->set_until_ns(hold_off_until_);
    snapshot->mutable_hold_off()->set_agents_expected(agents_expected_);
  }
  for (const auto& quota : quotas_) {
    if (quota.second.capped) {
      encode(quota.second, snapshot->add_quotas());
    } else {
      encode(quota.second, snapshot->add_limited_quotas());
    }
  }
  for (const auto& weight : weights_) {
    v1::Weight* set = snapshot->add_weights();
    set->set_role(weight.first);
    set->set_weight(weight.second);
  }
  if (whitelist_.isSome()) {
    v1::UpdateWhitelist update;
    encode(whitelist_, &update);
    snapshot->mutable_whitelist()->Swap(update.mutable_whitelist());
  }
  for (const auto& entry : agents_) {
    const Agent& agent = entry.second;
    v1::AddAgent* add = snapshot->add_agents();
    add->set_agent_id(entry.first);
    add->set_info(agent.info.SerializePartialAsString());
    encode(agent.capabilities, add->mutable_capabilities());
    encode(agent.total, add->mutable_total());
    encode(agent.used, add->mutable_used());
    encode(agent.running, add->mutable_running());
    if (agent.unavailability.isSome()) {
      add->set_unavailability(agent.unavailability->SerializePartialAsString());
    }
    if (!agent.active) {
      snapshot->add_inactive_agents(entry.first);
    }
    for (const auto& inverse : agent.inverse_offers) {
      v1::InverseOfferState* state = snapshot->add_inverse_offers();
      state->set_agent_id(entry.first);
      state->set_framework_id(inverse.first.value());
      state->set_outstanding(inverse.second.outstanding);
      if (inverse.second.status.isSome()) {
        state->set_status(inverse.second.status->SerializePartialAsString());
      }
    }
  }
  for (const auto& entry : frameworks_) {
    v1::AddFramework* add = snapshot->add_frameworks();
    add->set_framework_id(entry.first);
    add->set_info(entry.second.info.SerializePartialAsString());
    add->set_active(entry.second.active);
    encode(entry.second.suppressed, add->mutable_suppressed_roles());
    write_excluded(id_of<FrameworkID>(entry.first), add);  // with the frameworks, so that each role is written once and not once for each agent
  }
}

Mirror::InverseStatuses Mirror::inverse_statuses() const {
  InverseStatuses statuses;
  for (const auto& entry : agents_) {
    if (entry.second.unavailability.isNone()) {
      continue;
    }
    auto& of_agent = statuses[id_of<SlaveID>(entry.first)];
    for (const auto& inverse : entry.second.inverse_offers) {
      if (inverse.second.status.isSome()) {
        of_agent[inverse.first] = inverse.second.status.get();
      }
    }
  }
  return statuses;
}

double Mirror::weight(const std::string& role) const {
  const auto found = weights_.find(role);
  return found == weights_.end() ? 1.0 : found->second;
}

void Mirror::count(const Agent& agent, int sign) {
  sums_.add_total(agent.total, sign);
  for (const Holding& held : agent.used) {
    sums_.add_allocated(held.resources, sign);
  }
}

void Mirror::set_total(Agent* agent, const Resources& total) {
  sums_.add_total(total, +1);
  sums_.add_total(agent->total, -1);
  agent->total = total;
}

void Mirror::set_used(Agent* agent, const std::string& framework, Resources used) {
  Holding& held = agent->used[framework];
  sums_.add_allocated(used, +1);
  sums_.add_allocated(held.resources, -1);
  held.resources = std::move(used);
  held.offer.reset();
  if (held.resources.empty()) {
    agent->used.erase(agent->used.find(framework));
  }
}

Agent* Mirror::agent(const std::string& id) {
  const auto found = agents_.find(id);
  return found == agents_.end() ? nullptr : &found->second;
}

Framework* Mirror::framework(const std::string& id) {
  const auto found = frameworks_.find(id);
  return found == frameworks_.end() ? nullptr : &found->second;
}

}  // namespace adapter
}  // namespace longshare
