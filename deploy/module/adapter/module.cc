// What the master finds in this library: an allocator, made from the parameters in its modules file.

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

// Null makes the master end with an error that names the module; what is wrong is said before.
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

// Answered by code in the master's library, which knows the messages that it was compiled with.
template <typename Message>
longshare::adapter::Layout layout() {
  std::size_t masters = Message::default_instance().SpaceUsedLong();
  const google::protobuf::Descriptor* told = Message::descriptor();
  for (int i = 0; i < told->field_count(); ++i) {
    if (told->field(i)->is_map()) {
      masters -= sizeof(google::protobuf::Map<std::string, std::string>);  // protobuf counts what is within the message once more
    }
  }
  return {told->full_name(), sizeof(Message), masters};
}

// The master has compared the version already; who goes on from a release may have kept it and added to messages.
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
