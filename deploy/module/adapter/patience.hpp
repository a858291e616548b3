// Patience: detects that the service answers too late, so that operators' requests fail early.

#pragma once

#include <chrono>
#include <cstdint>

namespace longshare {
namespace adapter {

// Not thread-safe. Times are of a monotonic clock.
class Patience {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Patience(std::chrono::milliseconds limit) : limit_(limit) {}

  std::chrono::milliseconds limit() const { return limit_; }

  // Record that the event `sequence`, which the service will answer, was queued.
  void sent(uint64_t sequence, Time now) {
    if (awaited_ == 0) {
      awaited_ = sequence;
      since_ = now;
    }
  }

  // Record an answer that reflects all events up to `sequence`.
  void answered(uint64_t sequence) {
    if (sequence >= awaited_) {
      awaited_ = 0;
    }
  }

  // Forget the expected answer, because the service is disconnected or gets a snapshot.
  void reset() { awaited_ = 0; }

  // Return whether an expected answer is later than the limit.
  bool overdue(Time now) const { return awaited_ != 0 && now - since_ > limit_; }

 private:
  const std::chrono::milliseconds limit_;
  uint64_t awaited_ = 0;  // oldest event whose answer is timed; 0: none
  Time since_;
};

}  // namespace adapter
}  // namespace longshare
