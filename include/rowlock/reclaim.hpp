#pragma once

#include <rowlock/client.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <vector>

namespace rowlock {

/// @addtogroup leases
/// @{

/// What client::reclaim() has taken over from the predecessors of a client. What is not moved out
/// is released.
struct reclaimed_holds {
    std::vector<lease> leases{};                  ///< of lease, mutex, and the exclusive mode
    std::vector<permits> of_semaphores{};         ///< permits
    std::vector<mode_lease> of_shared_mutexes{};  ///< in the other modes, or upgraded
};

/// @}

}  // namespace rowlock
