#include "short_form.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "fields.h"

namespace longshare {
namespace adapter {
namespace {

constexpr std::size_t kEntry = 128;     // bytes that stand for the time to compare a reservation or a label of two kinds
const char* const kNobody = "..";       // last level of a role. Mesos permits no such role.
const char* const kOfQuota = "/../..";  // end of the role of a sum that counts against the quota of a top-level role

using Wire = Field::Wire;

// Numbers of fields in mesos.Resource.
enum { NAME = 1, TYPE, SCALAR, RANGES, SET, ROLE, DISK, RESERVATION, REVOCABLE, SHARED, ALLOCATION, PROVIDER, RESERVATIONS };

std::string content(const std::string& message, const Field& field) { return message.substr(field.content, field.end - field.content); }

// Returns the text, bytes or message of a field in a serialised message. The result is empty without such a field.
std::string find(int number, const std::string& message) {
  std::string found;
  visit_fields(message, [&](const Field& field) {
    if (field.number == number) {
      found = content(message, field);
    }
    return true;
  });
  return found;
}

// Appends a field with text, bytes or a message.
void append(int number, const std::string& value, std::string* to) {
  to->push_back(static_cast<char>(number << 3 | 2));
  std::size_t size = value.size();
  for (; size > 0x7F; size >>= 7) {
    to->push_back(static_cast<char>((size & 0x7F) | 0x80));
  }
  to->push_back(static_cast<char>(size));
  *to += value;
}

// Returns a serialised message with two of its fields only.
std::string only(int one, int other, const std::string& message) {
  std::string kept;
  visit_fields(message, [&](const Field& field) {
    if (field.number == one || field.number == other) {
      kept.append(message, field.begin, field.bytes());
    }
    return true;
  });
  return kept;
}

// Returns what decides whether a disk is indivisible, and its identifiers. Mesos permits frameworks identifiers of 255 bytes at most.
std::string short_disk(const std::string& disk) {
  std::string result;
  visit_fields(disk, [&](const Field& field) {
    if (field.number == 1) {  // the ID of a persistent volume
      append(1, only(1, 1, content(disk, field)), &result);
    } else if (field.number == 3) {  // the type and the ID of a source
      append(3, only(1, 4, content(disk, field)), &result);
    }
    return true;
  });
  return result;
}

// Adds up the sizes of some text fields of a serialised message.
std::size_t texts(const std::set<int>& numbers, const std::string& message) {
  std::size_t size = 0;
  visit_fields(message, [&](const Field& field) {
    size += numbers.count(field.number) != 0 ? field.end - field.content : 0;
    return true;
  });
  return size;
}

// Returns the length of serialised labels: their number, and the texts of different labels.
std::size_t labels(const std::string& list) {
  std::set<std::pair<std::string, std::string>> different;
  std::size_t size = 0;
  visit_fields(list, [&](const Field& field) {
    if (field.number == 1) {
      const std::string label = content(list, field);
      const auto added = different.emplace(find(1, label), find(2, label));
      size += kEntry + (added.second ? added.first->first.size() + added.first->second.size() : 0);
    }
    return true;
  });
  return size;
}

// Returns the length of the texts that distinguish a resource's kind. Kinds that Mesos finds equal have the same length.
std::size_t length_of_kind(const std::string& resource) {
  std::size_t size = 0;
  visit_fields(resource, [&](const Field& field) {
    const std::string value = content(resource, field);
    if (field.number == NAME) {
      size += value.size();
    } else if (field.number == PROVIDER) {
      size += texts({1}, value);
    } else if (field.number == RESERVATIONS) {
      size += kEntry + texts({1, 3}, value) + labels(find(2, value));
    } else if (field.number == DISK) {
      const std::string source = find(3, value);
      size += texts({1}, find(1, value)) + texts({4, 6, 7}, source) + labels(find(5, source));
      size += texts({1}, find(2, source)) + texts({1}, find(3, source));
    }
    return true;
  });
  return size;
}

// The types of the messages and enumerations that a mesos.Resource can contain. Messages without known fields have the type EMPTY.
enum Type {
  NO_MESSAGE,
  VALUE_TYPE,
  VOLUME_MODE,
  SOURCE_TYPE,
  RESERVATION_TYPE,
  EMPTY,
  RESOURCE,
  TEXT,
  NUMBER,
  VALUES_OF_RANGES,
  ONE_RANGE,
  DISK_INFO,
  PERSISTENCE,
  VOLUME,
  SOURCE,
  LABELS,
  LABEL,
  RESERVATION_INFO
};

constexpr Wire VARINT = Wire::WIRETYPE_VARINT;
constexpr Wire FIXED64 = Wire::WIRETYPE_FIXED64;
constexpr Wire DELIMITED = Wire::WIRETYPE_LENGTH_DELIMITED;

struct Known {
  Type holder;
  int number;
  Wire wire;
  Type type;
};

// The fields that the service knows, in proto/allocator/contract/mesos.proto.
const Known kKnown[] = {
    {RESOURCE, NAME, DELIMITED, NO_MESSAGE},
    {RESOURCE, TYPE, VARINT, VALUE_TYPE},
    {RESOURCE, SCALAR, DELIMITED, NUMBER},
    {RESOURCE, RANGES, DELIMITED, VALUES_OF_RANGES},
    {RESOURCE, SET, DELIMITED, TEXT},
    {RESOURCE, ROLE, DELIMITED, NO_MESSAGE},
    {RESOURCE, DISK, DELIMITED, DISK_INFO},
    {RESOURCE, RESERVATION, DELIMITED, RESERVATION_INFO},
    {RESOURCE, REVOCABLE, DELIMITED, EMPTY},
    {RESOURCE, SHARED, DELIMITED, EMPTY},
    {RESOURCE, ALLOCATION, DELIMITED, TEXT},
    {RESOURCE, PROVIDER, DELIMITED, TEXT},
    {RESOURCE, RESERVATIONS, DELIMITED, RESERVATION_INFO},
    {NUMBER, 1, FIXED64, NO_MESSAGE},
    {TEXT, 1, DELIMITED, NO_MESSAGE},
    {VALUES_OF_RANGES, 1, DELIMITED, ONE_RANGE},
    {ONE_RANGE, 1, VARINT, NO_MESSAGE},
    {ONE_RANGE, 2, VARINT, NO_MESSAGE},
    {DISK_INFO, 1, DELIMITED, PERSISTENCE},
    {DISK_INFO, 2, DELIMITED, VOLUME},
    {DISK_INFO, 3, DELIMITED, SOURCE},
    {PERSISTENCE, 1, DELIMITED, NO_MESSAGE},
    {PERSISTENCE, 2, DELIMITED, NO_MESSAGE},
    {VOLUME, 1, DELIMITED, NO_MESSAGE},
    {VOLUME, 2, DELIMITED, NO_MESSAGE},
    {VOLUME, 3, VARINT, VOLUME_MODE},
    {SOURCE, 1, VARINT, SOURCE_TYPE},
    {SOURCE, 2, DELIMITED, TEXT},
    {SOURCE, 3, DELIMITED, TEXT},
    {SOURCE, 4, DELIMITED, NO_MESSAGE},
    {SOURCE, 5, DELIMITED, LABELS},
    {SOURCE, 6, DELIMITED, NO_MESSAGE},
    {SOURCE, 7, DELIMITED, NO_MESSAGE},
    {LABELS, 1, DELIMITED, LABEL},
    {LABEL, 1, DELIMITED, NO_MESSAGE},
    {LABEL, 2, DELIMITED, NO_MESSAGE},
    {RESERVATION_INFO, 1, DELIMITED, NO_MESSAGE},
    {RESERVATION_INFO, 2, DELIMITED, LABELS},
    {RESERVATION_INFO, 3, DELIMITED, NO_MESSAGE},
    {RESERVATION_INFO, 4, VARINT, RESERVATION_TYPE},
};

const Known* known(Type holder, int number, Wire wire) {
  for (const Known& field : kKnown) {
    if (field.holder == holder && field.number == number && field.wire == wire) {
      return &field;
    }
  }
  return nullptr;
}

// Returns the largest number of an enumeration that the service knows. Protobuf keeps larger numbers as unknown fields.
unsigned char last_number(Type type) { return type == SOURCE_TYPE ? 4 : type == VALUE_TYPE ? 3 : 2; }

// Returns a serialised message of a type without unknown fields, in it and in messages within it. A field with a known number and
// another encoding is unknown, too. Frameworks decide the length of unknown fields.
std::string known_fields(const std::string& message, Type type) {
  std::string kept;
  visit_fields(message, [&](const Field& field) {
    const Known* of_field = known(type, field.number, field.wire);
    if (of_field == nullptr) {
      return true;
    }
    const std::string value = content(message, field);
    if (of_field->type >= EMPTY) {
      append(field.number, known_fields(value, of_field->type), &kept);
    } else if (of_field->type == NO_MESSAGE ||
               (value.size() == 1 && static_cast<unsigned char>(value[0]) <= last_number(of_field->type))) {
      kept.append(message, field.begin, field.bytes());
    }
    return true;
  });
  return kept;
}

// The amounts of several resources.
struct Amounts {
  long long thousandths = 0;
  std::string others;  // serialised ranges or items
};

// Returns a scalar in thousandths, in which Mesos compares scalars.
long long thousandths(const std::string& scalar) {
  const std::string bytes = find(1, scalar);
  double value = 0;
  if (bytes.size() == sizeof value) {
    std::memcpy(&value, bytes.data(), sizeof value);
  }
  return std::isfinite(value) && std::fabs(value) < 1e15 ? std::llround(value * 1000) : 0;
}

std::string scalar(long long in_thousandths) {
  const double value = static_cast<double>(in_thousandths) / 1000;
  std::string bytes(sizeof value, '\0');
  std::memcpy(&bytes[0], &value, sizeof value);
  return static_cast<char>(1 << 3 | 1) + bytes;
}

// Returns the serialised last reservation of a resource for a role that cannot exist.
std::string reserved_for_nobody(const std::string& role) {
  std::string reservation;
  append(3, role, &reservation);
  reservation += {4 << 3, 2};  // the type DYNAMIC
  return reservation;
}

// Returns whether a source of a disk, if any, is neither a PATH (type 1) nor a RAW disk (type 4) without an ID.
bool is_indivisible(const std::string& source) {
  const std::string type = find(1, source);
  return !source.empty() && type != std::string(1, 1) && (type != std::string(1, 4) || !find(4, source).empty());
}

// Returns whether a role is that for which sums of reservations are reserved.
bool is_for_sum(const std::string& role) {
  const std::size_t length = std::strlen(kOfQuota);
  return role == kNobody || (role.size() >= length && role.compare(role.size() - length, length, kOfQuota) == 0);
}

// Implements `reserver` for a resource without unknown fields.
bool known_reserver(const std::string& known_part, std::string* principal) {
  const std::string reservation = find(RESERVATIONS, known_part);
  const bool is_dynamic = find(4, reservation) == std::string(1, 2);
  if (!is_dynamic || is_for_sum(find(3, reservation)) || is_indivisible(find(3, find(DISK, known_part)))) {
    return false;
  }
  *principal = find(1, reservation);
  return true;
}

}  // namespace

bool reserver(const std::string& resource, std::string* principal) { return known_reserver(known_fields(resource, RESOURCE), principal); }

void merge_reservations(const std::string& principal, const std::set<std::string>& quotas, bool are_used,
                        google::protobuf::RepeatedPtrField<std::string>* resources) {
  // by name, type, revocability, allocation and the role of the sum
  std::map<std::tuple<std::string, std::string, bool, std::string, std::string>, Amounts> merged;
  google::protobuf::RepeatedPtrField<std::string> kept;
  for (std::string& resource : *resources) {
    const std::string known_part = known_fields(resource, RESOURCE);
    std::string by;
    if (!known_reserver(known_part, &by) || by != principal) {
      kept.Add()->swap(resource);
      continue;
    }
    std::map<int, std::string> values;  // by the field's number
    visit_fields(known_part, [&](const Field& field) {
      values[field.number] = content(known_part, field);
      return true;
    });
    if (are_used && values.count(SHARED) != 0) {
      continue;  // several frameworks may use the volume, which its agent has once
    }
    const std::string role = find(3, values[RESERVATIONS]);
    const std::string top = role.substr(0, role.find('/'));
    Amounts& amounts = merged[std::make_tuple(values[NAME], values[TYPE], values.count(REVOCABLE) != 0, values[ALLOCATION],
                                              quotas.count(top) != 0 ? top + kOfQuota : kNobody)];
    amounts.thousandths += thousandths(values[SCALAR]);
    amounts.others += values[RANGES] + values[SET];
  }
  for (const auto& each : merged) {
    std::string result;
    const std::string& type = std::get<1>(each.first);
    append(NAME, std::get<0>(each.first), &result);
    result += static_cast<char>(TYPE << 3) + type;
    const int amount = type == std::string(1, 0) ? SCALAR : type == std::string(1, 1) ? RANGES : SET;
    append(amount, amount == SCALAR ? scalar(each.second.thousandths) : each.second.others, &result);
    if (std::get<2>(each.first)) {
      append(REVOCABLE, "", &result);
    }
    if (!std::get<3>(each.first).empty()) {
      append(ALLOCATION, std::get<3>(each.first), &result);
    }
    append(RESERVATIONS, reserved_for_nobody(std::get<4>(each.first)), &result);
    kept.Add()->swap(result);
  }
  resources->Swap(&kept);
}

bool shorten(std::string* resource, std::size_t longest) {
  if (resource->size() <= kSmall) {
    return false;
  }
  std::string known_part = known_fields(*resource, RESOURCE);
  const std::size_t length = length_of_kind(known_part);
  if (length <= longest) {
    if (resource->size() - known_part.size() <= longest - length) {
      return false;
    }
    resource->swap(known_part);
    return true;
  }
  std::map<int, std::string> values;  // by the field's number
  visit_fields(known_part, [&](const Field& field) {
    values[field.number] = content(known_part, field);
    return true;
  });
  if (values[NAME].size() > longest) {
    return false;  // no tenant decides the name, and the service rejects it
  }
  std::string role = find(3, values[RESERVATIONS]);
  if (role.size() > longest) {
    role.erase(std::min(role.find('/'), role.size()));  // quotas of top-level roles count it
  }
  std::string result;
  for (const auto& value : values) {
    switch (value.first) {
      case TYPE:
        result += static_cast<char>(TYPE << 3) + value.second;
        break;
      case DISK:
        if (!short_disk(value.second).empty()) {
          append(DISK, short_disk(value.second), &result);
        }
        break;
      case REVOCABLE:
      case SHARED:
        append(value.first, "", &result);
        break;
      case NAME:
      case SCALAR:
      case RANGES:
      case SET:
      case ROLE:
      case RESERVATION:
      case ALLOCATION:
        append(value.first, value.second, &result);
        break;
      default:
        break;
    }
  }
  append(RESERVATIONS, reserved_for_nobody(role.empty() || role.size() > longest ? kNobody : role + "/" + kNobody), &result);
  resource->swap(result);
  return true;
}

}  // namespace adapter
}  // namespace longshare
