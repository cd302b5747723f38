#include "lock/client/engine.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/reclaim.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rowlock {

reclaimed_holds client::reclaim() {
    struct counted_hold {
        std::shared_ptr<detail::grant> granted;
        lease hold;
    };
    const auto alive = engine_;
    reclaimed_holds taken;
    std::map<std::string, std::vector<counted_hold>> counted;
    for (const auto& granted : alive->reclaims().reclaim()) {
        if (!granted->is_part()) {
            taken.leases.push_back(lease{granted});
        } else {
            counted[granted->name].push_back({granted, lease{granted}});
        }
    }
    for (auto& [name, holds] : counted) {
        const bool modes = alive->semaphores().exists(name, protocol::counter_kind::shared_mutex);
        for (auto& [granted, hold] : holds) {
            granted->of_mode = modes;
            if (!modes) {
                taken.of_semaphores.push_back(permits{std::move(hold), granted->permits});
            } else if (protocol::mode_for(granted->permits)) {  // else somebody has changed it
                taken.of_shared_mutexes.push_back(mode_lease{std::move(hold)});
            }
        }
    }
    return taken;
}

}  // namespace rowlock
