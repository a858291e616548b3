// Test program that owns a transport. The program reads commands from standard input, one per line, and prints each result
// and each callback. `Driver` defines the commands.
//
//     transport_driver LIBRARY SETTING=VALUE ...
//
// Messages are written in hexadecimal. Like the adapter, the program calls push, flush and snapshot under one lock.

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "transport.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The library must find the sanitizer's functions in the program, so DEEPBIND is absent.
constexpr int kLoading = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kLoading = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
extern "C" {
void grpc_init() { std::abort(); }
void* grpc_completion_queue_factory_lookup(const void* /*attributes*/) { std::abort(); }
}
#endif

namespace {

std::string to_hex(const void* data, size_t size) {
  static const char* const digits = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(data)[i];
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::mutex saying;

void say(const std::string& line) {
  const std::lock_guard<std::mutex> lock(saying);
  std::cout << line << std::endl;
}

const longshare_transport_owner kOwner = {
    nullptr,
    [](void*, const void* data, size_t size) { say("connected " + to_hex(data, size)); },
    [](void*, const char* reason) { say(std::string("wanted ") + reason); },
    [](void*, uint64_t applied, const void* data, size_t size) {
      say("decisions " + std::to_string(applied) + " " + to_hex(data, size));
    },
    [](void*, const char* reason) { say(std::string("disconnected ") + reason); },
    [](void*, int severity, const char* text) { say("log " + std::to_string(severity) + " " + text); },
};

const longshare_transport_api* load(const char* path) {
  void* library = dlopen(path, kLoading);
  if (library == nullptr) {
    throw std::runtime_error(dlerror());
  }
  void* symbol = dlsym(library, LONGSHARE_TRANSPORT_SYMBOL);
  const auto* api = reinterpret_cast<decltype(&longshare_transport_interface)>(symbol)();
  if (api->version != LONGSHARE_TRANSPORT_VERSION) {
    throw std::runtime_error("another version of the transport");
  }
  return api;
}

class Driver {
 public:
  Driver(const longshare_transport_api* api, longshare_transport* transport) : api_(api), transport_(transport) {}

  // Executes commands until the end of the input.
  void obey(std::istream& input) {
    const std::map<std::string, std::function<void(std::istream&)>> commands = {
        {"start", [this](std::istream& arguments) { start(arguments); }},
        {"push", [this](std::istream& arguments) { push(arguments); }},
        {"flush", [this](std::istream&) { flush(); }},
        {"snapshot", [this](std::istream& arguments) { snapshot(arguments); }},
        {"burst", [this](std::istream& arguments) { burst(arguments); }},
        {"statistics", [this](std::istream&) { statistics(); }},
    };
    for (std::string line; std::getline(input, line);) {
      std::istringstream arguments(line);
      std::string command;
      arguments >> command;
      commands.at(command)(arguments);
    }
  }

 private:
  // start HELLO
  void start(std::istream& arguments) {
    const std::string hello = message(arguments);
    say("started " + std::to_string(api_->start(transport_, &kOwner, hello.data(), hello.size())));
  }

  // push EVENT
  void push(std::istream& arguments) {
    const std::string event = message(arguments);
    const std::lock_guard<std::mutex> lock(mutex_);
    say("pushed " + std::to_string(api_->push(transport_, event.data(), event.size())));
  }

  void flush() {
    const std::lock_guard<std::mutex> lock(mutex_);
    api_->flush(transport_);
  }

  // snapshot SNAPSHOT
  void snapshot(std::istream& arguments) {
    const std::string snapshot = message(arguments);
    const std::lock_guard<std::mutex> lock(mutex_);
    say("snapshot " + std::to_string(api_->snapshot(transport_, snapshot.data(), snapshot.size())));
  }

  // burst THREADS TIMES EVENT: each of THREADS threads pushes and flushes EVENT TIMES times
  void burst(std::istream& arguments) {
    int threads = 0;
    int times = 0;
    arguments >> threads >> times;
    const std::string event = message(arguments);
    uint64_t last = 0;
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&] {
        for (int j = 0; j < times; ++j) {
          const std::lock_guard<std::mutex> lock(mutex_);
          last = api_->push(transport_, event.data(), event.size());
          api_->flush(transport_);
        }
      });
    }
    for (std::thread& thread : running) {
      thread.join();
    }
    say("burst " + std::to_string(last));
  }

  void statistics() {
    longshare_transport_statistics found;
    api_->statistics(transport_, &found);
    std::ostringstream text;
    text << "statistics {\"connected\": " << found.connected << ", \"synchronised\": " << found.synchronised
         << ", \"sessions\": " << found.sessions << ", \"resyncs\": " << found.resyncs
         << ", \"overflows\": " << found.overflows << ", \"queued_events\": " << found.queued_events
         << ", \"queued_bytes\": " << found.queued_bytes << ", \"messages_sent\": " << found.messages_sent
         << ", \"unanswered\": " << found.unanswered << ", \"round_trip_ns\": " << found.round_trip_ns << "}";
    say(text.str());
  }

  static std::string message(std::istream& arguments) {
    std::string hex;
    arguments >> hex;
    return from_hex(hex);
  }

  const longshare_transport_api* api_;
  longshare_transport* transport_;
  std::mutex mutex_;
};

void set(longshare_transport_settings& settings, const std::string& name, const char* value) {
  const std::map<std::string, const char**> texts = {
      {"address", &settings.address},
      {"authority", &settings.authority},
      {"certificate", &settings.certificate},
      {"key", &settings.key},
  };
  const std::map<std::string, uint64_t*> numbers = {
      {"connect_timeout", &settings.connect_timeout}, {"first_retry", &settings.first_retry},
      {"last_retry", &settings.last_retry},           {"keepalive_time", &settings.keepalive_time},
      {"queue_events", &settings.queue_events},       {"keepalive_timeout", &settings.keepalive_timeout},
      {"queue_bytes", &settings.queue_bytes},
  };
  if (name == "insecure") {
    settings.insecure = std::atoi(value);
  } else if (texts.count(name) != 0) {
    *texts.at(name) = value;
  } else {
    *numbers.at(name) = std::stoull(value);
  }
}

int drive(int argc, char** argv) {
  const longshare_transport_api* api = load(argv[1]);
  longshare_transport_settings settings;
  api->defaults(&settings);
  settings.address = nullptr;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto equals = argument.find('=');
    set(settings, argument.substr(0, equals), argv[i] + equals + 1);
  }
  char error[4096];
  longshare_transport* transport = api->create(&settings, error, sizeof error);
  if (transport == nullptr) {
    std::cerr << error << std::endl;
    return 2;
  }
  Driver(api, transport).obey(std::cin);
  api->destroy(transport);
  say("destroyed");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return drive(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
