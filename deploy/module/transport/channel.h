// Opens the way to the service.

#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "settings.h"

namespace longshare::transport {

// A new channel, which shares nothing with former ones: neither a connection nor the memory of failures. TLS files are read
// anew. Throws std::runtime_error, which names the file that cannot be used.
std::shared_ptr<grpc::Channel> open_channel(const Settings& settings);

}  // namespace longshare::transport
