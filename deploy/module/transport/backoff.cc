#include "backoff.h"

#include <algorithm>

namespace longshare::transport {

Backoff::Backoff(std::chrono::milliseconds first, std::chrono::milliseconds last, std::uint_fast32_t seed)
    : first_(first), last_(last), pause_(first), random_(seed) {}

std::chrono::milliseconds Backoff::next() {
  std::uniform_int_distribution<std::chrono::milliseconds::rep> jittered((pause_.count() + 1) / 2, pause_.count());
  const std::chrono::milliseconds pause(jittered(random_));
  pause_ = std::min(2 * pause_, last_);
  return pause;
}

}  // namespace longshare::transport
