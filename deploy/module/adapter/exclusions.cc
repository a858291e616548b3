#include "exclusions.h"

#include <algorithm>
#include <utility>

namespace longshare {
namespace adapter {

void Exclusions::set(const std::string& framework, const std::string& role, const std::string& agent, bool excluded) {
  const auto known = frameworks_.find(framework);
  if (known != frameworks_.end() && known->second.unlisted) {
    return;
  }
  if (!excluded) {
    if (known != frameworks_.end()) {
      const auto agents = known->second.roles.find(role);
      if (agents != known->second.roles.end()) {
        remove(&known->second, agents, agent);
      }
    }
    return;
  }
  Framework& of = frameworks_[framework];
  if (!of.roles[role].insert(agent).second) {
    return;
  }
  ++of.pairs;
  ++total_;
  if (of.pairs > most_) {
    unlist(framework, &of);
  } else if (total_ > most_of_all_) {
    unlist_largest();
  }
}

void Exclusions::forget(const std::string& framework) {
  const auto known = frameworks_.find(framework);
  if (known != frameworks_.end()) {
    total_ -= known->second.pairs;
    frameworks_.erase(known);
  }
}

void Exclusions::forget_agent(const std::string& agent) {
  for (auto& framework : frameworks_) {
    ByRole& roles = framework.second.roles;
    for (auto role = roles.begin(); role != roles.end();) {
      remove(&framework.second, role++, agent);
    }
  }
}

bool Exclusions::unlisted(const std::string& framework) const {
  const auto known = frameworks_.find(framework);
  return known != frameworks_.end() && known->second.unlisted;
}

const Exclusions::ByRole& Exclusions::of(const std::string& framework) const {
  static const ByRole kNone;
  const auto known = frameworks_.find(framework);
  return known == frameworks_.end() ? kNone : known->second.roles;
}

std::vector<std::string> Exclusions::take_unlisted() {
  std::vector<std::string> taken;
  taken.swap(newly_unlisted_);
  taken.erase(std::remove_if(taken.begin(), taken.end(), [this](const std::string& name) { return !unlisted(name); }), taken.end());
  return taken;
}

void Exclusions::remove(Framework* framework, ByRole::iterator role, const std::string& agent) {
  if (role->second.erase(agent) != 0) {
    --framework->pairs;
    --total_;
  }
  if (role->second.empty()) {
    framework->roles.erase(role);
  }
}

void Exclusions::unlist(const std::string& name, Framework* framework) {
  total_ -= framework->pairs;
  framework->pairs = 0;
  framework->roles.clear();
  framework->unlisted = true;
  newly_unlisted_.push_back(name);
}

void Exclusions::unlist_largest() {
  std::map<std::string, std::size_t> pairs;  // by principal
  for (const auto& framework : frameworks_) {
    pairs[framework.second.principal] += framework.second.pairs;
  }
  const auto fewer = [](const std::pair<const std::string, std::size_t>& one, const std::pair<const std::string, std::size_t>& other) {
    return one.second < other.second;
  };
  const std::string principal = std::max_element(pairs.begin(), pairs.end(), fewer)->first;
  auto largest = frameworks_.end();
  for (auto each = frameworks_.begin(); each != frameworks_.end(); ++each) {
    if (each->second.principal == principal && (largest == frameworks_.end() || each->second.pairs > largest->second.pairs)) {
      largest = each;
    }
  }
  unlist(largest->first, &largest->second);
}

}  // namespace adapter
}  // namespace longshare
