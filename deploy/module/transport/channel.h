// Opens a gRPC channel to the service.

#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "settings.h"

namespace longshare::transport {

// Return a new channel, which shares neither connections nor backoff state with earlier channels. Each call reads the TLS
// files again. Throws std::runtime_error, which names the file, if a TLS file is invalid.
std::shared_ptr<grpc::Channel> open_channel(const Settings& settings);

}  // namespace longshare::transport
