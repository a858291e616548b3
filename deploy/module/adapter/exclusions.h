// Which agents frameworks exclude by offer constraints, within bounds.

#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace longshare {
namespace adapter {

// Pairs of a role and an agent that one framework may exclude, and all frameworks together. A pair takes about 100 bytes of
// the master's memory and 50 of its messages. The service has limits of its own: limits.exclusions, limits.all_exclusions.
constexpr std::size_t kMostExclusions = 250000;
constexpr std::size_t kMostExclusionsOfAll = 2000000;

// Excluded agents by framework and role. A framework with too many pairs is unlisted: its pairs are dropped, and it must get
// no offers until `reset` or `forget`. If all frameworks have too many pairs together, the one with the most is unlisted.
class Exclusions {
 public:
  using ByRole = std::map<std::string, std::set<std::string>>;  // role, ids of agents

  Exclusions(std::size_t most, std::size_t most_of_all) : most_(most), most_of_all_(most_of_all) {}

  // Adds or removes a pair. Ignored for an unlisted framework.
  void set(const std::string& framework, const std::string& role, const std::string& agent, bool excluded);

  // Forgets all about a framework.
  void forget(const std::string& framework);
  void forget_agent(const std::string& agent);

  bool unlisted(const std::string& framework) const;
  const ByRole& of(const std::string& framework) const;
  std::size_t pairs() const { return total_; }

  // The listed frameworks with an agent's pairs, as they are visited: visit(framework, role).
  template <typename Visit>
  void visit_agent(const std::string& agent, Visit visit) const {
    for (const auto& framework : frameworks_) {
      for (const auto& role : framework.second.roles) {
        if (role.second.count(agent) != 0) {
          visit(framework.first, role.first);
        }
      }
    }
  }

  // The frameworks that have been unlisted since the last call, and still are.
  std::vector<std::string> take_unlisted();

 private:
  struct Framework {
    ByRole roles;
    std::size_t pairs = 0;
    bool unlisted = false;
  };

  void remove(Framework* framework, ByRole::iterator role, const std::string& agent);
  void unlist_largest();

  const std::size_t most_;
  const std::size_t most_of_all_;
  std::size_t total_ = 0;
  std::map<std::string, Framework> frameworks_;
  std::vector<std::string> newly_unlisted_;
};

}  // namespace adapter
}  // namespace longshare
