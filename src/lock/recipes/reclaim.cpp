#include "lock/client/engine.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/reclaim.hpp>

#include <utility>

namespace rowlock {

reclaimed_holds client::reclaim() {
    const auto alive = engine_;  // until the call learns of the client's destruction
    reclaimed_holds taken;
    for (const auto& granted : alive->reclaims().reclaim()) {
        lease hold{granted};
        if (!granted->is_part()) {
            taken.leases.push_back(std::move(hold));
        } else if (!granted->of_mode) {
            taken.of_semaphores.push_back(permits{std::move(hold), granted->permits});
        } else if (protocol::mode_for(granted->permits)) {  // else an operator changed its weight
            taken.of_shared_mutexes.push_back(mode_lease{std::move(hold)});
        }
    }
    return taken;
}

}  // namespace rowlock
