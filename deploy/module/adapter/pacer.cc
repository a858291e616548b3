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
  // A clock that is paused jumps: what falls due on the way happens when it was due.
  tick_(process::Clock::paused() ? due : process::Clock::now());
  start(interval_);
}

}  // namespace adapter
}  // namespace longshare
