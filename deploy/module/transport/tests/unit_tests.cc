// Tests of the transport that need no service: sequence numbers, turns, limits, framing, settings and backoff.

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "allocator/contract/allocator.pb.h"
#include "backoff.h"
#include "framing.h"
#include "outbox.h"
#include "settings.h"

using longshare::transport::Answer;
using longshare::transport::Backoff;
using longshare::transport::Message;
using longshare::transport::Outbox;
namespace transport = longshare::transport;
namespace v1 = longshare::v1;

namespace {

std::string event(std::int64_t time_ns = 5) {
  v1::Event event;
  event.set_time_ns(time_ns);
  event.mutable_tick();
  return event.SerializeAsString();
}

v1::FromMaster parsed(const std::optional<Message>& message) {
  REQUIRE(message);
  std::string bytes;
  for (const std::string& piece : message->pieces) {
    bytes += piece;
  }
  v1::FromMaster read;
  REQUIRE(read.ParseFromString(bytes));
  return read;
}

std::vector<std::uint64_t> sequences(const v1::FromMaster& message) {
  std::vector<std::uint64_t> found;
  for (const v1::Event& one : message.events().events()) {
    found.push_back(one.sequence());
  }
  return found;
}

std::string refusal(const longshare_transport_settings& settings) {
  try {
    transport::checked(settings);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

longshare_transport_settings at(const char* address) {
  longshare_transport_settings settings = transport::default_settings();
  settings.address = address;
  return settings;
}

// An outbox with a stream, whose snapshot has been removed by `take`.
struct InStep {
  explicit InStep(std::uint64_t most_events = 1000, std::uint64_t most_bytes = 1 << 20)
      : outbox(most_events, most_bytes) {
    outbox.open();
    outbox.put_snapshot("");
    outbox.take();
  }

  Outbox outbox;
};

}  // namespace

TEST_CASE("a snapshot is numbered after what it contains, and events after it") {
  Outbox outbox(10, 1000);
  outbox.open();
  CHECK(outbox.push(event()).sequence == 1);
  CHECK(outbox.push(event()).sequence == 2);
  v1::Snapshot snapshot;
  snapshot.set_time_ns(7);
  CHECK(outbox.put_snapshot(snapshot.SerializeAsString()) == 3);
  CHECK(outbox.push(event()).sequence == 4);
  outbox.flush();
  const v1::FromMaster first = parsed(outbox.take());
  CHECK(first.snapshot().sequence() == 3);
  CHECK(first.snapshot().time_ns() == 7);
  CHECK(sequences(parsed(outbox.take())) == std::vector<std::uint64_t>{4});
  CHECK_FALSE(outbox.take());
}

TEST_CASE("what is flushed goes out together, what is not stays") {
  InStep in_step;
  Outbox& outbox = in_step.outbox;
  outbox.push(event());
  CHECK_FALSE(outbox.take());
  outbox.push(event());
  outbox.flush();
  outbox.push(event());
  outbox.flush();
  outbox.push(event());
  CHECK(sequences(parsed(outbox.take())) == std::vector<std::uint64_t>{2, 3, 4});
  CHECK_FALSE(outbox.take());
  outbox.flush();
  CHECK(sequences(parsed(outbox.take())) == std::vector<std::uint64_t>{5});
}

TEST_CASE("large and small turns arrive in order") {
  InStep in_step(100'000, 100 << 20);
  v1::Event large;
  large.mutable_remove_agent()->set_agent_id(std::string(50'000, 'a'));
  std::vector<std::uint64_t> expected;
  for (int turn = 0; turn < 200; ++turn) {
    for (int i = 0; i < turn % 7; ++i) {
      expected.push_back(in_step.outbox.push(turn % 3 == 0 ? large.SerializeAsString() : event()).sequence);
    }
    in_step.outbox.flush();
  }
  CHECK(sequences(parsed(in_step.outbox.take())) == expected);
  CHECK(in_step.outbox.level().bytes == 0);
  CHECK(in_step.outbox.level().events == 0);
}

TEST_CASE("a long turn leaves in slices, and only its last message ends the turn") {
  InStep in_step;
  Outbox& outbox = in_step.outbox;
  outbox.push(event());
  outbox.flush();
  int released = 0;
  std::vector<std::uint64_t> taken;
  const auto take = [&](bool more) {
    const v1::FromMaster message = parsed(outbox.take());
    CHECK(message.events().more() == more);
    for (const std::uint64_t sequence : sequences(message)) {
      taken.push_back(sequence);
    }
  };
  for (int number = 0; number < 500; ++number) {
    if (outbox.push(event()).released) {
      ++released;
      take(true);
    }
  }
  CHECK(released == 1);  // the last event of the turn stays, so that a message can end the turn
  CHECK_FALSE(outbox.take());
  outbox.push(event());  // releases the second slice
  outbox.flush();
  outbox.push(event());
  outbox.flush();
  take(false);
  std::vector<std::uint64_t> all;
  for (std::uint64_t sequence = 2; sequence <= 504; ++sequence) {
    all.push_back(sequence);
  }
  CHECK(taken == all);
  CHECK(outbox.level().events == 0);
  CHECK(outbox.level().bytes == 0);
}

TEST_CASE("a snapshot within a long turn replaces its slices") {
  InStep in_step;
  Outbox& outbox = in_step.outbox;
  for (int number = 0; number < 300; ++number) {
    outbox.push(event());
  }
  outbox.put_snapshot("");
  outbox.push(event());
  outbox.flush();
  CHECK(outbox.take()->is_snapshot);
  const v1::FromMaster rest = parsed(outbox.take());
  CHECK_FALSE(rest.events().more());
  CHECK(rest.events().events_size() == 1);
}

TEST_CASE("without a stream events are numbered, and nothing is kept") {
  Outbox outbox(10, 1000);
  CHECK(outbox.push(event()).sequence == 1);
  outbox.flush();
  CHECK(outbox.level().events == 0);
  CHECK(outbox.put_snapshot("") == 0);
  CHECK_FALSE(outbox.take());
  CHECK_FALSE(outbox.ask());
}

TEST_CASE("a queue that is full is dropped, and a snapshot wanted once") {
  const auto overflow = [](Outbox& outbox) {
    for (int i = 0; i < 4; ++i) {
      outbox.push(event());
      outbox.flush();
    }
    CHECK(outbox.level().overflows == 1);
    CHECK(outbox.level().events == 0);
    CHECK(outbox.level().bytes == 0);
    CHECK_FALSE(outbox.take());
    CHECK(outbox.ask());
    CHECK_FALSE(outbox.ask());
    const std::uint64_t snapshot = outbox.put_snapshot("");
    CHECK(outbox.latest_snapshot() == snapshot);
    CHECK(outbox.take()->is_snapshot);
    CHECK(outbox.push(event()).sequence == snapshot + 1);
  };
  InStep few(3);
  overflow(few.outbox);
  InStep small(1000, 3 * (event().size() + 4));
  overflow(small.outbox);
}

TEST_CASE("a stream's end drops what waits, also a snapshot") {
  InStep in_step;
  in_step.outbox.put_snapshot("");
  in_step.outbox.push(event());
  in_step.outbox.flush();
  in_step.outbox.close();
  CHECK(in_step.outbox.level().bytes == 0);
  in_step.outbox.open();
  CHECK_FALSE(in_step.outbox.take());
  CHECK(in_step.outbox.ask() == "a new stream");
}

TEST_CASE("answers are taken apart as they are") {
  v1::ToMaster message;
  message.mutable_decisions()->set_applied_sequence(300);
  message.mutable_decisions()->add_replies()->set_error("no");
  const std::string bytes = message.SerializeAsString();
  const Answer answer = transport::parse_answer(bytes);
  CHECK(answer.kind == Answer::Kind::kDecisions);
  CHECK(answer.applied_sequence == 300);
  CHECK_FALSE(answer.more);
  CHECK(answer.message == message.decisions().SerializeAsString());
  message.mutable_decisions()->set_more(true);
  CHECK(transport::parse_answer(message.SerializeAsString()).more);
  message.mutable_snapshot_request()->set_reason("agent s1 is unknown");
  CHECK(transport::parse_answer(message.SerializeAsString()).reason == "agent s1 is unknown");
}

TEST_CASE("what is no answer is refused, wherever it is cut") {
  v1::ToMaster message;
  message.mutable_decisions()->set_applied_sequence(1 << 30);
  message.mutable_decisions()->add_offers()->set_framework_id("f1");
  const std::string bytes = message.SerializeAsString();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_THROWS_AS(transport::parse_answer(bytes.substr(0, size)), std::runtime_error);
  }
  CHECK_THROWS_AS(transport::parse_answer(bytes + "x"), std::runtime_error);
  const std::string of_the_future("\x7a\x00", 2);
  CHECK_THROWS_AS(transport::parse_answer(of_the_future), std::runtime_error);
}

TEST_CASE("addresses of this machine need no TLS") {
  for (const char* address : {"unix:///run/longshare.sock", "localhost:5060", "127.0.0.1:1", "[::1]:65535"}) {
    CHECK(refusal(at(address)) == "");
  }
  CHECK(refusal(at("allocator.example:5060")).find("another machine") != std::string::npos);
  longshare_transport_settings insecure = at("allocator.example:5060");
  insecure.insecure = 1;
  CHECK(refusal(insecure) == "");
}

TEST_CASE("what is no address is refused") {
  for (const char* address : {"", "5060", "localhost", "localhost:0", "localhost:65536", "localhost:x", "unix:run.sock",
                              "unix:///", "http://localhost:5060", ":5060", "a b:1", "[x]:1"}) {
    CAPTURE(address);
    CHECK(refusal(at(address)).rfind("address: ", 0) == 0);
  }
  CHECK(refusal(at(("unix:///" + std::string(108, 'p')).c_str())).find("longer") != std::string::npos);
  CHECK(refusal(at(nullptr)).rfind("address: ", 0) == 0);
}

TEST_CASE("every problem is told, with the name of its setting") {
  longshare_transport_settings settings = at("nowhere");
  settings.connect_timeout = 0;
  settings.last_retry = settings.first_retry - 1;
  settings.keepalive_time = 4999;
  settings.queue_bytes = std::uint64_t{1} << 40;
  settings.certificate = "absent.pem";
  const std::string problems = refusal(settings);
  for (const char* setting : {"address: ", "\nconnect_timeout: ", "\nlast_retry: ", "\nkeepalive_time: ", "\nqueue_bytes: ",
                              "\nkey: ", "\nauthority: ", "\ncertificate: absent.pem: No such file"}) {
    CAPTURE(setting);
    CHECK(problems.find(setting) != std::string::npos);
  }
}

TEST_CASE("pauses double up to the last, and are jittered downwards by half at most") {
  using std::chrono::milliseconds;
  Backoff backoff(milliseconds(50), milliseconds(300), 1);
  for (const int longest : {50, 100, 200, 300, 300}) {
    const milliseconds pause = backoff.next();
    CHECK(pause <= milliseconds(longest));
    CHECK(pause >= milliseconds(longest / 2));
  }
  backoff.reset();
  CHECK(backoff.next() <= milliseconds(50));
}
