// Backoff: computes the pause before the next attempt to connect.

#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace longshare::transport {

// Exponential backoff from `first` to `last`. Jitter shortens each pause by at most half, so that many masters do not
// reconnect at the same instant.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds last, std::uint_fast32_t seed);

  // Return the next pause, and double the following one.
  std::chrono::milliseconds next();

  // Start again with the first pause.
  void reset() { pause_ = first_; }

 private:
  std::chrono::milliseconds first_;
  std::chrono::milliseconds last_;
  std::chrono::milliseconds pause_;
  std::minstd_rand random_;
};

}  // namespace longshare::transport
