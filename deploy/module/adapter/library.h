// Finds and loads the transport library.

#pragma once

#include <string>

#include "transport.h"

namespace longshare {
namespace adapter {

// Returns the path of the file `name` in the folder of this library. Throws std::runtime_error if the folder is unknown.
std::string beside_this_library(const std::string& name);

// Loads the transport library, which stays loaded. Throws std::runtime_error, which names the file and the problem.
const longshare_transport_api* load_transport(const std::string& path);

}  // namespace adapter
}  // namespace longshare
