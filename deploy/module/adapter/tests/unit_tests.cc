// Tests of the adapter code that needs no Mesos: parameters, exclusions, message layouts, and loading of the transport.

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "exclusions.h"
#include "library.h"
#include "likeness.h"
#include "parameters.h"
#include "patience.hpp"

using longshare::adapter::Parameters;
using longshare::adapter::Patience;
using longshare::adapter::parse_duration;

namespace {

using Given = std::vector<std::pair<std::string, std::string>>;

std::string refusal(const Given& given) {
  try {
    Parameters parameters(given);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a master whose messages are larger is told from one whose messages are the same, by name") {
  using longshare::adapter::unlike;
  CHECK(unlike({{"mesos.Resource", 144, 144}, {"mesos.SlaveInfo", 120, 120}}).empty());
  const std::string told = unlike({{"mesos.Resource", 144, 144}, {"mesos.FrameworkInfo", 208, 216}});
  CHECK(contains(told, "mesos.FrameworkInfo has 208 bytes in this module, 216 in the master"));
  CHECK_FALSE(contains(told, "mesos.Resource"));
  CHECK(contains(told, "-DMESOS_SOURCE"));
}

TEST_CASE("a framework that excludes too many pairs is unlisted until it is forgotten, and the others are not") {
  longshare::adapter::Exclusions exclusions(4, 1000);
  exclusions.set("modest", "m", "s1", true);
  for (const char* agent : {"s1", "s2", "s3"}) {
    for (const char* role : {"a", "b"}) {
      exclusions.set("picky", role, agent, true);
    }
  }
  CHECK(exclusions.unlisted("picky"));
  CHECK(exclusions.of("picky").empty());
  CHECK(exclusions.pairs() == 1);
  CHECK(exclusions.take_unlisted() == std::vector<std::string>{"picky"});
  CHECK(exclusions.take_unlisted().empty());
  std::vector<std::string> named;
  exclusions.visit_agent("s1", [&named](const std::string& framework, const std::string& role) { named.push_back(framework + "/" + role); });
  CHECK(named == std::vector<std::string>{"modest/m"});
  exclusions.forget("picky");
  exclusions.set("picky", "a", "s1", true);
  CHECK_FALSE(exclusions.unlisted("picky"));
  CHECK(exclusions.of("picky").at("a").count("s1") == 1);
}

TEST_CASE("beyond what all frameworks may exclude together, the one with the most pairs is unlisted") {
  longshare::adapter::Exclusions exclusions(100, 10);
  for (int agent = 0; agent < 8; ++agent) {
    exclusions.set("picky", "a", "s" + std::to_string(agent), true);
  }
  for (const char* framework : {"x", "y", "z"}) {
    exclusions.set(framework, "a", "s1", true);
  }
  CHECK(exclusions.unlisted("picky"));
  CHECK_FALSE(exclusions.unlisted("z"));
  CHECK(exclusions.pairs() == 3);
}

TEST_CASE("a principal with many frameworks displaces no framework of another principal") {
  longshare::adapter::Exclusions exclusions(100, 20);
  exclusions.set_principal("picky", "honest");
  for (int agent = 0; agent < 9; ++agent) {
    exclusions.set("picky", "a", "s" + std::to_string(agent), true);
  }
  for (int framework = 0; framework < 8; ++framework) {
    const std::string name = "f" + std::to_string(framework);
    exclusions.set_principal(name, "crowd");
    for (int agent = 0; agent < 8; ++agent) {
      exclusions.set(name, "a", "s" + std::to_string(agent), true);
    }
  }
  CHECK(exclusions.of("picky").at("a").size() == 9);
  CHECK_FALSE(exclusions.unlisted("picky"));
  CHECK(exclusions.take_unlisted() == std::vector<std::string>{"f0", "f1", "f2", "f3", "f4", "f5", "f6"});
  CHECK(exclusions.pairs() == 17);
}

TEST_CASE("pairs of agents that are gone or admitted again are forgotten") {
  longshare::adapter::Exclusions exclusions(100, 100);
  for (const char* role : {"a", "b"}) {
    exclusions.set("f", role, "s1", true);
    exclusions.set("f", role, "s1", true);
    exclusions.set("f", role, "s2", true);
  }
  CHECK(exclusions.pairs() == 4);
  exclusions.forget_agent("s1");
  CHECK(exclusions.pairs() == 2);
  exclusions.set("f", "a", "s2", false);
  exclusions.set("f", "a", "s2", false);
  CHECK(exclusions.pairs() == 1);
  CHECK(exclusions.of("f").count("a") == 0);
}

TEST_CASE("what is given overwrites the transport's defaults, and nothing else does") {
  longshare_transport_settings settings = {};
  settings.last_retry = 77;
  settings.queue_bytes = 99;
  const Parameters parameters({{"address", "localhost:5060"}, {"connect_timeout", "1.5secs"}, {"queue_events", "1000"}, {"key", "k.pem"}});
  parameters.apply(&settings);
  CHECK(std::string(settings.address) == "localhost:5060");
  CHECK(std::string(settings.key) == "k.pem");
  CHECK(settings.certificate == nullptr);
  CHECK(settings.connect_timeout == 1500);
  CHECK(settings.queue_events == 1000);
  CHECK(settings.last_retry == 77);
  CHECK(settings.queue_bytes == 99);
  CHECK(settings.insecure == 0);
  CHECK_FALSE(parameters.synchronous());
  CHECK(parameters.answer_timeout() == 2000);
}

TEST_CASE("how long an operator waits can be set, but not to nothing") {
  CHECK(Parameters({{"address", "x:1"}, {"answer_timeout", "500ms"}}).answer_timeout() == 500);
  CHECK(contains(refusal({{"address", "x:1"}, {"answer_timeout", "0secs"}}), "answer_timeout: '0secs' is no time at all"));
}

TEST_CASE("an answer is late once its time is over, and not before") {
  using std::chrono::milliseconds;
  const Patience::Time begin;
  Patience patience(milliseconds(100));
  CHECK_FALSE(patience.overdue(begin));
  patience.sent(7, begin);
  patience.sent(8, begin + milliseconds(90));
  CHECK_FALSE(patience.overdue(begin + milliseconds(100)));
  CHECK(patience.overdue(begin + milliseconds(101)));
  patience.answered(6);
  CHECK(patience.overdue(begin + milliseconds(101)));
  patience.answered(7);
  CHECK_FALSE(patience.overdue(begin + milliseconds(500)));
  patience.sent(9, begin + milliseconds(500));
  CHECK_FALSE(patience.overdue(begin + milliseconds(600)));
  CHECK(patience.overdue(begin + milliseconds(601)));
  patience.reset();
  CHECK_FALSE(patience.overdue(begin + milliseconds(601)));
}

TEST_CASE("the address is needed") { CHECK(contains(refusal({}), "address: missing")); }

TEST_CASE("every problem is told, with the name of its parameter") {
  const std::string problems = refusal({{"adress", "x"}, {"insecure", "yes"}, {"connect_timeout", "5parsecs"}, {"queue_events", "-1"}, {"key", ""},
                                        {"synchronous", "true"}, {"synchronous", "true"}});
  for (const char* problem : {"adress: there is no such parameter; there are address, ", "\ninsecure: 'yes' is neither",
                              "\nconnect_timeout: '5parsecs' is not a duration", "\nqueue_events: '-1' is not a whole number",
                              "\nkey: empty", "\nsynchronous: given more than once", "\naddress: missing"}) {
    CAPTURE(problem);
    CHECK(contains("\n" + problems, problem));
  }
}

TEST_CASE("durations are written as Mesos writes them") {
  CHECK(parse_duration("500ms") == 500);
  CHECK(parse_duration("5secs") == 5000);
  CHECK(parse_duration("1.5mins") == 90000);
  CHECK(parse_duration("2hrs") == 7200000);
  CHECK(parse_duration("1days") == 86400000);
  for (const char* wrong : {"", "5", "secs", ".5secs", "1.2.3secs", "-5secs", "5 secs", "5s", "1e3secs", "999999999999999days"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_duration(wrong), std::invalid_argument);
  }
}

TEST_CASE("a library that is absent or somebody else's is named") {
  const auto complaint = [](const std::string& path) -> std::string {
    try {
      longshare::adapter::load_transport(path);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(complaint("./absent.so"), "./absent.so"));
  CHECK(contains(complaint("libc.so.6"), "libc.so.6 is not Longshare's transport"));
}

TEST_CASE("the transport is looked for beside this library") {
  const std::string path = longshare::adapter::beside_this_library("liblongshare_transport.so");
  CHECK(contains(path, "/liblongshare_transport.so"));
}

TEST_CASE("the real transport is loaded, and says which interface it speaks") {
  const char* path = std::getenv("LONGSHARE_TRANSPORT");
  REQUIRE(path != nullptr);
  CHECK(longshare::adapter::load_transport(path)->version == LONGSHARE_TRANSPORT_VERSION);
}
