// The connection of a command without a client.

#include "cli/link.hpp"

#include "tool/tool.hpp"
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>
#include <rowlock/sql/forwarding_connection.hpp>

#include <doctest/doctest.h>

#include <csignal>

using namespace rowlock;
using namespace std::chrono_literals;

TEST_CASE("a signal that ends a retry's pause is still pending for the command") {
    int attempts = 0;
    const cli::database in{"nowhere:",
                           {sql::dialect::sqlite,
                            [&](sql::deadline) -> std::unique_ptr<sql::connection> {
                                ++attempts;
                                throw error{errc::database_unreachable, "nobody is there"};
                            },
                            "nowhere"},
                           false};
    cli::blocked_signals signals{SIGTERM};
    cli::link to{in, signals};
    raise(SIGTERM);
    const auto nothing = [](sql::connection&, sql::deadline) { return true; };
    CHECK_THROWS_AS(to.run(nothing), error);
    CHECK(attempts == 1);
    CHECK_THROWS_AS(to.run(nothing), error);  // before it checks for the signal
    CHECK(attempts == 2);
    const auto start = std::chrono::steady_clock::now();
    CHECK(signals.wait(10s) == SIGTERM);
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    CHECK(signals.next() == 0);
}

namespace {

/// A connection whose first statement fails, as on a cluster's node that has not joined yet. It
/// stays alive.
class not_ready : public sql::forwarding_connection {
public:
    using forwarding_connection::forwarding_connection;
    sql::result query(std::string_view, sql::deadline) override {
        throw error{errc::database_unreachable, "not ready yet"};
    }
    sql::result execute(const sql::statement&, std::span<const sql::value>,
                        sql::deadline) override {
        throw error{errc::database_unreachable, "not ready yet"};
    }
};

}  // namespace

TEST_CASE("a connection whose settings failed is not used") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto tables = tool::server_tables(which);
        if (!tables) continue;
        CAPTURE(std::string{tables->name()});
        const auto source = open(tables->url());
        int connections = 0;
        const cli::database in{
            tables->url(),
            sql::connection_source{source.speaks(),
                                   [&](sql::deadline until) -> std::unique_ptr<sql::connection> {
                                       auto made = source.connect(until);
                                       if (++connections > 1) return made;
                                       return std::make_unique<not_ready>(std::move(made));
                                   },
                                   "a server"}
                .with_tables({.prefix = tables->prefix()}),
            false};
        cli::blocked_signals signals{SIGTERM};
        cli::link to{in, signals};
        const bool mysql = source.speaks() == sql::dialect::mysql;
        const auto setting = to.run([&](sql::connection& db, sql::deadline until) {
            const auto told =
                db.query(mysql ? "select @@session.time_zone" : "show lock_timeout", until);
            return std::string{told.text(0, 0)};
        });
        CHECK(setting == (mysql ? "+00:00" : "5s"));
        CHECK(connections == 2);
    }
}
