#pragma once

#include <rowlock/events.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/options.hpp>
#include <rowlock/sql/connection.hpp>
#include <rowlock/timeout.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace rowlock {

/// @addtogroup advisory
/// Advisory locks: names that the database server itself locks for a connection, without any table.
/// They cost one round trip, pass on in well under a millisecond and end with the connection. There
/// is no fencing token: the data cannot tell a holder that was paused or cut off from its
/// successor. Where that matters use a lease and fence() (client.hpp, transaction.hpp).
///
/// PostgreSQL: pg_advisory_lock; waiting needs the language plpgsql, which every user may use
/// unless that right was revoked. MySQL and MariaDB: GET_LOCK, exclusive only. SQLite has none.
///
/// @{

/// Which other holders an advisory lock allows.
enum class advisory_mode : unsigned char {
    exclusive,  ///< alone
    shared,     ///< together with other shared holders; PostgreSQL only
};

/// The key of a lock. A name is mapped to the database's own key as docs/advisory-keys.md says, so
/// that programs in other languages can lock the same. The explicit kinds are for keys that other
/// programs already use.
class advisory_key {
public:
    /// What a key is made of.
    enum class kind : unsigned char {
        name,      ///< a lock_name, mapped to the database's own key
        number,    ///< one number of 64 bits
        pair,      ///< two numbers of 32 bits
        verbatim,  ///< the text itself
    };

    /// By name, under the rules of lock_name.
    /// @throws error errc::invalid_name
    advisory_key(const lock_name& name);  // NOLINT(google-explicit-constructor)
    /// From text, as the constructor above.
    advisory_key(std::string_view name) : advisory_key{lock_name{name}} {}
    advisory_key(const std::string& name) : advisory_key{lock_name{name}} {}  ///< likewise
    advisory_key(const char* name) : advisory_key{lock_name{name}} {}         ///< likewise
    advisory_key(std::nullptr_t) = delete;

    /// PostgreSQL: the key of pg_advisory_lock(bigint).
    [[nodiscard]] static advisory_key number(std::int64_t key);
    /// PostgreSQL: the keys of pg_advisory_lock(int, int), a key space separate from number()'s.
    [[nodiscard]] static advisory_key pair(std::int32_t first, std::int32_t second);
    /// MySQL and MariaDB: the name of GET_LOCK(name, …), which all schemas of the server share. 1
    /// to 64 printable ASCII characters. Names that differ only in case are one lock to MySQL and
    /// to the threads of one advisory_client, and two locks to MariaDB: always write a name the
    /// same way.
    /// @throws error errc::invalid_name
    [[nodiscard]] static advisory_key verbatim(std::string_view text);

    /// Which of the functions above made it.
    [[nodiscard]] kind type() const noexcept { return kind_; }
    /// For people: the name, `number 42`, `pair 1 2`, or the verbatim text.
    [[nodiscard]] const std::string& str() const noexcept { return text_; }
    /// The number; for a pair: the first in the upper and the second in the lower 32 bits; else 0.
    [[nodiscard]] std::int64_t bits() const noexcept { return bits_; }

    /// By kind and value.
    friend bool operator==(const advisory_key&, const advisory_key&) = default;

private:
    advisory_key(kind type, std::string text, std::int64_t bits)
        : kind_{type}, text_{std::move(text)}, bits_{bits} {}

    kind kind_;
    std::string text_;
    std::int64_t bits_ = 0;
};

/// The 64-bit key of a name on PostgreSQL.
/// @throws error errc::invalid_options if `domain` breaks the rules of lock_name
[[nodiscard]] std::int64_t advisory_number(const lock_name& name,
                                           std::string_view domain = "rowlock");
/// The 48-character key of a name for GET_LOCK. `schema` is the result of `SELECT DATABASE()`,
/// empty for NULL.
/// @throws error errc::invalid_options if `domain` breaks the rules of lock_name, or `schema`
/// contains a line feed
[[nodiscard]] std::string advisory_text(const lock_name& name, std::string_view schema,
                                        std::string_view domain = "rowlock");

/// Options of advisory_client, validated once by its constructor (errc::invalid_options).
struct advisory_options {
    /// Separates the names of applications that share a database; under the rules of lock_name.
    /// Programs that are to exclude each other use the same domain.
    std::string domain = "rowlock";
    /// One connection for each lock. Off: locks that are free at once share one connection, which
    /// costs the server least; a lost connection then costs all locks on it. A lock that had to be
    /// waited for stays on the connection that waited.
    bool own_connection = false;
    /// Maximum of open connections. Eight: one shared and seven locks that are or were waited for.
    /// Beyond that a call waits by polling on the shared connection, which notices a release later
    /// and is not fair; with own_connection a call waits for a free connection within
    /// statement_timeout and then throws errc::timed_out. 1 to 1 000.
    int max_connections = 8;
    /// How often the client asks the server whether it still holds our locks. libpq notices a
    /// broken connection at once, because its socket is watched; Connector/C++ and SOCI notice it
    /// by this question. 5 s is one cheap statement for each connection. 10 ms to 1 hour.
    std::chrono::milliseconds check_period{std::chrono::seconds{5}};
    /// For one statement, connecting included. After check_period + statement_timeout without an
    /// answer the locks of a connection count as lost. 10 ms to 1 minute.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// How long one waiting statement lasts before it is sent anew: the longest delay until a stop
    /// or the destruction of the object is noticed. A quarter of a second stays below PostgreSQL's
    /// deadlock_timeout, so that CREATE INDEX CONCURRENTLY, which waits for every older statement,
    /// is not taken for a deadlock. 10 ms to 1 minute; MySQL waits in whole seconds, rounded up.
    std::chrono::milliseconds wait_slice{250};
    /// After this much silence from us the server ends the session and frees its locks, so that a
    /// machine that vanished does not keep them for hours. Our held() turns false long before. At
    /// least one and a half times check_period + statement_timeout. MySQL and MariaDB:
    /// wait_timeout; PostgreSQL 14 and newer: idle_session_timeout. 0: eight hours on MySQL
    /// and MariaDB, no limit on PostgreSQL. Up to one day.
    std::chrono::milliseconds keepalive_timeout{std::chrono::seconds{30}};
    /// Applies when a connection breaks before the lock is granted.
    retry_policy retry = {};
    /// Called for event_kind::advisory_locked, advisory_unlocked, advisory_lost and unlock_failed.
    event_callback on_event = {};
};

namespace detail {
class advisory_engine;
struct advisory_hold;
}  // namespace detail

/// A held lock: until it is unlocked, destroyed or lost. Not bound to a thread: it may be moved to
/// another and unlocked there. One thread at a time per object; held() and lost() may be called
/// from any.
class [[nodiscard]] advisory_lock {
public:
    /// `other` holds nothing then, and only destroying or assigning to it is allowed.
    advisory_lock(advisory_lock&&) noexcept;
    /// Unlocks what it held before, as the destructor does.
    advisory_lock& operator=(advisory_lock&&) noexcept;
    advisory_lock(const advisory_lock&) = delete;
    advisory_lock& operator=(const advisory_lock&) = delete;
    /// Unlocks, within twice statement_timeout. A failure is reported as an event
    /// (unlock_failed); the lock is then freed in the background, or with the connection.
    ~advisory_lock();

    /// The key that was locked. Not of a moved-from lock.
    [[nodiscard]] const advisory_key& key() const noexcept;
    /// key().str()
    [[nodiscard]] const std::string& name() const noexcept;
    /// The mode in which it was locked.
    [[nodiscard]] advisory_mode mode() const noexcept;

    /// Whether the lock is still ours as far as known: false once the connection is found broken,
    /// the server denies the lock, or check_period + statement_timeout have passed without an
    /// answer. No round trip.
    [[nodiscard]] bool held() const noexcept;
    /// Fires when the lock is lost, not when it is unlocked. Callbacks run on a separate thread.
    [[nodiscard]] std::stop_token lost() const;

    /// One round trip (none for a shared lock that other threads of this process still hold).
    /// Returns normally only if the lock was held until now. A second call does nothing.
    /// @throws error errc::lock_lost if it was lost before, detected here at the latest;
    /// errc::timed_out if the server did not answer in time: the lock is no longer ours and is
    /// being released in the background.
    void unlock();

private:
    friend class advisory_client;
    explicit advisory_lock(std::shared_ptr<detail::advisory_hold> hold) noexcept;

    std::shared_ptr<detail::advisory_hold> hold_;
};

/// Start here: owns connections, made on demand, and one thread that watches them. Thread-safe.
///
/// Threads of this process exclude each other as well, first come, first served, before the client
/// asks the database. Between processes the database decides; it favours waiters but promises no
/// order. There is no thread identity: a thread that locks what it holds waits for itself, without
/// end (lock) or until its timeout; try_lock() answers empty. All programs should take several
/// names in one order: neither this library nor the database sees a deadlock between advisory locks
/// on different connections.
///
/// Errors of every call that locks:
/// - errc::unsupported: SQLite (by the constructor); a key or mode that the database does not have;
///   a transaction pooler in between, declared or detected, which hands the session that owns the
///   lock to other clients; a connection whose server process already holds advisory locks
///   (PostgreSQL); a Galera node, which grants GET_LOCK for itself alone;
/// - errc::read_only: a standby (MySQL: read_only), which grants locks unknown to the primary;
/// - errc::database_unreachable, access_denied, out_of_resources, timed_out, outcome_unknown,
///   database_error, after the retries of retry_policy; errc::wrong_process in a forked child.
class advisory_client {
public:
    /// Connects to nothing.
    /// @throws error errc::invalid_options, errc::unsupported for SQLite
    explicit advisory_client(sql::connection_source source, advisory_options options = {});
    /// Unlocks what is held, within twice statement_timeout; advisory_lock objects that still exist
    /// count as lost. Calls that wait in other threads end with errc::lock_lost within a
    /// wait_slice.
    ~advisory_client();
    advisory_client(const advisory_client&) = delete;
    advisory_client& operator=(const advisory_client&) = delete;

    /// Waits until the lock is granted. One round trip if it is free; two for each slice of
    /// waiting.
    [[nodiscard]] advisory_lock lock(const advisory_key& key) {
        return *acquire(key, advisory_mode::exclusive, time_point::max(), {});
    }
    /// The same; empty if and only if `stop` was requested first.
    [[nodiscard]] std::optional<advisory_lock> lock(const advisory_key& key, std::stop_token stop) {
        return acquire(key, advisory_mode::exclusive, time_point::max(), std::move(stop));
    }
    /// One attempt; empty if the lock is held. One round trip, none if a thread of this process is
    /// in the way.
    [[nodiscard]] std::optional<advisory_lock> try_lock(const advisory_key& key) {
        return acquire(key, advisory_mode::exclusive, one_attempt, {});
    }
    /// Waits up to `timeout`; empty if the lock was held all that time. A timeout ≤ 0 is one
    /// attempt.
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<advisory_lock> try_lock_for(
        const advisory_key& key, const std::chrono::duration<Rep, Period>& timeout,
        std::stop_token stop = {}) {
        return acquire(key, advisory_mode::exclusive, end_of(timeout), std::move(stop));
    }

    /// PostgreSQL: together with other shared holders. Joins a shared lock that this process
    /// already holds, unless a thread waits for it exclusively.
    [[nodiscard]] advisory_lock lock_shared(const advisory_key& key) {
        return *acquire(key, advisory_mode::shared, time_point::max(), {});
    }
    /// The same; empty if and only if `stop` was requested first.
    [[nodiscard]] std::optional<advisory_lock> lock_shared(const advisory_key& key,
                                                           std::stop_token stop) {
        return acquire(key, advisory_mode::shared, time_point::max(), std::move(stop));
    }
    /// One attempt, as try_lock().
    [[nodiscard]] std::optional<advisory_lock> try_lock_shared(const advisory_key& key) {
        return acquire(key, advisory_mode::shared, one_attempt, {});
    }
    /// Waits up to `timeout`, as try_lock_for().
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<advisory_lock> try_lock_shared_for(
        const advisory_key& key, const std::chrono::duration<Rep, Period>& timeout,
        std::stop_token stop = {}) {
        return acquire(key, advisory_mode::shared, end_of(timeout), std::move(stop));
    }

    /// Connections that are open now.
    [[nodiscard]] std::size_t connections() const;

private:
    using time_point = std::chrono::steady_clock::time_point;
    static constexpr time_point one_attempt = time_point::min();

    template <typename Rep, typename Period>
    static time_point end_of(const std::chrono::duration<Rep, Period>& timeout) {
        return timeout > timeout.zero() ? detail::after(timeout) : one_attempt;
    }
    [[nodiscard]] std::optional<advisory_lock> acquire(const advisory_key& key, advisory_mode mode,
                                                       time_point until, std::stop_token stop);

    std::shared_ptr<detail::advisory_engine> engine_;
};

/// @}

}  // namespace rowlock
