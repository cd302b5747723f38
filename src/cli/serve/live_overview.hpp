#pragma once

#include "cli/database.hpp"
#include "cli/serve/overview_connection.hpp"
#include "cli/serve/seen.hpp"

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

    /// What was read when this was called, or up to `every` before; older if the database answers
    /// slowly.
    /// @throws failure `unreachable` if nothing was ever read
    [[nodiscard]] std::shared_ptr<const seen> latest();
    /// The next that is newer than `version`; null if none comes within `limit`, or after stop().
    [[nodiscard]] std::shared_ptr<const seen> after(std::uint64_t version,
                                                    std::chrono::milliseconds limit);
    /// Ends all waits, now and later.
    void stop();
    [[nodiscard]] bool is_stopped();

private:
    using clock = std::chrono::steady_clock;

    void run(const std::stop_token& ended);
    [[nodiscard]] std::shared_ptr<const seen> read(const seen& before);
    const std::chrono::milliseconds every_;
    overview_connection db_;  ///< of the reader's thread
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
