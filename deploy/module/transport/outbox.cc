#include "outbox.h"

#include <utility>

#include "framing.h"

namespace longshare::transport {
namespace {

// Turns are collected in pieces of about this size in bytes. Pieces are never copied, so the time of a push does not depend
// on the length of the queue.
constexpr std::size_t kPiece = 64 << 10;
// Number of events in a slice of a turn. The service applies a slice while the master adds the next events.
constexpr std::uint64_t kSlice = 250;

}  // namespace

void Outbox::open() {
  const std::lock_guard lock(mutex_);
  want("a new stream");
}

void Outbox::close() noexcept {
  const std::lock_guard lock(mutex_);
  drop();
  state_ = State::kClosed;
}

Outbox::Pushed Outbox::push(std::string_view event) noexcept {
  const std::lock_guard lock(mutex_);
  Pushed pushed{sequence_ + 1, false};
  if (state_ != State::kInStep) {
    ++sequence_;
    return pushed;
  }
  try {
    if (turn_events_ == kSlice) {  // the present event remains for the end of the turn
      release();
      pushed.released = continues_ = true;
    }
    ++sequence_;
    if (events_ == most_events_ || bytes_ + event.size() > most_bytes_) {
      ++overflows_;
      want("the queue was full, with " + std::to_string(events_) + " events and " + std::to_string(bytes_) + " bytes");
    } else {
      append(event);
    }
  } catch (const std::exception& error) {
    want("out of memory");
  }
  sequence_ = pushed.sequence;
  return pushed;
}

void Outbox::flush() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (!turn_.empty()) {
      release();
      continues_ = false;
    }
  } catch (const std::exception& error) {
    want("out of memory");
  }
}

std::uint64_t Outbox::put_snapshot(std::string_view message) noexcept {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kClosed) {
    return 0;
  }
  drop();
  try {
    snapshot_ = snapshot(message, sequence_ + 1);
  } catch (const std::exception& error) {
    want("out of memory");
    return 0;
  }
  bytes_ = snapshot_.size();
  latest_snapshot_ = ++sequence_;
  state_ = State::kInStep;
  return sequence_;
}

void Outbox::want_snapshot(std::string reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kClosed) {
    want(std::move(reason));
  }
}

std::optional<std::string> Outbox::ask() noexcept {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kWanted) {
    return std::nullopt;
  }
  state_ = State::kAsked;
  return std::exchange(reason_, {});
}

std::optional<Message> Outbox::take(bool events) {
  const std::lock_guard lock(mutex_);
  if (!snapshot_.empty()) {
    Message message{{}, latest_snapshot_, true, true};
    message.pieces.reserve(1);
    bytes_ -= snapshot_.size();
    message.pieces.push_back(std::exchange(snapshot_, {}));
    return message;
  }
  if (flushed_.empty() || !events) {
    return std::nullopt;
  }
  Message message{{}, flushed_sequence_, false, !continues_};
  message.pieces.reserve(1 + flushed_.size());
  message.pieces.push_back(events_header(flushed_bytes_, continues_));
  for (std::string& piece : flushed_) {
    message.pieces.push_back(std::move(piece));
  }
  flushed_.clear();
  events_ = turn_events_;
  bytes_ -= std::exchange(flushed_bytes_, 0);
  return message;
}

std::uint64_t Outbox::latest_snapshot() const noexcept {
  const std::lock_guard lock(mutex_);
  return latest_snapshot_;
}

Outbox::Level Outbox::level() const noexcept {
  const std::lock_guard lock(mutex_);
  return {events_, bytes_, overflows_, state_ != State::kInStep};
}

void Outbox::drop() noexcept {
  std::string().swap(snapshot_);
  std::vector<std::string>().swap(flushed_);
  std::string().swap(turn_);
  events_ = turn_events_ = bytes_ = flushed_bytes_ = 0;
  continues_ = false;
}

void Outbox::want(std::string reason) noexcept {
  drop();
  state_ = State::kWanted;
  reason_ = std::move(reason);
}

void Outbox::append(std::string_view event) {
  const std::size_t before = turn_.size();
  append_event(turn_, event, sequence_);
  bytes_ += turn_.size() - before;
  ++events_;
  ++turn_events_;
}

void Outbox::release() {
  flushed_bytes_ += turn_.size();
  if (!flushed_.empty() && flushed_.back().size() + turn_.size() <= flushed_.back().capacity()) {
    flushed_.back().append(turn_);
    turn_.clear();
  } else {
    turn_.reserve(kPiece);
    flushed_.push_back(std::exchange(turn_, {}));
  }
  turn_events_ = 0;
  flushed_sequence_ = sequence_;
}

}  // namespace longshare::transport
