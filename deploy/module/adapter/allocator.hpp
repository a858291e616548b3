// LongshareAllocator: Mesos's allocator interface. The class forwards calls to the service, keeps a mirror of the
// master's state, and passes on only offers that agree with the mirror.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <process/future.hpp>
#include <process/pid.hpp>

#include "allocator/contract/allocator.pb.h"
#include "metrics.hpp"
#include "mesos_version.hpp"
#include "mirror.hpp"
#include "parameters.h"
#include "patience.hpp"
#include "transport.h"

namespace longshare {
namespace adapter {

class Pacer;

// Threads. The callers of this object are the master's actor, the actor that watches the whitelist, the pacer's actor, and
// the transport's thread. One mutex makes two steps atomic:
//   - Change the mirror, and queue the event.
//   - Check an offer, record the offer as allocated, and call the master.
// No code blocks while it holds the mutex: the transport copies data, and the master's callbacks only enqueue messages.
//
// Turns. A turn is the handling of one message by the master's actor. All events of one turn go into one message, so that
// the service never allocates in the middle of a turn. The first event of a turn enqueues a flush in the master's queue, and
// the master's actor executes the flush after the turn.
class LongshareAllocator : public VersionedAllocator {
 public:
  // Throws std::runtime_error or std::invalid_argument, whose text describes the problem to the operator.
  explicit LongshareAllocator(const Parameters& parameters);
  ~LongshareAllocator() override;
  LongshareAllocator(const LongshareAllocator&) = delete;
  LongshareAllocator& operator=(const LongshareAllocator&) = delete;

  using OfferCallback =
      lambda::function<void(const mesos::FrameworkID&, const hashmap<std::string, hashmap<mesos::SlaveID, mesos::Resources>>&)>;
  using InverseOfferCallback =
      lambda::function<void(const mesos::FrameworkID&, const hashmap<mesos::SlaveID, mesos::UnavailableResources>&)>;

  void initialize(const mesos::allocator::Options& options, const OfferCallback& offer, const InverseOfferCallback& inverse) override;
  void removeFramework(const mesos::FrameworkID& id) override;
  void activateFramework(const mesos::FrameworkID& id) override;
  void deactivateFramework(const mesos::FrameworkID& id) override;
  void addSlave(const mesos::SlaveID& id, const mesos::SlaveInfo& info, const std::vector<mesos::SlaveInfo::Capability>& capabilities,
                const Option<mesos::Unavailability>& unavailability, const mesos::Resources& total, const Used& used) override;
  void removeSlave(const mesos::SlaveID& id) override;
  void updateSlave(const mesos::SlaveID& id, const mesos::SlaveInfo& info, const Option<mesos::Resources>& total,
                   const Option<std::vector<mesos::SlaveInfo::Capability>>& capabilities) override;
  void addResourceProvider(const mesos::SlaveID& id, const mesos::Resources& total, const Used& used) override;
  void activateSlave(const mesos::SlaveID& id) override;
  void deactivateSlave(const mesos::SlaveID& id) override;
  void updateWhitelist(const Option<hashset<std::string>>& whitelist) override;
  void requestResources(const mesos::FrameworkID& id, const std::vector<mesos::Request>& requests) override;
  void updateAllocation(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& offered,
                        const std::vector<mesos::ResourceConversion>& conversions) override;
  process::Future<Nothing> updateAvailable(const mesos::SlaveID& agent, const std::vector<mesos::Offer::Operation>& operations) override;
  void updateUnavailability(const mesos::SlaveID& id, const Option<mesos::Unavailability>& unavailability) override;
  void updateInverseOffer(const mesos::SlaveID& agent, const mesos::FrameworkID& framework, const Option<mesos::UnavailableResources>&,
                          const Option<mesos::allocator::InverseOfferStatus>& status, const Option<mesos::Filters>& filters) override;
  process::Future<Mirror::InverseStatuses> getInverseOfferStatuses() override;
  void suppressOffers(const mesos::FrameworkID& id, const std::set<std::string>& roles) override;
  void reviveOffers(const mesos::FrameworkID& id, const std::set<std::string>& roles) override;
  void updateWeights(const std::vector<mesos::WeightInfo>& weights) override;
  void pause() override;
  void resume() override;

 protected:
  void recovered(int expected, const std::vector<RoleQuota>& quotas) override;
  void quota_set(const RoleQuota& quota) override;
  void quota_removed(const std::string& role) override;
  void resources_recovered(const mesos::FrameworkID& framework, const mesos::SlaveID& agent, const mesos::Resources& resources,
                           const Option<mesos::Filters>& filters, bool allocated) override;
  void launched(const mesos::SlaveID& agent, const mesos::Resources& resources) override;
  void framework_added(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, bool active, const std::set<std::string>& suppressed,
                       const Excludes& excludes) override;
  void framework_updated(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, const std::set<std::string>& suppressed,
                         const Excludes& excludes) override;

 private:
  friend class Pacer;

  // An operator's request (`updateAvailable`) that the service has not answered yet.
  struct Pending {
    mesos::SlaveID agent;
    std::vector<mesos::Offer::Operation> operations;
    process::Promise<Nothing> promise;
  };
  using Lock = std::lock_guard<std::mutex>;

  // Returns a new event with the present time of libprocess's clock.
  v1::Event event() const;
  // Queues an event and, unless one is due already, a flush. Returns the sequence number of the event.
  uint64_t push(const v1::Event& event);
  // Queues an UpdateFramework event.
  void push_update(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, const std::set<std::string>& suppressed);
  // Logs each framework that became unlisted, and queues an update that ends its offers. `told` is the framework of the last
  // event, which needs no further update.
  void tell_unlisted(const mesos::FrameworkID& told);
  // Ends a turn: makes the transport send the queued events.
  void flush();
  // Queues the Tick event of an allocation interval.
  void tick(const process::Time& time);
  // In synchronous mode: waits until the service has applied the event `sequence`.
  void wait_for_answer(uint64_t sequence);
  // In synchronous mode: waits for the first decisions of the service.
  void wait_until_synchronised();

  // Sends a snapshot of the mirror. Fails all pending requests.
  void snapshot(const std::string& reason);
  // Carries out decisions of the service that reflect the events up to `applied`.
  void decide(uint64_t applied, const v1::Decisions& decisions);
  // Completes the pending request that a reply answers.
  void reply(const v1::Reply& reply);
  // Passes the admitted offers to the master, and rejects the refused offers.
  void offer(const v1::Offers& offers, uint64_t applied);
  // Passes the admitted inverse offers to the master, and withdraws the refused inverse offers.
  void inverse_offer(const v1::InverseOffers& offers, uint64_t applied);
  // Fails all pending requests.
  void fail_pending(const std::string& reason);
  // Fails a pending request that the service has not answered in time.
  void give_up(uint64_t sequence);
  // Handles the end of a stream to the service.
  void disconnected(const std::string& reason);
  // Returns the callbacks for the transport.
  longshare_transport_owner owner();

  const Parameters parameters_;
  const longshare_transport_api* api_;
  longshare_transport* transport_;                         // valid, also in callbacks, until the transport is destroyed
  std::shared_ptr<longshare_transport> transport_owner_;  // metrics may extend its life during a read
  const std::shared_ptr<Shared> shared_;            // the mutex, and the mirror that it protects
  std::unique_ptr<Pacer> pacer_;
  std::unique_ptr<Metrics> metrics_;
  OfferCallback offer_callback_;
  InverseOfferCallback inverse_offer_callback_;
  process::UPID turns_;  // actor that executes `flush`: the master's, or the pacer's if there is no master

  v1::Decisions decisions_;  // the latest decisions, on the transport's thread; reused, so that its memory is

  // Protected by the mutex:
  v1::Event recovery_;      // the latest RecoverResources, reused in the same way
  std::string serialised_;  // the latest event
  bool flush_due_ = false;
  uint64_t pushed_ = 0;    // sequence number of the latest event or snapshot
  uint64_t snapshot_ = 0;  // sequence number of the latest snapshot; earlier decisions are void
  std::map<uint64_t, std::shared_ptr<Pending>> pending_;
  std::set<uint64_t> abandoned_;  // requests that timed out, and that the service may still carry out
  Patience patience_;
  uint64_t answered_ = 0;  // sequence number of the last event that the service applied
  bool synchronised_ = false;
  std::condition_variable changed_;
};

}  // namespace adapter
}  // namespace longshare
