#include "bounds.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "fields.h"
#include "short_form.h"

namespace longshare {
namespace adapter {
namespace {

using google::protobuf::RepeatedPtrField;

constexpr std::size_t kLongestField = 16 << 10;  // largest field of an essential description, in bytes
constexpr std::size_t kMostFields = 64 << 10;
constexpr std::size_t kFrame = 16;  // largest size of a tag and a length, in bytes
constexpr std::size_t kNamed = 5;   // IDs in a log line
constexpr std::size_t kShortKind = 1000;  // longest kind of a resource on agents that weigh too much, in bytes
constexpr int kFewReservations = 20;      // reservations of one principal on an agent that are never added up
constexpr int kPrincipal = 8;       // number of the field in mesos.FrameworkInfo

// Weights of the service, in wire.py.
constexpr std::size_t kAgent = 20;
constexpr std::size_t kFramework = 24;
constexpr std::size_t kOpaque = 12;
constexpr std::size_t kBytesOfPart = 16;

std::size_t opaque(std::size_t bytes) { return kOpaque + bytes / kBytesOfPart; }

std::size_t parts(const RepeatedPtrField<std::string>& resources) {
  std::size_t sum = 0;
  for (const std::string& resource : resources) {
    sum += opaque(resource.size());
  }
  return sum;
}

std::size_t parts(const RepeatedPtrField<v1::Allocation>& allocations) {
  std::size_t sum = 0;
  for (const v1::Allocation& allocation : allocations) {
    sum += 2 + parts(allocation.resources());
  }
  return sum;
}

// Returns the largest possible number of parts: apart from one resource, each part takes two bytes.
template <typename Message>
std::size_t most_parts(const RepeatedPtrField<Message>& messages) {
  std::size_t sum = 0;
  for (const Message& message : messages) {
    sum += 1 + kOpaque + message.ByteSizeLong() / 2;
  }
  return sum;
}

Size difference(const Size& one, const Size& other) {
  return Size{one.bytes - std::min(one.bytes, other.bytes), one.parts - std::min(one.parts, other.parts)};
}

Size sum(const Size& one, const Size& other) { return Size{one.bytes + other.bytes, one.parts + other.parts}; }

bool too_large_for_one(const Size& size) { return size.bytes > kMostBytes / kOfOneInBytes || size.parts > kMostParts / kOfOneInParts; }

// Returns a serialised message with some of its fields only.
std::string only(const std::set<int>& numbers, const std::string& message) {
  std::string kept;
  visit_fields(message, [&](const Field& field) {
    if (numbers.count(field.number) != 0 && field.bytes() <= kLongestField && kept.size() + field.bytes() <= kMostFields) {
      kept.append(message, field.begin, field.bytes());
    }
    return true;
  });
  return kept;
}

// Returns the field with the principal in a serialised FrameworkInfo. Mesos serialises fields in the order of their numbers.
std::string principal(const std::string& info) {
  std::string found;
  visit_fields(info, [&](const Field& field) {
    if (field.number == kPrincipal && field.delimited()) {
      found = info.substr(field.begin, field.bytes());
    }
    return field.number < kPrincipal;
  });
  return found;
}

// Returns a mesos.Resource without an amount, which the service rejects by its name (field 1). Field 2 is the type SCALAR.
std::string too_long() {
  const std::string name = "(left out: the agent's description is too long for the master's message)";
  return "\x0a" + std::string(1, static_cast<char>(name.size())) + name + std::string("\x10\x00", 2);
}

template <typename Call>
Size framework_size(const Call& call) {
  Size size{call.ByteSizeLong() + kFrame, kFramework + 2 + kOpaque + static_cast<std::size_t>(call.suppressed_roles_size())};
  for (const v1::ExcludedAgents& agents : call.excluded()) {
    size.parts += 2 + static_cast<std::size_t>(agents.agent_ids_size());
  }
  return size;
}

template <typename Call>
void shorten_framework(Call* call) {
  call->set_info(essential_framework(call->info()));
  call->clear_suppressed_roles();
  call->clear_excluded();
  call->set_excluded_unlisted(true);
}

template <typename Call>
bool bound_framework(Call* call) {
  if (call->info().size() <= kMostDescribed && !too_large_for_one(framework_size(*call))) {
    return false;
  }
  shorten_framework(call);
  return true;
}

bool shorten_all(RepeatedPtrField<std::string>* resources) {
  bool shortened = false;
  for (std::string& resource : *resources) {
    shortened |= shorten(&resource, kShortKind);
  }
  return shortened;
}

bool shorten_all(RepeatedPtrField<v1::Allocation>* allocations) {
  bool shortened = false;
  for (v1::Allocation& allocation : *allocations) {
    shortened |= shorten_all(allocation.mutable_resources());
  }
  return shortened;
}

// Adds up an agent's resources of the principal whose reserved resources have the most parts there. A principal with few
// reservations keeps these, because another tenant could make the agent heavy. Returns whether the agent has fewer resources then.
bool merge_most_reservations(const std::set<std::string>& quotas, v1::AddAgent* agent) {
  std::map<std::string, std::size_t> parts_by_principal;
  std::map<std::string, int> number_by_principal;
  std::string principal;
  for (const std::string& resource : agent->total()) {
    if (reserver(resource, &principal)) {
      parts_by_principal[principal] += opaque(resource.size());
      ++number_by_principal[principal];
    }
  }
  for (const auto& each : number_by_principal) {
    if (each.second <= kFewReservations) {
      parts_by_principal.erase(each.first);
    }
  }
  const std::size_t before = parts(agent->total());
  while (!parts_by_principal.empty()) {
    const auto most = std::max_element(parts_by_principal.begin(), parts_by_principal.end(),
                                       [](const std::pair<const std::string, std::size_t>& one,
                                          const std::pair<const std::string, std::size_t>& other) { return one.second < other.second; });
    RepeatedPtrField<std::string> total = agent->total();
    merge_reservations(most->first, quotas, false, &total);
    if (parts(total) < before) {
      agent->mutable_total()->Swap(&total);
      for (RepeatedPtrField<v1::Allocation>* allocations : {agent->mutable_used(), agent->mutable_running()}) {
        for (v1::Allocation& allocation : *allocations) {
          merge_reservations(most->first, quotas, true, allocation.mutable_resources());
        }
      }
      return true;
    }
    parts_by_principal.erase(most);
  }
  return false;
}

// Shortens a framework or agent. Returns whether it can be shortened further.
bool shorten_member(const std::set<std::string>&, v1::AddFramework* framework) {
  shorten_framework(framework);
  return false;
}

bool shorten_member(const std::set<std::string>& quotas, v1::AddAgent* agent) {
  const bool total = shorten_all(agent->mutable_total());
  const bool used = shorten_all(agent->mutable_used());
  const bool running = shorten_all(agent->mutable_running());
  if (total || used || running || merge_most_reservations(quotas, agent)) {
    return true;
  }
  agent->set_info(essential_agent(agent->info()));
  agent->clear_total();
  agent->clear_used();
  agent->clear_running();
  agent->add_total(too_long());
  return false;
}

bool bound_agent(const std::set<std::string>& quotas, v1::AddAgent* agent) {
  bool shortened = false;
  bool further = true;
  while (further && (agent->info().size() > kMostDescribed || too_large_for_one(size(*agent)))) {
    further = shorten_member(quotas, agent);
    shortened = true;
  }
  return shortened;
}

const std::string& id_of(const v1::AddFramework& framework) { return framework.framework_id(); }
const std::string& id_of(const v1::AddAgent& agent) { return agent.agent_id(); }

// The frameworks or the agents of a snapshot, in groups.
template <typename Member>
class Members {
 public:
  // The set contains the top-level roles with quotas.
  explicit Members(const std::set<std::string>& quotas) : quotas_(quotas) {}

  void add(const std::string& group, Member* member) {
    const Size of_member = size(*member);
    total_ = sum(total_, of_member);
    groups_[group].push_back({of_member, member});
  }

  const Size& total() const { return total_; }

  // Shortens the largest member of the largest group, until all members have at most `most`. Adds the IDs to `shortened`.
  void reduce(const Size& most, std::vector<std::string>* shortened) {
    reduce(&Size::bytes, most.bytes, shortened);
    reduce(&Size::parts, most.parts, shortened);
  }

 private:
  struct Entry {
    Size size;
    Member* member;
  };

  void reduce(std::size_t Size::*measure, std::size_t most, std::vector<std::string>* shortened) {
    std::set<std::pair<std::size_t, std::string>> largest;
    for (auto& group : groups_) {
      std::stable_sort(group.second.begin(), group.second.end(),
                       [measure](const Entry& one, const Entry& other) { return one.size.*measure < other.size.*measure; });
      Size of_group;
      for (const Entry& entry : group.second) {
        of_group = sum(of_group, entry.size);
      }
      largest.insert({of_group.*measure, group.first});
    }
    while (total_.*measure > most && !largest.empty()) {
      const std::pair<std::size_t, std::string> group = *std::prev(largest.end());
      largest.erase(std::prev(largest.end()));
      std::vector<Entry>& entries = groups_[group.second];
      if (entries.empty()) {
        continue;  // all members of the group are shortened
      }
      const Entry entry = entries.back();
      entries.pop_back();
      const bool further = shorten_member(quotas_, entry.member);
      const Size after = size(*entry.member);
      total_ = sum(difference(total_, entry.size), after);
      std::size_t rest = group.first - entry.size.*measure;
      if (further) {  // only an agent, which is alone in its group
        entries.push_back({after, entry.member});
        rest += after.*measure;
      } else {
        shortened->push_back(id_of(*entry.member));
      }
      largest.insert({rest, group.second});
    }
  }

  const std::set<std::string>& quotas_;
  std::map<std::string, std::vector<Entry>> groups_;  // without shortened members
  Size total_;
};

std::set<std::string> roles_with_quotas(const v1::Snapshot& snapshot) {
  std::set<std::string> roles;
  for (const v1::SetQuota& quota : snapshot.quotas()) {
    roles.insert(quota.role());
  }
  for (const v1::UpdateQuota& quota : snapshot.limited_quotas()) {
    roles.insert(quota.role());
  }
  return roles;
}

// Returns the size of a snapshot without its frameworks and agents.
Size rest_size(const v1::Snapshot& snapshot, const Size& members) {
  Size rest{kFrame, 1 + static_cast<std::size_t>(snapshot.inactive_agents_size() + snapshot.whitelist().hostnames_size())};
  rest.bytes += difference(Size{snapshot.ByteSizeLong(), 0}, members).bytes;
  rest.parts += most_parts(snapshot.quotas()) + most_parts(snapshot.limited_quotas()) + most_parts(snapshot.weights());
  for (const v1::InverseOfferState& inverse : snapshot.inverse_offers()) {
    rest.parts += 3 + opaque(inverse.status().size());
  }
  return rest;
}

void append(const std::string& kind, const std::vector<std::string>& ids, std::ostringstream* text) {
  *text << ids.size() << " " << kind;
  for (std::size_t index = 0; index < std::min(ids.size(), kNamed); ++index) {
    *text << (index == 0 ? " (" : ", ") << ids[index];
  }
  *text << (ids.size() > kNamed ? ", …)" : ids.empty() ? "" : ")");
}

}  // namespace

Size size(const v1::AddAgent& agent) {
  return Size{agent.ByteSizeLong() + kFrame, kAgent + 2 + opaque(agent.info().size()) + opaque(agent.unavailability().size()) +
                                                 parts(agent.total()) + parts(agent.used()) + parts(agent.running())};
}

Size size(const v1::AddFramework& framework) { return framework_size(framework); }

std::string essential_framework(const std::string& info) {
  return only({1, 2, 3, 6, kPrincipal, 10, 12}, info);  // user, name, id, role, principal, capabilities, roles
}

std::string essential_agent(const std::string& info) {
  return only({1, 6, 7, 8, 10}, info);  // hostname, id, checkpoint, port, domain
}

bool bound(v1::AddFramework* framework) { return bound_framework(framework); }

bool bound(v1::UpdateFramework* framework) { return bound_framework(framework); }

bool bound(v1::AddAgent* agent) { return bound_agent({}, agent); }

bool bound(v1::UpdateAgent* agent) {
  const auto too_large = [agent]() {
    return agent->info().size() > kMostDescribed || too_large_for_one(Size{agent->ByteSizeLong(), parts(agent->total().resources())});
  };
  if (!too_large()) {
    return false;
  }
  if (agent->has_total() && shorten_all(agent->mutable_total()->mutable_resources()) && !too_large()) {
    return true;
  }
  agent->set_info(essential_agent(agent->info()));
  agent->mutable_total()->clear_resources();
  agent->mutable_total()->add_resources(too_long());
  return true;
}

std::string Shortened::text() const {
  std::ostringstream text;
  append("frameworks", frameworks, &text);
  text << ", ";
  append("agents", agents, &text);
  return text.str();
}

Shortened bound(v1::Snapshot* snapshot, const Size& most) {
  Shortened shortened;
  const std::set<std::string> quotas = roles_with_quotas(*snapshot);
  Members<v1::AddFramework> frameworks(quotas);
  Members<v1::AddAgent> agents(quotas);
  for (v1::AddFramework& framework : *snapshot->mutable_frameworks()) {
    if (bound(&framework)) {
      shortened.frameworks.push_back(framework.framework_id());
    }
    frameworks.add(principal(framework.info()), &framework);
  }
  for (v1::AddAgent& agent : *snapshot->mutable_agents()) {
    if (bound_agent(quotas, &agent)) {
      shortened.agents.push_back(agent.agent_id());
    }
    agents.add(agent.agent_id(), &agent);
  }
  const Size available = difference(most, rest_size(*snapshot, sum(frameworks.total(), agents.total())));
  const Size beside_agents = difference(available, agents.total());
  frameworks.reduce(Size(std::max(available.bytes / 2, beside_agents.bytes), std::max(available.parts / 2, beside_agents.parts)),
                    &shortened.frameworks);
  agents.reduce(difference(available, frameworks.total()), &shortened.agents);
  return shortened;
}

}  // namespace adapter
}  // namespace longshare
