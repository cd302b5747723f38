#include "metrics/table.hpp"

#include <algorithm>

namespace rowlock::metrics {
namespace {

/// Each counter in its place: counters are read by their number.
constexpr bool lists_each_counter() {
    std::size_t next = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(detail::counter::count_of_counters); ++i) {
        const auto found = std::ranges::count(
            client_numbers, static_cast<detail::counter>(i), [](const auto& each) {
                return each.from.value_or(detail::counter::count_of_counters);
            });
        next += static_cast<std::size_t>(found == 1);
    }
    return next == static_cast<std::size_t>(detail::counter::count_of_counters);
}
static_assert(lists_each_counter(), "a counter of a client has no metric, or two");

}  // namespace

std::vector<metric> all_metrics() {
    std::vector<metric> all;
    for (const auto& each : client_numbers) all.push_back(each.is);
    all.insert(
        all.end(),
        {client_lost, client_acquire_seconds, client_hold_seconds, client_heartbeat_age,
         client_trust_remaining, database_held, database_expired, database_waiting,
         database_dead_entries, database_oldest_wait, database_names, database_permits,
         database_permits_used, database_sessions, database_oldest_expired, database_reaper_age,
         database_notification_queue, database_oldest_transaction, database_doctor});
    return all;
}

}  // namespace rowlock::metrics
