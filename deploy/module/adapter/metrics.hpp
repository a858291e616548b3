// The keys of the stock allocator in the master's metrics, so that dashboards go on, and our own.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <process/metrics/metric.hpp>
#include <process/metrics/pull_gauge.hpp>
#include <process/pid.hpp>

#include "allocator/contract/allocator.pb.h"
#include "mirror.hpp"
#include "transport.h"

namespace longshare {
namespace adapter {

// What the allocator and the gauges look at together, under the mutex.
struct Shared {
  std::mutex mutex;
  Mirror mirror;
  std::set<std::string> excluded;  // resources that do not count in shares
  bool per_framework = false;      // whether each framework has gauges
  std::size_t completed = 0;       // frameworks that are gone and whose gauges are kept
  bool cached = true;              // whether sums may be a second old
};

class Duration;
class Pacer;
class Sums;

// Gauges are read on our own actor, behind what the allocator has to do there. Those over the cluster are added up when
// somebody looks.
class Metrics {
 public:
  Metrics(const std::shared_ptr<Shared>& shared, const std::function<longshare_transport_statistics()>& transport,
          const process::PID<Pacer>& reader);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Takes in what the service has measured, and adjusts the gauges to the roles, quotas and frameworks that there are now.
  // `round_trip_ns`: of the message that was answered. Not thread-safe.
  void update(const v1::Statistics& statistics, uint64_t round_trip_ns);

 private:
  using Read = std::function<double()>;
  using Gauges = std::map<std::string, process::metrics::PullGauge>;

  void add(const std::string& name, const Read& read, Gauges* to) const;
  std::map<std::string, Read> wanted();

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Sums> sums_;
  const process::PID<Pacer> reader_;
  Gauges fixed_;
  Gauges changing_;
  std::set<std::string> present_;      // prefixes of the frameworks that there are
  std::deque<std::string> completed_;  // of those that are gone, the latest last
  uint64_t runs_ = 0;                  // by the latest statistics
  std::unique_ptr<Duration> run_;
  std::unique_ptr<Duration> latency_;
};

}  // namespace adapter
}  // namespace longshare
