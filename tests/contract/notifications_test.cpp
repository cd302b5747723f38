// What include/rowlock/sql/notifications.hpp promises, on the connections of each kind that can be
// woken by their database.
#include "contract/driver_fixtures.hpp"
#include "contract/server_address.hpp"
#include "contract/sqlite_path.hpp"
#include "sql/listening.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/pgbouncer.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>

#include <doctest/doctest.h>
#include <libpq-fe.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::errc;
using rowlock::sql::connection;
using rowlock::sql::notification;
using rowlock::sql::notifications;
using support::kind_of;
using support::soon;
using clock = std::chrono::steady_clock;

// How long nothing must come where nothing may.
constexpr auto quiet = 100ms;

notifications& capability(connection& of) {
    auto* const found = of.notifications();
    REQUIRE(found != nullptr);
    return *found;
}

bool readable(const notifications& on, std::chrono::milliseconds within) {
    pollfd one{.fd = on.descriptor(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, static_cast<int>(within.count())) == 1;
}

// Waits as the header says; what arrived first, or nothing.
std::vector<notification> await(notifications& on, std::chrono::milliseconds limit = 5s) {
    const auto end = clock::now() + limit;
    for (;;) {
        auto arrived = on.take();
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now());
        if (!arrived.empty() || left <= 0ms) return arrived;
        (void)readable(on, left);
    }
}

std::vector<std::string> payloads(const std::vector<notification>& of) {
    std::vector<std::string> all;
    for (const auto& one : of) all.push_back(one.payload);
    return all;
}

// Runs `body` in a forked child; true if it answered true there.
bool in_child(const auto& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        bool good = false;
        try {
            good = body();
        } catch (...) {
        }
        ::_exit(good ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::unique_ptr<connection> postgresql() {
    return libpq_fixture::source().connect(soon());
}

// Differs between processes that share a server.
std::string channel(const std::string& name) {
    return name + std::to_string(::getpid());
}

void notify(connection& by, const std::string& on, const std::string& payload) {
    (void)by.query("select pg_notify('" + on + "', '" + payload + "')", soon());
}

std::string listened_to(borrowed_handle& handle) {
    return handle.run(
        "select coalesce(string_agg(c, ' ' order by c), '') from "
        "pg_listening_channels() as t(c)");
}

}  // namespace

// --- PostgreSQL ----------------------------------------------------------------------------------

TEST_CASE("a notification arrives with its transaction's commit and not before") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    CHECK(db->round_trips() == 1);
    (void)other->query("begin", soon());
    notify(*other, channel("a"), "7 42");
    CHECK(await(woken, quiet).empty());
    (void)other->query("commit", soon());
    const auto start = clock::now();
    const auto arrived = await(woken);
    CHECK(clock::now() - start < 1s);
    REQUIRE(arrived.size() == 1);
    CHECK(arrived[0].channel == channel("a"));
    CHECK(arrived[0].payload == "7 42");
    CHECK(woken.take().empty());
    CHECK(db->round_trips() == 1);
}

TEST_CASE("a transaction that is rolled back notifies nobody") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    (void)other->query("begin", soon());
    notify(*other, channel("a"), "never");
    (void)other->query("rollback", soon());
    notify(*other, channel("a"), "after");
    CHECK(payloads(await(woken)) == std::vector<std::string>{"after"});
}

TEST_CASE("what arrives while a statement runs is there after it") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    std::jthread sender{[&] {
        std::this_thread::sleep_for(100ms);
        notify(*other, channel("a"), "meanwhile");
    }};
    (void)db->query("select pg_sleep(0.3)", soon());
    sender.join();
    (void)db->execute(rowlock::sql::statement{"select 1"}, {}, soon());
    CHECK(payloads(woken.take()) == std::vector<std::string>{"meanwhile"});
}

TEST_CASE("several notifications on several channels keep their order") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    woken.listen(channel("b"), soon());
    (void)other->query("begin", soon());
    std::vector<std::string> sent;
    for (int n = 0; n < 200; ++n) {
        sent.push_back(std::to_string(n));
        notify(*other, channel(n % 2 == 0 ? "a" : "b"), sent.back());
    }
    (void)other->query("commit", soon());
    std::vector<std::string> received;
    while (received.size() < sent.size()) {
        const auto more = payloads(await(woken));
        if (more.empty()) break;
        received.insert(received.end(), more.begin(), more.end());
    }
    CHECK(received == sent);
}

TEST_CASE("listening twice is listening once") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    woken.listen(channel("a"), soon());
    notify(*other, channel("a"), "x");
    CHECK(payloads(await(woken)) == std::vector<std::string>{"x"});
    CHECK(await(woken, quiet).empty());
}

TEST_CASE("a channel's name is quoted, or refused with a reason") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    const std::string longest(63, 'x');
    for (const std::string& name :
         {std::string{"Upper Case"}, std::string{R"(quo"te'; drop table x; --)"},
          std::string{"back\\slash"}, std::string{"\xc3\xbc"}, longest}) {
        CAPTURE(name);
        woken.listen(name, soon());
        const rowlock::sql::statement send{"select pg_notify($1, $2)"};
        const std::vector<rowlock::sql::value> parameters{name, "x"};
        (void)other->execute(send, parameters, soon());
        const auto arrived = await(woken);
        REQUIRE(arrived.size() == 1);
        CHECK(arrived[0].channel == name);
    }
    using namespace std::string_literals;
    for (const std::string& name : {""s, longest + "y", "a\0b"s, "\xff"s}) {
        CAPTURE(name);
        CHECK(kind_of([&] { woken.listen(name, soon()); }) == errc::invalid_options);
    }
    CHECK(db->alive());
    notify(*other, longest, "still");
    CHECK(payloads(await(woken)) == std::vector<std::string>{"still"});
}

TEST_CASE("listening inside a transaction is refused and leaves the transaction as it is") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    auto& woken = capability(*db);
    (void)db->query("begin", soon());
    CHECK(kind_of([&] { woken.listen(channel("a"), soon()); }) == errc::invalid_options);
    CHECK(db->query("select 1", soon()).integer(0, 0) == 1);
    (void)db->query("commit", soon());
    CHECK_NOTHROW(woken.listen(channel("a"), soon()));
}

TEST_CASE("a listener that the server throws out is told, after what it was told before") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    const auto process = db->query("select pg_backend_pid()", soon()).integer(0, 0);
    notify(*other, channel("a"), "last words");
    REQUIRE(readable(woken, 5s));
    (void)other->query("select pg_terminate_backend(" + std::to_string(process) + ")", soon());
    REQUIRE(support::eventually([&] {
        return other
                   ->query("select count(*) from pg_stat_activity where pid = " +
                               std::to_string(process),
                           soon())
                   .integer(0, 0) == 0;
    }));
    std::vector<std::string> heard;
    errc last{};
    try {
        for (const auto end = clock::now() + 5s; clock::now() < end;) {
            for (const auto& text : payloads(await(woken, 100ms))) heard.push_back(text);
        }
    } catch (const rowlock::error& e) {
        last = e.kind();
    }
    CHECK(heard == std::vector<std::string>{"last words"});
    CHECK(last == errc::database_unreachable);
    CHECK_FALSE(db->alive());
    CHECK(woken.descriptor() == -1);
    CHECK(kind_of([&] { (void)woken.take(); }) == errc::database_unreachable);
    CHECK(kind_of([&] { woken.listen(channel("a"), soon()); }) == errc::database_unreachable);
}

TEST_CASE("a new connection hears nothing that the old one listened to") {
    if (!libpq_fixture::available()) return;
    const auto other = postgresql();
    {
        const auto old = postgresql();
        capability(*old).listen(channel("a"), soon());
        notify(*other, channel("a"), "to the old");
    }
    const auto db = postgresql();
    notify(*other, channel("a"), "to nobody");
    CHECK(await(capability(*db), quiet).empty());
    capability(*db).listen(channel("a"), soon());
    notify(*other, channel("a"), "to the new");
    CHECK(payloads(await(capability(*db))) == std::vector<std::string>{"to the new"});
}

TEST_CASE("a borrowed handle keeps its owner's channels and loses ours") {
    if (!libpq_fixture::available()) return;
    const auto handle = libpq_fixture::borrow();
    const auto other = postgresql();
    handle->run("listen " + channel("owner"));
    {
        const auto db = handle->ref();
        auto& woken = capability(*db);
        woken.listen(channel("owner"), soon());
        woken.listen(channel("ours"), soon());
        CHECK(listened_to(*handle) == channel("ours") + " " + channel("owner"));
        notify(*other, channel("ours"), "1");
        notify(*other, channel("owner"), "2");
        std::vector<std::string> heard;
        while (heard.size() < 2) {
            const auto more = payloads(await(woken));
            REQUIRE_FALSE(more.empty());
            heard.insert(heard.end(), more.begin(), more.end());
        }
        CHECK(heard == std::vector<std::string>{"1", "2"});
    }
    CHECK(listened_to(*handle) == channel("owner"));
}

TEST_CASE("a borrowed handle's notifications are its owner's as long as we do not listen") {
    if (!libpq_fixture::available()) return;
    PGconn* const handle = PQconnectdb(address_of(support::server::postgresql).url().c_str());
    REQUIRE(PQstatus(handle) == CONNECTION_OK);
    PQclear(PQexec(handle, ("listen " + channel("owner")).c_str()));
    const auto other = postgresql();
    {
        rowlock::postgresql::connection_ref db{handle};
        notify(*other, channel("owner"), "mine");
        (void)db.query("select 1", soon());
        CHECK(capability(db).take().empty());
    }
    PQconsumeInput(handle);
    PGnotify* const kept = PQnotifies(handle);
    REQUIRE(kept != nullptr);
    CHECK(std::string{kept->extra} == "mine");
    PQfreemem(kept);
    PQfinish(handle);
}

TEST_CASE("a forked child can neither listen nor take, and its parent goes on") {
    if (!libpq_fixture::available()) return;
    auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    CHECK(in_child([&] {
        const bool refused = kind_of([&] { (void)woken.take(); }) == errc::wrong_process &&
                             kind_of([&] { woken.listen("b", soon()); }) == errc::wrong_process;
        db.reset();
        return refused;
    }));
    notify(*other, channel("a"), "x");
    CHECK(payloads(await(woken)) == std::vector<std::string>{"x"});
}

TEST_CASE("behind a declared transaction pooler listening is refused and nothing is sent") {
    if (!libpq_fixture::available()) return;
    const auto source = rowlock::postgresql::open(address_of(support::server::postgresql).url(),
                                                  {.transaction_pooler = true});
    const auto db = source.connect(soon());
    CHECK(kind_of([&] { capability(*db).listen("a", soon()); }) == errc::unsupported);
    CHECK(db->round_trips() == 0);
    CHECK(rowlock::sql::usable_notifications(*db, source, soon()) == nullptr);
}

TEST_CASE("an undeclared transaction pooler is found out before anybody listens") {
    const auto pooler = support::pgbouncer::start(support::pgbouncer::pool_mode::transaction);
    if (!pooler) return;
    const auto source = rowlock::postgresql::open(pooler->url());
    const auto db = source.connect(soon());
    CHECK(rowlock::sql::usable_notifications(*db, source, soon()) == nullptr);
    // Why: LISTEN succeeds there, and nothing arrives.
    capability(*db).listen(channel("a"), soon());
    notify(*postgresql(), channel("a"), "lost");
    CHECK(await(capability(*db), quiet).empty());
}

TEST_CASE("a session pooler and a direct connection can be listened on") {
    const auto pooler = support::pgbouncer::start(support::pgbouncer::pool_mode::session);
    if (!pooler) return;
    for (const auto& source : {rowlock::postgresql::open(pooler->url()), libpq_fixture::source()}) {
        const auto db = source.connect(soon());
        auto* const woken = rowlock::sql::usable_notifications(*db, source, soon());
        REQUIRE(woken != nullptr);
        woken->listen(channel("a"), soon());
        notify(*postgresql(), channel("a"), "x");
        CHECK(payloads(await(*woken)) == std::vector<std::string>{"x"});
    }
    const auto direct = postgresql();
    (void)rowlock::sql::usable_notifications(*direct, libpq_fixture::source(), soon());
    CHECK(direct->round_trips() == 1);
}

// --- drivers that cannot -------------------------------------------------------------------------

TEST_CASE("Connector/C++ and SOCI show no socket, and say that they cannot be woken") {
    for (const auto& source :
         {connector_cpp_fixture::available() ? connector_cpp_fixture::source()
                                             : soci_sqlite3_fixture::source(),
          soci_sqlite3_fixture::source(),
          soci_postgresql_fixture::available() ? soci_postgresql_fixture::source()
                                               : soci_sqlite3_fixture::source()}) {
        const auto db = source.connect(soon());
        CHECK(db->notifications() == nullptr);
        CHECK(rowlock::sql::usable_notifications(*db, source, soon()) == nullptr);
    }
}

}  // namespace contract
