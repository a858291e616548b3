// Bounds a serialised FromMaster from standard input as the adapter does, and writes the result to standard output. Arguments:
// the largest number of bytes and of parts of a snapshot. Without arguments, the program writes the limits of a master.

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

#include "bounds.h"

namespace {

using longshare::adapter::Size;
using longshare::adapter::bound;

void bound_event(longshare::v1::Event* event) {
  if (event->has_add_framework()) {
    bound(event->mutable_add_framework());
  } else if (event->has_update_framework()) {
    bound(event->mutable_update_framework());
  } else if (event->has_add_agent()) {
    bound(event->mutable_add_agent());
  } else if (event->has_update_agent()) {
    bound(event->mutable_update_agent());
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::cout << longshare::adapter::kMostBytes << " " << longshare::adapter::kMostParts << " " << longshare::adapter::kMostDescribed
              << " " << longshare::adapter::kMostOfEvent << "\n";
    return 0;
  }
  longshare::v1::FromMaster message;
  const std::string given{std::istreambuf_iterator<char>(std::cin), {}};
  if (!message.ParseFromString(given)) {
    return 1;
  }
  if (message.has_snapshot()) {
    const Size most(std::strtoull(arguments[1], nullptr, 10), std::strtoull(arguments[2], nullptr, 10));
    std::cerr << bound(message.mutable_snapshot(), most).text();
  } else {
    for (auto& event : *message.mutable_events()->mutable_events()) {
      bound_event(&event);
    }
  }
  std::cout << message.SerializeAsString();
  return 0;
}
