#pragma once

#include <rowlock/client.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <vector>

namespace rowlock {

/// @addtogroup leases
/// @{

/// What a client has taken over from its predecessors.
struct reclaimed_holds {
    std::vector<lease> leases{};                  ///< of lease, mutex, and the exclusive mode
    std::vector<permits> of_semaphores{};         ///< permits
    std::vector<mode_lease> of_shared_mutexes{};  ///< in the other modes, or upgraded
};

/// As client::reclaim(), for holds of every kind. Holds that another client has asked for or taken,
/// and those past their own deadline, are not taken over. Each has a new token.
/// @throws error as client::reclaim()
[[nodiscard]] reclaimed_holds reclaim_all(client& locks);

/// @}

}  // namespace rowlock
