#pragma once

#include "support/protocols.hpp"
#include "support/waits.hpp"
#include <rowlock/client.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace support {

/// The database and driver that a case runs on.
enum class backend : unsigned char {
    sqlite,
    postgresql,
    mariadb,
    soci_sqlite,
    soci_postgresql,
    soci_mariadb,
    simulated,         ///< SQLite in memory, in simulated time: in the program of tests/sim alone
    simulated_server,  ///< the same, as a server with an identity: may be a member of a quorum
};

[[nodiscard]] const char* to_string(backend which);

/// Whether this run is for `which`: the native drivers, or SOCI's back ends alone with
/// ROWLOCK_TEST_DRIVER=soci.
[[nodiscard]] bool is_chosen(backend which);

/// Where a decision of the client is shown that is the same everywhere, and takes seconds: on
/// PostgreSQL, with ROWLOCK_TEST_DRIVER=every on each native driver.
[[nodiscard]] std::vector<backend> for_a_client();

/// Where ROWLOCK_SIMULATED_CASE runs: in simulated time, with ROWLOCK_TEST_DRIVER=every on each
/// native driver.
[[nodiscard]] std::vector<backend> for_simulation();

/// One of simulated_world::open().
struct simulated_database {
    rowlock::sql::connection_source source;
    std::shared_ptr<void> tables;  ///< until its end
};
/// What backend::simulated stands for.
struct simulated_world {
    /// With the tables, and no row of earlier ones. Those of a case are all servers, or all files.
    simulated_database (*open)(bool is_server);
};
/// The suite of the cases that run in it.
constexpr const char* simulated_cases = "simulated";
/// Null where time is real.
extern const simulated_world* simulation;

/// Migrated tables for one test case, removed afterwards.
class lock_database {
public:
    explicit lock_database(backend which);
    ~lock_database();
    lock_database(const lock_database&) = delete;
    lock_database& operator=(const lock_database&) = delete;

    /// False if the server is missing: the case is skipped (or has failed where servers are
    /// required).
    [[nodiscard]] bool there() const noexcept { return source_.has_value(); }

    [[nodiscard]] const rowlock::sql::connection_source& source() const { return *source_; }
    [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
    /// The URL for another process that opens the same tables; native drivers only.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }
    [[nodiscard]] backend which() const noexcept { return which_; }
    [[nodiscard]] rowlock::sql::dialect speaks() const { return source_->speaks(); }

    /// The same tables by another URL: as another user, or through a relay.
    [[nodiscard]] rowlock::sql::connection_source at(const std::string& url) const;

    /// `options` for a client of a test, whose default statement_timeout is 20 s.
    [[nodiscard]] rowlock::client_options options(rowlock::client_options options = {}) const;
    /// `options` for a client that notices within some heartbeats what is changed by hand, and
    /// whose session outlives any stall of the machine.
    [[nodiscard]] rowlock::client_options watchful(rowlock::client_options options = {}) const;
    [[nodiscard]] const rowlock::protocol::lease_protocol& protocol() const {
        return protocols_->leases();
    }
    [[nodiscard]] const rowlock::protocol::queue_protocol& queue() const {
        return protocols_->queue();
    }
    [[nodiscard]] const rowlock::protocol::batch_protocol& batches() const {
        return protocols_->batches();
    }
    [[nodiscard]] const rowlock::sql::statement_set& statements() const {
        return protocols_->statements();
    }
    [[nodiscard]] rowlock::reaper_options reaping(std::chrono::milliseconds retention,
                                                  std::chrono::milliseconds grace) const;
    /// A new connection, set up like a client's: its transactions may be idle for 20 s.
    [[nodiscard]] std::unique_ptr<rowlock::sql::connection> connect() const;

    /// The fixture's own connection.
    [[nodiscard]] rowlock::sql::connection& admin() { return *admin_; }
    /// Runs SQL on it; `rowlock_` is replaced by the prefix of this test's tables.
    rowlock::sql::result run(const std::string& sql);
    [[nodiscard]] std::int64_t number(const std::string& sql);
    /// Reconnects after its server was restarted.
    void reconnect() {
        admin_.reset();
        admin_ = source_->connect(soon());
    }
    /// Writes token 7 for a new name, as a delayed statement of an acquire would.
    void write_late_grant(const std::string& name, rowlock::session_id session,
                          rowlock::grant_id grant_id);

private:
    backend which_;
    std::string prefix_;
    std::string folder_;
    std::string url_;
    std::shared_ptr<void> simulated_;
    std::optional<rowlock::sql::connection_source> source_;
    std::optional<protocols> protocols_;
    std::unique_ptr<rowlock::sql::connection> admin_;
};

}  // namespace support

/// Runs the case once for each back end that this run is for, in subcases named after them.
#define ROWLOCK_FOR_EACH_BACKEND(database, ...)                                     \
    for (const auto which_ : {__VA_ARGS__})                                         \
        if (support::is_chosen(which_)) DOCTEST_SUBCASE(support::to_string(which_)) \
    if (support::lock_database database{which_}; database.there())

/// The same for a case that is about what a client decides.
#define ROWLOCK_FOR_A_CLIENT(database)                                                            \
    for (const auto which_ : support::for_a_client()) DOCTEST_SUBCASE(support::to_string(which_)) \
    if (support::lock_database database{which_}; database.there())

/// A case about what a client decides, which waits for time to pass. By default it runs in
/// simulated time alone, under several schedules: tests/sim. Each promise keeps a case in real
/// time.
#define ROWLOCK_SIMULATED_CASE(sentence, database) \
    ROWLOCK_SIMULATED_CASE_(DOCTEST_ANONYMOUS(simulated_case_), sentence, database)
#define ROWLOCK_SIMULATED_CASE_(body, sentence, database)                                      \
    static void body(support::lock_database& database);                                        \
    DOCTEST_TEST_CASE(sentence* doctest::test_suite(support::simulated_cases)) {               \
        for (const auto which_ : support::for_simulation()) {                                  \
            DOCTEST_SUBCASE(support::to_string(which_)) {                                      \
                if (support::lock_database database{which_}; database.there()) body(database); \
            }                                                                                  \
        }                                                                                      \
    }                                                                                          \
    static void body(support::lock_database& database)

#define ROWLOCK_ALL_BACKENDS                                                           \
    support::backend::sqlite, support::backend::postgresql, support::backend::mariadb, \
        support::backend::soci_sqlite, support::backend::soci_postgresql,              \
        support::backend::soci_mariadb

#define ROWLOCK_NATIVE_BACKENDS \
    support::backend::sqlite, support::backend::postgresql, support::backend::mariadb

#define ROWLOCK_SERVER_BACKENDS support::backend::postgresql, support::backend::mariadb
