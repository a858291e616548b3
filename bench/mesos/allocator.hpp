// Creates the allocator that the benchmark measures.

#pragma once

#include <mesos/allocator/allocator.hpp>

namespace longshare {
namespace bench {

// Returns Mesos's own allocator or, if LONGSHARE_MODULE names the module's library, Longshare's allocator, which connects to
// the service at LONGSHARE_ADDRESS.
mesos::allocator::Allocator* create_allocator();

}  // namespace bench
}  // namespace longshare

using mesos::allocator::Options;  // Mesos's tests expect it here
