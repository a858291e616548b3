// Measures the CPU time of the module for each offer and each recovery, as Mesos's benchmark DeclineOffers does. All frameworks
// have one role, a part of each agent is allocated, and every offer is declined forever.
//
//     adapter_costs ADDRESS-OF-SERVICE AGENTS FRAMEWORKS ROUNDS [synchronous]
//
// The service needs `offers.allocation = "batch"`, and `listen.virtual_clocks = true` for the synchronous mode. ROUNDS must be
// less than FRAMEWORKS. The program prints microseconds of CPU time, in the first round and in the mean of all rounds:
//   recover  of the thread that calls the allocator, per recovery
//   thread   of the transport's thread, per offer, with the sending of one recovery

#include <pthread.h>
#include <time.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <mesos/allocator/allocator.hpp>
#include <mesos/mesos.hpp>
#include <mesos/resources.hpp>
#include <mesos/type_utils.hpp>
#include <process/process.hpp>
#include <stout/stringify.hpp>

#include "../allocator.hpp"

namespace {

using mesos::FrameworkID;
using mesos::Resources;
using mesos::SlaveID;

class Measured : public longshare::adapter::LongshareAllocator {
 public:
  using longshare::adapter::LongshareAllocator::LongshareAllocator;

  void decline(const FrameworkID& framework, const SlaveID& agent, const Resources& resources) {
    mesos::Filters filters;
    filters.set_refuse_seconds(2147483647);
    resources_recovered(framework, agent, resources, filters, false);
  }
};

struct Offered {
  FrameworkID framework;
  SlaveID agent;
  Resources resources;
};

double seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::cerr << "usage: adapter_costs ADDRESS-OF-SERVICE AGENTS FRAMEWORKS ROUNDS [synchronous]" << std::endl;
    return 2;
  }
  const std::size_t agents = std::stoul(argv[2]);
  const int frameworks = std::atoi(argv[3]);
  const int rounds = std::atoi(argv[4]);
  process::initialize();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Offered> open;
  clockid_t thread = CLOCK_THREAD_CPUTIME_ID;
  std::vector<std::pair<std::string, std::string>> given = {{"address", argv[1]}};
  if (argc == 6) {
    given.emplace_back("synchronous", "true");
  }
  Measured allocator{longshare::adapter::Parameters(given)};
  mesos::allocator::Options options;
  options.allocationInterval = Milliseconds(200);
  allocator.initialize(
      options,
      [&](const FrameworkID& framework, const hashmap<std::string, hashmap<SlaveID, Resources>>& parts) {
        const std::lock_guard<std::mutex> lock(mutex);
        pthread_getcpuclockid(pthread_self(), &thread);
        for (const auto& role : parts) {
          for (const auto& part : role.second) {
            open.push_back({framework, part.first, part.second});
          }
        }
        if (open.size() == agents) {
          changed.notify_all();
        }
      },
      [](const FrameworkID&, const hashmap<SlaveID, mesos::UnavailableResources>&) {});
  allocator.recover(0, {});
  std::vector<FrameworkID> ids;
  for (int number = 0; number < frameworks; ++number) {
    mesos::FrameworkInfo info;
    info.set_user("user");
    info.set_name("name" + stringify(number));
    info.mutable_id()->set_value("00000000-0000-0000-0000-000000000000-framework" + stringify(number));
    info.add_roles("*");
    info.add_capabilities()->set_type(mesos::FrameworkInfo::Capability::MULTI_ROLE);
    ids.push_back(info.id());
    allocator.addFramework(info.id(), info, {}, true, {});
  }
  const Resources total = Resources::parse("cpus:24;mem:4096;disk:4096;ports:[31000-32000]").get();
  std::string ports;
  for (int begin = 31000; begin < 31960; begin += 60) {
    ports += (ports.empty() ? "" : ",") + stringify(begin) + "-" + stringify(begin + 30);
  }
  Resources allocation = Resources::parse("cpus:16;mem:2014;disk:1024;ports:[" + ports + "]").get();
  allocation.allocate("*");
  for (std::size_t number = 0; number < agents; ++number) {
    mesos::SlaveInfo info;
    info.set_hostname("host" + stringify(number));
    info.mutable_id()->set_value("00000000-0000-0000-0000-000000000000-agent" + stringify(number));
    mesos::SlaveInfo::Capability capability;
    capability.set_type(mesos::SlaveInfo::Capability::MULTI_ROLE);
    allocator.addSlave(info.id(), info, {capability}, None(), total, {{ids[number % ids.size()], allocation}});
  }
  double recover_all = 0;
  double thread_all = 0;
  double thread_before = 0;
  for (int round = 0; round <= rounds; ++round) {
    std::vector<Offered> offers;
    {
      std::unique_lock<std::mutex> lock(mutex);
      if (!changed.wait_for(lock, std::chrono::seconds(120), [&]() { return open.size() == agents; })) {
        std::cerr << "only " << open.size() << " offers" << std::endl;
        return 1;
      }
      offers.swap(open);
    }
    const double thread_now = seconds(thread);
    if (round > 0) {
      thread_all += thread_now - thread_before;
    }
    if (round == 1) {
      const double each = 1e6 / static_cast<double>(agents);
      std::cout << "first: recover " << recover_all * each << " thread " << thread_all * each;
    }
    thread_before = thread_now;
    const double before = seconds(CLOCK_THREAD_CPUTIME_ID);
    if (round < rounds) {
      for (const Offered& offer : offers) {
        allocator.decline(offer.framework, offer.agent, offer.resources);
      }
      recover_all += seconds(CLOCK_THREAD_CPUTIME_ID) - before;
    }
  }
  const double number = static_cast<double>(agents) * rounds;
  std::cout << "  all: recover " << recover_all / number * 1e6 << " thread " << thread_all / number * 1e6 << std::endl;
  return 0;
}
