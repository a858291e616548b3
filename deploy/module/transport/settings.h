// What the owner has set, checked.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport.h"

namespace longshare::transport {

// Bytes of one message. The service's own limit, listen.largest_message, is the same unless it was changed.
constexpr int kLargestMessage = 256 << 20;

struct Settings {
  std::string address;
  std::string authority;  // files; empty: none
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

// Throws std::invalid_argument, which tells of all problems, one per line.
Settings checked(const longshare_transport_settings& given);

// The contents of a PEM file. Throws std::runtime_error, which names the file.
std::string read_pem(const std::string& path, const char* label);

// What PEM calls them.
constexpr const char* kCertificate = "CERTIFICATE";
constexpr const char* kKey = "PRIVATE KEY";

}  // namespace longshare::transport
