// Pacer: an actor of this module for work that follows libprocess's clock.

#pragma once

#include <functional>

#include <process/process.hpp>
#include <process/time.hpp>
#include <stout/duration.hpp>

namespace longshare {
namespace adapter {

// After `start`, calls `tick` with the time once per interval.
class Pacer : public process::Process<Pacer> {
 public:
  explicit Pacer(const std::function<void(const process::Time&)>& tick);

  void start(const ::Duration& interval);
  // Call a function on this actor, by dispatch.
  void call(const std::function<void()>& what) { what(); }
  double read(const std::function<double()>& what) { return what(); }

 private:
  void beat(const process::Time& due);

  ::Duration interval_;
  const std::function<void(const process::Time&)> tick_;
};

}  // namespace adapter
}  // namespace longshare
