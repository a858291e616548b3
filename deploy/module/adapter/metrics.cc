#include "metrics.hpp"

#include <algorithm>
#include <cmath>

#include <process/dispatch.hpp>
#include <process/http.hpp>
#include <process/metrics/metrics.hpp>
#include <stout/duration.hpp>

#include "pacer.hpp"

namespace longshare {
namespace adapter {

using mesos::Resource;
using mesos::Resources;
using process::metrics::PullGauge;

namespace {

const char* const kPrefix = "allocator/mesos/";

bool starts_with(const std::string& text, const std::string& with) { return text.compare(0, with.size(), with) == 0; }

}  // namespace

// A duration in milliseconds, with statistics over one hour.
class Duration : public process::metrics::Metric {
 public:
  explicit Duration(const std::string& name) : Metric(name, Hours(1)), milliseconds_(std::make_shared<std::atomic<double>>(NAN)) {}

  process::Future<double> value() const override {
    const double latest = milliseconds_->load();
    return std::isnan(latest) ? process::Future<double>(process::Failure("nothing measured yet")) : latest;
  }

  void measured(double milliseconds) {
    milliseconds_->store(milliseconds);
    push(milliseconds);
  }

 private:
  std::shared_ptr<std::atomic<double>> milliseconds_;  // shared with the copy of this metric that libprocess keeps
};

// The counters of the service.
class Counters {
 public:
  void counted(const v1::Statistics& statistics) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (statistics.allocation_runs() < statistics_.allocation_runs()) {
      runs_before_ += statistics_.allocation_runs();  // a new session counts from zero
    }
    statistics_ = statistics;
  }

  double filters(const std::string& role) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = statistics_.active_filters().find(role);
    return found == statistics_.active_filters().end() ? 0.0 : static_cast<double>(found->second);
  }

  double runs() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<double>(runs_before_ + statistics_.allocation_runs());
  }

 private:
  std::mutex mutex_;
  v1::Statistics statistics_;
  uint64_t runs_before_ = 0;
};

Metrics::Metrics(const std::shared_ptr<Shared>& shared, const std::function<longshare_transport_statistics()>& transport,
                 const process::PID<Pacer>& reader)
    : shared_(shared),
      counters_(std::make_shared<Counters>()),
      reader_(reader),
      run_(new Duration(std::string(kPrefix) + "allocation_run_ms")),
      latency_(new Duration(std::string(kPrefix) + "allocation_run_latency_ms")) {
  const std::shared_ptr<Counters> counters = counters_;
  const auto of_transport = [&](const std::string& name, uint64_t longshare_transport_statistics::* field, double scale) {
    add(name, [transport, field, scale]() { return static_cast<double>(transport().*field) * scale; }, &fixed_);
  };
  for (const char* prefix : {"allocator/", kPrefix}) {
    of_transport(std::string(prefix) + "event_queue_dispatches", &longshare_transport_statistics::queued_events, 1.0);
  }
  of_transport("longshare/connected", &longshare_transport_statistics::connected, 1.0);
  of_transport("longshare/synchronised", &longshare_transport_statistics::synchronised, 1.0);
  of_transport("longshare/sessions_total", &longshare_transport_statistics::sessions, 1.0);
  of_transport("longshare/resyncs_total", &longshare_transport_statistics::resyncs, 1.0);
  of_transport("longshare/overflows_total", &longshare_transport_statistics::overflows, 1.0);
  of_transport("longshare/queue_events", &longshare_transport_statistics::queued_events, 1.0);
  of_transport("longshare/queue_bytes", &longshare_transport_statistics::queued_bytes, 1.0);
  of_transport("longshare/round_trip_ms", &longshare_transport_statistics::round_trip_ns, 1e-6);
  add(std::string(kPrefix) + "allocation_runs", [counters]() { return counters->runs(); }, &fixed_);
  for (const std::string name : {"cpus", "mem", "disk"}) {
    const std::string prefix = kPrefix + ("resources/" + name);
    add(prefix + "/total", read([name](const Mirror& mirror) { return mirror.sums().total(name); }), &fixed_);
    add(prefix + "/offered_or_allocated", read([name](const Mirror& mirror) { return mirror.sums().allocated(name); }), &fixed_);
  }
  process::metrics::add(*run_);
  process::metrics::add(*latency_);
}

Metrics::~Metrics() {
  process::metrics::remove(*run_);
  process::metrics::remove(*latency_);
  for (const Gauges* gauges : {&fixed_, &changing_}) {
    for (const auto& gauge : *gauges) {
      process::metrics::remove(gauge.second);
    }
  }
}

void Metrics::update(const v1::Statistics& statistics, uint64_t round_trip_ns) {
  counters_->counted(statistics);
  if (statistics.allocation_runs() != runs_) {
    const double run = static_cast<double>(statistics.run_ns()) * 1e-6;
    run_->measured(run);
    // The rest of the round trip is the latency of transmission and queues.
    latency_->measured(std::max(0.0, static_cast<double>(round_trip_ns) * 1e-6 - run));
  }
  runs_ = statistics.allocation_runs();
  std::map<std::string, Read> wanted;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    if (names_ == shared_->mirror.changes_of_names()) {
      return;
    }
    names_ = shared_->mirror.changes_of_names();
    wanted = this->wanted();
  }
  for (auto gauge = changing_.begin(); gauge != changing_.end();) {
    if (wanted.count(gauge->first) == 0) {
      process::metrics::remove(gauge->second);
      gauge = changing_.erase(gauge);
    } else {
      ++gauge;
    }
  }
  for (const auto& entry : wanted) {
    if (changing_.count(entry.first) == 0) {
      add(entry.first, entry.second, &changing_);
    }
  }
}

void Metrics::add(const std::string& name, const Read& read, Gauges* to) const {
  const process::PID<Pacer> reader = reader_;
  const PullGauge gauge(name, [reader, read]() { return process::dispatch(reader, &Pacer::read, read); });
  to->emplace(name, gauge);
  process::metrics::add(gauge);
}

Metrics::Read Metrics::read(const std::function<double(const Mirror&)>& value) const {
  const std::shared_ptr<Shared> shared = shared_;
  return [shared, value]() {
    const std::lock_guard<std::mutex> lock(shared->mutex);
    return value(shared->mirror);
  };
}

std::map<std::string, Metrics::Read> Metrics::wanted() {
  const std::shared_ptr<Counters> counters = counters_;
  std::map<std::string, Read> wanted;
  std::set<std::string> roles = shared_->mirror.sums().roles();
  for (const auto& framework : shared_->mirror.frameworks()) {
    roles.insert(framework.second.roles.begin(), framework.second.roles.end());
  }
  const std::set<std::string>& excluded = shared_->excluded;
  for (const std::string& role : roles) {
    wanted[kPrefix + ("roles/" + role) + "/shares/dominant"] =
        read([role, excluded](const Mirror& mirror) { return mirror.sums().share(role, excluded) / mirror.weight(role); });
    wanted[kPrefix + ("offer_filters/roles/" + role) + "/active"] = [counters, role]() { return counters->filters(role); };
  }
  for (const auto& quota : shared_->mirror.quotas()) {
    const std::string& role = quota.first;
    const auto show = [&](std::map<std::string, double> RoleQuota::*amounts, const std::string& what) {
      for (const auto& amount : quota.second.*amounts) {
        const std::string name = amount.first;
        const std::string prefix = kPrefix + ("quota/roles/" + role) + "/resources/" + name;
        wanted[prefix + "/" + what] = read([role, name, amounts](const Mirror& mirror) {  // the quota may change while the gauge exists
          const auto found = mirror.quotas().find(role);
          if (found == mirror.quotas().end()) {
            return 0.0;
          }
          const auto now = (found->second.*amounts).find(name);
          return now == (found->second.*amounts).end() ? 0.0 : now->second;
        });
        wanted[prefix + "/offered_or_allocated"] =
            read([role, name](const Mirror& mirror) { return mirror.sums().allocated(role, name); });
      }
    };
    show(&RoleQuota::guarantees, "guarantee");
    show(&RoleQuota::limits, "limit");
  }
  if (!shared_->per_framework) {
    return wanted;
  }
  std::set<std::string> now;
  for (const auto& framework : shared_->mirror.frameworks()) {
    const std::string& id = framework.first;
    const std::string prefix = "master/frameworks/" + process::http::encode(framework.second.info.name()) + "/" + id + "/";
    now.insert(prefix);
    for (const std::string& role : framework.second.roles) {
      wanted[prefix + "roles/" + role + "/suppressed"] = read([id, role](const Mirror& mirror) {
        const auto found = mirror.frameworks().find(id);
        return found != mirror.frameworks().end() && found->second.suppressed.count(role) != 0 ? 1.0 : 0.0;
      });
    }
  }
  for (const std::string& prefix : present_) {
    if (now.count(prefix) == 0) {
      completed_.push_back(prefix);
    }
  }
  present_ = now;
  while (completed_.size() > shared_->completed) {
    completed_.pop_front();
  }
  for (const std::string& prefix : completed_) {
    for (auto gauge = changing_.lower_bound(prefix); gauge != changing_.end() && starts_with(gauge->first, prefix); ++gauge) {
      wanted.emplace(gauge->first, nullptr);  // the existing gauge is kept
    }
  }
  return wanted;
}

}  // namespace adapter
}  // namespace longshare
