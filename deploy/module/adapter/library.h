// Finds and loads the transport's library.

#pragma once

#include <string>

#include "transport.h"

namespace longshare {
namespace adapter {

// The file of that name in the folder of the library that this code is in. Throws std::runtime_error.
std::string beside_this_library(const std::string& name);

// Loads a transport, which stays loaded. Throws std::runtime_error, which names the file and says what is wrong.
const longshare_transport_api* load_transport(const std::string& path);

}  // namespace adapter
}  // namespace longshare
