#pragma once

#include "base/clock.hpp"
#include "base/identity.hpp"
#include "cli/link.hpp"
#include "coordination/lease/retry_limits.hpp"
#include "coordination/queue/queue_protocol.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::cli {

/// What `rowlock acquire` asks for.
struct script_lease_request {
    std::string name;
    std::string note;
    std::chrono::milliseconds duration;  ///< the lease ends so long after its grant
};

/// What it got. The lease hangs on a session of its own.
struct grant_of_script {
    std::int64_t token;
    std::int64_t grant_id;
    std::int64_t session;
    std::chrono::milliseconds expires_in;
};

/// The session lives so much longer than the lease, so that a late look still finds it.
constexpr std::chrono::milliseconds session_slack = std::chrono::minutes{2};

/// 53 random bits, above 0: what reads our JSON may keep numbers as doubles, as jq does.
[[nodiscard]] inline std::int64_t random_id() {
    return base::random_id(53);
}
/// Opens a session for one grant; the owner's name tells that no process stands behind the lease.
std::int64_t open_session_for(sql::connection& db, const strategy::lease_protocol& protocol,
                              std::int64_t grant_id, const strategy::wake_address& wake,
                              std::chrono::milliseconds ttl, sql::deadline until);
[[nodiscard]] std::string owner_of(std::int64_t grant_id);
/// What such names begin with.
inline constexpr std::string_view owner_of_scripts = "rowlock-acquire:";

/// Gives a lease that is free to the first in line, if anybody waits, and wakes who got it. True if
/// somebody did.
bool serve_next(sql::connection& db, const strategy::lease_protocol& protocol,
                const std::string& name, sql::deadline until);
/// What hung on a session that we ended is free: serves those who wait for it.
void serve_after(sql::connection& db, const strategy::lease_protocol& protocol,
                 std::int64_t ended_session, sql::deadline until);

/// Gives the lease to the next in line, or frees it, and removes its session. Any number of times.
/// True if the lease was this grant.
bool give_back(sql::connection& db, const strategy::lease_protocol& protocol,
               const std::string& name, std::int64_t session, std::int64_t grant_id,
               sql::deadline until);

/// A place in the queue before a lease, for a process without a client. While it waits its session
/// lives shortly, so that a killed process does not stand in the way; with the grant it gets the
/// time that the lease needs.
class queue_place {
public:
    queue_place(link& to, const script_lease_request& wish) : link_{to}, wish_{wish}, queue_{to.protocol()} {}

    /// Takes the place if need be, sees to it that whoever is first is served, and tells whether we
    /// were. Not for long: returns when there is nothing to do but wait.
    [[nodiscard]] std::optional<grant_of_script> look();
    /// How long to wait for link::descriptor() before the next look.
    [[nodiscard]] std::chrono::milliseconds pause() const noexcept { return wait_; }

    /// After a wait that descriptor() ended: how long to wait without it. A stranger can wake us as
    /// often as he likes, and not make us ask the database each time.
    [[nodiscard]] std::chrono::milliseconds rest() const;

    /// Whether there is a place, or may be.
    [[nodiscard]] bool stands() const noexcept { return session_ != 0; }
    /// Whether turns came after the lease's own deadline so often that look() has failed for it:
    /// more time does not help.
    [[nodiscard]] bool comes_too_late() const noexcept { return too_late_.often(); }
    /// After a failure: the grant id if the lease may be ours all the same, for as long as was
    /// asked; 0 if the place goes with its session, soon.
    [[nodiscard]] std::int64_t perhaps_granted() const noexcept { return keeping_ ? grant_id_ : 0; }

    /// Gives the place up. If it was served before that, here is the grant.
    [[nodiscard]] std::optional<grant_of_script> leave();

private:
    void keep_session(sql::connection& db, sql::deadline until);
    void end_session(sql::connection& db, sql::deadline until);
    void serve_others(sql::connection& db, sql::deadline until);
    void start_anew(sql::connection& db, sql::deadline until);
    bool see_to_the_first(sql::connection& db, const strategy::place& seen, sql::deadline until);
    bool serve_first(sql::connection& db, const strategy::place& seen, sql::deadline until);
    std::optional<grant_of_script> step(sql::connection& db, sql::deadline until, bool& again);
    std::optional<grant_of_script> accept(sql::connection& db, sql::deadline until);
    void next_pause(const strategy::place& seen);

    link& link_;
    const script_lease_request& wish_;
    strategy::queue_protocol queue_;
    std::int64_t session_ = 0;
    std::int64_t grant_id_ = 0;
    strategy::wake_address address_{};
    std::chrono::steady_clock::time_point looked_at_{};
    bool asked_ = false;    ///< a ticket for grant_id_ was sent; it may or may not be there
    bool keeping_ = false;  ///< we were served, and the session was sent the time that it needs
    bool late_ = false;     ///< we were served, and the deadline was over when we saw it
    detail::contention_limit in_vain_;
    detail::late_grant_limit too_late_;
    base::clock clock_;
    std::chrono::steady_clock::time_point beaten_{};
    std::chrono::milliseconds pause_{0};  ///< grows while nothing moves
    std::chrono::milliseconds wait_{0};
    std::int64_t position_ = 0;
};

}  // namespace rowlock::cli
