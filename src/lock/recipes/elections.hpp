#pragma once

#include "lock/client/engine.hpp"
#include "lock/protocol/election/election_protocol.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace rowlock::detail {

/// What a client does as a candidate and as a leader, beyond acquiring and releasing the lease.
/// Thread-safe.
class elections : public engine_part {
public:
    explicit elections(engine& of)
        : context_{of.context()},
          protocol_{of.context().statements},
          retries_{of.retries()},
          releaser_{of.releases()} {}

    /// In the order in which they are to lead, for people.
    [[nodiscard]] std::vector<waiter_info> candidates(const std::string& name);
    /// Hands the lease to the first candidate of more than this priority, unless the leader before
    /// chose this grant. Returns whether there was one: then the lease is no longer ours.
    /// Also returns true, without a hand-over, if a stop was requested; the grant is still ours
    /// then.
    bool yield(grant& held, int priority, std::chrono::steady_clock::time_point until,
               const std::stop_token& stop);
    /// After a failure in a candidacy: pauses, and returns whether it goes on.
    [[nodiscard]] bool outlasts(const error& failure, std::chrono::steady_clock::time_point until,
                                const std::stop_token& stop);
    /// Hands the lease to the first candidate, or frees it.
    void step_down(grant& held);
    /// Hands the lease to this candidate. Returns whether it got it; see leadership::step_down.
    /// @throws error errc::lock_lost
    bool step_down(grant& held, session_id to);
    /// Returns false if the lease is not this grant any more.
    [[nodiscard]] bool proclaim(const grant& held, const std::string& value);

private:
    [[nodiscard]] std::optional<protocol::candidate> next(const grant& held,
                                                          std::optional<session_id> of = {});
    /// Changes the row of this grant. Returns false if the lease is not this grant any more.
    template <typename Change>
    [[nodiscard]] bool change(const grant& held, Change how);

    client_context& context_;
    const protocol::election_protocol protocol_;
    retry_loop& retries_;
    releaser& releaser_;
};

}  // namespace rowlock::detail
