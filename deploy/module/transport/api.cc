// Implements the C interface with a Session. No exception crosses the interface.

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "owner.h"
#include "session.h"
#include "settings.h"
#include "transport.h"

struct longshare_transport {
  longshare::transport::Session session;
};

namespace {

std::string_view view(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

void write_error(const char* what, char* error, size_t error_size) {
  if (error_size == 0) {
    return;
  }
  const size_t length = std::min(std::strlen(what), error_size - 1);
  std::memcpy(error, what, length);
  error[length] = '\0';
}

void defaults(longshare_transport_settings* settings) { *settings = longshare::transport::default_settings(); }

longshare_transport* create(const longshare_transport_settings* settings, char* error, size_t error_size) {
  try {
    return new longshare_transport{longshare::transport::Session(longshare::transport::checked(*settings))};
  } catch (const std::exception& problem) {
    write_error(problem.what(), error, error_size);
    return nullptr;
  }
}

int start(longshare_transport* transport, const longshare_transport_owner* owner, const void* hello, size_t size) {
  try {
    transport->session.start(longshare::transport::Owner(*owner), std::string(view(hello, size)));
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

uint64_t push(longshare_transport* transport, const void* event, size_t size) {
  return transport->session.push(view(event, size));
}

void flush(longshare_transport* transport) { transport->session.flush(); }

uint64_t snapshot(longshare_transport* transport, const void* bytes, size_t size) {
  return transport->session.put_snapshot(view(bytes, size));
}

void statistics(const longshare_transport* transport, longshare_transport_statistics* into) {
  *into = transport->session.statistics();
}

void destroy(longshare_transport* transport) { delete transport; }

constexpr longshare_transport_api kApi = {
    LONGSHARE_TRANSPORT_VERSION, defaults, create, start, push, flush, snapshot, statistics, destroy,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const longshare_transport_api* longshare_transport_interface(void) {
  return &kApi;
}
