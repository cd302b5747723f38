#pragma once

#include "cli/database.hpp"
#include "cli/signals.hpp"
#include "coordination/lease/lease_protocol.hpp"
#include <rowlock/sql/connection.hpp>
#include <rowlock/sql/notifications.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace rowlock::cli {

/// One connection at a time, made anew when it breaks: the database of a command that needs no
/// client with its threads.
class link {
public:
    static constexpr std::chrono::milliseconds statement_timeout = std::chrono::seconds{5};

    link(const database& in, blocked_signals& signals);

    /// Runs `action(connection, deadline)`, and again after failures that allow it. An unknown
    /// outcome is repeated too: every action finds out what became of the earlier attempt. A signal
    /// ends the repeating, not the attempt.
    template <typename Action>
    auto run(Action action) {
        using std::chrono::steady_clock;
        const auto start = steady_clock::now();
        for (int made = 1;; ++made) {
            try {
                const auto until = steady_clock::now() + statement_timeout;
                return action(connected(until), until);
            } catch (const error& failure) {
                if (!failure.retryable() && failure.kind() != errc::outcome_unknown) throw;
                const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
                    steady_clock::now() - start);
                const auto pause = retry_.next(failure, made, elapsed);
                if (!pause) throw;
                if (const int number = signals_.wait(*pause); number != 0) {
                    signals_.put_back(number);
                    throw;
                }
            }
        }
    }

    /// From now on the database wakes descriptor() by what it says on `channel`, if it can. To be
    /// called in an action: it costs nothing if this connection listens already. What was said so
    /// far is dropped.
    void listen(sql::connection& db, std::string_view channel, sql::deadline until);
    /// Whether the database has said something since listen() that is proved by this secret; of a
    /// file, whether it was written. To be asked before a wait for descriptor(): a statement may
    /// have read it, and then that is silent about it.
    [[nodiscard]] bool was_told(std::string_view secret);
    /// Turns readable when the database has said something; -1 if it says nothing by itself.
    [[nodiscard]] int descriptor() const noexcept;

    /// From now on a row that somebody has locked is waited for briefly: 100 ms, on MySQL 1 s. For
    /// who comes back to it. To be called in an action: it costs a round trip for each connection.
    void do_not_wait_for_rows(sql::connection& db, sql::deadline until);

    [[nodiscard]] const strategy::lease_protocol& protocol() const noexcept { return protocol_; }

private:
    sql::connection& connected(sql::deadline until);

    const database& in_;
    blocked_signals& signals_;
    strategy::lease_protocol protocol_;
    std::unique_ptr<sql::connection> db_;
    sql::notifications* ears_ = nullptr;  ///< of db_
    std::string heard_;                   ///< the channel that db_ listens to
    bool silent_ = false;                 ///< the database cannot notify us
    bool impatient_ = false;              ///< db_ does not wait for rows
    retry_policy retry_;
};

}  // namespace rowlock::cli
