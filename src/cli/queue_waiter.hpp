#pragma once

#include "base/clock.hpp"
#include "base/identity.hpp"
#include "cli/link.hpp"
#include "cli/script_lock.hpp"
#include "lock/client/retry_limits.hpp"
#include <rowlock/ids.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::cli {

/// The grant to `rowlock acquire`.
struct grant_of_script {
    std::int64_t token;
    script_hold hold;
    std::chrono::milliseconds expires_in;
};

/// How much longer the session lives than the lease, so that a late poll still finds it.
constexpr std::chrono::milliseconds session_slack = std::chrono::minutes{2};

/// 53 random bits, above 0: readers of our JSON, such as jq, may keep numbers as doubles.
[[nodiscard]] inline std::int64_t random_id() {
    return base::random_id(53);
}
/// Opens a session for one grant; the owner's name shows that no process stands behind the lease.
session_id open_session_for(sql::connection& db, const protocol::lease_protocol& protocol,
                            grant_id grant_id, const wakeup::wake_address& wake,
                            std::chrono::milliseconds ttl, sql::deadline until);
[[nodiscard]] std::string owner_of(grant_id grant_id);
/// Prefix of such owner names.
inline constexpr std::string_view owner_of_scripts = "rowlock-acquire:";

/// A queue entry for a process without a client. While it waits its session has a short ttl, so
/// that a killed process does not block the queue; with the grant the session is extended to the
/// time that the lease needs.
class queue_waiter {
public:
    /// @param duration the hold ends this long after its grant
    queue_waiter(link& to, script_lock& lock, std::chrono::milliseconds duration)
        : link_{to}, lock_{lock}, duration_{duration} {}

    /// Enqueues if necessary, makes sure that the first waiter is served, and returns our grant if
    /// that was us. Returns as soon as there is nothing to do but wait.
    [[nodiscard]] std::optional<grant_of_script> poll();
    /// How long to wait for link::descriptor() before the next poll().
    [[nodiscard]] std::chrono::milliseconds pause() const noexcept { return wait_; }

    /// After descriptor() ended a wait: how long to wait without it. A foreign process can wake us
    /// any number of times, but not make us query the database each time.
    [[nodiscard]] std::chrono::milliseconds rest() const;

    /// Whether there is a queue entry, or may be one.
    [[nodiscard]] bool stands() const noexcept { return hold_.session != session_id{}; }
    /// Whether grants came after the lease's own deadline so often that poll() has failed for it:
    /// more time does not help.
    [[nodiscard]] bool comes_too_late() const noexcept { return too_late_.often(); }
    /// After a failure: the grant id if the lease may still be ours, for the requested time; 0 if
    /// the queue entry soon ends with its session.
    [[nodiscard]] grant_id perhaps_granted() const noexcept {
        return keeping_ ? hold_.grant_id : grant_id{};
    }

    /// Gives the queue entry up. Returns the grant if the entry was served before that.
    [[nodiscard]] std::optional<grant_of_script> leave();

private:
    void keep_session(sql::connection& db, sql::deadline until);
    void end_session(sql::connection& db, sql::deadline until);
    void serve_others(sql::connection& db, sql::deadline until);
    void start_anew(sql::connection& db, sql::deadline until);
    bool see_to_the_first(sql::connection& db, const place_in_line& seen, sql::deadline until);
    std::optional<grant_of_script> step(sql::connection& db, sql::deadline until, bool& again);
    std::optional<grant_of_script> accept(sql::connection& db, sql::deadline until);
    void next_pause(const place_in_line& seen);

    link& link_;
    script_lock& lock_;
    const std::chrono::milliseconds duration_;
    script_hold hold_{};
    wakeup::wake_address address_{};
    std::chrono::steady_clock::time_point looked_at_{};
    bool asked_ = false;    ///< a ticket for hold_ was sent; it may not have arrived
    bool keeping_ = false;  ///< we were served, and the session's extension was sent
    bool late_ = false;     ///< we were served, but saw it only after the deadline
    detail::contention_limit in_vain_;
    detail::late_grant_limit too_late_;
    base::clock clock_;
    std::chrono::steady_clock::time_point beaten_{};
    std::chrono::milliseconds pause_{0};  ///< grows while our position stays the same
    std::chrono::milliseconds wait_{0};
    std::int64_t position_ = 0;
};

}  // namespace rowlock::cli
