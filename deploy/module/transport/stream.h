// One stream, from connecting to its end.

#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "counters.h"
#include "framing.h"
#include "outbox.h"
#include "owner.h"
#include "settings.h"
#include "waker.h"

namespace longshare::transport {

// Lives on one thread, which waits for gRPC's events and does everything. At most one write is under way: what is pushed
// meanwhile goes out together afterwards, and a service that reads slowly makes the outbox fill.
class Stream {
 public:
  struct Surroundings {
    const Settings& settings;
    const std::string& hello;
    const Owner& owner;
    Outbox& outbox;
    Waker& waker;
    Counters& counters;
    const std::atomic<bool>& stopping;
  };

  explicit Stream(const Surroundings& surroundings) : in_(surroundings) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Serve it to its end; return why it ended. When `stopping` becomes true and the waker is rung, it ends.
  std::string run();

  bool welcomed() const { return welcomed_; }

  // Whether the service has answered a snapshot.
  bool served() const { return served_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum Event : std::intptr_t { kStarted = 1, kRead, kWritten, kWoken, kPatienceLost, kFinished };

  struct Sent {
    std::uint64_t last_sequence;
    Clock::time_point at;
  };

  static void* tag(Event event);

  void begin();
  void handle(Event event, bool ok);
  void on_started(bool ok);
  void on_read(bool ok);
  void hear(std::string_view bytes);
  void on_welcome(std::string_view welcome);
  void on_decisions(const Answer& answer);
  void read();
  void pump();
  void send(Message message);
  void write(const grpc::ByteBuffer& message);
  void give_up(const std::string& reason);
  void finish();
  std::string why() const;

  Surroundings in_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Alarm patience_;
  grpc::ByteBuffer incoming_;
  grpc::Status status_;
  std::string reason_;  // ours for ending it; empty: none
  bool started_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool finishing_ = false;
  bool finished_ = false;
  bool welcomed_ = false;
  bool served_ = false;
  std::uint64_t snapshots_ = 0;
  std::deque<Sent> unanswered_;
};

}  // namespace longshare::transport
