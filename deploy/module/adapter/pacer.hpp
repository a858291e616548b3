// An actor of our own, for what must happen on libprocess's clock.

#pragma once

#include <functional>

#include <process/process.hpp>
#include <process/time.hpp>
#include <stout/duration.hpp>

namespace longshare {
namespace adapter {

// Calls `tick` with the time, once per interval from `start` on.
class Pacer : public process::Process<Pacer> {
 public:
  explicit Pacer(const std::function<void(const process::Time&)>& tick);

  void start(const ::Duration& interval);
  // Calls something on this actor.
  void call(const std::function<void()>& what) { what(); }
  double read(const std::function<double()>& what) { return what(); }

 private:
  void beat(const process::Time& due);

  ::Duration interval_;
  const std::function<void(const process::Time&)> tick_;
};

}  // namespace adapter
}  // namespace longshare
