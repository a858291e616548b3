// An actor of our own, for what must happen on libprocess's clock.

#pragma once

#include <functional>

#include <process/process.hpp>
#include <stout/duration.hpp>

namespace longshare {
namespace adapter {

// Calls `tick` once per interval from `start` on.
class Pacer : public process::Process<Pacer> {
 public:
  Pacer(const ::Duration& interval, const std::function<void()>& tick);

  void start();
  // Calls something on this actor.
  void call(const std::function<void()>& what) { what(); }

 private:
  void beat();

  const ::Duration interval_;
  const std::function<void()> tick_;
};

}  // namespace adapter
}  // namespace longshare
