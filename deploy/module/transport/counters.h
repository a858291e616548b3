// What a transport counts; written by its thread, read by any.

#pragma once

#include <atomic>
#include <cstdint>

namespace longshare::transport {

struct Counters {
  std::atomic<std::uint64_t> connected{0};
  std::atomic<std::uint64_t> sessions{0};
  std::atomic<std::uint64_t> resyncs{0};
  std::atomic<std::uint64_t> messages_sent{0};
  std::atomic<std::uint64_t> unanswered{0};
  std::atomic<std::uint64_t> round_trip_ns{0};
  std::atomic<bool> waiting{false};        // the service serves another master, though this one says it leads
  std::atomic<std::uint64_t> answered{0};  // sequence number up to which the service has, on the present stream
};

}  // namespace longshare::transport
