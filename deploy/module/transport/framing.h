// Wraps serialised messages into FromMaster and unwraps ToMaster, without parsing the inner messages completely.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace longshare::transport {

// Return a serialised FromMaster that contains `message`, a serialised Hello or a serialised Snapshot without number.
std::string hello(std::string_view message);
std::string snapshot(std::string_view message, std::uint64_t sequence);

// Return the beginning of a FromMaster that contains `size` bytes of Events fields from `append_event`, which follow. `more`:
// the next message continues this one.
std::string events_header(std::size_t size, bool more);

// Add the sequence number to a serialised Event, and append the Event to the serialised fields of an Events message.
void append_event(std::string& fields, std::string_view event, std::uint64_t sequence);

// The contents of a ToMaster. `message` is a view into the parsed bytes.
struct Answer {
  enum class Kind { kWelcome, kDecisions, kSnapshotRequest };

  Kind kind;
  std::string_view message;
  std::uint64_t applied_sequence = 0;  // Decisions: number of the last event that the service applied
  std::string reason;                  // SnapshotRequest: its reason; Decisions: why the service does not serve this master
  bool more = false;                   // Decisions: the service sends more decisions with the same `applied_sequence`
  bool elected = false;                // SnapshotRequest: the reason is that this master was elected
};

// Parse a serialised ToMaster. Throws std::runtime_error if the bytes are not a ToMaster of the contract.
Answer parse_answer(std::string_view bytes);

}  // namespace longshare::transport
