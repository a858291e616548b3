// Whether the master's messages are laid out like those that this library was compiled with.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longshare {
namespace adapter {

// The size of one type of message: as compiled into this library, and as the master tells it.
struct Layout {
  std::string message;
  std::size_t ours;
  std::size_t masters;
};

// What differs and what to do about it; empty if nothing does.
std::string unlike(const std::vector<Layout>& layouts);

}  // namespace adapter
}  // namespace longshare
