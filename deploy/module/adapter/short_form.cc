#include "short_form.h"

#include <map>
#include <set>
#include <utility>

#include "fields.h"

namespace longshare {
namespace adapter {
namespace {

constexpr std::size_t kEntry = 128;        // bytes that stand for the time to compare a reservation or a label of two kinds
constexpr std::size_t kLongestRange = 22;  // largest size of the two numbers of a range
constexpr unsigned char kLastType = 3;     // the number of the type TEXT
const char* const kNobody = "..";          // last level of a role. Mesos permits no such role.

using Wire = Field::Wire;

// Numbers of fields in mesos.Resource.
enum { NAME = 1, TYPE, SCALAR, RANGES, SET, ROLE, DISK, RESERVATION, REVOCABLE, SHARED, ALLOCATION, PROVIDER, RESERVATIONS };

std::string content(const std::string& message, const Field& field) { return message.substr(field.content, field.end - field.content); }

// Returns the text, bytes or message of a field in a serialised message. The result is empty without such a field.
std::string find(int number, const std::string& message) {
  std::string found;
  visit_fields(message, [&](const Field& field) {
    if (field.number == number && field.delimited()) {
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

// Returns a serialised message with some of its fields only: their numbers, with the encodings of their values.
std::string known_fields(const std::map<int, Wire>& fields, const std::string& message) {
  std::string kept;
  visit_fields(message, [&](const Field& field) {
    const auto known = fields.find(field.number);
    if (known != fields.end() && known->second == field.wire) {
      kept.append(message, field.begin, field.bytes());
    }
    return true;
  });
  return kept;
}

// Returns a serialised amount or allocation without unknown fields. Frameworks decide the length of unknown fields, too.
std::string without_unknown(int number, const std::string& amount) {
  if (number != RANGES) {
    return known_fields({{1, number == SCALAR ? Wire::WIRETYPE_FIXED64 : Wire::WIRETYPE_LENGTH_DELIMITED}}, amount);
  }
  std::string ranges;
  visit_fields(amount, [&](const Field& field) {
    if (field.number != 1 || !field.delimited()) {
      return true;
    }
    if (field.end - field.content <= kLongestRange) {
      ranges.append(amount, field.begin, field.bytes());
    } else {
      append(1, known_fields({{1, Wire::WIRETYPE_VARINT}, {2, Wire::WIRETYPE_VARINT}}, content(amount, field)), &ranges);
    }
    return true;
  });
  return ranges;
}

// Returns what decides whether a disk is indivisible, and its identifiers. Mesos permits frameworks identifiers of 255 bytes at most.
std::string short_disk(const std::string& disk) {
  std::string result;
  visit_fields(disk, [&](const Field& field) {
    if (field.number == 1 && field.delimited()) {  // the ID of a persistent volume
      append(1, known_fields({{1, Wire::WIRETYPE_LENGTH_DELIMITED}}, content(disk, field)), &result);
    } else if (field.number == 3 && field.delimited()) {  // the type and the ID of a source
      append(3, known_fields({{1, Wire::WIRETYPE_VARINT}, {4, Wire::WIRETYPE_LENGTH_DELIMITED}}, content(disk, field)), &result);
    }
    return true;
  });
  return result;
}

// Adds up the sizes of some text fields of a serialised message.
std::size_t texts(const std::set<int>& numbers, const std::string& message) {
  std::size_t size = 0;
  visit_fields(message, [&](const Field& field) {
    size += field.delimited() && numbers.count(field.number) != 0 ? field.end - field.content : 0;
    return true;
  });
  return size;
}

// Returns the length of serialised labels: their number, and the texts of different labels.
std::size_t labels(const std::string& list) {
  std::set<std::pair<std::string, std::string>> different;
  std::size_t size = 0;
  visit_fields(list, [&](const Field& field) {
    if (field.number == 1 && field.delimited()) {
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
    if (!field.delimited()) {
      return true;
    }
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

// Returns whether a field has a type of an amount that Mesos knows. Protobuf also keeps other numbers as unknown fields.
bool is_type(const Field& field, const std::string& value) {
  return field.wire == Wire::WIRETYPE_VARINT && value.size() == 1 && static_cast<unsigned char>(value[0]) <= kLastType;
}

}  // namespace

bool shorten(std::string* resource, std::size_t longest) {
  if (resource->size() <= kSmall || length_of_kind(*resource) <= longest) {
    return false;
  }
  std::map<int, std::string> values;  // by the field's number
  visit_fields(*resource, [&](const Field& field) {
    std::string value = content(*resource, field);
    const bool known = field.number == TYPE ? is_type(field, value) : field.delimited();
    if (!known) {
      return true;
    }
    if ((field.number >= SCALAR && field.number <= SET) || field.number == ALLOCATION) {
      value = without_unknown(field.number, value);
    }
    values[field.number] = value;
    return true;
  });
  if (values[NAME].size() > longest) {
    return false;  // no tenant decides the name, and the service rejects it
  }
  const std::string role = find(3, values[RESERVATIONS]);
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
  std::string reservation;
  append(3, role.empty() || role.size() > longest ? kNobody : role + "/" + kNobody, &reservation);
  reservation += {4 << 3, 2};  // the type DYNAMIC
  append(RESERVATIONS, reservation, &result);
  resource->swap(result);
  return true;
}

}  // namespace adapter
}  // namespace longshare
