// PostgreSQL, where permits are granted by asynchronous commits: those that a caller has survive a
// crash of the server. The control: a take without the flush behind it does not.
// shows: promise-12

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/run_statement.hpp"
#include "support/own_server.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::own_server;
using support::protocol_connection;
using support::soon;

namespace {

/// Whose log is written only when a commit waits for it.
std::unique_ptr<own_server> server_with_a_lazy_log() {
    auto made = own_server::start(
        support::server::postgresql,
        {.arguments = {"-c", "wal_writer_delay=10s", "-c", "wal_writer_flush_after=1GB", "-c",
                       "bgwriter_lru_maxpages=0", "-c", "autovacuum=off"}});
    if (made) migrate(open(made->url()));
    return made;
}

std::int64_t holds_in(const sql::connection_source& source) {
    return protocol_connection{source}.number("select count(*) from rowlock_hold");
}

}  // namespace

TEST_CASE("PostgreSQL: permits that a caller has survive a crash of the server") {
    const auto server = server_with_a_lazy_log();
    if (!server) return;
    const auto source = open(server->url());
    constexpr int rounds = 3;
    constexpr int holds = 50;
    for (int round = 1; round <= rounds; ++round) {
        CAPTURE(round);
        client locks{source, {.ttl = 1min}};
        semaphore api{locks, "api"};
        api.set_capacity(rounds * holds + 1);
        // Nothing that commits durably follows: the session was opened, and beats later.
        std::vector<permits> held;
        held.reserve(holds);
        for (int i = 0; i < holds; ++i) held.push_back(api.acquire());
        server->kill();
        server->start_again();
        CHECK(holds_in(source) == holds);
        CHECK(api.inspect()->used == holds);
        for (const auto& each : held) CHECK(each.held());
    }
}

TEST_CASE("PostgreSQL: a take without a flush behind it is lost in a crash (control)") {
    const auto server = server_with_a_lazy_log();
    if (!server) return;
    const auto source = open(server->url());
    bool lost = false;
    for (int round = 1; round <= 3 && !lost; ++round) {
        std::optional<protocol_connection> hand{std::in_place, source};
        hand->run("delete from rowlock_hold");
        const session_id session{round};
        hand->open(session);
        const auto semaphores = protocol::make_semaphore_protocol(hand->statements());
        semaphores->set_capacity(hand->db(), "api", 100, soon());
        const auto taken =
            sql::run(hand->db(), hand->statements()("take_permits"), soon(), "api", session,
                     grant_id{round}, 1, sql::value{}, sql::value{}, sql::value{}, 1, 0);
        REQUIRE(taken.rows() == 1);
        server->kill();
        hand.reset();
        server->start_again();
        lost = holds_in(source) == 0;
    }
    CHECK(lost);
}
