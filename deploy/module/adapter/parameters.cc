#include "parameters.h"

#include <cctype>
#include <cmath>
#include <stdexcept>

namespace longshare {
namespace adapter {
namespace {

const std::map<std::string, double>& units() {
  static const std::map<std::string, double> milliseconds = {
      {"ms", 1.0}, {"secs", 1e3}, {"mins", 6e4}, {"hrs", 3.6e6}, {"days", 8.64e7}};
  return milliseconds;
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

uint64_t parse_count(const std::string& text) {
  if (text.empty() || text.size() > 15 || text.find_first_not_of("0123456789") != std::string::npos) {
    throw std::invalid_argument("'" + text + "' is not a whole number");
  }
  return std::stoull(text);
}

}  // namespace

uint64_t parse_duration(const std::string& text) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, end);
  const auto unit = units().find(end == std::string::npos ? "" : text.substr(end));
  const bool is_number = !number.empty() && std::isdigit(static_cast<unsigned char>(number[0])) != 0 &&
                         number.find('.') == number.rfind('.') && number.size() < 16;
  if (!is_number || unit == units().end()) {
    throw std::invalid_argument("'" + text + "' is not a duration such as 500ms, 5secs or 1.5mins");
  }
  const double value = std::stod(number) * unit->second;
  if (value >= 1e15) {
    throw std::invalid_argument("'" + text + "' is too long");
  }
  return static_cast<uint64_t>(std::llround(value));
}

Parameters::Parameters(const std::vector<std::pair<std::string, std::string>>& given) {
  std::map<std::string, Taker> takers = this->takers();
  std::vector<std::string> known;
  for (const auto& taker : takers) {
    known.push_back(taker.first);
  }
  std::map<std::string, int> seen;
  std::string problems;
  const auto problem = [&problems](const std::string& name, const std::string& what) {
    problems += (problems.empty() ? "" : "\n") + name + ": " + what;
  };
  for (const auto& parameter : given) {
    const std::string& name = parameter.first;
    const auto taker = takers.find(name);
    if (taker == takers.end()) {
      problem(name, "there is no such parameter; there are " + listed(known));
    } else if (++seen[name] == 2) {
      problem(name, "given more than once");
    } else {
      try {
        taker->second(parameter.second);
      } catch (const std::invalid_argument& error) {
        problem(name, error.what());
      }
    }
  }
  if (seen["address"] == 0) {
    problem("address", "missing; give that of the Longshare service, HOST:PORT or unix:///PATH");
  }
  if (!problems.empty()) {
    throw std::invalid_argument(problems);
  }
}

void Parameters::apply(longshare_transport_settings* settings) const {
  const auto or_null = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
  settings->address = address_.c_str();
  settings->authority = or_null(authority_);
  settings->certificate = or_null(certificate_);
  settings->key = or_null(key_);
  settings->insecure = insecure_ ? 1 : 0;
  for (const auto& number : numbers_) {
    settings->*number.first = number.second;
  }
}

std::map<std::string, Parameters::Taker> Parameters::takers() {
  using Settings = longshare_transport_settings;
  return {
      {"address", text(&address_)},
      {"transport", text(&transport_)},
      {"authority", text(&authority_)},
      {"certificate", text(&certificate_)},
      {"key", text(&key_)},
      {"insecure", flag(&insecure_)},
      {"synchronous", flag(&synchronous_)},
      {"answer_timeout", duration(&answer_timeout_)},
      {"connect_timeout", duration(&Settings::connect_timeout)},
      {"first_retry", duration(&Settings::first_retry)},
      {"last_retry", duration(&Settings::last_retry)},
      {"keepalive_time", duration(&Settings::keepalive_time)},
      {"keepalive_timeout", duration(&Settings::keepalive_timeout)},
      {"queue_events", count(&Settings::queue_events)},
      {"queue_bytes", count(&Settings::queue_bytes)},
  };
}

Parameters::Taker Parameters::text(std::string* into) {
  return [into](const std::string& value) {
    if (value.empty()) {
      throw std::invalid_argument("empty");
    }
    *into = value;
  };
}

Parameters::Taker Parameters::flag(bool* into) {
  return [into](const std::string& value) {
    if (value != "true" && value != "false") {
      throw std::invalid_argument("'" + value + "' is neither true nor false");
    }
    *into = value == "true";
  };
}

Parameters::Taker Parameters::duration(uint64_t longshare_transport_settings::* field) {
  return [this, field](const std::string& value) { numbers_.emplace_back(field, parse_duration(value)); };
}

Parameters::Taker Parameters::duration(uint64_t* into) {
  return [into](const std::string& value) {
    *into = parse_duration(value);
    if (*into == 0) {
      throw std::invalid_argument("'" + value + "' is no time at all");
    }
  };
}

Parameters::Taker Parameters::count(uint64_t longshare_transport_settings::* field) {
  return [this, field](const std::string& value) { numbers_.emplace_back(field, parse_count(value)); };
}

}  // namespace adapter
}  // namespace longshare
