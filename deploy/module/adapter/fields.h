// Reads serialised messages field by field, without their types. Needs protobuf, but no header of Mesos.

#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace longshare {
namespace adapter {

// A field of a serialised message, as offsets into the bytes. A field is unknown to protobuf, and frameworks may write anything into
// it, if its number is known but the encoding of its value differs.
struct Field {
  using Wire = google::protobuf::internal::WireFormatLite::WireType;

  int number;
  Wire wire;            // the encoding of the value
  std::size_t begin;    // the begin of the tag
  std::size_t content;  // the begin of the value, after the length of text, bytes or a message
  std::size_t end;

  std::size_t bytes() const { return end - begin; }
  // Returns whether the value is text, bytes or a message.
  bool delimited() const { return wire == Wire::WIRETYPE_LENGTH_DELIMITED; }
};

// Calls visit(field) for each field of a serialised message, until `visit` returns false or the bytes are invalid.
template <typename Visit>
void visit_fields(const std::string& message, Visit visit) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(message.data()), static_cast<int>(message.size()));
  const auto at = [&input]() { return static_cast<std::size_t>(input.CurrentPosition()); };
  std::size_t begin = 0;
  while (const std::uint32_t tag = input.ReadTag()) {
    Field field{WireFormatLite::GetTagFieldNumber(tag), WireFormatLite::GetTagWireType(tag), begin, at(), 0};
    if (field.delimited()) {
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
