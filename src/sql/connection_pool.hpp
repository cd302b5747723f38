#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace rowlock::sql {

/// Connections up to a budget, made on demand and kept. Thread-safe.
class connection_pool {
public:
    struct settings {
        /// Connects and sets up.
        std::function<std::unique_ptr<connection>(deadline)> connect;
        /// The error message of take() when no connection comes free.
        std::string when_full;
        /// Called when a connection is found dead, on the thread that found it.
        std::function<void()> on_broken = {};
        /// An idle connection is closed after this time, by the next take().
        std::chrono::milliseconds keep_idle = std::chrono::hours{24 * 365};
    };

    explicit connection_pool(settings how) : how_{std::move(how)} {}
    connection_pool(const connection_pool&) = delete;
    connection_pool& operator=(const connection_pool&) = delete;
    ~connection_pool() = default;

    /// A connection for as long as this object lives; given back, or closed if it broke.
    class borrowed {
    public:
        borrowed(connection_pool& pool, std::unique_ptr<connection> db, std::string mark,
                 bool reused, std::uint64_t generation, std::chrono::steady_clock::duration waited,
                 bool brief = false)
            : pool_{&pool},
              db_{std::move(db)},
              mark_{std::move(mark)},
              generation_{generation},
              reused_{reused},
              waited_{waited},
              brief_{brief} {}
        borrowed(borrowed&&) noexcept = default;
        borrowed& operator=(borrowed&&) = delete;
        ~borrowed();
        [[nodiscard]] connection& operator*() const noexcept { return *db_; }
        [[nodiscard]] connection* operator->() const noexcept { return db_.get(); }

        /// What the last borrower noted about the connection, such as settings it made; empty for a
        /// new one.
        [[nodiscard]] const std::string& mark() const noexcept { return mark_; }
        void set_mark(std::string mark) { mark_ = std::move(mark); }

        /// Whether it was idle in the pool before, and may have died there.
        [[nodiscard]] bool reused() const noexcept { return reused_; }
        /// How long take() waited for the budget.
        [[nodiscard]] std::chrono::steady_clock::duration waited() const noexcept {
            return waited_;
        }

        /// Swaps a connection that was idle, and turned out to be dead, for a new one.
        void reconnect(deadline until);
        /// Has the connection closed, not kept: its settings were changed.
        void close_afterwards() noexcept { keep_ = false; }
        /// In a forked child: forgets the connection without closing it.
        void abandon() noexcept { static_cast<void>(db_.release()); }

    private:
        connection_pool* pool_;
        std::unique_ptr<connection> db_;
        std::string mark_;
        std::uint64_t generation_;
        bool reused_;
        bool keep_ = true;
        std::chrono::steady_clock::duration waited_;
        bool brief_;
    };

    /// Waits for one of `budget` places until `place_until`, then connects if none is idle.
    /// @throws error errc::timed_out if none came free; those of connecting
    [[nodiscard]] borrowed take(std::size_t budget, deadline place_until, deadline until);
    /// An idle connection for a short statement, or nullopt. Never waits or connects.
    [[nodiscard]] std::optional<borrowed> take_idle();
    /// Removes an idle connection from the pool for good; null if there is none. Never waits or
    /// connects.
    [[nodiscard]] std::unique_ptr<connection> remove_idle();
    /// A connection outside the budget.
    [[nodiscard]] std::unique_ptr<connection> make(deadline until) const;

    /// Drops all connections that exist or are being made: idle ones are closed at once, those in
    /// use when they are given back.
    void renew() noexcept;

    [[nodiscard]] std::size_t open_connections() const;
    /// In a forked child: forgets the connections without closing them.
    void abandon() noexcept;

private:
    struct idle {
        std::unique_ptr<connection> db;
        std::string mark;
        std::chrono::steady_clock::time_point since;
    };

    void give_back(std::unique_ptr<connection> db, std::string mark, std::uint64_t generation,
                   bool keep, bool briefly_lent) noexcept;
    /// Removes those idle for too long, to be destroyed without the mutex.
    [[nodiscard]] std::vector<idle> stale();

    const settings how_;
    mutable std::mutex mutex_;
    std::condition_variable freed_;
    std::vector<idle> idle_;        ///< the last one was used last
    std::uint64_t generation_ = 0;  ///< counts renew()
    std::size_t in_use_ = 0;
    std::size_t lent_briefly_ = 0;  ///< of those in use
};

}  // namespace rowlock::sql
