#pragma once

#include "lock/wakeup/listening_connection.hpp"
#include "lock/wakeup/wakeup_source.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/notifications.hpp>

#include <atomic>

namespace rowlock::wakeup {

/// SQLite: a watch of the database's file, which reports that another client committed.
class file_watch_source final : public wakeup_source {
public:
    bool listen(sql::connection& db, const recipient& current, session_id waiting,
                sql::deadline until) override;
    void detach() noexcept override;
    void read(listener& to) override;
    [[nodiscard]] int descriptor() const noexcept override;
    [[nodiscard]] kind wakes(session_id session) const noexcept override;
    [[nodiscard]] session_id listening_for() const noexcept override { return listening_for_; }
    [[nodiscard]] bool watches_commits() const noexcept override;
    bool want_commits(bool wanted) override;

private:
    sql::connection* db_ = nullptr;
    sql::notifications* notifications_ = nullptr;
    std::atomic<session_id> listening_for_{session_id{}};
    bool impossible_ = false;  ///< a driver or database without notifications
};

/// PostgreSQL: LISTEN on the channel of the session, on a connection that a holder shares with it.
/// A grant is notified by the transaction that writes it.
class listen_source final : public wakeup_source {
public:
    /// @param on outlives the source
    explicit listen_source(listening_connection& on) : on_{on} {}

    bool listen(sql::connection& db, const recipient& current, session_id waiting,
                sql::deadline until) override;
    void read(listener& to) override;
    [[nodiscard]] int descriptor() const noexcept override { return on_.descriptor(); }
    [[nodiscard]] kind wakes(session_id session) const noexcept override;
    [[nodiscard]] session_id listening_for() const noexcept override { return known_for_; }
    [[nodiscard]] bool names_grants() const noexcept override {
        return listening_for() != session_id{};
    }
    [[nodiscard]] bool must_listen_for(session_id waiting) const noexcept override;

private:
    void await_first(session_id session);

    listening_connection& on_;
    session_id awaited_{};                             ///< used by the thread that calls listen()
    std::atomic<session_id> known_for_{session_id{}};  ///< listen() has returned true for it
};

}  // namespace rowlock::wakeup
