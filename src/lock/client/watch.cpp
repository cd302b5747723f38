#include "base/jitter.hpp"
#include "base/require.hpp"
#include "lock/client/engine.hpp"
#include <rowlock/error.hpp>
#include <rowlock/watch.hpp>

#include <algorithm>
#include <utility>

namespace rowlock {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;
using std::chrono::nanoseconds;

lease_info without_expired(std::optional<lease_info> found, const lock_name& name) {
    if (!found) return {.name = name.str()};
    if (!detail::has_live_holder(*found)) found->holder.reset();
    return *std::move(found);
}

/// Not the token alone: an extension of the lease raises that of its row. Another session may have
/// reclaimed the grant.
bool is_another(const holder_info& before, const holder_info& now) {
    return before.session != now.session || before.grant_id != now.grant_id ||
           before.thread != now.thread || before.note != now.note;
}

bool is_change(const lease_info& before, const lease_info& now) {
    if (before.holder.has_value() != now.holder.has_value()) return true;
    return now.holder ? is_another(*before.holder, *now.holder) : before.token != now.token;
}

}  // namespace

lock_watch::lock_watch(std::weak_ptr<detail::engine> of, lock_name name,
                       const watch_options& options)
    : engine_{std::move(of)}, name_{std::move(name)}, options_{options} {
    require(options_.poll_interval >= 10ms && options_.poll_interval <= 24h,
            "the poll_interval of a watch must be from 10 ms to one day");
}

/// Sleeps no longer than the holder's session lives without a heartbeat: a holder that vanished is
/// noticed when it expires.
std::optional<lease_info> lock_watch::next_until(steady::time_point until,
                                                 const std::stop_token& stop) {
    const auto engine = engine_.lock();  // until the call learns of the client's destruction
    if (!engine) throw detail::client_destroyed();
    while (!stop.stop_requested()) {
        const auto read = engine->admin().inspect(name_, until, stop);
        if (!read) break;
        auto seen = without_expired(*read, name_);
        // The reaper has deleted the row of a lock that was long free: its tokens still rise.
        if (last_ && !seen.holder) seen.token = std::max(seen.token, last_->token);
        if (!last_ || is_change(*last_, seen)) {
            last_ = seen;
            return seen;
        }
        const auto now = steady::now();
        if (now >= until) break;
        nanoseconds time = base::shortened(nanoseconds{options_.poll_interval});
        if (seen.holder) time = std::min<nanoseconds>(time, seen.holder->remaining + 1ms);
        if (!engine->admin().pause(std::min<nanoseconds>(time, until - now), stop)) break;
    }
    return std::nullopt;
}

lock_watch client::watch(const lock_name& name, const watch_options& options) {
    return lock_watch{engine_, name, options};
}

}  // namespace rowlock
