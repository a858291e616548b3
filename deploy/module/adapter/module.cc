// Defines the Mesos module that the master loads. The module creates an allocator from the parameters in the modules file.

#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <glog/logging.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/map.h>
#include <mesos/mesos.hpp>
#include <mesos/module/allocator.hpp>
#include <mesos/module/module.hpp>
#include <mesos/quota/quota.hpp>

#include "allocator.hpp"
#include "likeness.h"
#include "parameters.h"

namespace {

// Creates the allocator. On an error, logs the problem and returns null; the master then exits with an error that names the
// module.
mesos::allocator::Allocator* create(const mesos::Parameters& parameters) {
  std::vector<std::pair<std::string, std::string>> given;
  for (const mesos::Parameter& parameter : parameters.parameter()) {
    given.emplace_back(parameter.key(), parameter.value());
  }
  try {
    return new longshare::adapter::LongshareAllocator(longshare::adapter::Parameters(given));
  } catch (const std::exception& error) {
    LOG(ERROR) << "Longshare's allocator module cannot start. Its parameters in the master's modules file:\n" << error.what();
    return nullptr;
  }
}

// Returns the size of a message type in this library and in the master. The functions called here are code of the master's
// library, which uses the master's layout.
template <typename Message>
longshare::adapter::Layout layout() {
  std::size_t masters = Message::default_instance().SpaceUsedLong();
  const google::protobuf::Descriptor* told = Message::descriptor();
  for (int i = 0; i < told->field_count(); ++i) {
    if (told->field(i)->is_map()) {
      masters -= sizeof(google::protobuf::Map<std::string, std::string>);  // protobuf counts the map object twice
    }
  }
  return {told->full_name(), sizeof(Message), masters};
}

// Returns whether the layouts of messages agree. The master has compared version numbers already, but a modified Mesos may
// have other fields under the version number of a release.
bool compatible() {
  const std::string differing = longshare::adapter::unlike(
      {layout<mesos::Attribute>(), layout<mesos::Filters>(), layout<mesos::FrameworkInfo>(), layout<mesos::MachineID>(),
       layout<mesos::Offer::Operation>(), layout<mesos::quota::QuotaInfo>(), layout<mesos::Resource>(), layout<mesos::SlaveInfo>(),
       layout<mesos::Unavailability>()});
  if (!differing.empty()) {
    LOG(ERROR) << differing;
  }
  return differing.empty();
}

}  // namespace

mesos::modules::Module<mesos::allocator::Allocator> org_longshare_Allocator(
    MESOS_MODULE_API_VERSION, MESOS_VERSION, "Longshare", "longshare@example.org", "Offers by long-term fair sharing", compatible, create);
