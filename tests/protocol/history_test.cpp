// The history: what the database records of leases, queue entries and sessions, and what the
// recording must not affect.

#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "sql/table_names.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/processlist.hpp"
#include "view/past.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using enum history_kind;
using support::backend;
using support::kind_of;
using support::soon;

namespace {

void record(const support::lock_database& database) {
    record_history(database.source(), true);
}

std::vector<history_record> past(const support::lock_database& database, std::string name = {}) {
    return read_history(database.source(), {.name = std::move(name)});
}

/// The kinds of the records of one name, as words.
std::string kinds(const support::lock_database& database, const std::string& name = {}) {
    std::string words;
    for (const auto& one : past(database, name)) {
        words += (words.empty() ? "" : " ") + std::string{to_string(one.kind)};
    }
    return words;
}

std::string seconds_ago(const support::lock_database& database, int seconds) {
    const std::string number = std::to_string(seconds);
    if (database.speaks() == sql::dialect::postgresql) {
        return "clock_timestamp() - interval '" + number + " seconds'";
    }
    if (database.speaks() == sql::dialect::mysql) {
        return "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - " + number + "000000";
    }
    return "cast((julianday('now') - 2440587.5) * 86400000000 as integer) - " + number + "000000";
}

/// Makes a session expire.
void let_expire(support::lock_database& database, session_id session) {
    database.run("update rowlock_session set expires_at = " + seconds_ago(database, 1) +
                 " where id = " + to_string(session));
}

/// Waits until a change of the tables waits for a transaction that uses them.
bool waits_for_a_table(support::lock_database& database) {
    if (database.speaks() == sql::dialect::postgresql) {
        return support::somebody_waits_for_a_row(database);
    }
    return support::eventually([&] {
        return support::processes_in(database.admin(), "Waiting for table metadata lock",
                                     database.prefix()) > 0;
    });
}

/// Sessions without a client, inserted into the tables.
struct strangers {
    explicit strangers(support::lock_database& which)
        : database{which}, leases{which.protocol()}, queue{which.queue()}, db{which.connect()} {}
    void open(std::int64_t id) const {
        leases.sessions().open(*db, {session_id{id}, "owner", "host", "program", 1, 60s}, soon());
    }
    [[nodiscard]] std::int64_t acquire(const std::string& name, session_id session,
                                       grant_id grant_id) const {
        return leases
            .acquire(*db, {name, session, grant_id, "", "a note", std::nullopt, false}, soon())
            .token;
    }

    support::lock_database& database;
    const protocol::lease_protocol& leases;
    const protocol::queue_protocol& queue;
    std::unique_ptr<sql::connection> db;
};

}  // namespace

TEST_CASE("nothing is recorded until the history is switched on") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        CHECK(history_status(database.source()) == history_recording::absent);
        CHECK(kind_of([&] { (void)past(database); }) == errc::schema_outdated);
        // The reaper does not use a missing table.
        CHECK(reap(database.source(), database.reaping(1h, 10min)).history_deleted == 0);
        record(database);
        CHECK(past(database).empty());
        record(database);  // again
        CHECK(history_status(database.source()) == history_recording::on);
        CHECK(schema_status(database.source()).current());
        const strangers some{database};
        some.open(1);
        CHECK(kinds(database) == "session_opened");
        record_history(database.source(), false);
        CHECK(history_status(database.source()) == history_recording::stopped);
        some.open(2);
        CHECK(kinds(database) == "session_opened");
        record(database);
        some.open(3);
        CHECK(kinds(database) == "session_opened session_opened");
        drop_history(database.source());
        drop_history(database.source());
        CHECK(history_status(database.source()) == history_recording::absent);
        some.open(4);
    }
}

TEST_CASE("grants and releases are recorded with their owners") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        record(database);
        std::int64_t first = 0;
        session_id session{};
        {
            client locks{database.source(),
                         database.options({.owner = "me", .program = "the test"})};
            auto held = locks.acquire("a", {.note = "a note"});
            first = held.token().value();
            session = held.session_id();
            held.release();
            locks.acquire("a", {.max_duration = 1h}).release();  // reacquired
        }
        const auto all = past(database, "a");
        REQUIRE(kinds(database, "a") == "granted released granted released");
        CHECK(all[0].token.value() == first);
        CHECK(all[0].session == session);
        CHECK(all[0].owner == "me");
        CHECK(all[0].program == "the test");
        CHECK(all[0].pid > 0);
        CHECK(all[0].note == "a note");
        CHECK_FALSE(all[0].ends_at.has_value());
        CHECK(all[1].grant_id == all[0].grant_id);
        CHECK(all[1].session == session);
        CHECK(all[2].token > all[0].token);
        REQUIRE(all[2].ends_at.has_value());
        CHECK(*all[2].ends_at - all[2].at > 59min);
        CHECK(std::ranges::is_sorted(all, {}, &history_record::at));
        const auto now = std::chrono::system_clock::now();
        CHECK(std::chrono::abs(now - all[3].at) < 30s);
        CHECK(all[3].age < 30s);
        CHECK(past(database).back().kind == session_ended);
        CHECK(past(database).back().owner == "me");
    }
}

TEST_CASE("enqueues, hand-overs, forced releases and cancellations are recorded") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        const strangers some{database};
        for (const std::int64_t id : {1, 2, 3}) some.open(id);
        REQUIRE(some.acquire("a", session_id{1}, grant_id{11}) > 0);
        some.queue.enqueue(*some.db, {"a", session_id{2}, grant_id{22}, "", "", std::nullopt},
                           soon());
        some.queue.enqueue(*some.db, {"a", session_id{3}, grant_id{33}, "", "", std::nullopt},
                           soon());
        REQUIRE(some.queue.release(*some.db, "a", session_id{1}, grant_id{11}, true, soon())
                    .next.has_value());
        const std::vector places{grant_id{33}};
        some.queue.cancel(*some.db, places, soon());
        client breaker{database.source(), database.options()};
        REQUIRE(breaker.force_release("a"));

        auto all = past(database, "a");
        std::erase_if(
            all, [](const auto& one) { return one.kind == left && one.grant_id == grant_id{22}; });
        REQUIRE(all.size() == 6);
        CHECK(all[0].kind == granted);
        CHECK(all[1].kind == queued);
        CHECK(all[1].ticket > ticket_no{});
        CHECK(all[2].ticket > all[1].ticket);
        CHECK(all[3].kind == handed_over);
        CHECK(all[3].session == session_id{2});
        CHECK(all[3].previous_session == session_id{1});
        CHECK(all[3].grant_id == grant_id{22});
        CHECK(all[4].kind == left);
        CHECK(all[4].ticket == all[2].ticket);
        CHECK(all[5].kind == forced);
        CHECK(all[5].session == session_id{2});
        CHECK(all[5].grant_id == grant_id{22});
        CHECK(all[5].token > all[3].token);
    }
}

TEST_CASE(
    "the leases and queue entries of dead sessions are recorded as such, also by the reaper and "
    "reclaim") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        const strangers some{database};
        for (const std::int64_t id : {1, 2}) some.open(id);
        REQUIRE(some.acquire("a", session_id{1}, grant_id{11}) > 0);
        REQUIRE(some.acquire("b", session_id{1}, grant_id{12}) > 0);
        let_expire(database, session_id{1});
        REQUIRE(some.leases.sessions().end_expired(*some.db, session_id{1}, soon()));
        REQUIRE(some.acquire("a", session_id{2}, grant_id{22}) > 0);
        CHECK(kinds(database, "a") == "granted taken_over");
        CHECK(past(database, "a").back().previous_session == session_id{1});
        CHECK(reap(database.source(), database.reaping(1h, 10min)).leases_freed == 1);
        CHECK(kinds(database, "b") == "granted expired");
        CHECK(past(database, "b").back().session == session_id{1});
        const auto everything = past(database);
        const auto end = std::ranges::find(everything, session_expired, &history_record::kind);
        REQUIRE(end != everything.end());
        CHECK(end->session == session_id{1});
        REQUIRE(end->ends_at.has_value());
        CHECK(*end->ends_at < end->at);

        auto before =
            std::make_unique<client>(database.source(), database.options({.owner = "me"}));
        auto lost = std::make_unique<lease>(before->acquire("c"));
        client after{database.source(), database.options({.owner = "me"})};
        const auto mine = after.reclaim().leases;
        REQUIRE(mine.size() == 1);
        CHECK(kinds(database, "c") == "granted reclaimed");
        CHECK(past(database, "c").back().previous_session == lost->session_id());
    }
}

TEST_CASE("the history says who held a lock from when to when, and which hold is held now") {
    using view::ending;
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        const strangers some{database};
        for (const std::int64_t id : {1, 2, 3}) some.open(id);
        REQUIRE(some.acquire("a", session_id{1}, grant_id{11}) > 0);
        some.queue.enqueue(*some.db, {"a", session_id{2}, grant_id{22}, "", "", std::nullopt},
                           soon());
        REQUIRE(some.queue.release(*some.db, "a", session_id{1}, grant_id{11}, true, soon())
                    .next.has_value());
        let_expire(database, session_id{2});
        const auto expired = view::read_past(database.source(), {.name = "a"}).holds;
        REQUIRE(expired.size() == 2);
        CHECK(expired[1].how == ending::session_expired);
        REQUIRE(some.leases.sessions().end_expired(*some.db, session_id{2}, soon()));
        REQUIRE(some.acquire("a", session_id{3}, grant_id{33}) > 0);
        for (const std::string name : {"a", ""}) {
            CAPTURE(name);
            const auto holds = view::read_past(database.source(), {.name = name}).holds;
            REQUIRE(holds.size() == 3);
            CHECK(holds[0].how == ending::handed_over);
            CHECK(holds[0].to == holds[1].from);
            CHECK(holds[1].waited.has_value());
            CHECK(holds[1].how == ending::session_expired);
            CHECK(*holds[1].to < *holds[2].from);  // not when it was taken over
            CHECK(holds[2].is_held());
            CHECK(holds[2].begun == taken_over);
        }
        // Behind the history's back: an end that no record tells of is none that goes on.
        record_history(database.source(), false);
        REQUIRE(
            some.queue.release(*some.db, "a", session_id{3}, grant_id{33}, false, soon()).freed);
        CHECK(view::read_past(database.source(), {.name = "a"}).holds.back().how ==
              ending::unknown);
    }
}

TEST_CASE("holds of permits and modes are held as long as the tables say so") {
    using view::ending;
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        client locks{database.source(), database.options({.ttl = 20s})};
        semaphore api{locks, "api"};
        api.set_capacity(3);
        auto first = api.acquire(2);
        const auto second = api.acquire(1);
        first.release();
        shared_mutex page{locks, "page"};
        auto written = page.acquire(lock_mode::upgradeable);
        written.upgrade();
        const auto holds_of = [&](const std::string& name) {
            return view::read_past(database.source(), {.name = name}).holds;
        };
        const auto both = holds_of("api");
        REQUIRE(both.size() == 2);
        CHECK(both[0].how == ending::released);
        CHECK(both[0].permits == 2);
        CHECK(both[1].is_held());
        const auto one = holds_of("page");
        REQUIRE(one.size() == 1);
        CHECK(one[0].is_held());
        CHECK(one[0].mode == lock_mode::exclusive);
        {
            client vanishing{database.source(), database.options()};
            const auto reading = semaphore{vanishing, "api"}.acquire(1);
            let_expire(database, reading.session_id());
            const auto dead = holds_of("api");
            REQUIRE(dead.size() == 3);
            CHECK(dead[2].how == ending::session_expired);
            CHECK(dead[2].to.has_value());
        }
    }
}

// shows: history
TEST_CASE("a request for a release is recorded once, with who asks, why and until when") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        client locks{database.source(), database.options({.ttl = 20s})};
        client operation{database.source(), database.options({.program = "operation"})};
        auto held = locks.acquire("a");
        const request_options terms{.within = 1h, .reason = "a deploy"};
        REQUIRE(operation.request_release("a", held.token(), terms).has_value());
        CHECK(kinds(database, "a") == "granted asked");
        const auto asked_for = past(database, "a").back();
        CHECK(asked_for.session == held.session_id());
        CHECK(asked_for.note.starts_with("operation, pid "));
        CHECK(asked_for.reason == "a deploy");
        REQUIRE(asked_for.ends_at.has_value());
        CHECK(std::chrono::abs(*asked_for.ends_at - asked_for.at - 1h) < 1min);
        CHECK(asked_for.db_user.empty() == (database.speaks() == sql::dialect::sqlite));

        // As after a lost reply: the same again changes nothing.
        const auto db = database.connect();
        const protocol::release_terms again{
            .within = 1h, .asked_by = asked_for.note, .reason = asked_for.reason};
        REQUIRE(database.protocol()
                    .request_release(*db, "a", held.token().value(), again, soon())
                    .has_value());
        CHECK(kinds(database, "a") == "granted asked");
        // At once, which has no one to ask for the protocol, and has one for the history.
        client other{database.source(), database.options({.program = "other"})};
        REQUIRE(other.request_release("a", held.token(), {.reason = "now"}).has_value());
        CHECK(past(database, "a").at(2).kind == asked);
        CHECK(past(database, "a").at(2).note.starts_with("other, pid "));
        CHECK(past(database, "a").at(2).note.ends_with(": now"));
        // After a request at once one with a time changes nothing, also not who asked first.
        REQUIRE(operation.request_release("a", held.token(), terms).has_value());
        const auto seen = operation.inspect("a");
        if (seen && seen->holder && seen->holder->asked) {
            CHECK(seen->holder->asked->asked_by.empty());
            CHECK(seen->holder->asked->reason.starts_with("other, pid "));
        }
        CHECK(std::ranges::count(past(database, "a"), asked, &history_record::kind) == 2);
    }
}

TEST_CASE("a request for permits, or for a mode with an upgrade, is recorded once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        client locks{database.source(), database.options({.ttl = 20s})};
        client operation{database.source(), database.options({.program = "operation"})};
        semaphore{locks, "api"}.set_capacity(3);
        const auto some = semaphore{locks, "api"}.acquire(2);
        shared_mutex page{locks, "page"};
        auto written = page.acquire(lock_mode::upgradeable);
        written.upgrade();
        const request_options terms{.within = 1h, .reason = "a deploy"};
        for (int i = 0; i < 2; ++i) {
            REQUIRE(semaphore{operation, "api"}.request_release(some.token(), terms).has_value());
            REQUIRE(shared_mutex{operation, "page"}
                        .request_release(written.token(), terms)
                        .has_value());
        }
        for (const std::string name : {"api", "page"}) {
            CAPTURE(name);
            const auto all = past(database, name);
            REQUIRE(std::ranges::count(all, asked, &history_record::kind) == 1);
            const auto& one = *std::ranges::find(all, asked, &history_record::kind);
            CHECK(one.note.starts_with("operation, pid "));
            CHECK(one.reason == "a deploy");
            const auto holds = view::read_past(database.source(), {.name = name}).holds;
            REQUIRE(holds.size() == 1);
            CHECK(holds[0].is_held());
            CHECK(holds[0].asked.size() == 1);
        }
    }
}

// shows: history
TEST_CASE("permits are recorded: grants, queue entries, releases, forced ones, and capacities") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        client locks{database.source(), database.options({.ttl = 20s})};
        semaphore api{locks, "api"};
        api.set_capacity(3);
        api.set_capacity(3);  // no change
        auto held = api.acquire(3, {.note = "a note"});
        {
            auto waiting =
                std::async(std::launch::async, [&] { return api.try_acquire_for(2, 20s); });
            REQUIRE(support::eventually([&] { return api.waiters().size() == 1; }));
            held.release();
            REQUIRE(waiting.get().has_value());
        }
        auto taken = api.acquire();
        REQUIRE(api.force_release(taken.token()));
        taken = {};
        api.set_capacity(4);
        auto all = past(database, "api");
        // One statement deletes the entry and grants: in no certain order.
        std::erase_if(all, [](const auto& one) { return one.kind == left; });
        std::string words;
        for (const auto& one : all) words += std::string{to_string(one.kind)} + " ";
        CHECK(words ==
              "capacity_set granted queued released granted released granted forced capacity_set ");
        CHECK(std::ranges::all_of(
            all, [](const auto& one) { return one.of == history_of::semaphore && !one.mode(); }));
        CHECK(all[0].permits == 3);
        CHECK(all[1].permits == 3);
        CHECK(all[1].note == "a note");
        CHECK_FALSE(all[1].host.empty());
        CHECK(all[2].permits == 2);
        CHECK(all[2].grant_id == all[4].grant_id);
        CHECK(all[4].token > all[1].token);
        CHECK(all.back().permits == 4);
    }
}

TEST_CASE("modes are recorded: upgrades, downgrades, and holds of dead sessions") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        client locks{database.source(), database.options({.ttl = 20s})};
        shared_mutex page{locks, "page"};
        auto held = page.acquire(lock_mode::upgradeable);
        held.upgrade();
        held.downgrade(lock_mode::shared);
        held.release();
        CHECK(kinds(database, "page") == "granted upgraded downgraded downgraded released");
        const auto all = past(database, "page");
        CHECK(all[0].of == history_of::shared_mutex);
        CHECK(all[0].mode() == lock_mode::upgradeable);
        CHECK(all[1].mode() == lock_mode::exclusive);
        CHECK(all[1].grant_id == all[0].grant_id);
        CHECK(all[1].token > all[0].token);
        CHECK(all[2].mode() == lock_mode::upgradeable);
        CHECK(all[3].mode() == lock_mode::shared);
        CHECK(all[4].mode() == lock_mode::shared);
        {
            auto grown = shared_mutex{locks, "grown"}.acquire(lock_mode::shared);
            REQUIRE(grown.try_upgrade());
            grown.downgrade(lock_mode::upgradeable);
        }
        CHECK(kinds(database, "grown") == "granted upgraded downgraded released");
        CHECK(past(database, "grown")[2].mode() == lock_mode::upgradeable);
        {
            client vanishing{database.source(), database.options()};
            shared_mutex theirs{vanishing, "page"};
            const auto reading = theirs.acquire(lock_mode::shared);
            let_expire(database, reading.session_id());
            // The client does not know: its end leaves the session alone.
            REQUIRE(reap(database.source(), database.reaping(1h, 10min)).sessions_ended >= 1);
        }
        CHECK(kinds(database, "page").ends_with("granted expired"));
    }
}

// shows: history
TEST_CASE("a change that is rolled back is not recorded") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        client locks{database.source(), database.options()};
        auto held = locks.acquire("a");
        const auto db = database.source().connect(soon());
        db->query(database.speaks() == sql::dialect::sqlite ? "begin immediate" : "begin", soon());
        fence(*db, held);
        release_on_commit(*db, held);
        db->query("rollback", soon());
        CHECK(kinds(database, "a") == "granted");
        held.release();
        CHECK(kinds(database, "a") == "granted released");
    }
}

TEST_CASE("each lease of a batch is recorded") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        constexpr int threads = 8;
        constexpr int rounds = 20;
        {
            client locks{database.source(), database.options()};
            std::vector<std::jthread> crowd;
            for (int i = 0; i < threads; ++i) {
                crowd.emplace_back([&locks, i] {
                    for (int n = 0; n < rounds; ++n) {
                        locks.acquire("name " + std::to_string(i)).release();
                    }
                });
            }
        }
        for (int i = 0; i < threads; ++i) {
            const auto all = past(database, "name " + std::to_string(i));
            CHECK(all.size() == 2 * rounds);
            std::int64_t token = 0;
            for (std::size_t n = 0; n < all.size(); ++n) {
                CHECK(all[n].kind == (n % 2 == 0 ? granted : released));
                if (n % 2 == 0) CHECK(std::exchange(token, all[n].token.value()) < token);
            }
        }
    }
}

TEST_CASE("a record's time is read after the wait for the lease's row") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        record(database);
        const strangers some{database};
        for (const std::int64_t id : {1, 2}) some.open(id);
        REQUIRE(some.acquire("a", session_id{1}, grant_id{11}) > 0);
        const auto other = database.connect();
        other->query("begin", soon());
        other->query("select * from " + database.prefix() + "lock for update", soon());
        auto released = std::async(std::launch::async, [&] {
            return some.leases.release(*some.db, "a", session_id{1}, grant_id{11}, soon());
        });
        REQUIRE(support::somebody_waits_for_a_row(database));
        std::this_thread::sleep_for(300ms);  // the wait that the record must include
        const auto unlocked = std::chrono::system_clock::now();
        other->query("rollback", soon());
        CHECK(released.get());
        CHECK(past(database, "a").back().at > unlocked - 100ms);
    }
}

TEST_CASE("SQLite: a record has exactly the time of its lease") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    record(database);
    const strangers some{database};
    some.open(1);
    for (int i = 0; i < 40; ++i)
        REQUIRE(some.acquire("a" + std::to_string(i), session_id{1}, grant_id{10 + i}) > 0);
    CHECK(database.number("select count(*) from rowlock_history h join rowlock_lock l "
                          "on l.name = h.name where h.at = l.acquired_at") == 40);
}

TEST_CASE("no heartbeat waits for a transaction that is recorded, at any isolation level") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        record(database);
        const strangers some{database};
        some.open(1);
        const auto beats = [&] {
            const auto heart = database.connect();
            return some.leases.sessions().heartbeat(*heart, session_id{1}, 0,
                                                    std::chrono::steady_clock::now() + 15s);
        };
        // A grant in an open transaction.
        some.db->query("begin", soon());
        REQUIRE(some.acquire("a", session_id{1}, grant_id{11}) > 0);
        CHECK(beats());
        some.db->query("commit", soon());
        some.db->query("begin", soon());
        some.db->query("update " + database.prefix() +
                           "lock set session = 2, grant_id = 22, token = token + 1",
                       soon());
        CHECK(beats());
        some.db->query("rollback", soon());
        // A release in the caller's transaction.
        client locks{database.source(), database.options()};
        auto held = locks.acquire("b");
        const auto db = database.source().connect(soon());
        db->query(
            database.speaks() == sql::dialect::mysql
                ? "set session transaction isolation level repeatable read"
                : "set session characteristics as transaction isolation level repeatable read",
            soon());
        db->query("begin", soon());
        fence(*db, held);
        release_on_commit(*db, held);
        const auto heart = database.connect();
        CHECK(some.leases.sessions().heartbeat(*heart, held.session_id(), 0,
                                               std::chrono::steady_clock::now() + 15s));
        db->query("commit", soon());
        CHECK(kinds(database, "b") == "granted released");
    }
}

TEST_CASE("times are UTC in any time zone of the writer and the reader") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        record(database);
        const auto elsewhere = database.source().connect(soon());
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        elsewhere->query(postgresql ? "set time zone 5" : "set time_zone = '+05:00'", soon());
        elsewhere->query("insert into " + database.prefix() +
                             "lock (name, token, session, changed_at) select 'a', 1, 1, raised_at "
                             "from " +
                             database.prefix() + "token_floor",
                         soon());
        const auto all =
            read_history(*elsewhere, database.source().tables(), {.since = 60s}, soon());
        REQUIRE(all.size() == 1);
        CHECK(std::chrono::abs(all[0].age) < 60s);
        CHECK(std::chrono::abs(std::chrono::system_clock::now() - all[0].at) < 60s);
    }
}

// shows: history
TEST_CASE("changes by hand are recorded, and are distinguished from rowlock's own") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        const strangers some{database};
        some.open(1);
        some.open(2);
        REQUIRE(some.acquire("a", session_id{1}, grant_id{11}) > 0);
        database.run("update rowlock_lock set session = 2");
        database.run("update rowlock_lock set token = token - 1");
        database.run("update rowlock_session set ended = " +
                     std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"});
        database.run("update rowlock_session set ended = " +
                     std::string{database.speaks() == sql::dialect::postgresql ? "false" : "0"} +
                     " where id = 1");
        database.run("delete from rowlock_lock");
        CHECK(kinds(database, "a") == "granted altered altered deleted");
        auto all = past(database);
        CHECK(std::ranges::count(all, altered, &history_record::kind) == 3);
        if (database.speaks() == sql::dialect::sqlite) return;
        CHECK_FALSE(all.back().db_user.empty());
    }
}

// Most of these are acquired and extended within one tick of SQLite's clock.
TEST_CASE("an extension is recorded as renewed; control: a token that an operator raises") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        client locks{database.source(), database.options()};
        for (int i = 0; i < 20; ++i) {
            const std::string name = "n" + std::to_string(i);
            auto held = locks.acquire(name, {.max_duration = 1h});
            held.extend(1h);
            CHECK(kinds(database, name) == "granted renewed");
            if (i > 0) continue;
            database.run("update rowlock_lock set token = token + 1");
            CHECK(kinds(database, name) == "granted renewed altered");
        }
    }
}

TEST_CASE("heartbeats and other writes that change no holder are not recorded") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        const strangers some{database};
        some.open(1);
        REQUIRE(some.acquire("a", session_id{1}, grant_id{11}) > 0);
        REQUIRE(some.leases.sessions().heartbeat(*some.db, session_id{1}, 0, soon()));
        database.run("update rowlock_session set revision = revision + 1");
        database.run("update rowlock_lock set changed_at = " + seconds_ago(database, 5));
        CHECK(kinds(database) == "session_opened granted");
    }
}

TEST_CASE("old records are deleted in batches, young ones stay") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        const strangers some{database};
        for (std::int64_t id = 1; id <= 25; ++id) some.open(id);
        database.run("update rowlock_history set at = " + seconds_ago(database, 3'601));
        for (std::int64_t id = 26; id <= 28; ++id) some.open(id);
        auto how = database.reaping(1h, 10min);
        how.batch = 10;
        how.history_retention = 0ms;
        CHECK(reap(database.source(), how).history_deleted == 0);
        how.history_retention = 2h;
        CHECK(reap(database.source(), how).history_deleted == 0);
        how.history_retention = 1h;
        CHECK(reap(database.source(), how).history_deleted == 25);
        CHECK(past(database).size() == 3);
        how.history_retention = -1ms;
        CHECK(kind_of([&] { (void)reap(database.source(), how); }) == errc::invalid_options);
    }
}

TEST_CASE("a history is read by name, by age, by number and page by page") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        const strangers some{database};
        some.open(1);
        database.run("update rowlock_history set at = " + seconds_ago(database, 100));
        for (std::int64_t i = 1; i <= 5; ++i) {
            REQUIRE(some.acquire("name " + std::to_string(i), session_id{1}, grant_id{i}) > 0);
        }
        CHECK(past(database, "name 2").size() == 1);
        CHECK(past(database, "other").empty());
        history_query query{.since = 60s};
        CHECK(read_history(database.source(), query).size() == 5);
        query.limit = 2;
        auto page = read_history(database.source(), query);
        REQUIRE(page.size() == 2);
        CHECK(page[0].name == "name 4");
        query.before = page.front().id;
        page = read_history(database.source(), query);
        REQUIRE(page.size() == 2);
        CHECK(page[1].name == "name 3");
        query.limit = 0;
        CHECK(kind_of([&] { (void)read_history(database.source(), query); }) ==
              errc::invalid_options);
        query = {.name = std::string(256, 'x')};
        CHECK(kind_of([&] { (void)read_history(database.source(), query); }) == errc::invalid_name);
    }
}

TEST_CASE("the history is removed with the tables, and needs them") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record(database);
        migrate(database.source(), {}, 0);
        CHECK(history_status(database.source()) == history_recording::absent);
        CHECK(kind_of([&] { record(database); }) == errc::schema_outdated);
        migrate(database.source());
        CHECK(history_status(database.source()) == history_recording::absent);
    }
}

TEST_CASE("the history's triggers let takes and releases of one semaphore go on at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        record(database);
        client locks{database.source(), database.options({.statement_timeout = 4s})};
        semaphore api{locks, "api"};
        semaphore other{locks, "other"};
        api.set_capacity(10);
        other.set_capacity(10);
        auto first = api.acquire();
        const auto second = other.acquire();
        // A transaction that has a counter and a hold of another semaphore locked.
        const auto db = database.connect();
        db->query("begin", soon());
        db->query("update " + database.prefix() + "lock set used = used where name = 'other'",
                  soon());
        db->query("select * from " + database.prefix() + "hold where name = 'other' for update",
                  soon());
        CHECK(api.try_acquire().has_value());
        first.release();
        CHECK(api.available() == 10);
        db->query("rollback", soon());
    }
}

TEST_CASE("the history finds its own tables with any search path of the writer") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const std::string schema = database.prefix() + "apart";
    const auto apart = database.source().with_tables({.schema = schema});
    migrate(apart);
    record_history(apart, true);
    const auto db = database.source().connect(soon());
    db->query("set search_path = pg_catalog", soon());
    db->query("insert into " + schema +
                  ".rowlock_lock (name, token, session, changed_at) "
                  "values ('a', 1, 1, now())",
              soon());
    CHECK(read_history(apart).size() == 1);
    migrate(apart, {}, 0);
    db->query("drop schema " + schema, soon());  // nothing is left in it
}

TEST_CASE("switching the history on does not block locks for long while a fence is open") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        auto held = locks.acquire("a");
        const auto db = database.source().connect(soon());
        db->query("begin", soon());
        fence(*db, held);
        release_on_commit(*db, held);
        auto switched = std::async(std::launch::async, [&] { record(database); });
        auto longest = 0ms;
        for (int i = 0; i < 2; ++i) {
            REQUIRE(waits_for_a_table(database));
            const auto from = std::chrono::steady_clock::now();
            locks.acquire("b").release();
            longest = std::max(longest, std::chrono::duration_cast<std::chrono::milliseconds>(
                                            std::chrono::steady_clock::now() - from));
        }
        CHECK(switched.wait_for(0s) == std::future_status::timeout);
        CHECK(longest < 8s);
        db->query("commit", soon());
        switched.get();
        CHECK(history_status(database.source()) == history_recording::on);
    }
}

TEST_CASE(
    "a role with the right to insert records, and on MySQL one without rights, can use leases") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        record(database);
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const std::string role = database.prefix() + "app";
        const std::string who = postgresql ? role : "'" + role + "'@'%'";
        database.run(postgresql ? "create role " + role + " login password 'of-the-test'"
                                : "create user " + who + " identified by 'of-the-test'");
        for (const char* each : {"session", "lock", "hold", "ticket", "version", "token_floor"}) {
            database.run("grant select, insert, update, delete on rowlock_" + std::string{each} +
                         " to " + who);
        }
        database.run("grant select on rowlock_migration to " + who);
        auto url = database.url();
        const auto user = url.find("://") + 3;
        url.replace(user, url.find('@') - user, role + ":of-the-test");
        {
            client locks{database.at(url), database.options()};
            if (postgresql) {
                CHECK(kind_of([&] { (void)locks.acquire("a"); }) == errc::access_denied);
                database.run("grant insert on rowlock_history to " + who);
            }
            auto held = locks.acquire("a");
            REQUIRE(locks.request_release("a", held.token(), {.within = 1h}).has_value());
            held.release();
            // It may neither read nor shorten the history, so its reaper does not.
            CHECK(reap(database.at(url), database.reaping(1h, 10min)).history_deleted == 0);
            CHECK(kind_of([&] { (void)read_history(database.at(url)); }) != errc{});
        }
        CHECK(kinds(database, "a") == "granted asked released");
        CHECK(past(database, "a").front().db_user.starts_with(role));
        if (postgresql) database.run("drop owned by " + who);
        database.run(postgresql ? "drop role " + who : "drop user " + who);
    }
}
