#include "stream.h"

#include <grpcpp/support/slice.h>

#include <exception>
#include <utility>
#include <vector>

#include "channel.h"

namespace longshare::transport {
namespace {

constexpr const char* kMethod = "/longshare.v1.Allocator/Session";
// Maximum number of unanswered turns. A call of a framework waits for this number of allocations at most.
constexpr std::size_t kMostUnansweredTurns = 4;

grpc::Slice slice_of(std::string&& bytes) {
  auto* kept = new std::string(std::move(bytes));
  return {kept->data(), kept->size(), [](void* given) { delete static_cast<std::string*>(given); }, kept};
}

grpc::ByteBuffer buffer_of(std::vector<std::string>&& pieces) {
  std::vector<grpc::Slice> slices;
  slices.reserve(pieces.size());
  for (std::string& piece : pieces) {
    slices.push_back(slice_of(std::move(piece)));
  }
  return {slices.data(), slices.size()};
}

const char* name_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
      return "UNAVAILABLE";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case grpc::StatusCode::CANCELLED:
      return "CANCELLED";
    case grpc::StatusCode::INTERNAL:
      return "INTERNAL";
    default:
      return "an error without words";
  }
}

}  // namespace

Stream::~Stream() {
  in_.counters.connected = 0;
  in_.counters.unanswered = 0;
}

void* Stream::tag(Event event) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(event)); }

std::string Stream::run() {
  try {
    begin();
  } catch (const std::exception& error) {
    reason_ = error.what();
    finished_ = true;
  }
  void* tag = nullptr;
  bool ok = false;
  while (!finished_ && queue_.Next(&tag, &ok)) {
    try {
      handle(static_cast<Event>(reinterpret_cast<std::intptr_t>(tag)), ok);
    } catch (const std::exception& error) {
      give_up(error.what());
    } catch (...) {
      give_up("a callback failed");
    }
  }
  in_.waker.detach();
  patience_.Cancel();
  queue_.Shutdown();
  while (queue_.Next(&tag, &ok)) {
  }
  return why();
}

void Stream::begin() {
  grpc::GenericStub stub(open_channel(in_.settings));
  call_ = stub.PrepareCall(&context_, kMethod, &queue_);
  in_.waker.attach(&queue_, tag(kWoken));
  in_.waker.ring();  // handles a stop that was requested before `attach`
  patience_.Set(&queue_, std::chrono::system_clock::now() + in_.settings.connect_timeout, tag(kPatienceLost));
  call_->StartCall(tag(kStarted));
}

void Stream::handle(Event event, bool ok) {
  switch (event) {
    case kStarted:
      return on_started(ok);
    case kRead:
      return on_read(ok);
    case kWritten:
      writing_ = false;
      return ok ? pump() : void();  // after a failed write, the pending read fails too
    case kWoken:
      in_.waker.heard();
      return in_.stopping ? give_up("stopping") : pump();
    case kPatienceLost:
      if (ok && !welcomed_) {
        give_up("no answer within " + std::to_string(in_.settings.connect_timeout.count()) + " ms");
      }
      return;
    case kFinished:
      finished_ = true;
  }
}

void Stream::on_started(bool ok) {
  started_ = true;
  if (!ok || !reason_.empty()) {
    return finish();
  }
  read();
  write(buffer_of({hello(in_.hello)}));
}

void Stream::on_read(bool ok) {
  reading_ = false;
  if (!ok || !reason_.empty()) {  // an answer that arrives after `give_up` is ignored
    return finish();
  }
  grpc::Slice bytes;
  if (!incoming_.DumpToSingleSlice(&bytes).ok()) {
    return give_up("out of memory");
  }
  incoming_.Clear();
  hear({reinterpret_cast<const char*>(bytes.begin()), bytes.size()});
  if (reason_.empty()) {
    read();
  }
}

void Stream::hear(std::string_view bytes) {
  const Answer answer = parse_answer(bytes);
  if (welcomed_ == (answer.kind == Answer::Kind::kWelcome)) {
    return give_up(welcomed_ ? "the allocator said Welcome twice" : "the allocator did not begin with Welcome");
  }
  switch (answer.kind) {
    case Answer::Kind::kWelcome:
      return on_welcome(answer.message);
    case Answer::Kind::kDecisions:
      return on_decisions(answer);
    case Answer::Kind::kSnapshotRequest:
      if (answer.elected) {
        in_.owner.inform("the allocator serves this master now: " + answer.reason);
      } else {
        in_.owner.warn("the allocator asks for a snapshot: " + answer.reason);
      }
      in_.outbox.want_snapshot(answer.reason);
      return pump();
  }
}

void Stream::on_welcome(std::string_view welcome) {
  welcomed_ = true;
  patience_.Cancel();
  in_.counters.answered = 0;
  in_.counters.waiting = false;
  in_.counters.connected = 1;
  ++in_.counters.sessions;
  in_.owner.connected(welcome);
  in_.outbox.open();
  pump();
}

void Stream::on_decisions(const Answer& answer) {
  if (answer.more) {  // a slice, which answers no message yet
    if (answer.applied_sequence >= in_.outbox.latest_snapshot()) {
      in_.owner.decisions(answer.applied_sequence, answer.message);
    }
    return;
  }
  while (!unanswered_.empty() && unanswered_.front().last_sequence <= answer.applied_sequence) {
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - unanswered_.front().at);
    in_.counters.round_trip_ns = static_cast<std::uint64_t>(took.count());
    unanswered_turns_ -= unanswered_.front().ends_turn;
    unanswered_.pop_front();
  }
  in_.counters.unanswered = unanswered_.size();
  in_.counters.answered = answer.applied_sequence;
  const bool waiting = !answer.reason.empty();
  if (!in_.counters.waiting.exchange(waiting) && waiting) {
    in_.owner.inform("the allocator does not serve this master yet: " + answer.reason);
  }
  if (answer.applied_sequence >= in_.outbox.latest_snapshot()) {
    served_ = true;
    in_.owner.decisions(answer.applied_sequence, answer.message);
  }
  pump();
}

void Stream::read() {
  reading_ = true;
  call_->Read(&incoming_, tag(kRead));
}

// Requests a snapshot only if no write is in progress, so that the snapshot is sent at once and at most one exists.
void Stream::pump() {
  while (welcomed_ && !writing_ && reason_.empty()) {
    if (std::optional<Message> message = in_.outbox.take(unanswered_turns_ < kMostUnansweredTurns)) {
      send(std::move(*message));
    } else if (const std::optional<std::string> reason = in_.outbox.ask()) {
      in_.owner.snapshot_wanted(*reason);
    } else {
      return;
    }
  }
}

void Stream::send(Message message) {
  if (message.is_snapshot && snapshots_++ > 0) {
    ++in_.counters.resyncs;
  }
  ++in_.counters.messages_sent;
  unanswered_.push_back({message.last_sequence, Clock::now(), message.ends_turn});
  unanswered_turns_ += message.ends_turn;
  in_.counters.unanswered = unanswered_.size();
  write(buffer_of(std::move(message.pieces)));
}

void Stream::write(const grpc::ByteBuffer& message) {
  writing_ = true;
  call_->Write(message, tag(kWritten));
}

void Stream::give_up(const std::string& reason) {
  if (reason_.empty()) {
    reason_ = reason;
  }
  context_.TryCancel();
  if (started_ && !reading_) {
    finish();
  }
}

void Stream::finish() {
  if (!finishing_) {
    finishing_ = true;
    call_->Finish(&status_, tag(kFinished));
  }
}

std::string Stream::why() const {
  if (!reason_.empty()) {
    return reason_;
  }
  if (status_.ok()) {
    return "the allocator closed the stream";
  }
  return status_.error_message().empty() ? name_of(status_.error_code()) : status_.error_message();
}

}  // namespace longshare::transport
