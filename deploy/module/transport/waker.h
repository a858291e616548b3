// Wakes the thread that waits at a completion queue.

#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <mutex>
#include <optional>

namespace longshare::transport {

// May be used from any thread. Several rings before one is heard count as one.
class Waker {
 public:
  void attach(grpc::CompletionQueue* queue, void* tag);

  // Must be called before the queue is shut down; a ring may still come out of it.
  void detach();

  void ring();
  void heard();

 private:
  std::mutex mutex_;  // guards what follows
  grpc::CompletionQueue* queue_ = nullptr;
  void* tag_ = nullptr;
  bool rung_ = false;
  std::optional<grpc::Alarm> alarm_;  // one at a time, as it keeps gRPC up
};

}  // namespace longshare::transport
