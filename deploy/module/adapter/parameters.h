// What the master's modules file says about the module, checked.

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
  // Throws std::invalid_argument, which tells of all problems, one per line. Whether addresses and files can be used is
  // left to the transport.
  explicit Parameters(const std::vector<std::pair<std::string, std::string>>& given);

  // Overwrites what is given in `settings`. The pointers in it are valid as long as this object.
  void apply(longshare_transport_settings* settings) const;

  // The transport's library; empty: the one beside this library.
  const std::string& transport() const { return transport_; }

  // Every call waits for the service's answer: for Mesos's own tests, never for a cluster.
  bool synchronous() const { return synchronous_; }

  // Milliseconds that an operator waits for the service at most.
  uint64_t answer_timeout() const { return answer_timeout_; }

 private:
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

// Milliseconds of a duration as Mesos writes it, such as 500ms or 1.5secs. Throws std::invalid_argument.
uint64_t parse_duration(const std::string& text);

}  // namespace adapter
}  // namespace longshare
