// Counters of a transport. The transport's thread writes them, and any thread may read them.

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
  std::atomic<bool> waiting{false};        // this master leads, but the service does not serve it yet
  std::atomic<std::uint64_t> answered{0};  // last sequence number that the service applied on the current stream
};

}  // namespace longshare::transport
