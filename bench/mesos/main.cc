// Runs Mesos's benchmark DeclineOffers for a number of rounds, and prints the CPU time of its threads.
//
// The program replaces libprocess's Clock::settle(), which the benchmark calls before and after each batch, and sem_wait(), by
// which idle libprocess threads wait. Environment:
//   LONGSHARE_ROUNDS   number of rounds after which the program ends
//   LONGSHARE_WAITS    if set, the benchmark's thread sleeps until libprocess is idle; otherwise it spins, as in Mesos
//   LONGSHARE_SERVICE  process id of the service, whose CPU time is printed too
//   LONGSHARE_MODULE, LONGSHARE_ADDRESS  see allocator.hpp
// Before each batch and after it, the program prints seconds:
//   cpu CLOCK BENCHMARK-AND-ACTORS OTHER-THREADS SERVICE
// The first is a clock, the others are CPU times. Actors run on libprocess's threads. The module's transport has its own thread.

#include <dlfcn.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <mesos/module/allocator.hpp>

#include <process/clock.hpp>
#include <process/gtest.hpp>
#include <process/process.hpp>

#include "master/allocator/mesos/hierarchical.hpp"

#include "allocator.hpp"

namespace {

// Calls of Clock::settle() before the first round: after all frameworks, and after all agents, were added.
constexpr int kBefore = 2;
constexpr int kInRound = 2;

std::mutex mutex;
std::condition_variable became_idle;
std::vector<clockid_t> actors;  // clocks of libprocess's threads
std::size_t idle = 0;           // libprocess's threads that wait
sem_t* queue = nullptr;         // semaphore of libprocess's run queue

template <typename Function>
Function original(const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "libmesos.so has no %s\n", name);
    std::_Exit(2);
  }
  return reinterpret_cast<Function>(symbol);
}

double seconds(clockid_t clock) {
  timespec time;
  return clock_gettime(clock, &time) == 0 ? static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9 : 0;
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

void print_times() {
  static clockid_t service = 0;
  if (service == 0 && environment("LONGSHARE_SERVICE") != nullptr) {
    clock_getcpuclockid(std::atoi(environment("LONGSHARE_SERVICE")), &service);
  }
  double own = seconds(CLOCK_THREAD_CPUTIME_ID);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    for (clockid_t clock : actors) {
      own += seconds(clock);
    }
  }
  std::printf("cpu %.6f %.6f %.6f %.6f\n", seconds(CLOCK_MONOTONIC), own, seconds(CLOCK_PROCESS_CPUTIME_ID) - own,
              service == 0 ? 0 : seconds(service));
}

// Sleeps until no libprocess thread has work, and no timer is due. An actor that waits for an answer is not idle.
void wait_until_idle() {
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      became_idle.wait_for(lock, std::chrono::milliseconds(1), []() { return idle == actors.size(); });
      int posted = 0;
      if (idle == actors.size() && (queue == nullptr || sem_getvalue(queue, &posted) != 0 || posted == 0)) {
        lock.unlock();
        if (process::Clock::settled()) {
          return;
        }
      }
    }
    const timespec pause = {0, 20000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

extern "C" int sem_wait(sem_t* semaphore) {
  static const auto wait = original<int (*)(sem_t*)>("sem_wait");
  static thread_local bool known = false;
  if (known && sem_trywait(semaphore) == 0) {
    return 0;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!known) {
      known = true;
      queue = semaphore;
      clockid_t clock;
      pthread_getcpuclockid(pthread_self(), &clock);
      actors.push_back(clock);
    }
    if (++idle == actors.size()) {
      became_idle.notify_one();
    }
  }
  const int result = wait(semaphore);
  const std::lock_guard<std::mutex> lock(mutex);
  --idle;
  return result;
}

namespace process {

void Clock::settle() {
  static const auto spin = original<void (*)()>("_ZN7process5Clock6settleEv");
  static const bool waits = environment("LONGSHARE_WAITS") != nullptr;
  static const int rounds = environment("LONGSHARE_ROUNDS") != nullptr ? std::atoi(environment("LONGSHARE_ROUNDS")) : -1;
  static int calls = 0;
  if (waits) {
    wait_until_idle();
  }
  spin();  // also decides whether libprocess is idle, if this thread has waited
  if (++calls > kBefore) {
    print_times();  // all declines of the last round's offers have been processed, or all offers of the batch were made
    if (rounds >= 0 && calls - kBefore > kInRound * rounds) {
      std::fflush(nullptr);
      std::_Exit(0);
    }
  }
}

}  // namespace process

namespace longshare {
namespace bench {

mesos::allocator::Allocator* create_allocator() {
  const char* path = environment("LONGSHARE_MODULE");
  if (path == nullptr) {
    return mesos::internal::master::allocator::HierarchicalDRFAllocator::create().get();
  }
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::_Exit(2);
  }
  const auto module =
      reinterpret_cast<mesos::modules::Module<mesos::allocator::Allocator>*>(dlsym(library, "org_longshare_Allocator"));
  mesos::Parameters parameters;
  for (const auto& given : {std::make_pair("address", environment("LONGSHARE_ADDRESS")), std::make_pair("synchronous", "true")}) {
    mesos::Parameter* parameter = parameters.add_parameter();
    parameter->set_key(given.first);
    parameter->set_value(given.second);
  }
  return module->create(parameters);
}

}  // namespace bench
}  // namespace longshare

int main(int argc, char** argv) {
  prctl(PR_SET_TIMERSLACK, 1000);  // 1 µs, for wait_until_idle()
  process::initialize(None(), std::string("test-readwrite-realm"), std::string("test-readonly-realm"));
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(process::ClockTestEventListener::instance());
  return RUN_ALL_TESTS();
}
