// Whether the service still answers: for people who wait for an answer.

#pragma once

#include <chrono>
#include <cstdint>

namespace longshare {
namespace adapter {

// Not thread-safe. Times are of a clock that never goes back.
class Patience {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Patience(std::chrono::milliseconds limit) : limit_(limit) {}

  std::chrono::milliseconds limit() const { return limit_; }

  // Something that will be answered was queued.
  void sent(uint64_t sequence, Time now) {
    if (awaited_ == 0) {
      awaited_ = sequence;
      since_ = now;
    }
  }

  // An answer knows of everything up to `sequence`.
  void answered(uint64_t sequence) {
    if (sequence >= awaited_) {
      awaited_ = 0;
    }
  }

  // Nobody is there to answer, or begins anew.
  void reset() { awaited_ = 0; }

  // Whether an answer is late.
  bool overdue(Time now) const { return awaited_ != 0 && now - since_ > limit_; }

 private:
  const std::chrono::milliseconds limit_;
  uint64_t awaited_ = 0;  // the first that has not been answered when something was sent; 0: none
  Time since_;
};

}  // namespace adapter
}  // namespace longshare
