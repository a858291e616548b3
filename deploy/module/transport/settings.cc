#include "settings.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace longshare::transport {
namespace {

constexpr const char* kUnix = "unix:";
constexpr std::uint64_t kDay = 86'400'000;
// Smallest keepalive_time in milliseconds. Services before 1.1 treat more frequent pings as an attack and close the connection.
constexpr std::uint64_t kFewestKeepalive = 5'000;

bool starts_with(const std::string& text, const std::string& with) { return text.compare(0, with.size(), with) == 0; }

bool is_port(const std::string& text) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (text.empty() || text.size() > 5 || !std::all_of(text.begin(), text.end(), digit)) {
    return false;
  }
  const int port = std::stoi(text);
  return 0 < port && port < 65536;
}

bool is_host(const std::string& text) {
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    const auto of_ipv6 = [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; };
    return std::all_of(text.begin() + 1, text.end() - 1, of_ipv6);
  }
  const auto of_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), of_name);
}

bool is_loopback(const std::string& host) {
  const bool in_127 =
      starts_with(host, "127.") && std::all_of(host.begin(), host.end(), [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; });
  return host == "localhost" || host == "[::1]" || in_127;
}

// Return whether an address is on this machine. Throws std::invalid_argument if the text is not an address.
bool is_local(const std::string& address) {
  if (starts_with(address, kUnix)) {
    const std::string path = address.substr(std::string(kUnix).size());
    if (!starts_with(path, "///") || path.size() == 3) {
      throw std::invalid_argument("'" + address + "': write the absolute path, as in unix:///run/longshare.sock");
    }
    if (path.size() - 2 > 107) {
      throw std::invalid_argument("'" + address + "': the path is longer than the 107 bytes that a socket's may have");
    }
    return true;
  }
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || !is_host(address.substr(0, colon)) || !is_port(address.substr(colon + 1))) {
    throw std::invalid_argument("'" + address + "' is neither HOST:PORT nor unix:///PATH");
  }
  return is_loopback(address.substr(0, colon));
}

class Problems {
 public:
  void add(const std::string& setting, const std::string& what) {
    text_ += (text_.empty() ? "" : "\n") + setting + ": " + what;
  }

  void unless_within(const char* setting, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (value < least || value > most) {
      add(setting, std::to_string(value) + " is not between " + std::to_string(least) + " and " + std::to_string(most));
    }
  }

  void throw_if_any() const {
    if (!text_.empty()) {
      throw std::invalid_argument(text_);
    }
  }

 private:
  std::string text_;
};

std::string text_of(const char* given) { return given == nullptr ? "" : given; }

void check_address(const longshare_transport_settings& given, Problems& problems) {
  try {
    if (!is_local(text_of(given.address)) && text_of(given.authority).empty() && given.insecure == 0) {
      problems.add("address", "'" + text_of(given.address) +
                                  "' is another machine, to which nothing goes without TLS; give the authority that has "
                                  "signed its certificate, or say insecure");
    }
  } catch (const std::invalid_argument& error) {
    problems.add("address", error.what());
  }
}

void check_file(const char* setting, const std::string& path, const char* label, Problems& problems) {
  try {
    if (!path.empty()) {
      read_pem(path, label);
    }
  } catch (const std::runtime_error& error) {
    problems.add(setting, error.what());
  }
}

void check_files(const Settings& settings, Problems& problems) {
  if (settings.certificate.empty() != settings.key.empty()) {
    problems.add(settings.key.empty() ? "key" : "certificate", "is missing; a certificate and its key go together");
  }
  if (settings.authority.empty() && !(settings.certificate.empty() && settings.key.empty())) {
    problems.add("authority", "is missing; a certificate is of use only with the authority of the service's");
  }
  check_file("authority", settings.authority, kCertificate, problems);
  check_file("certificate", settings.certificate, kCertificate, problems);
  check_file("key", settings.key, kKey, problems);
}

}  // namespace

longshare_transport_settings default_settings() {
  longshare_transport_settings settings{};
  settings.connect_timeout = 5'000;
  settings.first_retry = 50;
  settings.last_retry = 2'000;
  settings.keepalive_time = 10'000;
  settings.keepalive_timeout = 5'000;
  settings.queue_events = 1'000'000;
  settings.queue_bytes = 64 << 20;
  return settings;
}

Settings checked(const longshare_transport_settings& given) {
  Problems problems;
  check_address(given, problems);
  problems.unless_within("connect_timeout", given.connect_timeout, 1, kDay);
  problems.unless_within("first_retry", given.first_retry, 1, kDay);
  problems.unless_within("last_retry", given.last_retry, given.first_retry, kDay);
  problems.unless_within("keepalive_time", given.keepalive_time, kFewestKeepalive, kDay);
  problems.unless_within("keepalive_timeout", given.keepalive_timeout, 1, kDay);
  problems.unless_within("queue_events", given.queue_events, 1, 1'000'000'000);
  problems.unless_within("queue_bytes", given.queue_bytes, 1, kLargestMessage / 2);
  Settings settings{
      text_of(given.address),
      text_of(given.authority),
      text_of(given.certificate),
      text_of(given.key),
      std::chrono::milliseconds(given.connect_timeout),
      std::chrono::milliseconds(given.first_retry),
      std::chrono::milliseconds(given.last_retry),
      std::chrono::milliseconds(given.keepalive_time),
      std::chrono::milliseconds(given.keepalive_timeout),
      given.queue_events,
      given.queue_bytes,
  };
  check_files(settings, problems);
  problems.throw_if_any();
  return settings;
}

std::string read_pem(const std::string& path, const char* label) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string contents{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad() || (contents.empty() && errno != 0)) {
    throw std::runtime_error(path + ": " + std::generic_category().message(errno));
  }
  // The label of a key may begin with a type, as in EC PRIVATE KEY.
  const auto begin = contents.find("-----BEGIN ");
  if (begin == std::string::npos || contents.find(std::string(label) + "-----", begin) == std::string::npos) {
    throw std::runtime_error(path + ": there is no PEM block '" + label + "' in this file");
  }
  return contents;
}

}  // namespace longshare::transport
