#include "library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace longshare {
namespace adapter {

std::string beside_this_library(const std::string& name) {
  static const char here = 0;
  Dl_info info;
  if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) {
    throw std::runtime_error("cannot tell where this library is; give the parameter 'transport'");
  }
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/" + name;
}

const longshare_transport_api* load_transport(const std::string& path) {
  // libmesos may export symbols of its own gRPC. DEEPBIND makes the transport use the transport's gRPC.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == nullptr) {
    const char* why = dlerror();
    throw std::runtime_error("cannot load the transport: " + std::string(why == nullptr ? path : why));
  }
  using Interface = const longshare_transport_api* (*)();
  const Interface interface = reinterpret_cast<Interface>(dlsym(library, LONGSHARE_TRANSPORT_SYMBOL));
  if (interface == nullptr) {
    throw std::runtime_error(path + " is not Longshare's transport");
  }
  const longshare_transport_api* api = interface();
  if (api->version != LONGSHARE_TRANSPORT_VERSION) {
    throw std::runtime_error(path + " has version " + std::to_string(api->version) + " of the transport's interface, this module needs " +
                             std::to_string(LONGSHARE_TRANSPORT_VERSION) + "; install both libraries from one build");
  }
  return api;
}

}  // namespace adapter
}  // namespace longshare
