#include "waker.h"

namespace longshare::transport {

void Waker::attach(grpc::CompletionQueue* queue, void* tag) {
  const std::lock_guard lock(mutex_);
  queue_ = queue;
  tag_ = tag;
  rung_ = false;
  alarm_.emplace();
}

void Waker::detach() {
  const std::lock_guard lock(mutex_);
  queue_ = nullptr;
  alarm_.reset();
}

void Waker::ring() {
  const std::lock_guard lock(mutex_);
  if (queue_ != nullptr && !rung_) {
    rung_ = true;
    alarm_->Set(queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), tag_);
  }
}

void Waker::heard() {
  const std::lock_guard lock(mutex_);
  rung_ = false;
}

}  // namespace longshare::transport
