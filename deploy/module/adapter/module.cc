// What the master finds in this library: an allocator, made from the parameters in its modules file.

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <glog/logging.h>
#include <mesos/mesos.hpp>
#include <mesos/module/allocator.hpp>
#include <mesos/module/module.hpp>

#include "allocator.hpp"
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

}  // namespace

mesos::modules::Module<mesos::allocator::Allocator> org_longshare_Allocator(
    MESOS_MODULE_API_VERSION, MESOS_VERSION, "Longshare", "longshare@example.org", "Offers by long-term fair sharing", nullptr, create);
