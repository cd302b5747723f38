#pragma once

#include "lock/queue/loop_connection.hpp"
#include "lock/queue/loop_parts.hpp"
#include "lock/queue/wakeup_trust.hpp"
#include "lock/wakeup/wakeup_source.hpp"
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <string_view>

namespace rowlock::detail {

/// Turns hints of grants into grants: what another thread of the client granted, what a message
/// proved, what a wake-up without a name points to. Each grant that was believed before its row was
/// read is verified, and denied if the row says otherwise. The loop's thread uses it, except where
/// stated.
class grant_verifier {
public:
    grant_verifier(const loop_parts& parts, loop_connection& link,
                   const wakeup::wakeup_source& source)
        : parts_{parts}, link_{link}, source_{source} {}

    /// A grant to our session, read from the reply that confirmed its commit. Any thread. Returns
    /// true if it is to be verified: the loop must be woken.
    bool handed_over(const protocol::handed_over& next);
    /// A message says so. Ignores one without a proof: every local user may write to our mailbox,
    /// every role of the database to our channel. Returns false if the message was of no use.
    /// @param by_database whether the database delivered it
    bool on_message(std::string_view message, bool by_database);

    /// Verifies the grants that are due: one round trip each.
    void verify_due();
    /// Reads what was served, if a wake-up came that does not say so: one round trip.
    void read_served_if_woken();
    /// The same, after a wake-up, on this connection. Any thread. Returns true if there is more to
    /// do: the loop must be woken.
    bool read_served(sql::connection& db, sql::deadline until);

    /// Whether wake-ups tell of the grants of this client. Any thread.
    [[nodiscard]] wakeup_trust& trust() noexcept { return trust_; }
    [[nodiscard]] const wakeup_trust& trust() const noexcept { return trust_; }

private:
    bool call(waiter& which);
    void verify(const waiter_tasks::unverified& one);
    [[nodiscard]] std::optional<protocol::confirmed_grant> read(
        const waiter_tasks::unverified& one);

    const loop_parts& parts_;
    loop_connection& link_;
    const wakeup::wakeup_source& source_;
    wakeup_trust trust_;
};

}  // namespace rowlock::detail
