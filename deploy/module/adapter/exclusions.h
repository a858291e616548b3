// Exclusions: bounded record of the agents that frameworks exclude by their offer constraints.

#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace longshare {
namespace adapter {

// Largest number of excluded (role, agent) pairs of one framework, and of all frameworks together. A pair takes about 100
// bytes of the master's memory and 50 bytes in messages. The service's own limits are the settings limits.exclusions and
// limits.all_exclusions.
constexpr std::size_t kMostExclusions = 250000;
constexpr std::size_t kMostExclusionsOfAll = 2000000;

// Excluded agents by framework and role. A framework with too many pairs becomes unlisted: its pairs are dropped, and the
// framework must get no offers until `forget`. If all frameworks together have too many pairs, the principal with the most
// pairs loses its framework with the most pairs, which becomes unlisted. So a principal with many frameworks does not displace
// a framework of another principal. The service has the same rule.
class Exclusions {
 public:
  using ByRole = std::map<std::string, std::set<std::string>>;  // role, IDs of agents

  Exclusions(std::size_t most, std::size_t most_of_all) : most_(most), most_of_all_(most_of_all) {}

  // Adds (`excluded`) or removes the pair of `role` and `agent`. Has no effect for an unlisted framework.
  void set(const std::string& framework, const std::string& role, const std::string& agent, bool excluded);

  // Records the principal of a framework. All frameworks without a principal count as frameworks of one principal.
  void set_principal(const std::string& framework, const std::string& principal) { frameworks_[framework].principal = principal; }

  // Removes a framework's pairs, its principal and its unlisted state.
  void forget(const std::string& framework);

  // Removes the pairs of an agent.
  void forget_agent(const std::string& agent);

  // Returns whether a framework has too many pairs to be listed.
  bool unlisted(const std::string& framework) const;

  // Returns a framework's excluded agents by role.
  const ByRole& of(const std::string& framework) const;

  // Returns the number of pairs of all frameworks.
  std::size_t pairs() const { return total_; }

  // Calls visit(framework, role) for each pair that contains `agent`.
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

  // Returns the frameworks that became unlisted since the last call and are still unlisted.
  std::vector<std::string> take_unlisted();

 private:
  struct Framework {
    std::string principal;
    ByRole roles;
    std::size_t pairs = 0;
    bool unlisted = false;
  };

  void remove(Framework* framework, ByRole::iterator role, const std::string& agent);
  void unlist(const std::string& name, Framework* framework);
  // Unlists the framework with the most pairs, among the frameworks of the principal with the most pairs.
  void unlist_largest();

  const std::size_t most_;
  const std::size_t most_of_all_;
  std::size_t total_ = 0;
  std::map<std::string, Framework> frameworks_;
  std::vector<std::string> newly_unlisted_;
};

}  // namespace adapter
}  // namespace longshare
