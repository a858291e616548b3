#include "session.h"

#include <grpc/grpc.h>
#include <pthread.h>
#include <signal.h>

#include <stdexcept>
#include <utility>

#include "backoff.h"
#include "stream.h"

namespace longshare::transport {
namespace {

// Blocks all signals of the current thread until destruction. New threads inherit the mask, so the transport's thread and
// gRPC's threads receive no signals. The master's own threads handle the signals.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// Keeps gRPC initialised between two streams.
class Library {
 public:
  Library() { grpc_init(); }
  ~Library() { grpc_shutdown(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

std::uint_fast32_t seed() {
  return static_cast<std::uint_fast32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

Session::Session(Settings settings)
    : settings_(std::move(settings)), outbox_(settings_.queue_events, settings_.queue_bytes) {}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  waker_.ring();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Session::start(const Owner& owner, std::string hello) {
  if (thread_.joinable()) {
    throw std::logic_error("started already");
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([this, owner, said = std::move(hello)] { work(owner, said); });
  pthread_setname_np(thread_.native_handle(), "longshare");
}

std::uint64_t Session::push(std::string_view event) {
  const Outbox::Pushed pushed = outbox_.push(event);
  if (pushed.released) {
    waker_.ring();
  }
  return pushed.sequence;
}

void Session::flush() {
  outbox_.flush();
  waker_.ring();
}

std::uint64_t Session::put_snapshot(std::string_view snapshot) {
  const std::uint64_t sequence = outbox_.put_snapshot(snapshot);
  waker_.ring();
  return sequence;
}

longshare_transport_statistics Session::statistics() const {
  const Outbox::Level level = outbox_.level();
  longshare_transport_statistics statistics{};
  statistics.connected = counters_.connected;
  statistics.synchronised = statistics.connected != 0 && !level.snapshot_missing && !counters_.waiting &&
                            counters_.answered >= outbox_.latest_snapshot();
  statistics.sessions = counters_.sessions;
  statistics.resyncs = counters_.resyncs;
  statistics.overflows = level.overflows;
  statistics.queued_events = level.events;
  statistics.queued_bytes = level.bytes;
  statistics.messages_sent = counters_.messages_sent;
  statistics.unanswered = counters_.unanswered;
  statistics.round_trip_ns = counters_.round_trip_ns;
  return statistics;
}

void Session::work(const Owner& owner, const std::string& hello) {
  const Library library;
  Backoff backoff(settings_.first_retry, settings_.last_retry, seed());
  std::string complaint;
  while (!stopping_) {
    const Ending ending = serve_a_stream(owner, hello);
    outbox_.close();
    if (stopping_) {
      return;
    }
    if (ending.served) {
      backoff.reset();
      complaint.clear();
    }
    if (ending.reason != complaint) {
      owner.warn("no allocator at " + settings_.address + ": " + ending.reason);
      complaint = ending.reason;
    }
    if (ending.welcomed) {
      owner.disconnected(ending.reason);
    }
    pause(backoff.next());
  }
}

Session::Ending Session::serve_a_stream(const Owner& owner, const std::string& hello) {
  Stream stream({settings_, hello, owner, outbox_, waker_, counters_, stopping_});
  std::string reason = stream.run();
  return {std::move(reason), stream.welcomed(), stream.served()};
}

void Session::pause(std::chrono::milliseconds duration) {
  std::unique_lock lock(mutex_);
  stop_.wait_for(lock, duration, [this] { return stopping_.load(); });
}

}  // namespace longshare::transport
