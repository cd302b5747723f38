#pragma once

#include "lock/wakeup/hint.hpp"
#include "lock/wakeup/mailbox.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace rowlock::wakeup {

using std::chrono::nanoseconds;

/// A session that is to be woken.
struct recipient {
    session_id session{};  ///< 0: none
    std::shared_ptr<const wakeup::wake_address> address{};
    std::shared_ptr<const mailbox> box{};  ///< null: it has none
};

class listening_connection;

/// What a source reports. The first two are called within read(), the others on the source's own
/// thread.
class listener {
public:
    listener() = default;
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;
    virtual ~listener() = default;

    /// A message came, which may be forged. Returns false if it was of no use.
    /// @param by_database whether the database delivered it, behind the commit that it reports
    virtual bool on_message(std::string_view message, bool by_database) = 0;
    /// Another client committed to the file of the database.
    virtual void on_commit() = 0;

    /// A sleep in the server is about to begin: wake-ups until it has begun are missed.
    /// @param again it follows another that was not interrupted
    virtual void on_sleep(bool again) = 0;
    /// The sleep was interrupted: an entry may have been served.
    virtual void on_woken() noexcept = 0;
    /// The session cannot be woken now.
    virtual void on_doubt() noexcept = 0;
    /// A connection of the source is gone, and with it perhaps the server.
    virtual void on_broken() noexcept = 0;
};

/// One way in which a client learns that it was served, apart from polling. One thread uses a
/// source; functions that any thread may call say so. This class itself is the way that brings
/// nothing, for clients that only poll.
class wakeup_source {
public:
    enum class kind : unsigned char {
        none,
        notification,  ///< messages, or changes of the file
        interruption,  ///< a statement that sleeps in the server and is interrupted
    };

    wakeup_source() = default;
    wakeup_source(const wakeup_source&) = delete;
    wakeup_source& operator=(const wakeup_source&) = delete;
    virtual ~wakeup_source() = default;

    /// Listens for the client's current session, or sleeps for the session of its waiters. Returns
    /// true if it listens from now on, and did not before: what was sent earlier was missed. At
    /// most three round trips, none if nothing has changed.
    /// @param waiting the session of this client's waiters, 0 if there is none
    virtual bool listen(sql::connection& db, const recipient& current, session_id waiting,
                        sql::deadline until);
    /// The connection that listen() was called with is about to end.
    virtual void detach() noexcept {}
    /// Passes on what has arrived. Never waits for the database.
    virtual void read(listener&) {}
    /// To be polled, not read; -1 if there is none.
    [[nodiscard]] virtual int descriptor() const noexcept { return -1; }
    /// No thread of the client waits.
    virtual void rest() noexcept {}
    /// No further sleep begins.
    virtual void stop() noexcept {}

    /// How this session is woken now.
    [[nodiscard]] virtual kind wakes(session_id session) const noexcept;
    /// The session that it listens for on the connection of listen(), 0 if none. Any thread.
    [[nodiscard]] virtual session_id listening_for() const noexcept { return session_id{}; }
    /// Whether it listens, and the database notifies each grant by name. Any thread.
    [[nodiscard]] virtual bool names_grants() const noexcept { return false; }
    /// Whether it reports commits to the file (SQLite).
    [[nodiscard]] virtual bool watches_commits() const noexcept { return false; }
    /// Turns these reports on or off. Returns whether they are on now.
    virtual bool want_commits(bool wanted);
    /// Whether listen() is to be called for the session: to begin a sleep in the server, or to see
    /// that it continues; or because notifications arrive from now on. Any thread.
    [[nodiscard]] virtual bool must_listen_for(session_id /*waiting*/) const noexcept {
        return false;
    }
    /// Connections that the source has of its own. Any thread.
    [[nodiscard]] virtual std::size_t connections() const noexcept { return 0; }
};

/// What a source of the database needs.
struct source_parts {
    std::function<std::unique_ptr<sql::connection>(sql::deadline)> connect;
    std::function<std::int64_t()> next_id;
    /// Outlives the source.
    listener& reports_to;
    std::chrono::milliseconds statement_timeout;
    /// Whether all of the client shares one connection.
    bool shares_connection = false;
    /// PostgreSQL. Outlives the source.
    listening_connection& listening;
};

/// The way of this database: LISTEN, a watch of the file, or a sleep in the server.
[[nodiscard]] std::unique_ptr<wakeup_source> make_database_source(sql::dialect speaks,
                                                                  source_parts with);

}  // namespace rowlock::wakeup
