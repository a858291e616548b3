// Shortens resources of a serialised FromMaster from standard input as the adapter does, bounds the message, and writes the result
// to standard output. Arguments: the largest number of bytes and of parts of a snapshot. Without arguments, the program writes the
// limits of a master.

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

#include "bounds.h"
#include "short_form.h"

namespace {

using longshare::adapter::Size;
using longshare::adapter::bound;
using longshare::adapter::shorten;
using Resources = google::protobuf::RepeatedPtrField<std::string>;

void shorten_all(Resources* resources) {
  for (std::string& resource : *resources) {
    shorten(&resource);
  }
}

void shorten_all(longshare::v1::AddAgent* agent) {
  shorten_all(agent->mutable_total());
  for (auto* allocations : {agent->mutable_used(), agent->mutable_running()}) {
    for (auto& allocation : *allocations) {
      shorten_all(allocation.mutable_resources());
    }
  }
}

void bound_event(longshare::v1::Event* event) {
  if (event->has_add_framework()) {
    bound(event->mutable_add_framework());
  } else if (event->has_update_framework()) {
    bound(event->mutable_update_framework());
  } else if (event->has_add_agent()) {
    shorten_all(event->mutable_add_agent());
    bound(event->mutable_add_agent());
  } else if (event->has_update_agent()) {
    if (event->update_agent().has_total()) {
      shorten_all(event->mutable_update_agent()->mutable_total()->mutable_resources());
    }
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
    for (auto& agent : *message.mutable_snapshot()->mutable_agents()) {
      shorten_all(&agent);
    }
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
