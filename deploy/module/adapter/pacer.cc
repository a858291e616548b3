#include "pacer.hpp"

#include <process/delay.hpp>
#include <process/id.hpp>

namespace longshare {
namespace adapter {

Pacer::Pacer(const ::Duration& interval, const std::function<void()>& tick)
    : process::ProcessBase(process::ID::generate("longshare-pacer")), interval_(interval), tick_(tick) {}

void Pacer::start() { process::delay(interval_, self(), &Pacer::beat); }

void Pacer::beat() {
  tick_();
  process::delay(interval_, self(), &Pacer::beat);
}

}  // namespace adapter
}  // namespace longshare
