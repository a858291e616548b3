// Stream: one gRPC stream to the service, from the connection attempt to its end.

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

// One thread creates and runs the stream, and handles all events of gRPC. At most one write is in progress. Events that are
// pushed during a write, or while a few turns are unanswered, go into the next message. A flood of calls therefore costs few
// allocations. If the service reads slowly, the outbox fills.
class Stream {
 public:
  // Objects that outlive the stream.
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

  // Run the stream until it ends, and return why it ended. To end the stream, set `stopping` and ring the waker.
  std::string run();

  // Return whether the service answered Hello.
  bool welcomed() const { return welcomed_; }

  // Return whether the service answered a snapshot.
  bool served() const { return served_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum Event : std::intptr_t { kStarted = 1, kRead, kWritten, kWoken, kPatienceLost, kFinished };

  struct Sent {
    std::uint64_t last_sequence;
    Clock::time_point at;
    bool ends_turn;
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
  std::string reason_;  // why this side ended the stream; empty: this side did not end it
  bool started_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool finishing_ = false;
  bool finished_ = false;
  bool welcomed_ = false;
  bool served_ = false;
  std::uint64_t snapshots_ = 0;
  std::deque<Sent> unanswered_;
  std::size_t unanswered_turns_ = 0;  // messages in `unanswered_` with the end of a turn
};

}  // namespace longshare::transport
