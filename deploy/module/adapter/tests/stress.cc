// Stress test: calls the allocator from many threads at once, and checks that the allocator and the service still agree.
//
//     adapter_stress ADDRESS-OF-SERVICE SECONDS
//
// The test first repeats a sequence of calls that once caused a disagreement. An agent is offered, removed, and added again
// under the same ID; then the offered resources are recovered. A master with a slow authorizer makes such calls.
//
// The program prints `calls N offers M resyncs R`, and exits with 1 if there was a resync or no offer.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <mesos/allocator/allocator.hpp>
#include <mesos/mesos.hpp>
#include <mesos/resources.hpp>
#include <mesos/type_utils.hpp>
#include <process/future.hpp>
#include <process/metrics/metrics.hpp>
#include <process/process.hpp>
#include <stout/stringify.hpp>

#include "../allocator.hpp"

namespace {

using mesos::FrameworkID;
using mesos::Resources;
using mesos::SlaveID;

constexpr int kFrameworks = 4;
constexpr int kAgents = 20;
constexpr int kTurns = 20;

// The allocator, with a `give_back` that is the same for all versions of Mesos.
class LongshareAllocator : public longshare::adapter::LongshareAllocator {
 public:
  using longshare::adapter::LongshareAllocator::LongshareAllocator;

  void give_back(const FrameworkID& framework, const SlaveID& agent, const Resources& resources) {
    mesos::Filters filters;
    filters.set_refuse_seconds(0.01);
    resources_recovered(framework, agent, resources, filters, false);
  }
};

struct Offered {
  FrameworkID framework;
  hashmap<std::string, hashmap<SlaveID, Resources>> parts;
};

FrameworkID framework_id(int number) {
  FrameworkID id;
  id.set_value("f" + stringify(number));
  return id;
}

mesos::FrameworkInfo framework_info(int number) {
  mesos::FrameworkInfo info;
  info.set_user("u");
  info.set_name("n" + stringify(number));
  info.mutable_id()->CopyFrom(framework_id(number));
  info.add_roles("role" + stringify(number));
  info.add_capabilities()->set_type(mesos::FrameworkInfo::Capability::MULTI_ROLE);
  return info;
}

std::map<std::string, double> metrics() {
  const process::Future<std::map<std::string, double>> snapshot = process::metrics::snapshot(None());
  snapshot.await(Seconds(5));
  return snapshot.get();
}

void add_agent(LongshareAllocator* allocator, const std::string& name) {
  mesos::SlaveInfo info;
  info.set_hostname(name);
  info.mutable_id()->set_value(name);
  mesos::SlaveInfo::Capability capability;
  capability.set_type(mesos::SlaveInfo::Capability::MULTI_ROLE);
  allocator->addSlave(info.id(), info, {capability}, None(), Resources::parse("cpus:4;mem:4096").get(), {});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: adapter_stress ADDRESS-OF-SERVICE SECONDS" << std::endl;
    return 2;
  }
  process::initialize();
  std::atomic<long> calls(0);
  std::atomic<long> offers(0);
  std::atomic<bool> over(false);
  std::mutex mutex;
  std::vector<Offered> open;
  double elected = 0;
  double resyncs = 0;
  {
    LongshareAllocator allocator(longshare::adapter::Parameters({{"address", argv[1]}}));
    mesos::allocator::Options options;
    options.allocationInterval = Milliseconds(50);
    allocator.initialize(
        options,
        [&](const FrameworkID& framework, const hashmap<std::string, hashmap<SlaveID, Resources>>& parts) {
          const std::lock_guard<std::mutex> lock(mutex);
          open.push_back({framework, parts});
          ++offers;
        },
        [](const FrameworkID&, const hashmap<SlaveID, mesos::UnavailableResources>&) {});
    allocator.recover(0, {});
    for (int number = 0; number < kFrameworks; ++number) {
      allocator.addFramework(framework_id(number), framework_info(number), {}, true, {});
    }
    const auto take = [&]() {
      std::vector<Offered> mine;
      const std::lock_guard<std::mutex> lock(mutex);
      mine.swap(open);
      return mine;
    };
    const auto give_back = [&](const std::vector<Offered>& mine) {
      for (const Offered& offered : mine) {
        for (const auto& role : offered.parts) {
          for (const auto& part : role.second) {
            allocator.give_back(offered.framework, part.first, part.second);
            ++calls;
          }
        }
      }
    };
    SlaveID again;
    again.set_value("again");
    for (int turn = 0; turn < kTurns; ++turn) {
      add_agent(&allocator, again.value());
      std::vector<Offered> old;
      // In the first turn, wait without limit, because the service must first accept this master as the leader.
      for (int wait = 0; old.empty() && (turn == 0 || wait < 5000); ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        old = take();
      }
      if (turn == 0) {
        // The election itself may cause resyncs, so they are subtracted. The first offer shows that the election is over.
        elected = metrics()["longshare/resyncs_total"];
      }
      allocator.removeSlave(again);
      add_agent(&allocator, again.value());
      give_back(old);
      allocator.removeSlave(again);
      take();
    }
    for (int number = 0; number < kAgents; ++number) {
      add_agent(&allocator, "agent" + stringify(number));
    }

    const std::vector<std::function<void(int)>> jobs = {
        // Frameworks that decline all offers.
        [&](int) {
          give_back(take());
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        // The actor that watches the whitelist.
        [&](int turn) {
          if (turn % 2 == 0) {
            allocator.updateWhitelist(hashset<std::string>{"agent1", "agent2", "agent3"});
          } else {
            allocator.updateWhitelist(None());
          }
          ++calls;
          std::this_thread::sleep_for(std::chrono::microseconds(300));
        },
        // Agents that are added and removed.
        [&](int turn) {
          const std::string name = "passing" + stringify(turn % 3);
          add_agent(&allocator, name);
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          SlaveID id;
          id.set_value(name);
          allocator.removeSlave(id);
          calls += 2;
        },
        // Frameworks that suppress and revive offers.
        [&](int turn) {
          const FrameworkID id = framework_id(turn % kFrameworks);
          allocator.suppressOffers(id, {});
          allocator.getInverseOfferStatuses();
          allocator.reviveOffers(id, {});
          calls += 3;
          std::this_thread::sleep_for(std::chrono::microseconds(700));
        },
    };
    std::vector<std::thread> threads;
    for (const auto& job : jobs) {
      threads.emplace_back([&over, job]() {
        for (int turn = 0; !over; ++turn) {
          job(turn);
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::seconds(std::atoi(argv[2])));
    over = true;
    for (std::thread& thread : threads) {
      thread.join();
    }
    resyncs = metrics()["longshare/resyncs_total"] - elected;
  }
  std::cout << "calls " << calls << " offers " << offers << " resyncs " << resyncs << std::endl;
  return resyncs == 0 && offers > 0 ? 0 : 1;
}
