#include "channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <string>

namespace longshare::transport {
namespace {

std::shared_ptr<grpc::ChannelCredentials> credentials(const Settings& settings) {
  if (settings.authority.empty()) {
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = read_pem(settings.authority, kCertificate);
  if (!settings.certificate.empty()) {
    options.pem_cert_chain = read_pem(settings.certificate, kCertificate);
    options.pem_private_key = read_pem(settings.key, kKey);
  }
  return grpc::SslCredentials(options);
}

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const Settings& settings) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kLargestMessage);
  arguments.SetMaxSendMessageSize(kLargestMessage);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(settings.keepalive_time.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(settings.keepalive_timeout.count()));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit: a master may be silent for long
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // the master's proxy setting concerns downloads of tasks only
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);     // unnecessary, because a new stream begins with a new snapshot
  // The explicit scheme keeps gRPC from reading a host name as a scheme.
  const bool local = settings.address.compare(0, 5, "unix:") == 0;
  const std::string target = local ? settings.address : "dns:///" + settings.address;
  return grpc::CreateCustomChannel(target, credentials(settings), arguments);
}

}  // namespace longshare::transport
