#pragma once

#include <rowlock/client.hpp>
#include <rowlock/options.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

/// For your own tests: real locks on a private SQLite file, with a clock that you move by hand.
/// Component `rowlock::sqlite`.
namespace rowlock::testing {

/// Stands still until moved. Serves as the client's clock and, in `database`, as the database's
/// clock. Thread-safe.
class manual_clock final : public time_source {
public:
    manual_clock();
    ~manual_clock() override;
    manual_clock(const manual_clock&) = delete;
    manual_clock& operator=(const manual_clock&) = delete;

    /// Where the clock was moved to.
    [[nodiscard]] std::chrono::nanoseconds now() const noexcept override;
    /// Once the handle is destroyed `wake` is not running and will not run again. So do not destroy
    /// the handle while holding a mutex that `wake` locks. Both may outlive the clock.
    [[nodiscard]] std::shared_ptr<void> on_advance(std::function<void()> wake) override;
    /// Moves the clock forward, then calls every registered `wake`, on this thread.
    /// @throws error errc::invalid_options if `by` is negative
    void advance(std::chrono::nanoseconds by);

private:
    struct state;
    std::shared_ptr<state> state_;
};

/// A migrated database in a private folder (mode 0700) of its own below the temporary folder,
/// removed by the destructor; destroy the clients first. Its SQL clock starts on 2026-01-01 and
/// moves with clock().advance(). Thread-safe.
class database {
public:
    /// @throws error as migrate(), and errc::out_of_resources if no folder can be made
    database();
    ~database();
    database(const database&) = delete;
    database& operator=(const database&) = delete;

    /// For a client, with options().
    [[nodiscard]] const sql::connection_source& source() const noexcept { return source_; }
    /// The clock of this database.
    [[nodiscard]] manual_clock& clock() noexcept { return *clock_; }
    /// `options` for a client on this database's clock. Its heartbeats are due by that clock too.
    [[nodiscard]] client_options options(client_options options = {}) const;

private:
    std::shared_ptr<manual_clock> clock_;
    std::string folder_;
    int process_;  // a forked child leaves the folder alone
    sql::connection_source source_;
};

}  // namespace rowlock::testing
