#include "allocator.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

#include <glog/logging.h>
#include <process/delay.hpp>
#include <process/dispatch.hpp>
#include <process/id.hpp>
#include <process/process.hpp>
#include <stout/foreach.hpp>
#include <stout/os.hpp>
#include <stout/uuid.hpp>

#include "bounds.h"
#include "library.h"
#include "pacer.hpp"

namespace longshare {
namespace adapter {

using mesos::FrameworkID;
using mesos::FrameworkInfo;
using mesos::Offer;
using mesos::ResourceConversion;
using mesos::Resources;
using mesos::SlaveID;
using mesos::SlaveInfo;
using mesos::Unavailability;
using mesos::UnavailableResources;
using mesos::WeightInfo;
using mesos::allocator::InverseOfferStatus;
using mesos::allocator::Options;
using process::Failure;
using process::Future;

namespace {

constexpr uint32_t kContractVersion = 4;
// Longest wall-clock time that a call waits for the service in synchronous mode. After this time, the call continues.
constexpr std::chrono::seconds kPatience(10);
// Largest message of decisions, in bytes, whose objects are used again for the next message.
constexpr std::size_t kReused = 1 << 20;

// Returns wall-clock nanoseconds since the Unix epoch, also while libprocess's clock is paused.
int64_t wall_clock() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
}

// Shortens a call with a description that is too long for a message. `whose` is the framework or agent, for the log.
template <typename Call>
void bound_call(const std::string& whose, Call* call) {
  if (bound(call)) {
    LOG(WARNING) << "Longshare: no offers " << whose << ": its description or one of its lists is too long";
  }
}

}  // namespace

LongshareAllocator::LongshareAllocator(const Parameters& parameters)
    : parameters_(parameters),
      api_(load_transport(parameters.transport().empty() ? beside_this_library("liblongshare_transport.so") : parameters.transport())),
      shared_(std::make_shared<Shared>()),
      patience_(std::chrono::milliseconds(parameters.answer_timeout())) {
  longshare_transport_settings settings;
  api_->defaults(&settings);
  parameters_.apply(&settings);
  char error[2048] = "";
  longshare_transport* transport = api_->create(&settings, error, sizeof error);
  if (transport == nullptr) {
    throw std::invalid_argument(error);
  }
  transport_ = transport;
  transport_owner_.reset(transport, api_->destroy);
  pacer_.reset(new Pacer([this](const process::Time& time) { tick(time); }));
  process::spawn(pacer_.get());
  const longshare_transport_api* api = api_;
  const std::weak_ptr<longshare_transport> observed = transport_owner_;
  const auto statistics = [api, observed]() {
    longshare_transport_statistics now = {};
    const std::shared_ptr<longshare_transport> alive = observed.lock();
    if (alive != nullptr) {
      api->statistics(alive.get(), &now);
    }
    return now;
  };
  metrics_.reset(new Metrics(shared_, statistics, pacer_->self()));
}

LongshareAllocator::~LongshareAllocator() {
  // The timer uses the transport, and the transport uses the metrics. The timer must end first, and the metrics last.
  process::terminate(pacer_->self());
  process::wait(pacer_->self());
  transport_owner_.reset();
  metrics_.reset();
  const Lock lock(shared_->mutex);
  fail_pending("the master's allocator has ended");
}

void LongshareAllocator::initialize(const Options& options, const OfferCallback& offer, const InverseOfferCallback& inverse) {
  offer_callback_ = offer;
  inverse_offer_callback_ = inverse;
  turns_ = process::__process__ != nullptr ? process::__process__->self() : pacer_->self();
  {
    const Lock lock(shared_->mutex);
    if (options.fairnessExcludeResourceNames.isSome()) {
      shared_->excluded = options.fairnessExcludeResourceNames.get();
    }
    shared_->mirror.initialize(Recovery(options));
    shared_->per_framework = options.publishPerFrameworkMetrics;
    shared_->completed = options.maxCompletedFrameworks;
  }
  v1::Hello hello;
  hello.set_contract_version(kContractVersion);
  hello.set_session_id(id::UUID::random().toString());
  hello.set_mesos_version(MESOS_VERSION);
  hello.set_master(stringify(process::address()));
  hello.set_virtual_clock(parameters_.synchronous());  // Mesos's tests pause and advance libprocess's clock
  encode(options, hello.mutable_options());
  hello.mutable_options()->set_always_measure(parameters_.synchronous());
  if (parameters_.synchronous()) {
    const Lock lock(shared_->mutex);
    shared_->mirror.elected(wall_clock());  // Mesos's allocator tests elect no master
  }
  const std::string bytes = hello.SerializePartialAsString();
  const longshare_transport_owner callbacks = owner();
  if (api_->start(transport_, &callbacks, bytes.data(), bytes.size()) != 0) {
    LOG(ERROR) << "Longshare: this machine gives no thread; there will be no offers";
  }
  if (parameters_.synchronous()) {
    wait_until_synchronised();
  }
  process::dispatch(pacer_->self(), &Pacer::start, options.allocationInterval);
}

// Calls of Mesos's allocator interface. Each call changes the mirror and queues its event under one lock of the mutex.

void LongshareAllocator::recovered(int expected, const std::vector<RoleQuota>& quotas) {
  const Lock lock(shared_->mutex);
  v1::Event event = this->event();
  shared_->mirror.elected(parameters_.synchronous() ? wall_clock() : event.time_ns());
  shared_->mirror.recovered(event.time_ns(), expected, quotas);
  v1::Recover* call = event.mutable_recover();
  call->set_expected_agents(expected);
  for (const RoleQuota& quota : quotas) {
    if (quota.capped) {
      encode(quota, call->add_quotas());
    } else {
      encode(quota, call->add_limited_quotas());
    }
  }
  push(event);
}

void LongshareAllocator::framework_added(const FrameworkID& id, const FrameworkInfo& info, bool active,
                                         const std::set<std::string>& suppressed, const Excludes& excludes) {
  const Lock lock(shared_->mutex);
  shared_->mirror.add_framework(id, info, active, suppressed, excludes);
  v1::Event event = this->event();
  v1::AddFramework* call = event.mutable_add_framework();
  call->set_framework_id(id.value());
  call->set_info(info.SerializePartialAsString());
  call->set_active(active);
  encode(suppressed, call->mutable_suppressed_roles());
  shared_->mirror.write_excluded(id, call);
  bound_call("to framework " + id.value(), call);
  push(event);
  tell_unlisted(id);
}

void LongshareAllocator::removeFramework(const FrameworkID& id) {
  const Lock lock(shared_->mutex);
  shared_->mirror.remove_framework(id);
  v1::Event event = this->event();
  event.mutable_remove_framework()->set_framework_id(id.value());
  push(event);
}

void LongshareAllocator::activateFramework(const FrameworkID& id) {
  const Lock lock(shared_->mutex);
  shared_->mirror.set_framework_active(id, true);
  v1::Event event = this->event();
  event.mutable_activate_framework()->set_framework_id(id.value());
  push(event);
}

void LongshareAllocator::deactivateFramework(const FrameworkID& id) {
  const Lock lock(shared_->mutex);
  shared_->mirror.set_framework_active(id, false);
  v1::Event event = this->event();
  event.mutable_deactivate_framework()->set_framework_id(id.value());
  push(event);
}

void LongshareAllocator::framework_updated(const FrameworkID& id, const FrameworkInfo& info, const std::set<std::string>& suppressed,
                                           const Excludes& excludes) {
  const Lock lock(shared_->mutex);
  shared_->mirror.update_framework(id, info, suppressed, excludes);
  push_update(id, info, suppressed);
  tell_unlisted(id);
}

void LongshareAllocator::addSlave(const SlaveID& id, const SlaveInfo& info, const std::vector<SlaveInfo::Capability>& capabilities,
                                  const Option<Unavailability>& unavailability, const Resources& total, const Used& used) {
  const Lock lock(shared_->mutex);
  v1::Event event = this->event();
  v1::AddAgent* call = event.mutable_add_agent();
  call->set_agent_id(id.value());
  call->set_info(info.SerializePartialAsString());
  encode(capabilities, call->mutable_capabilities());
  encode(total, call->mutable_total());
  encode(used, call->mutable_used());
  if (unavailability.isSome()) {
    call->set_unavailability(unavailability->SerializePartialAsString());
  }
  Agent agent;
  if (kTellsRunning) {
    agent.running = used;
    encode(used, call->mutable_running());
  }
  agent.info = info;
  agent.capabilities = capabilities;
  agent.unavailability = unavailability;
  agent.total = total;
  agent.used = used;
  shared_->mirror.add_agent(id, agent, event.time_ns());
  shared_->mirror.write_excluded(id, call->mutable_excluded());
  bound_call("of agent " + id.value(), call);
  shared_->mirror.set_added(id, push(event));
}

void LongshareAllocator::removeSlave(const SlaveID& id) {
  const Lock lock(shared_->mutex);
  shared_->mirror.remove_agent(id);
  v1::Event event = this->event();
  event.mutable_remove_agent()->set_agent_id(id.value());
  push(event);
  // The master keeps a pointer to the agent until the operation's future completes.
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    if (pending->second->agent == id) {
      pending->second->promise.fail("agent " + id.value() + " was removed");
      pending = pending_.erase(pending);
    } else {
      ++pending;
    }
  }
}

void LongshareAllocator::updateSlave(const SlaveID& id, const SlaveInfo& info, const Option<Resources>& total,
                                     const Option<std::vector<SlaveInfo::Capability>>& capabilities) {
  const Lock lock(shared_->mutex);
  shared_->mirror.update_agent(id, info, total, capabilities);
  v1::Event event = this->event();
  v1::UpdateAgent* call = event.mutable_update_agent();
  call->set_agent_id(id.value());
  call->set_info(info.SerializePartialAsString());
  shared_->mirror.write_excluded(id, call->mutable_excluded());
  if (total.isSome()) {
    encode(total.get(), call->mutable_total()->mutable_resources());
  }
  if (capabilities.isSome()) {
    encode(capabilities.get(), call->mutable_capabilities()->mutable_capabilities());
  }
  bound_call("of agent " + id.value(), call);
  push(event);
}

void LongshareAllocator::addResourceProvider(const SlaveID& id, const Resources& total, const Used& used) {
  const Lock lock(shared_->mutex);
  shared_->mirror.add_resource_provider(id, total, used);
  v1::Event event = this->event();
  v1::AddResourceProvider* call = event.mutable_add_resource_provider();
  call->set_agent_id(id.value());
  encode(total, call->mutable_total());
  encode(used, call->mutable_used());
  push(event);
}

void LongshareAllocator::activateSlave(const SlaveID& id) {
  const Lock lock(shared_->mutex);
  shared_->mirror.set_agent_active(id, true);
  v1::Event event = this->event();
  event.mutable_activate_agent()->set_agent_id(id.value());
  push(event);
}

void LongshareAllocator::deactivateSlave(const SlaveID& id) {
  const Lock lock(shared_->mutex);
  shared_->mirror.set_agent_active(id, false);
  v1::Event event = this->event();
  event.mutable_deactivate_agent()->set_agent_id(id.value());
  push(event);
}

void LongshareAllocator::updateWhitelist(const Option<hashset<std::string>>& whitelist) {
  const Lock lock(shared_->mutex);
  shared_->mirror.set_whitelist(whitelist);
  v1::Event event = this->event();
  encode(whitelist, event.mutable_update_whitelist());
  push(event);
}

void LongshareAllocator::requestResources(const FrameworkID& id, const std::vector<mesos::Request>& requests) {
  const Lock lock(shared_->mutex);
  v1::Event event = this->event();
  v1::RequestResources* call = event.mutable_request_resources();
  call->set_framework_id(id.value());
  if (!requests.empty()) {
    call->add_requests(requests.back().SerializePartialAsString());  // the service reads only the last request
  }
  push(event);
}

void LongshareAllocator::updateAllocation(const FrameworkID& framework, const SlaveID& agent, const Resources& offered,
                                          const std::vector<ResourceConversion>& conversions) {
  const Lock lock(shared_->mutex);
  const Try<Nothing> updated = shared_->mirror.update_allocation(framework, agent, offered, conversions);
  v1::Event event = this->event();
  v1::UpdateAllocation* call = event.mutable_update_allocation();
  call->set_framework_id(framework.value());
  call->set_agent_id(agent.value());
  encode(offered, call->mutable_offered());
  for (const ResourceConversion& conversion : conversions) {
    v1::Conversion* written = call->add_conversions();
    encode(conversion.consumed, written->mutable_consumed());
    encode(conversion.converted, written->mutable_converted());
  }
  push(event);
  if (updated.isError()) {
    snapshot("an operation of framework " + framework.value() + " on agent " + agent.value() + " does not fit: " + updated.error());
  }
}

Future<Nothing> LongshareAllocator::updateAvailable(const SlaveID& agent, const std::vector<Offer::Operation>& operations) {
  const Lock lock(shared_->mutex);
  if (!synchronised_) {
    return Failure("the allocator service is not connected; try again when it is");
  }
  const bool waits = !parameters_.synchronous();  // in synchronous mode, tests control the clock
  if (waits && patience_.overdue(std::chrono::steady_clock::now())) {
    return Failure("the allocator service has not answered for " + stringify(Milliseconds(patience_.limit().count())) +
                   "; try again when it does");
  }
  v1::Event event = this->event();
  v1::UpdateAvailable* call = event.mutable_update_available();
  call->set_agent_id(agent.value());
  for (const Offer::Operation& operation : operations) {
    call->add_operations(operation.SerializePartialAsString());
  }
  if (event.ByteSizeLong() > kMostOfEvent) {
    return Failure("the operations are larger than an event for the allocator service may be");
  }
  const auto pending = std::make_shared<Pending>();
  pending->agent = agent;
  pending->operations = operations;
  const uint64_t sequence = push(event);
  pending_[sequence] = pending;
  if (waits) {
    process::delay(Milliseconds(patience_.limit().count()), pacer_->self(), &Pacer::call,
                   std::function<void()>([this, sequence]() { give_up(sequence); }));
  }
  return pending->promise.future();
}

void LongshareAllocator::updateUnavailability(const SlaveID& id, const Option<Unavailability>& unavailability) {
  const Lock lock(shared_->mutex);
  v1::Event event = this->event();
  v1::UpdateUnavailability* call = event.mutable_update_unavailability();
  call->set_agent_id(id.value());
  if (unavailability.isSome()) {
    call->set_unavailability(unavailability->SerializePartialAsString());
  }
  const uint64_t sequence = push(event);
  shared_->mirror.set_unavailability(id, unavailability, sequence);
}

void LongshareAllocator::updateInverseOffer(const SlaveID& agent, const FrameworkID& framework, const Option<UnavailableResources>&,
                                            const Option<InverseOfferStatus>& status, const Option<mesos::Filters>& filters) {
  const Lock lock(shared_->mutex);
  shared_->mirror.answer_inverse_offer(agent, framework, status);
  v1::Event event = this->event();
  v1::UpdateInverseOffer* call = event.mutable_update_inverse_offer();
  call->set_agent_id(agent.value());
  call->set_framework_id(framework.value());
  if (status.isSome()) {
    call->set_status(status->SerializePartialAsString());
  }
  if (filters.isSome()) {
    call->set_filters(filters->SerializePartialAsString());
  }
  push(event);
}

Future<Mirror::InverseStatuses> LongshareAllocator::getInverseOfferStatuses() {
  const Lock lock(shared_->mutex);
  return shared_->mirror.inverse_statuses();  // answered from the mirror, without waiting for the service
}

void LongshareAllocator::resources_recovered(const FrameworkID& framework, const SlaveID& agent, const Resources& resources,
                                             const Option<mesos::Filters>& filters, bool allocated) {
  const Lock lock(shared_->mutex);
  v1::Event& event = recovery_;
  v1::RecoverResources* call = event.mutable_recover_resources();
  call->Clear();
  // The master may recover resources of an agent that was removed and added again under the same ID.
  if (!shared_->mirror.recover_resources(framework, agent, resources, allocated, call->mutable_resources())) {
    return;
  }
  call->set_framework_id(framework.value());
  call->set_agent_id(agent.value());
  call->set_is_allocated(allocated);
  if (filters.isSome()) {
    filters->SerializePartialToString(call->mutable_filters());
  }
  event.set_time_ns(now());
  push(event);
}

void LongshareAllocator::suppressOffers(const FrameworkID& id, const std::set<std::string>& roles) {
  const Lock lock(shared_->mutex);
  shared_->mirror.suppress(id, roles);
  v1::Event event = this->event();
  event.mutable_suppress_offers()->set_framework_id(id.value());
  encode(roles, event.mutable_suppress_offers()->mutable_roles());
  push(event);
}

void LongshareAllocator::reviveOffers(const FrameworkID& id, const std::set<std::string>& roles) {
  const Lock lock(shared_->mutex);
  shared_->mirror.revive(id, roles);
  v1::Event event = this->event();
  event.mutable_revive_offers()->set_framework_id(id.value());
  encode(roles, event.mutable_revive_offers()->mutable_roles());
  push(event);
}

void LongshareAllocator::launched(const SlaveID& agent, const Resources& resources) {
  const Lock lock(shared_->mutex);
  for (const auto& of_role : by_role(resources)) {
    const Option<FrameworkID> framework = shared_->mirror.launched(agent, of_role.second);
    if (framework.isNone()) {
      continue;  // the agent was removed, so there is nothing to record
    }
    v1::Event event = this->event();
    v1::TransitionOfferedToAllocated* call = event.mutable_transition_offered_to_allocated();
    call->set_framework_id(framework->value());
    call->set_agent_id(agent.value());
    encode(of_role.second, call->mutable_resources());
    push(event);
  }
}

void LongshareAllocator::quota_set(const RoleQuota& quota) {
  const Lock lock(shared_->mutex);
  shared_->mirror.set_quota(quota);
  v1::Event event = this->event();
  if (quota.capped) {
    encode(quota, event.mutable_set_quota());
  } else {
    encode(quota, event.mutable_update_quota());
  }
  push(event);
}

void LongshareAllocator::quota_removed(const std::string& role) {
  const Lock lock(shared_->mutex);
  if (shared_->mirror.quotas().count(role) == 0) {
    return;  // Mesos 1.8.0 may call this function twice
  }
  shared_->mirror.remove_quota(role);
  v1::Event event = this->event();
  event.mutable_remove_quota()->set_role(role);
  push(event);
}

void LongshareAllocator::updateWeights(const std::vector<WeightInfo>& weights) {
  const Lock lock(shared_->mutex);
  v1::Event event = this->event();
  v1::UpdateWeights* call = event.mutable_update_weights();
  for (const WeightInfo& weight : weights) {
    shared_->mirror.set_weight(weight.role(), weight.weight());
    v1::Weight* set = call->add_weights();
    set->set_role(weight.role());
    set->set_weight(weight.weight());
  }
  push(event);
}

void LongshareAllocator::pause() {
  const Lock lock(shared_->mutex);
  shared_->mirror.set_paused(true);
  v1::Event event = this->event();
  event.mutable_pause();
  push(event);
}

void LongshareAllocator::resume() {
  const Lock lock(shared_->mutex);
  shared_->mirror.set_paused(false);
  v1::Event event = this->event();
  event.mutable_resume();
  push(event);
}

// Sending of events. The caller holds the mutex, except in the functions that lock it themselves.

v1::Event LongshareAllocator::event() const {
  v1::Event event;
  event.set_time_ns(now());
  return event;
}

void LongshareAllocator::push_update(const FrameworkID& id, const FrameworkInfo& info, const std::set<std::string>& suppressed) {
  v1::Event event = this->event();
  v1::UpdateFramework* call = event.mutable_update_framework();
  call->set_framework_id(id.value());
  call->set_info(info.SerializePartialAsString());
  encode(suppressed, call->mutable_suppressed_roles());
  shared_->mirror.write_excluded(id, call);
  bound_call("to framework " + id.value(), call);
  push(event);
}

void LongshareAllocator::tell_unlisted(const FrameworkID& told) {
  for (const FrameworkID& id : shared_->mirror.take_unlisted()) {
    LOG(WARNING) << "Longshare: framework " << id << " gets no offers: its offer constraints exclude too many pairs of a role and an agent";
    const auto other = shared_->mirror.frameworks().find(id.value());
    if (id != told && other != shared_->mirror.frameworks().end()) {
      push_update(id, other->second.info, other->second.suppressed);
    }
  }
}

uint64_t LongshareAllocator::push(const v1::Event& event) {
  event.SerializePartialToString(&serialised_);
  if (serialised_.size() > kMostOfEvent) {
    snapshot("an event of " + stringify(serialised_.size()) + " bytes is too large");
    return pushed_;
  }
  pushed_ = api_->push(transport_, serialised_.data(), serialised_.size());
  patience_.sent(pushed_, std::chrono::steady_clock::now());
  if (!flush_due_) {
    flush_due_ = true;
    process::internal::dispatch(turns_, std::unique_ptr<lambda::CallableOnce<void(process::ProcessBase*)>>(
                                            new lambda::CallableOnce<void(process::ProcessBase*)>([this](process::ProcessBase*) { flush(); })));
  }
  return pushed_;
}

void LongshareAllocator::flush() {
  uint64_t sequence;
  {
    const Lock lock(shared_->mutex);
    flush_due_ = false;
    sequence = pushed_;
  }
  api_->flush(transport_);
  if (parameters_.synchronous()) {
    if (turns_ == pacer_->self()) {
      wait_for_answer(sequence);
    } else {  // on another actor, because the answer may need the master's actor
      process::dispatch(pacer_->self(), &Pacer::call, [this, sequence]() { wait_for_answer(sequence); });
    }
  }
}

void LongshareAllocator::tick(const process::Time& time) {
  const Lock lock(shared_->mutex);
  v1::Event event;
  event.set_time_ns(time.duration().ns());
  event.mutable_tick();
  push(event);
}

void LongshareAllocator::wait_for_answer(uint64_t sequence) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  changed_.wait_for(lock, kPatience, [this, sequence]() { return !synchronised_ || answered_ >= sequence; });
}

void LongshareAllocator::wait_until_synchronised() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  if (!changed_.wait_for(lock, kPatience, [this]() { return synchronised_; })) {
    LOG(WARNING) << "Longshare: the service has not answered within " << kPatience.count() << " s";
  }
}

// Handling of the service's messages, on the transport's thread.

longshare_transport_owner LongshareAllocator::owner() {
  longshare_transport_owner owner;
  owner.context = this;
  owner.connected = [](void*, const void* welcome, size_t size) {
    v1::Welcome said;
    if (said.ParseFromArray(welcome, static_cast<int>(size))) {
      LOG(INFO) << "Longshare " << said.longshare_version() << " answers; policy " << said.policy();
    }
  };
  owner.snapshot_wanted = [](void* context, const char* reason) {
    LongshareAllocator* allocator = static_cast<LongshareAllocator*>(context);
    const Lock lock(allocator->shared_->mutex);
    allocator->snapshot(reason);
  };
  owner.decisions = [](void* context, uint64_t applied, const void* bytes, size_t size) {
    LongshareAllocator* allocator = static_cast<LongshareAllocator*>(context);
    v1::Decisions large;
    v1::Decisions& decisions = size > kReused ? large : allocator->decisions_;
    if (decisions.ParseFromArray(bytes, static_cast<int>(size))) {
      for (const v1::Refused& refused : decisions.refused()) {
        LOG(WARNING) << "Longshare: no offers to framework " << refused.framework_id() << ": " << refused.reason();
      }
      allocator->decide(applied, decisions);
    } else {
      LOG(ERROR) << "Longshare: decisions that cannot be read";
    }
  };
  owner.disconnected = [](void* context, const char* reason) { static_cast<LongshareAllocator*>(context)->disconnected(reason); };
  owner.log = [](void*, int severity, const char* text) {
    if (severity == LONGSHARE_TRANSPORT_WARNING) {
      LOG(WARNING) << "Longshare: " << text;
    } else {
      LOG(INFO) << "Longshare: " << text;
    }
  };
  return owner;
}

void LongshareAllocator::snapshot(const std::string& reason) {
  LOG(INFO) << "Longshare: sending a snapshot: " << reason;
  fail_pending("the allocator begins anew; see whether the operation took effect, and try again if not");
  v1::Snapshot snapshot;
  shared_->mirror.write(now(), &snapshot);
  const Shortened shortened = bound(&snapshot);
  if (!shortened.frameworks.empty() || !shortened.agents.empty()) {
    LOG(WARNING) << "Longshare: descriptions are too long for the snapshot, so these get no offers or are not offered: " << shortened.text();
  }
  const std::string bytes = snapshot.SerializePartialAsString();
  const uint64_t sequence = api_->snapshot(transport_, bytes.data(), bytes.size());
  if (sequence != 0) {
    pushed_ = snapshot_ = sequence;
    abandoned_.clear();  // the snapshot replaces the results of these requests
    patience_.reset();
  }
}

void LongshareAllocator::decide(uint64_t applied, const v1::Decisions& decisions) {
  const auto still_valid = [this, applied]() { return applied >= snapshot_; };
  {
    const Lock lock(shared_->mutex);
    if (!still_valid()) {
      return;
    }
    synchronised_ = true;
    for (const v1::Reply& reply : decisions.replies()) {
      this->reply(reply);
    }
  }
  // The mutex is unlocked between two frameworks, so that many offers do not delay the master.
  for (const v1::Offers& offers : decisions.offers()) {
    const Lock lock(shared_->mutex);
    if (!still_valid()) {
      return;
    }
    offer(offers, applied);
  }
  for (const v1::InverseOffers& offers : decisions.inverse_offers()) {
    const Lock lock(shared_->mutex);
    if (!still_valid()) {
      return;
    }
    inverse_offer(offers, applied);
  }
  if (decisions.more()) {
    return;  // the last slice answers the events
  }
  if (decisions.has_statistics()) {
    longshare_transport_statistics now;
    api_->statistics(transport_, &now);
    metrics_->update(decisions.statistics(), now.round_trip_ns);
  }
  const Lock lock(shared_->mutex);
  answered_ = applied;
  patience_.answered(applied);
  changed_.notify_all();
}

void LongshareAllocator::reply(const v1::Reply& reply) {
  const auto found = pending_.find(reply.sequence());
  if (found == pending_.end()) {
    if (abandoned_.erase(reply.sequence()) != 0 && reply.error().empty()) {
      snapshot("an operation took effect after its operator was told that nobody answers");
    }
    return;
  }
  const std::shared_ptr<Pending> pending = found->second;
  pending_.erase(found);
  if (!reply.error().empty()) {
    pending->promise.fail(reply.error());
    return;
  }
  // The master will apply the operations to the same resources, and aborts if the resources do not allow them.
  const Try<Nothing> updated = shared_->mirror.update_available(pending->agent, pending->operations);
  if (updated.isSome()) {
    pending->promise.set(Nothing());
  } else {
    pending->promise.fail("it does not fit what the agent has: " + updated.error());
    snapshot("an operator's operation on agent " + pending->agent.value() + " does not fit: " + updated.error());
  }
}

void LongshareAllocator::offer(const v1::Offers& offers, uint64_t applied) {
  FrameworkID framework;
  framework.set_value(offers.framework_id());
  hashmap<std::string, hashmap<SlaveID, Resources>> admitted;
  hashmap<SlaveID, Resources>* of_role = nullptr;  // the entry of `role` in `admitted`
  const std::string* role = nullptr;
  SlaveID agent;
  for (const v1::Offer& offer : offers.offers()) {
    const Mirror::Admission admission = shared_->mirror.admit(framework.value(), offer, applied);
    if (admission.verdict == Mirror::Verdict::ADMITTED) {
      if (role == nullptr || *role != offer.role()) {
        role = &offer.role();
        of_role = &admitted[*role];
        of_role->reserve(static_cast<std::size_t>(offers.offers_size()));
      }
      agent.set_value(offer.agent_id());
      add(admission.resources->resources, &(*of_role)[agent]);
    } else if (admission.verdict == Mirror::Verdict::REFUSED) {
      VLOG(1) << "Longshare: offer of agent " << offer.agent_id() << " to framework " << offers.framework_id()
              << " held back: " << admission.reason;
      v1::Event event = this->event();
      v1::RejectOffer* call = event.mutable_reject_offer();
      call->set_framework_id(offers.framework_id());
      call->set_agent_id(offer.agent_id());
      *call->mutable_resources() = offer.resources();
      call->set_reason(admission.reason);
      push(event);
    }
  }
  if (!admitted.empty()) {
    offer_callback_(framework, admitted);
  }
}

void LongshareAllocator::inverse_offer(const v1::InverseOffers& offers, uint64_t applied) {
  FrameworkID framework;
  framework.set_value(offers.framework_id());
  hashmap<SlaveID, UnavailableResources> admitted;
  for (const v1::InverseOffer& offer : offers.inverse_offers()) {
    UnavailableResources unavailable;
    SlaveID agent;
    agent.set_value(offer.agent_id());
    const bool readable = unavailable.unavailability.ParseFromString(offer.unavailability());
    const Mirror::Verdict verdict = readable ? shared_->mirror.admit(framework, offer, applied) : Mirror::Verdict::REFUSED;
    if (verdict == Mirror::Verdict::ADMITTED) {
      admitted[agent] = unavailable;  // without resources, the inverse offer covers the whole agent
    } else if (verdict == Mirror::Verdict::REFUSED) {
      // Withdraw the inverse offer, so that the service does not wait for an answer forever.
      v1::Event event = this->event();
      event.mutable_update_inverse_offer()->set_agent_id(offer.agent_id());
      event.mutable_update_inverse_offer()->set_framework_id(offers.framework_id());
      push(event);
    }
  }
  if (!admitted.empty()) {
    inverse_offer_callback_(framework, admitted);
  }
}

void LongshareAllocator::fail_pending(const std::string& reason) {
  for (const auto& pending : pending_) {
    pending.second->promise.fail(reason);
  }
  pending_.clear();
}

void LongshareAllocator::give_up(uint64_t sequence) {
  const Lock lock(shared_->mutex);
  const auto found = pending_.find(sequence);
  if (found == pending_.end()) {
    return;
  }
  const std::string limit = stringify(Milliseconds(patience_.limit().count()));
  LOG(WARNING) << "Longshare: the service has not answered an operator within " << limit;
  abandoned_.insert(sequence);
  found->second->promise.fail("the allocator service has not answered within " + limit + "; nothing was done");
  pending_.erase(found);
}

void LongshareAllocator::disconnected(const std::string& reason) {
  const Lock lock(shared_->mutex);
  LOG(WARNING) << "Longshare: the service is gone, there are no offers until it is back: " << reason;
  synchronised_ = false;
  patience_.reset();
  fail_pending("the allocator service is gone: " + reason);
  changed_.notify_all();
}

}  // namespace adapter
}  // namespace longshare
