// Session: runs the transport's thread, which keeps a stream to the service open.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "counters.h"
#include "outbox.h"
#include "owner.h"
#include "settings.h"
#include "transport.h"
#include "waker.h"

namespace longshare::transport {

class Session {
 public:
  explicit Session(Settings settings);
  ~Session();  // ends the stream and waits for the thread
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Start the thread. Throws std::logic_error on a second call, and std::system_error if the system cannot create a thread.
  void start(const Owner& owner, std::string hello);

  std::uint64_t push(std::string_view event);
  void flush();
  std::uint64_t put_snapshot(std::string_view snapshot);
  longshare_transport_statistics statistics() const;

 private:
  // How a stream ended: `welcomed` if the service answered Hello, `served` if the service answered a snapshot.
  struct Ending {
    std::string reason;
    bool welcomed;
    bool served;
  };

  void work(const Owner& owner, const std::string& hello);
  Ending serve_a_stream(const Owner& owner, const std::string& hello);
  void pause(std::chrono::milliseconds duration);

  const Settings settings_;
  Outbox outbox_;
  Waker waker_;
  Counters counters_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // guards the pause between two streams
  std::condition_variable stop_;
  std::thread thread_;
};

}  // namespace longshare::transport
