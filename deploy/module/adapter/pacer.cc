#include "pacer.hpp"

#include <process/clock.hpp>
#include <process/delay.hpp>
#include <process/id.hpp>

namespace longshare {
namespace adapter {

Pacer::Pacer(const std::function<void(const process::Time&)>& tick)
    : process::ProcessBase(process::ID::generate("longshare-pacer")), interval_(Seconds(1)), tick_(tick) {}

void Pacer::start(const ::Duration& interval) {
  interval_ = interval;
  process::delay(interval_, self(), &Pacer::beat, process::Clock::now() + interval_);
}

void Pacer::beat(const process::Time& due) {
  // Tests pause the clock and advance it in jumps. A tick that was due during a jump gets the time at which it was due.
  tick_(process::Clock::paused() ? due : process::Clock::now());
  start(interval_);
}

}  // namespace adapter
}  // namespace longshare
