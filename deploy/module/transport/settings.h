// Settings: the owner's settings after validation.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport.h"

namespace longshare::transport {

// Largest size of one message in bytes, equal to the default of the service's setting listen.largest_message.
constexpr int kLargestMessage = 256 << 20;

struct Settings {
  std::string address;
  std::string authority;  // paths of PEM files; empty: no file
  std::string certificate;
  std::string key;
  std::chrono::milliseconds connect_timeout;
  std::chrono::milliseconds first_retry;
  std::chrono::milliseconds last_retry;
  std::chrono::milliseconds keepalive_time;
  std::chrono::milliseconds keepalive_timeout;
  std::uint64_t queue_events;
  std::uint64_t queue_bytes;
};

longshare_transport_settings default_settings();

// Validate and convert the settings. Throws std::invalid_argument, whose text lists all problems, one per line.
Settings checked(const longshare_transport_settings& given);

// Return the contents of a PEM file. Throws std::runtime_error, which names the file, if the file cannot be read or has no
// block with `label`.
std::string read_pem(const std::string& path, const char* label);

// Labels of PEM blocks.
constexpr const char* kCertificate = "CERTIFICATE";
constexpr const char* kKey = "PRIVATE KEY";

}  // namespace longshare::transport
