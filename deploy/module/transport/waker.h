// Waker: wakes the thread that waits for events of a gRPC completion queue.

#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <mutex>
#include <optional>

namespace longshare::transport {

// Thread-safe. Calls of `ring` put at most one event into the queue until the waiting thread calls `heard`.
class Waker {
 public:
  // Makes `ring` put `tag` into `queue`.
  void attach(grpc::CompletionQueue* queue, void* tag);

  // Makes `ring` do nothing. Must be called before the queue is shut down. An earlier ring may still leave the queue.
  void detach();

  // Wakes the waiting thread, unless an earlier ring is pending.
  void ring();

  // Allows the next ring. The waiting thread calls this function when the tag arrives.
  void heard();

 private:
  std::mutex mutex_;  // guards the members below
  grpc::CompletionQueue* queue_ = nullptr;
  void* tag_ = nullptr;
  bool rung_ = false;
  std::optional<grpc::Alarm> alarm_;  // present only while attached, because an alarm keeps gRPC initialised
};

}  // namespace longshare::transport
