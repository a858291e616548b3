// Reads serialised messages field by field, without their types. Needs protobuf, but no header of Mesos.

#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace longshare {
namespace adapter {

// A field of a serialised message, as offsets into the bytes.
struct Field {
  int number;
  std::size_t begin;    // the begin of the tag
  std::size_t content;  // the begin of the value, after the length of text, bytes or a message
  std::size_t end;

  std::size_t bytes() const { return end - begin; }
};

// Calls visit(field) for each field of a serialised message, until `visit` returns false or the bytes are invalid.
template <typename Visit>
void visit_fields(const std::string& message, Visit visit) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(message.data()), static_cast<int>(message.size()));
  const auto at = [&input]() { return static_cast<std::size_t>(input.CurrentPosition()); };
  std::size_t begin = 0;
  while (const std::uint32_t tag = input.ReadTag()) {
    Field field{WireFormatLite::GetTagFieldNumber(tag), begin, at(), 0};
    if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      std::uint32_t length = 0;
      if (!input.ReadVarint32(&length)) {
        return;
      }
      field.content = at();
      if (length > message.size() - field.content || !input.Skip(static_cast<int>(length))) {
        return;
      }
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return;
    }
    field.end = begin = at();
    if (!visit(field)) {
      return;
    }
  }
}

}  // namespace adapter
}  // namespace longshare
