// The allocator that the master sees: it forwards, keeps a mirror, and lets through what it can vouch for.

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

// Threads. The master calls from its actor, the watcher of the whitelist from another one, the transport from its own
// thread. One mutex makes each of {mirror changes, event is queued} and {offer is checked and booked, callback} one
// step. Nothing waits under it: the transport copies, and the master's callbacks only enqueue.
//
// Turns. What one turn of the master's actor says goes out in one message, so that the service never allocates halfway:
// the flush is sent behind the turn, through the master's own queue.
class LongshareAllocator : public VersionedAllocator {
 public:
  // Throws std::runtime_error or std::invalid_argument, which tell people what is wrong.
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

  // An operator's operation that the service has not answered yet.
  struct Pending {
    mesos::SlaveID agent;
    std::vector<mesos::Offer::Operation> operations;
    process::Promise<Nothing> promise;
  };
  using Lock = std::lock_guard<std::mutex>;

  v1::Event event() const;
  uint64_t push(const v1::Event& event);
  void push_update(const mesos::FrameworkID& id, const mesos::FrameworkInfo& info, const std::set<std::string>& suppressed);
  // Ends offers to frameworks that exclude too much to be listed; `told` is the one that the last event was about.
  void tell_unlisted(const mesos::FrameworkID& told);
  void flush();
  void tick(const process::Time& time);
  void wait_for_answer(uint64_t sequence);
  void wait_until_synchronised();

  void snapshot(const std::string& reason);
  void decide(uint64_t applied, const v1::Decisions& decisions);
  void reply(const v1::Reply& reply);
  void offer(const v1::Offers& offers, uint64_t applied);
  void inverse_offer(const v1::InverseOffers& offers, uint64_t applied);
  void fail_pending(const std::string& reason);
  void give_up(uint64_t sequence);
  void disconnected(const std::string& reason);
  longshare_transport_owner owner();

  const Parameters parameters_;
  const longshare_transport_api* api_;
  longshare_transport* transport_;                         // valid, also for callbacks, until it is destroyed
  std::shared_ptr<longshare_transport> transport_owner_;  // the metrics may look at it a little longer
  const std::shared_ptr<Shared> shared_;            // the mutex, and the mirror under it
  std::unique_ptr<Pacer> pacer_;
  std::unique_ptr<Metrics> metrics_;
  OfferCallback offer_callback_;
  InverseOfferCallback inverse_offer_callback_;
  process::UPID turns_;  // whose queue ends a turn: the master's, or the pacer's where there is none

  // Under the mutex:
  bool flush_due_ = false;
  uint64_t pushed_ = 0;    // number of the latest event or snapshot
  uint64_t snapshot_ = 0;  // of the latest snapshot; decisions from before are void
  std::map<uint64_t, std::shared_ptr<Pending>> pending_;
  std::set<uint64_t> abandoned_;  // operations that nobody waits for any more, and which may still take effect
  Patience patience_;
  uint64_t answered_ = 0;  // latest event that decisions knew of
  bool synchronised_ = false;
  std::condition_variable changed_;
};

}  // namespace adapter
}  // namespace longshare
