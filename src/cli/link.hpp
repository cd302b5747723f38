#pragma once

#include "cli/database.hpp"
#include "cli/signals.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/retry.hpp>
#include <rowlock/sql/connection.hpp>
#include <rowlock/sql/notifications.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace rowlock::cli {

/// One connection at a time, replaced when it breaks: database access for a command that needs no
/// client with its threads.
class link {
public:
    static constexpr std::chrono::milliseconds statement_timeout = std::chrono::seconds{5};

    link(const database& in, blocked_signals& signals);

    /// Runs `action(connection, deadline)`, and again after failures that allow it. An unknown
    /// outcome is repeated too: every action checks the result of the earlier attempt. A signal
    /// ends the retries, not the attempt.
    template <typename Action>
    auto run(Action action) {
        return detail::repeat_attempts(
            detail::attempt_counter{retry_}, retry_until_signal{signals_}, [&](int) {
                const auto until = std::chrono::steady_clock::now() + statement_timeout;
                return action(connected(until), until);
            });
    }

    /// From now on notifications on `channel` wake descriptor(), if the database can notify. Call
    /// it inside an action: it costs nothing if this connection listens already. Earlier
    /// notifications are dropped.
    void listen(sql::connection& db, std::string_view channel, sql::deadline until);
    /// Whether the database has sent a notification since listen() that carries this secret; for a
    /// file: whether it was written. Check it before a wait for descriptor(): a statement may
    /// already have read the notification, and then the descriptor does not show it.
    [[nodiscard]] bool was_notified(std::string_view secret);
    /// Turns readable when the database has sent a notification; -1 if it sends none.
    [[nodiscard]] int descriptor() const noexcept;

    /// From now on statements wait only briefly for a locked row: 100 ms, on MySQL 1 s. For callers
    /// that retry later. Call it inside an action: it costs a round trip for each connection.
    void do_not_wait_for_rows(sql::connection& db, sql::deadline until);

    [[nodiscard]] const protocol::lease_protocol& protocol() const noexcept { return *protocol_; }
    [[nodiscard]] const protocol::queue_protocol& queue() const noexcept { return *queue_; }
    [[nodiscard]] const protocol::semaphore_protocol& semaphores() const noexcept {
        return *semaphores_;
    }

private:
    /// A caller of detail::repeat_attempts(): a signal ends its pauses.
    class retry_until_signal : public detail::on_steady_clock {
    public:
        explicit retry_until_signal(blocked_signals& signals) noexcept : signals_{signals} {}
        [[nodiscard]] detail::retry_step judge(const error& failure) const noexcept;
        [[nodiscard]] detail::retry_step wait(std::chrono::milliseconds pause) const;

    private:
        blocked_signals& signals_;
    };

    sql::connection& connected(sql::deadline until);

    const database& in_;
    blocked_signals& signals_;
    const sql::statement_set statements_;
    const std::unique_ptr<const protocol::lease_protocol> protocol_;
    const std::unique_ptr<const protocol::queue_protocol> queue_;
    const std::unique_ptr<const protocol::semaphore_protocol> semaphores_;
    std::unique_ptr<sql::connection> db_;
    sql::notifications* notifications_ = nullptr;  ///< of db_
    std::string channel_;                          ///< the channel that db_ listens to
    bool silent_ = false;                          ///< the database cannot notify us
    bool impatient_ = false;                       ///< db_ does not wait for rows
    retry_policy retry_;
};

}  // namespace rowlock::cli
