// What waits to be sent: numbered, in order, bounded.

#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longshare::transport {

// A FromMaster in pieces.
struct Message {
  std::vector<std::string> pieces;
  std::uint64_t last_sequence;  // of what is contained
  bool is_snapshot;
};

// May be used from any thread.
//
// Without a stream, and from the moment that a snapshot is wanted until there is one, events are numbered and dropped.
class Outbox {
 public:
  Outbox(std::uint64_t most_events, std::uint64_t most_bytes) : most_events_(most_events), most_bytes_(most_bytes) {}

  // A stream is there, or has ended.
  void open();
  void close() noexcept;

  // Number an event and append it to the present turn. Never fails: without memory, a snapshot is wanted.
  std::uint64_t push(std::string_view event) noexcept;

  // End the turn; what belongs to it may be sent.
  void flush() noexcept;

  // Replace everything by a snapshot; return its number, or 0 without a stream or memory.
  std::uint64_t put_snapshot(std::string_view message) noexcept;

  // Drop everything until there is a snapshot.
  void want_snapshot(std::string reason) noexcept;

  // Why a snapshot is wanted, if it is and this has not been returned yet.
  std::optional<std::string> ask() noexcept;

  // What is to be sent next, if anything.
  std::optional<Message> take();

  // Number of the latest snapshot; what was decided before it is void.
  std::uint64_t latest_snapshot() const noexcept;

  struct Level {
    std::uint64_t events;
    std::uint64_t bytes;
    std::uint64_t overflows;
    bool snapshot_missing;  // no stream, or one is wanted
  };
  Level level() const noexcept;

 private:
  enum class State { kClosed, kWanted, kAsked, kInStep };

  void drop() noexcept;
  void want(std::string reason) noexcept;
  void append(std::string_view event);
  void end_turn();

  const std::uint64_t most_events_;
  const std::uint64_t most_bytes_;

  mutable std::mutex mutex_;  // guards what follows
  State state_ = State::kClosed;
  std::string reason_;
  std::uint64_t sequence_ = 0;
  std::uint64_t latest_snapshot_ = 0;
  std::uint64_t overflows_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t bytes_ = 0;
  std::string snapshot_;              // framed; empty: none waits
  std::vector<std::string> flushed_;  // fields of Events, whole turns only
  std::uint64_t flushed_bytes_ = 0;
  std::uint64_t flushed_sequence_ = 0;
  std::string turn_;  // likewise, of the present turn
  std::uint64_t turn_events_ = 0;
};

}  // namespace longshare::transport
