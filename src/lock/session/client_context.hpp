#pragma once

#include "base/clock.hpp"
#include "base/event_queue.hpp"
#include "base/fork_guard.hpp"
#include "base/identity.hpp"
#include "base/loss_notifier.hpp"
#include "lock/protocol/hold/hold_protocol.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/multi/multi_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "lock/session/grant.hpp"
#include "lock/session/link_timing.hpp"
#include "metrics/counters.hpp"
#include "metrics/measurements.hpp"
#include "sql/database_traits.hpp"
#include "sql/statements.hpp"
#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/options.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace rowlock::detail {

/// What all parts of one client share: its options and clock, the statements of its tables, and
/// where its counts, events and loss signals go. Thread-safe.
class client_context {
public:
    /// @param wanted validated
    client_context(sql::connection_source database, client_options wanted);
    client_context(const client_context&) = delete;
    client_context& operator=(const client_context&) = delete;
    ~client_context() = default;

    const base::fork_guard fork;
    const client_options options;  ///< `owner` is never empty
    const sql::connection_source source;
    const base::clock clock;
    const sql::statement_set statements;

private:
    const std::unique_ptr<const protocol::lease_protocol> lease_protocol_;
    const std::unique_ptr<const protocol::queue_protocol> queue_protocol_;
    const std::unique_ptr<const protocol::multi_protocol> multi_protocol_;
    const std::unique_ptr<const protocol::semaphore_protocol> semaphore_protocol_;

public:
    const protocol::session_protocol& sessions;
    const protocol::lease_protocol& leases;
    const protocol::queue_protocol& queues;
    const protocol::multi_protocol& several;
    const protocol::semaphore_protocol& semaphores;
    const protocol::hold_protocol holds;
    link_timing link;
    metrics::measurements measured;
    /// The engine that grants refer to.
    std::weak_ptr<engine> owner{};

    [[nodiscard]] nanoseconds now() const noexcept { return clock.now(); }
    [[nodiscard]] sql::dialect speaks() const noexcept { return source.speaks(); }
    [[nodiscard]] const sql::database_traits& traits() const noexcept {
        return sql::traits_of(speaks());
    }
    /// Whether the whole client shares one connection.
    [[nodiscard]] bool shares_connection() const noexcept {
        return options.single_connection && traits().has_server;
    }
    /// The deadline of a statement that is sent now.
    [[nodiscard]] sql::deadline statement_deadline() const {
        return std::chrono::steady_clock::now() + options.statement_timeout;
    }
    /// How long an abandoned statement may still arrive at the server, or run there: its deadline,
    /// and the kernel's resends on a connection that fell silent.
    [[nodiscard]] nanoseconds statement_bound() const;

    /// An id for a grant or a wait lock, which tells nothing about others.
    std::int64_t next_id() { return ids_.next(); }

    void count(counter which, std::uint64_t by = 1) noexcept { counters_.add(which, by); }
    [[nodiscard]] std::uint64_t counted(counter which) const noexcept {
        return counters_.read(which);
    }
    /// Nothing in a forked child, where no thread delivers it.
    void report(event what) noexcept {
        if (!fork.in_child()) events_.post(std::move(what));
    }
    /// Reports what `make()` returns; drops the event if there is no memory for it.
    template <std::invocable Make>
    void report(const Make& make) noexcept {
        if (!fork.in_child()) events_.post(make);
    }
    void report(event_kind kind, const grant& about, std::string_view message = {},
                std::chrono::microseconds waited = {}) noexcept;

    /// Notifies a holder that this client has changed its rows. A hint, sent after the commit: if
    /// it is lost, or we may not read that session's wake-up address, the holder's next heartbeat
    /// finds the change. One round trip, and one more to notify.
    void notify_holder(sql::connection& db, session_id session, sql::deadline until) const noexcept;

    /// Tells a holder that another client has asked for its release within a time. The first
    /// request is reported, and sends the signal.
    void pass_on(grant& held, const release_request& request) noexcept;
    /// The holder has given the grant back: measures how long it was held.
    void measure_end(const grant& over) noexcept;
    /// Declares a grant lost, counts and reports that, and sends its loss signal. Returns whether
    /// this call declared it: the grant was in state `from`.
    bool lose(grant& lost, loss_reason why, grant::state from = grant::state::held) noexcept;
    /// The same for a grant whose session is over, or whose row: one that was offered as well.
    bool lose_with_offers(grant& lost, loss_reason why) noexcept {
        return lose(lost, why) || lose(lost, why, grant::state::offered);
    }
    /// Another client has taken an offered grant over: it counts as released. Its loss signal is
    /// sent, for a giver that waits. Returns false if it was not offered.
    bool taken_over(grant& offered) noexcept;

private:
    counters counters_;
    base::random_ids ids_;
    base::event_queue events_;
    base::loss_notifier signals_;
};

}  // namespace rowlock::detail
