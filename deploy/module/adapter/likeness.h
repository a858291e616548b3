// Compares the memory layout of messages in the master with the layout in this library.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longshare {
namespace adapter {

// The size in bytes of one message type, in this library (`ours`) and in the master (`masters`).
struct Layout {
  std::string message;
  std::size_t ours;
  std::size_t masters;
};

// Returns an error text that lists the different sizes and the remedy, or an empty text if all sizes are equal.
std::string unlike(const std::vector<Layout>& layouts);

}  // namespace adapter
}  // namespace longshare
