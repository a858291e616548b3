// Outbox: bounded queue of the snapshot and the numbered events that the transport will send.

#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longshare::transport {

// A serialised FromMaster message, as pieces to be concatenated.
struct Message {
  std::vector<std::string> pieces;
  std::uint64_t last_sequence;  // number of the snapshot or last event in the message
  bool is_snapshot;
  bool ends_turn;  // false: slices of the turn follow in later messages, and the service answers the last message
};

// Thread-safe. A turn is the sequence of events between two calls of `flush`. A message contains whole turns, and perhaps the
// first slices of a long turn, whose last slice follows in another message. The service allocates after whole turns only.
//
// The outbox numbers and drops events while there is no stream, and while a requested snapshot is missing.
class Outbox {
 public:
  Outbox(std::uint64_t most_events, std::uint64_t most_bytes) : most_events_(most_events), most_bytes_(most_bytes) {}

  // Report that a stream began: request a snapshot.
  void open();

  // Report that the stream ended: drop the queue.
  void close() noexcept;

  struct Pushed {
    std::uint64_t sequence;
    bool released;  // `take` returns a slice of the turn
  };
  // Assign a number to an event, append the event to the current turn and return the number. Release the earlier events of
  // the turn if they are enough for a slice. Never fails: if the queue is full or memory is exhausted, the outbox drops the
  // queue and requests a snapshot.
  Pushed push(std::string_view event) noexcept;

  // End the current turn, so that `take` returns its events.
  void flush() noexcept;

  // Replace the queue with a snapshot. Return its number, or 0 if there is no stream or memory is exhausted.
  std::uint64_t put_snapshot(std::string_view message) noexcept;

  // Drop the queue and all events that are pushed before the next snapshot.
  void want_snapshot(std::string reason) noexcept;

  // Return why a snapshot is requested, once for each request; else nullopt.
  std::optional<std::string> ask() noexcept;

  // Remove and return the next message to send, or nullopt. `events`: whether the message may contain events.
  std::optional<Message> take(bool events = true);

  // Return the number of the latest snapshot. Decisions made before that snapshot are void.
  std::uint64_t latest_snapshot() const noexcept;

  // How full the outbox is.
  struct Level {
    std::uint64_t events;
    std::uint64_t bytes;
    std::uint64_t overflows;
    bool snapshot_missing;  // there is no stream, or a requested snapshot is missing
  };
  Level level() const noexcept;

 private:
  enum class State { kClosed, kWanted, kAsked, kInStep };

  void drop() noexcept;
  void want(std::string reason) noexcept;
  void append(std::string_view event);
  void release();

  const std::uint64_t most_events_;
  const std::uint64_t most_bytes_;

  mutable std::mutex mutex_;  // guards the members below
  State state_ = State::kClosed;
  std::string reason_;
  std::uint64_t sequence_ = 0;
  std::uint64_t latest_snapshot_ = 0;
  std::uint64_t overflows_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t bytes_ = 0;
  std::string snapshot_;              // serialised FromMaster; empty: no snapshot waits
  std::vector<std::string> flushed_;  // serialised fields of Events, in whole turns
  std::uint64_t flushed_bytes_ = 0;
  std::uint64_t flushed_sequence_ = 0;
  std::string turn_;  // serialised fields of Events, of the current turn after its released slices
  std::uint64_t turn_events_ = 0;
  bool continues_ = false;  // a slice is released, and the end of its turn is not
};

}  // namespace longshare::transport
