#include "coordination/lease/engine.hpp"
#include "coordination/lease/mode_grants.hpp"
#include "coordination/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/reclaim.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rowlock {
namespace {

using holds_of_one = std::vector<std::pair<lease, std::int64_t>>;

/// A hold that is not handed out yet, and of an upgrade the hold that it was added to.
struct loose_hold {
    lease hold;
    std::int64_t permits;
    grant_id base;
};

struct mode_lease_parts {
    holds_of_one parts{};
    lock_mode mode{};
};

/// The holds of one shared_mutex, each with what upgrades have added to it. What belongs to a hold
/// that has ended is released here.
std::vector<mode_lease_parts> joined(std::vector<loose_hold> holds) {
    std::vector<mode_lease_parts> all;
    for (auto& each : holds) {
        if (each.base != grant_id{}) continue;
        mode_lease_parts whole;
        std::int64_t permits = each.permits;
        const auto id = each.hold.grant_id();
        whole.parts.emplace_back(std::move(each.hold), each.permits);
        for (auto& part : holds) {
            if (part.base != id) continue;
            permits += part.permits;
            whole.parts.emplace_back(std::move(part.hold), part.permits);
        }
        const auto mode = protocol::mode_for(permits);
        if (!mode) continue;  // changed by hand
        whole.mode = *mode;
        all.push_back(std::move(whole));
    }
    return all;
}

}  // namespace

reclaimed_holds reclaim_all(client& locks) {
    const auto alive = locks.engine_;
    reclaimed_holds taken;
    std::map<std::string, std::vector<loose_hold>> by_name;
    for (auto& granted : alive->reclaims().reclaim(true)) {
        const std::int64_t permits = granted->permits;
        const auto base = granted->base;
        const std::string name = granted->name;
        lease hold{std::move(granted)};
        if (permits == 0) {
            taken.leases.push_back(std::move(hold));
        } else {
            by_name[name].push_back({std::move(hold), permits, base});
        }
    }
    for (auto& [name, holds] : by_name) {
        if (alive->semaphores().exists(name, protocol::counter_kind::shared_mutex)) {
            for (auto& [parts, mode] : joined(std::move(holds))) {
                taken.of_shared_mutexes.push_back(
                    mode_lease{std::make_unique<detail::mode_grants>(std::move(parts), mode)});
            }
            continue;
        }
        for (auto& [hold, count, base] : holds) {
            taken.of_semaphores.push_back(permits{std::move(hold), count});
        }
    }
    return taken;
}

}  // namespace rowlock
