#pragma once

#include "cli/database.hpp"
#include "cli/serve/seen.hpp"
#include "coordination/protocol/lease/lease_protocol.hpp"
#include "overview/overview.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace rowlock::cli::serving {

/// Reads the locks in use for all pages together: however many there are, one connection reads at
/// most once in `every`, at most a fifth of the time, and only while a page wants it. Thread-safe.
class live_overview {
public:
    /// Does not connect yet.
    live_overview(const database& in, std::chrono::milliseconds every);
    live_overview(const live_overview&) = delete;
    live_overview& operator=(const live_overview&) = delete;
    ~live_overview();

    /// What was read when this was called, or up to `every` before.
    [[nodiscard]] std::shared_ptr<const seen> latest();
    /// The next that is newer than `version`; null if none comes within `limit`, or after stop().
    [[nodiscard]] std::shared_ptr<const seen> after(std::uint64_t version,
                                                    std::chrono::milliseconds limit);
    /// Ends all waits, now and later.
    void stop();
    [[nodiscard]] bool is_stopped();

    /// Reads on the same connection.
    [[nodiscard]] overview::sessions_seen sessions();

    /// Rows of one table that are shown.
    static constexpr std::int64_t most = 50'000;

private:
    using clock = std::chrono::steady_clock;

    void run(const std::stop_token& ended);
    [[nodiscard]] std::shared_ptr<const seen> read(const seen& before);
    /// Runs `action(connection)`; breaks the connection if that fails.
    template <typename Action>
    auto on_connection(Action action);

    const database& in_;
    const std::chrono::milliseconds every_;
    const sql::statement_set statements_;
    const std::unique_ptr<const protocol::lease_protocol> protocol_;

    std::mutex connection_lock_;
    std::unique_ptr<sql::connection> connection_;

    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::shared_ptr<const seen> latest_ = std::make_shared<seen>();
    clock::time_point read_at_{};
    clock::time_point next_{};
    int wanted_ = 0;  ///< threads that wait for the next
    bool stopped_ = false;
    std::jthread reader_;
};

}  // namespace rowlock::cli::serving
