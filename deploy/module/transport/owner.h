// Owner: calls the owner's C callbacks with C++ types.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport.h"

namespace longshare::transport {

class Owner {
 public:
  explicit Owner(const longshare_transport_owner& callbacks) : callbacks_(callbacks) {}

  void connected(std::string_view welcome) const {
    callbacks_.connected(callbacks_.context, welcome.data(), welcome.size());
  }

  void snapshot_wanted(const std::string& reason) const {
    callbacks_.snapshot_wanted(callbacks_.context, reason.c_str());
  }

  void decisions(std::uint64_t applied_sequence, std::string_view decisions) const {
    callbacks_.decisions(callbacks_.context, applied_sequence, decisions.data(), decisions.size());
  }

  void disconnected(const std::string& reason) const { callbacks_.disconnected(callbacks_.context, reason.c_str()); }

  void inform(const std::string& text) const {
    callbacks_.log(callbacks_.context, LONGSHARE_TRANSPORT_INFO, text.c_str());
  }

  void warn(const std::string& text) const {
    callbacks_.log(callbacks_.context, LONGSHARE_TRANSPORT_WARNING, text.c_str());
  }

 private:
  longshare_transport_owner callbacks_;
};

}  // namespace longshare::transport
