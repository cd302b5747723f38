#pragma once

#include "coordination/wakeup/wakeup_source.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/notifications.hpp>

#include <atomic>

namespace rowlock::wakeup {

/// Where the connection itself can be woken (sql::notifications).
class notification_source : public wakeup_source {
public:
    bool listen(sql::connection& db, const recipient& current, session_id waiting,
                sql::deadline until) override;
    void detach() noexcept override;
    void read(listener& to) override;
    [[nodiscard]] int descriptor() const noexcept override;
    [[nodiscard]] bool is_possible() const noexcept override { return !impossible_; }
    [[nodiscard]] kind wakes(session_id session) const noexcept override;
    [[nodiscard]] session_id listening_for() const noexcept override { return listening_for_; }

protected:
    /// The capability of the connection; null while it does not listen.
    [[nodiscard]] sql::notifications* capability() const noexcept { return notifications_; }
    virtual void report(const sql::notification& what, listener& to) = 0;

private:
    sql::connection* db_ = nullptr;
    sql::notifications* notifications_ = nullptr;
    std::atomic<session_id> listening_for_{session_id{}};
    bool impossible_ = false;  ///< a driver or database without notifications
};

/// PostgreSQL: LISTEN on the channel of the session. A grant is notified by the transaction that
/// writes it.
class listen_source final : public notification_source {
public:
    [[nodiscard]] bool names_grants() const noexcept override {
        return listening_for() != session_id{};
    }

private:
    void report(const sql::notification& what, listener& to) override;
};

/// SQLite: a watch of the database's file, which reports that another client committed.
class file_watch_source final : public notification_source {
public:
    [[nodiscard]] bool watches_commits() const noexcept override;
    bool want_commits(bool wanted) override;

private:
    void report(const sql::notification& what, listener& to) override;
};

}  // namespace rowlock::wakeup
