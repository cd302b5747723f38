// The connection of a command without a client, seen from inside.

#include "cli/link.hpp"

#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <csignal>

using namespace rowlock;
using namespace std::chrono_literals;

TEST_CASE("a signal that ends a retry's pause is still there for the command") {
    int attempts = 0;
    const cli::database in{"nowhere:",
                           {sql::dialect::sqlite,
                            [&](sql::deadline) -> std::unique_ptr<sql::connection> {
                                ++attempts;
                                throw error{errc::database_unreachable, "nobody is there"};
                            },
                            "nowhere"},
                           false,
                           {}};
    cli::blocked_signals signals{{SIGTERM}};
    cli::link to{in, signals};
    raise(SIGTERM);
    const auto nothing = [](sql::connection&, sql::deadline) { return true; };
    CHECK_THROWS_AS(to.run(nothing), error);
    CHECK(attempts == 1);
    CHECK_THROWS_AS(to.run(nothing), error);  // whatever it does before it looks
    CHECK(attempts == 2);
    const auto start = std::chrono::steady_clock::now();
    CHECK(signals.wait(10s) == SIGTERM);
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    CHECK(signals.next() == 0);
}
