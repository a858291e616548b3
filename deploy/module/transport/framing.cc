#include "framing.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <stdexcept>

#include "allocator/contract/allocator.pb.h"

namespace longshare::transport {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Two varints: the tag of a field, and the length or value of the field.
class Prefix {
 public:
  Prefix(int field, WireFormatLite::WireType type, std::uint64_t value) {
    end_ = CodedOutputStream::WriteVarint32ToArray(WireFormatLite::MakeTag(field, type), bytes_);
    end_ = CodedOutputStream::WriteVarint64ToArray(value, end_);
  }

  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes_), static_cast<std::size_t>(end_ - bytes_)};
  }

 private:
  std::uint8_t bytes_[15];
  std::uint8_t* end_;
};

Prefix length(int field, std::size_t size) { return {field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED, size}; }

Prefix number(int field, std::uint64_t value) { return {field, WireFormatLite::WIRETYPE_VARINT, value}; }

CodedInputStream reader(std::string_view bytes) {
  return CodedInputStream(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
}

[[noreturn]] void refuse() { throw std::runtime_error("what the allocator says is not a message of the contract"); }

Answer decisions_answer(std::string_view decisions) {
  Answer answer{Answer::Kind::kDecisions, decisions, 0, {}};
  CodedInputStream input = reader(decisions);
  const std::uint32_t applied =
      WireFormatLite::MakeTag(v1::Decisions::kAppliedSequenceFieldNumber, WireFormatLite::WIRETYPE_VARINT);
  const std::uint32_t waiting =
      WireFormatLite::MakeTag(v1::Decisions::kWaitingForFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  const std::uint32_t more = WireFormatLite::MakeTag(v1::Decisions::kMoreFieldNumber, WireFormatLite::WIRETYPE_VARINT);
  while (const std::uint32_t tag = input.ReadTag()) {
    bool read = false;
    if (tag == applied) {
      read = input.ReadVarint64(&answer.applied_sequence);
    } else if (tag == more) {
      std::uint64_t value = 0;
      read = input.ReadVarint64(&value);
      answer.more = value != 0;
    } else if (tag == waiting) {
      read = WireFormatLite::ReadString(&input, &answer.reason);
    } else {
      read = WireFormatLite::SkipField(&input, tag);
    }
    if (!read) {
      refuse();
    }
  }
  if (!input.ConsumedEntireMessage()) {
    refuse();
  }
  return answer;
}

Answer interpret(int field, std::string_view message) {
  switch (field) {
    case v1::ToMaster::kWelcomeFieldNumber:
      return {Answer::Kind::kWelcome, message, 0, {}};
    case v1::ToMaster::kDecisionsFieldNumber:
      return decisions_answer(message);
    case v1::ToMaster::kSnapshotRequestFieldNumber: {
      v1::SnapshotRequest request;
      if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
        refuse();
      }
      return {Answer::Kind::kSnapshotRequest, message, 0, request.reason(), false, request.elected()};
    }
    default:
      refuse();
  }
}

}  // namespace

std::string hello(std::string_view message) {
  std::string framed(length(v1::FromMaster::kHelloFieldNumber, message.size()).view());
  return framed.append(message);
}

std::string snapshot(std::string_view message, std::uint64_t sequence) {
  const Prefix numbered = number(v1::Snapshot::kSequenceFieldNumber, sequence);
  const Prefix framing = length(v1::FromMaster::kSnapshotFieldNumber, message.size() + numbered.view().size());
  std::string framed;
  framed.reserve(framing.view().size() + message.size() + numbered.view().size());
  return framed.append(framing.view()).append(message).append(numbered.view());
}

std::string events_header(std::size_t size, bool more) {
  const Prefix continued = number(v1::Events::kMoreFieldNumber, 1);
  const std::string_view first = more ? continued.view() : std::string_view();
  return std::string(length(v1::FromMaster::kEventsFieldNumber, first.size() + size).view()).append(first);
}

void append_event(std::string& fields, std::string_view event, std::uint64_t sequence) {
  const Prefix numbered = number(v1::Event::kSequenceFieldNumber, sequence);
  const Prefix framing = length(v1::Events::kEventsFieldNumber, event.size() + numbered.view().size());
  fields.append(framing.view()).append(event).append(numbered.view());
}

Answer parse_answer(std::string_view bytes) {
  CodedInputStream input = reader(bytes);
  const std::uint32_t tag = input.ReadTag();
  std::uint32_t size = 0;
  if (tag == 0 || WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
      !input.ReadVarint32(&size) ||
      static_cast<std::size_t>(input.CurrentPosition()) + size != bytes.size()) {
    refuse();
  }
  return interpret(WireFormatLite::GetTagFieldNumber(tag), bytes.substr(bytes.size() - size));
}

}  // namespace longshare::transport
