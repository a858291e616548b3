// Puts opaque messages into those of the contract and takes them out, without looking inside.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace longshare::transport {

// FromMaster, around what follows; its `Hello` and `Snapshot` are as the owner made them.
std::string hello(std::string_view message);
std::string snapshot(std::string_view message, std::uint64_t sequence);

// What precedes `size` bytes of `append_event` to make a FromMaster of them.
std::string events_header(std::size_t size);

// Appends an Event to the fields of Events, and its number to the Event.
void append_event(std::string& fields, std::string_view event, std::uint64_t sequence);

// What a ToMaster contains; a view of its bytes.
struct Answer {
  enum class Kind { kWelcome, kDecisions, kSnapshotRequest };

  Kind kind;
  std::string_view message;
  std::uint64_t applied_sequence = 0;  // of Decisions
  std::string reason;                  // of a SnapshotRequest; of Decisions, why this master is not served
  bool elected = false;                // of a SnapshotRequest: because this master leads now
};

// Throws std::runtime_error if these are no bytes of a ToMaster that the contract knows.
Answer parse_answer(std::string_view bytes);

}  // namespace longshare::transport
