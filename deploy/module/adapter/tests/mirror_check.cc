// Compares the mirror with a plain model in random sequences of calls.
//
//     adapter_mirror_check SEED STEPS
//
// The mirror keeps parsed offers, free resources and sums. The model keeps nothing: it computes each value from the total and
// the used resources of an agent. Both must give the same verdicts, released resources, used resources and sums. The calls include
// masters that contradict themselves: resources used twice, more used than an agent has, and recoveries of unknown resources.
//
// The program prints the number of calls of each kind, and exits with 1 at the first difference.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <mesos/mesos.hpp>
#include <mesos/resources.hpp>
#include <mesos/type_utils.hpp>
#include <stout/stringify.hpp>

#include "../encode.hpp"
#include "../mirror.hpp"

namespace {

using longshare::adapter::Agent;
using longshare::adapter::Bytes;
using longshare::adapter::Mirror;
using longshare::adapter::Used;
using mesos::FrameworkID;
using mesos::Resource;
using mesos::ResourceConversion;
using mesos::Resources;
using mesos::SlaveID;

constexpr int kAgents = 3;
constexpr int kFrameworks = 3;
const char* const kRoles[] = {"a", "b"};

struct Held {
  Resources total;
  Used used;

  Resources available() const {
    Resources allocated;
    for (const auto& held : used) {
      allocated += held.second.nonShared();
    }
    allocated.unallocate();
    return (total.nonShared() - allocated) + total.shared();
  }

  Resources release(const FrameworkID& framework, const Resources& resources) {
    const auto held = used.find(framework);
    if (held == used.end()) {
      return Resources();
    }
    const Resources before = held->second;
    held->second -= resources;
    const Resources after = held->second;
    if (after.empty()) {
      used.erase(held);
    }
    return before - after;
  }

  bool convert(const FrameworkID& framework, const Resources& offered, const ResourceConversion& conversion) {
    const auto held = used.find(framework);
    if (held == used.end() || !held->second.contains(offered)) {
      return false;
    }
    const Try<Resources> updated = offered.apply(conversion);
    Resources consumed = conversion.consumed;
    Resources converted = conversion.converted;
    consumed.unallocate();
    converted.unallocate();
    const Try<Resources> changed = total.apply(ResourceConversion(consumed, converted));
    if (updated.isError() || changed.isError()) {
      return false;
    }
    held->second = held->second - offered + updated.get();
    if (held->second.empty()) {
      used.erase(held);
    }
    total = changed.get();
    return true;
  }
};

class Check {
 public:
  explicit Check(unsigned seed) : random_(seed) {
    for (int number = 0; number < kFrameworks; ++number) {
      FrameworkID id;
      id.set_value("framework" + stringify(number));
      frameworks_.push_back(id);
      add_framework(id);
    }
    for (int number = 0; number < kAgents; ++number) {
      SlaveID id;
      id.set_value("agent" + stringify(number));
      agents_.push_back(id);
    }
  }

  void step() {
    const SlaveID& agent = agents_[below(kAgents)];
    const FrameworkID& framework = frameworks_[below(kFrameworks)];
    const auto known = model_.find(agent);
    if (known == model_.end()) {
      return add_agent(agent);
    }
    Held& held = known->second;
    switch (below(40)) {
      case 0:
        ++calls_["remove_agent"];
        mirror_.remove_agent(agent);
        model_.erase(known);
        break;
      case 1:
        ++calls_["remove_framework"];
        mirror_.remove_framework(framework);
        for (auto& other : model_) {
          other.second.used.erase(framework);
        }
        add_framework(framework);
        break;
      case 2:
        ++calls_["update_agent"];
        held.total = total();
        mirror_.update_agent(agent, mesos::SlaveInfo(), held.total, None());
        break;
      case 3:
        add_provider(agent, &held);
        break;
      case 4:
      case 5:
        reserve_available(agent, &held);
        break;
      case 6:
      case 7:
      case 8:
        convert(agent, framework, &held);
        break;
      default:
        if (below(2) == 0) {
          offer(agent, framework, &held);
        } else {
          recover(agent, framework, &held);
        }
    }
    compare(agent);
  }

  void print() const {
    for (const auto& call : calls_) {
      std::cout << call.first << " " << call.second << "  ";
    }
    std::cout << std::endl;
  }

 private:
  unsigned below(unsigned limit) { return std::uniform_int_distribution<unsigned>(0, limit - 1)(random_); }

  [[noreturn]] void fail(const std::string& text) const {
    std::cerr << "differs: " << text << std::endl;
    std::exit(1);
  }

  void check(bool same, const std::string& text) const {
    if (!same) {
      fail(text);
    }
  }

  void add_framework(const FrameworkID& id) {
    mesos::FrameworkInfo info;
    for (const char* role : kRoles) {
      info.add_roles(role);
    }
    info.add_capabilities()->set_type(mesos::FrameworkInfo::Capability::MULTI_ROLE);
    mirror_.add_framework(id, info, true, {}, nullptr);
  }

  // Returns resources as an agent reports them. Their amounts vary little, so that equal resources occur often.
  Resources total() {
    const std::string cpus = stringify(0.1 * below(5) + 3);
    Resources resources = Resources::parse("cpus:" + cpus + ";mem:1024;zones:{a,b,c};ports:[31000-31010,31020-31030]").get();
    resources += Resources::parse("cpus(a):1.3333;mem(b):100").get();
    Resource disk;
    disk.set_name("disk");
    disk.set_type(mesos::Value::SCALAR);
    disk.mutable_scalar()->set_value(512);
    resources += disk;
    for (int number = 0; number < 3; ++number) {
      resources += volume(number, number == 2);
    }
    disk.mutable_disk()->mutable_source()->set_type(Resource::DiskInfo::Source::MOUNT);
    disk.mutable_disk()->mutable_source()->mutable_mount()->set_root("mount");
    resources += disk;
    return resources;
  }

  static Resource volume(int number, bool shared) {
    Resource disk;
    disk.set_name("disk");
    disk.set_type(mesos::Value::SCALAR);
    disk.mutable_scalar()->set_value(64);
    Resource::ReservationInfo* reservation = disk.add_reservations();
    reservation->set_type(Resource::ReservationInfo::DYNAMIC);
    reservation->set_role("a");
    disk.mutable_disk()->mutable_persistence()->set_id("volume" + stringify(number));
    disk.mutable_disk()->mutable_volume()->set_container_path("path");
    disk.mutable_disk()->mutable_volume()->set_mode(mesos::Volume::RW);
    if (shared) {
      disk.mutable_shared();
    }
    return disk;
  }

  // Returns a random part of resources.
  Resources part(const Resources& of) {
    if (below(3) == 0) {
      return of;
    }
    Resources chosen;
    for (Resource resource : of) {
      switch (below(4)) {
        case 0:
          continue;
        case 1:
          if (resource.type() == mesos::Value::SCALAR && !resource.has_disk()) {
            resource.mutable_scalar()->set_value(resource.scalar().value() / 2);
          } else if (resource.type() == mesos::Value::RANGES) {
            resource.mutable_ranges()->mutable_range()->RemoveLast();
          } else if (resource.type() == mesos::Value::SET) {
            resource.mutable_set()->mutable_item()->RemoveLast();
          }
          break;
        default:
          break;
      }
      chosen += resource;
      if (resource.has_shared() && below(2) == 0) {
        chosen += resource;
      }
    }
    return chosen;
  }

  Resources allocated(Resources resources) {
    resources.allocate(kRoles[below(2)]);
    return resources;
  }

  void add_agent(const SlaveID& id) {
    ++calls_["add_agent"];
    Held held;
    held.total = total();
    if (below(2) == 0) {
      held.used[frameworks_[0]] += allocated(part(held.total));
    }
    if (below(4) == 0) {
      held.used[frameworks_[1]] += allocated(part(below(2) == 0 ? held.total : held.available()));
      held.used[frameworks_[1]] += allocated(part(held.available()));
    }
    Agent agent;
    agent.total = held.total;
    agent.used = held.used;
    mirror_.add_agent(id, agent, 0);
    model_[id] = held;
  }

  void add_provider(const SlaveID& agent, Held* held) {
    ++calls_["add_resource_provider"];
    const Resources added = Resources::parse("gpus:2;cpus:1").get();
    Used used;
    const Resources of_framework = allocated(part(added));
    if (!of_framework.empty()) {
      used[frameworks_[below(kFrameworks)]] = of_framework;
    }
    mirror_.add_resource_provider(agent, added, used);
    held->total += added;
    for (const auto& of : used) {
      held->used[of.first] += of.second;
    }
  }

  void reserve_available(const SlaveID& agent, Held* held) {
    mesos::Offer::Operation operation;
    Resources consumed;
    if (below(2) == 0) {
      operation.set_type(mesos::Offer::Operation::RESERVE);
      for (Resource resource : part(held->available().unreserved().scalars())) {
        if (!resource.has_disk()) {
          operation.mutable_reserve()->add_resources()->CopyFrom(reserved(resource));
        }
      }
    } else {
      operation.set_type(mesos::Offer::Operation::UNRESERVE);
      for (const Resource& resource : part(held->available().reserved("a").scalars())) {
        if (resource.reservations(0).type() == Resource::ReservationInfo::DYNAMIC) {
          operation.mutable_unreserve()->add_resources()->CopyFrom(resource);
        }
      }
    }
    const std::vector<mesos::Offer::Operation> operations = {operation};
    const Try<Resources> updated = held->total.apply(operations);
    ++calls_[updated.isSome() ? "update_available" : "update_available_error"];
    check(mirror_.update_available(agent, operations).isSome() == updated.isSome(), "update_available");
    if (updated.isSome()) {
      held->total = updated.get();
    }
  }

  static Resource reserved(Resource resource) {
    Resource::ReservationInfo* reservation = resource.add_reservations();
    reservation->set_type(Resource::ReservationInfo::DYNAMIC);
    reservation->set_role("a");
    return resource;
  }

  // Reserves resources that a framework holds, or unreserves them, or makes a volume of reserved disk.
  void convert(const SlaveID& agent, const FrameworkID& framework, Held* held) {
    const auto used = held->used.find(framework);
    Resources offered;
    Resources consumed;
    Resources converted;
    for (const Resource& resource : used == held->used.end() ? Resources() : used->second) {
      offered += resource;
      if (resource.type() != mesos::Value::SCALAR || resource.has_disk() || resource.allocation_info().role() != "a") {
        continue;
      }
      if (resource.reservations_size() == 0 && below(2) == 0) {
        consumed += resource;
        converted += reserved(resource);
      } else if (resource.reservations_size() == 1 && resource.reservations(0).type() == Resource::ReservationInfo::DYNAMIC) {
        Resource changed = resource;
        if (resource.name() == "disk") {
          changed.mutable_disk()->mutable_persistence()->set_id("new" + stringify(below(1000)));
          changed.mutable_disk()->mutable_volume()->set_container_path("path");
          changed.mutable_disk()->mutable_volume()->set_mode(mesos::Volume::RW);
          if (below(2) == 0) {
            changed.mutable_shared();
          }
        } else {
          changed.clear_reservations();
        }
        consumed += resource;
        converted += changed;
      }
      break;
    }
    const ResourceConversion conversion(consumed, converted);
    const bool updated = held->convert(framework, offered, conversion);
    ++calls_[updated ? "update_allocation" : "update_allocation_error"];
    check(mirror_.update_allocation(framework, agent, offered, {conversion}).isSome() == updated, "update_allocation");
  }

  void offer(const SlaveID& agent, const FrameworkID& framework, Held* held) {
    const Resources free = held->available();
    const Resources resources = allocated(part(below(8) == 0 ? held->total : free));
    if (resources.empty()) {
      return;
    }
    longshare::v1::Offer offer;
    offer.set_agent_id(agent.value());
    const Resource& first = *resources.begin();
    offer.set_role(first.allocation_info().role());
    longshare::adapter::encode(resources, offer.mutable_resources());
    Resources unallocated = resources;
    unallocated.unallocate();
    const bool admitted = free.contains(unallocated);
    const Mirror::Admission admission = mirror_.admit(framework.value(), offer, 1);
    ++calls_[admitted ? "offer" : "offer_refused"];
    check((admission.verdict == Mirror::Verdict::ADMITTED) == admitted,
          "offer of " + stringify(resources) + ", free " + stringify(free) + ": " + admission.reason);
    if (admitted) {
      check(admission.resources->resources == resources, "resources of the offer");
      held->used[framework] += resources;
    }
  }

  void recover(const SlaveID& agent, const FrameworkID& framework, Held* held) {
    const auto used = held->used.find(framework);
    Resources resources;
    if (used != held->used.end()) {
      resources = part(used->second);
    }
    if (resources.empty() || below(10) == 0) {
      resources += allocated(part(held->total));
    }
    if (below(2) == 0) {
      resources = Resources(static_cast<google::protobuf::RepeatedPtrField<Resource>>(resources));  // as in a master: copies
    }
    const Resources expected = held->release(framework, resources);
    Bytes bytes;
    const bool any = mirror_.recover_resources(framework, agent, resources, false, &bytes);
    ++calls_[any ? "recover" : "recover_nothing"];
    check(any == !expected.empty(), "whether anything was held of " + stringify(resources));
    if (any) {
      Resources released;
      for (const std::string& resource : bytes) {
        Resource parsed;
        check(parsed.ParseFromString(resource), "bytes");
        released += parsed;
      }
      check(released == expected, "released " + stringify(released) + " instead of " + stringify(expected));
    }
  }

  // Compares the used resources of an agent, and all sums.
  void compare(const SlaveID& id) const {
    check((mirror_.agents().count(id.value()) != 0) == model_.contains(id), "agents");
    if (model_.contains(id)) {
      const Agent& agent = mirror_.agents().at(id.value());
      const Held& held = model_.at(id);
      check(agent.total == held.total, "total");
      check(agent.used.size() == held.used.size(), "frameworks on the agent");
      for (const longshare::adapter::Holding& of : agent.used) {
        mesos::FrameworkID framework;
        framework.set_value(of.framework);
        check(held.used.contains(framework) && held.used.at(framework) == of.resources, "used");
      }
    }
    std::map<std::string, double> total;
    std::map<std::string, std::map<std::string, double>> allocated;
    for (const auto& agent : model_) {
      for (const Resource& resource : agent.second.total) {
        total[resource.name()] += std::round(resource.scalar().value() * 1000);
      }
      for (const auto& held : agent.second.used) {
        for (const Resource& resource : held.second) {
          allocated[resource.allocation_info().role()][resource.name()] += std::round(resource.scalar().value() * 1000);
        }
      }
    }
    std::set<std::string> roles;
    for (const auto& role : allocated) {
      roles.insert(role.first);
      double share = 0;
      for (const auto& of : role.second) {
        check(mirror_.sums().allocated(role.first, of.first) == of.second / 1000, "sum of allocated " + of.first);
        if (total[of.first] > 0) {
          share = std::max(share, of.second / total[of.first]);
        }
      }
      check(mirror_.sums().share(role.first, {}) == share, "share of role " + role.first);
    }
    check(mirror_.sums().roles() == roles, "roles with resources");
    for (const auto& of : total) {
      check(mirror_.sums().total(of.first) == of.second / 1000, "sum of total " + of.first);
    }
  }

  std::mt19937 random_;
  std::vector<FrameworkID> frameworks_;
  std::vector<SlaveID> agents_;
  Mirror mirror_;
  hashmap<SlaveID, Held> model_;
  std::map<std::string, int> calls_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: adapter_mirror_check SEED STEPS" << std::endl;
    return 2;
  }
  Check check(static_cast<unsigned>(std::atoi(argv[1])));
  for (int step = 0; step < std::atoi(argv[2]); ++step) {
    check.step();
  }
  check.print();
  return 0;
}
