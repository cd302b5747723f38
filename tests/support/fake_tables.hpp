#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace support {

/// The state of the fake protocols in the place of tables: for one process, without a clock, so
/// that a session lives until it is ended. Thread-safe.
class fake_tables {
public:
    struct session {
        std::string owner{};
        bool live = true;
        std::int64_t revision = 0;
        rowlock::wakeup::wake_address wake{};
    };
    struct lease {
        std::int64_t token = 0;
        rowlock::session_id session{};  ///< 0: free
        rowlock::grant_id grant_id{};
        std::optional<std::int64_t> deadline_us{};
    };
    struct waiter {
        std::string name;
        rowlock::session_id session;
        rowlock::grant_id grant_id;
        std::string thread, note;
        std::optional<std::int64_t> deadline_us;
    };
    struct rows {
        std::map<rowlock::session_id, session> sessions{};
        std::map<std::string, lease, std::less<>> leases{};
        std::map<rowlock::ticket_no, waiter> waiters{};  ///< by ticket
        std::int64_t last_ticket = 0;
        std::int64_t floor = 0;  ///< every later token is greater

        [[nodiscard]] bool live(rowlock::session_id session) const {
            const auto found = sessions.find(session);
            return found != sessions.end() && found->second.live;
        }
        [[nodiscard]] bool free(std::string_view name) const {
            const auto found = leases.find(name);
            return found == leases.end() || !live(found->second.session);
        }
        [[nodiscard]] bool is_grant(std::string_view name, rowlock::session_id session,
                                    rowlock::grant_id grant_id) const {
            const auto found = leases.find(name);
            return found != leases.end() && session != rowlock::session_id{} &&
                   found->second.session == session && found->second.grant_id == grant_id;
        }
        /// The first waiter that can be served.
        [[nodiscard]] std::map<rowlock::ticket_no, waiter>::const_iterator first(
            std::string_view name) const {
            auto at = waiters.begin();
            while (at != waiters.end() && (at->second.name != name || !live(at->second.session))) {
                ++at;
            }
            return at;
        }
        [[nodiscard]] bool waited(std::string_view name) const {
            return first(name) != waiters.end();
        }
        /// Returns the token.
        std::int64_t grant(const waiter& to) {
            lease& row = leases[to.name];
            row = {std::max(row.token, floor) + 1, to.session, to.grant_id, to.deadline_us};
            return row.token;
        }
    };

    /// Makes the next call of a fake protocol change nothing and throw this.
    void fail_next(rowlock::error failure) {
        const std::lock_guard lock{mutex_};
        failure_ = std::move(failure);
    }

    /// Runs `action(rows)` for the test itself, which never fails by fail_next().
    template <typename Action>
    auto look(const Action& action) {
        const std::lock_guard lock{mutex_};
        return action(rows_);
    }

    /// Runs one call of a fake protocol: `action(rows)`, one at a time.
    template <typename Action>
    auto call(const Action& action) {
        const std::lock_guard lock{mutex_};
        if (failure_) throw *std::exchange(failure_, std::nullopt);
        return action(rows_);
    }

private:
    std::mutex mutex_;
    rows rows_;
    std::optional<rowlock::error> failure_;
};

/// For callers of a fake protocol, which runs no statements.
class fake_connection final : public rowlock::sql::connection {
public:
    [[nodiscard]] rowlock::sql::dialect speaks() const noexcept override {
        return rowlock::sql::dialect::sqlite;
    }
    rowlock::sql::result execute(const rowlock::sql::statement& what,
                                 std::span<const rowlock::sql::value> /*parameters*/,
                                 rowlock::sql::deadline /*until*/) override {
        throw std::logic_error{"a fake connection runs no statement: " + what.text()};
    }
    rowlock::sql::result query(std::string_view text, rowlock::sql::deadline /*until*/) override {
        throw std::logic_error{"a fake connection runs no statement: " + std::string{text}};
    }
    [[nodiscard]] bool alive() const noexcept override { return true; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return 0; }
};

}  // namespace support
