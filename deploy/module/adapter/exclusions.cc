#include "exclusions.h"

#include <algorithm>

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
  if (of.pairs > most_ || total_ > most_of_all_) {
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

void Exclusions::unlist_largest() {
  auto largest = frameworks_.begin();
  for (auto each = frameworks_.begin(); each != frameworks_.end(); ++each) {
    if (each->second.pairs > largest->second.pairs) {
      largest = each;
    }
  }
  total_ -= largest->second.pairs;
  largest->second.pairs = 0;
  largest->second.roles.clear();
  largest->second.unlisted = true;
  newly_unlisted_.push_back(largest->first);
}

}  // namespace adapter
}  // namespace longshare
