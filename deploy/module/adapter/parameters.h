// Parameters: the module's parameters in the master's modules file, after validation.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "transport.h"

namespace longshare {
namespace adapter {

class Parameters {
 public:
  // Validates (key, value) pairs. Throws std::invalid_argument, whose text lists all problems, one per line. The transport
  // validates addresses and files.
  explicit Parameters(const std::vector<std::pair<std::string, std::string>>& given);

  // Writes the given parameters into `settings`. The written pointers are valid as long as this object exists.
  void apply(longshare_transport_settings* settings) const;

  // Path of the transport library; empty: the default file in the folder of this library.
  const std::string& transport() const { return transport_; }

  // Whether every call waits for the service's answer. Only Mesos's own tests use this mode, never a cluster.
  bool synchronous() const { return synchronous_; }

  // Longest time, in milliseconds, that an operator's request waits for the service.
  uint64_t answer_timeout() const { return answer_timeout_; }

 private:
  // Parses the value of one parameter and stores the result.
  using Taker = std::function<void(const std::string&)>;

  std::map<std::string, Taker> takers();
  Taker text(std::string* into);
  Taker flag(bool* into);
  Taker duration(uint64_t longshare_transport_settings::* field);
  Taker duration(uint64_t* into);
  Taker count(uint64_t longshare_transport_settings::* field);

  std::string address_;
  std::string transport_;
  std::string authority_;
  std::string certificate_;
  std::string key_;
  bool insecure_ = false;
  bool synchronous_ = false;
  uint64_t answer_timeout_ = 2000;
  std::vector<std::pair<uint64_t longshare_transport_settings::*, uint64_t>> numbers_;
};

// Parses a duration in Mesos's notation, such as 500ms or 1.5secs. Returns milliseconds. Throws std::invalid_argument if
// `text` is not a duration.
uint64_t parse_duration(const std::string& text);

}  // namespace adapter
}  // namespace longshare
