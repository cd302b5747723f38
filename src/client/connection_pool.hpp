#pragma once

#include "strategy/lease_protocol.hpp"
#include <rowlock/sql/connection.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace rowlock::detail {

/// The client's connections, up to a budget, made on demand and kept. Thread-safe.
class connection_pool {
public:
    /// @param on_broken is told when a connection turned out to be dead, on the thread that found
    /// out
    connection_pool(sql::connection_source source, const strategy::lease_protocol& protocol,
                    int budget, std::chrono::milliseconds statement_deadline,
                    std::function<void()> on_broken);

    /// A connection for as long as this object lives; given back, or closed if it broke.
    class borrowed {
    public:
        borrowed(connection_pool& pool, std::unique_ptr<sql::connection> db)
            : pool_{&pool}, db_{std::move(db)} {}
        borrowed(borrowed&&) noexcept = default;
        borrowed& operator=(borrowed&&) = delete;
        ~borrowed();
        [[nodiscard]] sql::connection& operator*() const noexcept { return *db_; }

    private:
        connection_pool* pool_;
        std::unique_ptr<sql::connection> db_;
    };

    /// Waits for a free place until then.
    /// @throws error errc::timed_out if none came free; those of connecting
    [[nodiscard]] borrowed take(sql::deadline until);
    /// A connection outside the budget, for the heartbeat.
    [[nodiscard]] std::unique_ptr<sql::connection> make(sql::deadline until) const;

    [[nodiscard]] std::size_t open_connections() const;
    /// In a forked child: forgets the connections without closing them.
    void abandon() noexcept;

private:
    void give_back(std::unique_ptr<sql::connection> db) noexcept;

    const sql::connection_source source_;
    const strategy::lease_protocol& protocol_;
    const std::size_t budget_;
    const std::chrono::milliseconds statement_deadline_;
    const std::function<void()> on_broken_;

    mutable std::mutex mutex_;
    std::condition_variable freed_;
    std::vector<std::unique_ptr<sql::connection>> idle_;
    std::size_t in_use_ = 0;
};

}  // namespace rowlock::detail
