// How long to wait before the next attempt to connect.

#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace longshare::transport {

// Doubles from pause to pause. Each is jittered downwards by up to a half, so that many masters do not come back at the
// same instant.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds last, std::uint_fast32_t seed);

  std::chrono::milliseconds next();
  void reset() { pause_ = first_; }

 private:
  std::chrono::milliseconds first_;
  std::chrono::milliseconds last_;
  std::chrono::milliseconds pause_;
  std::minstd_rand random_;
};

}  // namespace longshare::transport
