// Metrics: publishes the metrics of Mesos's default allocator under the same names, so that dashboards keep working, and
// Longshare's own metrics.

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
#include <stout/option.hpp>

#include "allocator/contract/allocator.pb.h"
#include "mirror.hpp"
#include "transport.h"

namespace longshare {
namespace adapter {

// State that the allocator and the gauges share. The mutex protects all members.
struct Shared {
  std::mutex mutex;
  Mirror mirror;
  std::set<std::string> excluded;  // names of resources that do not count in shares
  bool per_framework = false;      // whether each framework has gauges
  std::size_t completed = 0;       // largest number of removed frameworks whose gauges are kept
};

class Counters;
class Duration;
class Pacer;

// The pacer's actor reads all gauges, after the allocator's work in its queue.
class Metrics {
 public:
  Metrics(const std::shared_ptr<Shared>& shared, const std::function<longshare_transport_statistics()>& transport,
          const process::PID<Pacer>& reader);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Stores the service's measurements, and adds and removes gauges to match the present roles, quotas and frameworks.
  // `round_trip_ns` is the round-trip time of the answered message. Not thread-safe.
  void update(const v1::Statistics& statistics, uint64_t round_trip_ns);

 private:
  using Read = std::function<double()>;
  using Gauges = std::map<std::string, process::metrics::PullGauge>;

  // Registers a gauge with libprocess and stores the gauge in `to`.
  void add(const std::string& name, const Read& read, Gauges* to) const;
  // Returns a function that reads a value of the mirror under the mutex.
  Read read(const std::function<double(const Mirror&)>& value) const;
  // Returns the names and read functions of the gauges that must exist now. The caller holds the mutex.
  std::map<std::string, Read> wanted();

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Counters> counters_;
  const process::PID<Pacer> reader_;
  Gauges fixed_;
  Gauges changing_;
  std::set<std::string> present_;      // metric prefixes of present frameworks
  std::deque<std::string> completed_;  // metric prefixes of removed frameworks, the latest last
  uint64_t runs_ = 0;                  // allocation cycles in the latest statistics
  Option<uint64_t> names_;             // `changes_of_names` of the mirror for which `changing_` was made
  std::unique_ptr<Duration> run_;
  std::unique_ptr<Duration> latency_;
};

}  // namespace adapter
}  // namespace longshare
