// Rows that keep the greatest fencing token that wrote them, on every database through every
// driver.

#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <future>
#include <string>

using namespace rowlock;
using namespace std::chrono_literals;
using support::kind_of;
using support::soon;

namespace {

/// A table of the application with hostile names, on the application's connection.
class accounts {
public:
    explicit accounts(support::lock_database& database, bool trigger = false)
        : db{database.source().connect(soon())},
          name{database.prefix() + "Account of \"us\" `too`"},
          quote_{database.speaks() == sql::dialect::mysql ? '`' : '"'},
          fenced{name, {"id"}, "the token"} {
        db->query("create table " + quoted(name) + " (id integer primary key, balance integer)" +
                      (database.speaks() == sql::dialect::mysql ? " engine = InnoDB" : ""),
                  soon());
        db->query("insert into " + quoted(name) + " values (1, 100)", soon());
        for (const auto& statement : fence_token_sql(database.speaks(), name,
                                                     {.column = "the token", .trigger = trigger})) {
            db->query(statement, soon());
        }
    }
    accounts(const accounts&) = delete;
    accounts& operator=(const accounts&) = delete;
    ~accounts() {
        try {
            db->query("drop table " + quoted(name), soon());
        } catch (const std::exception& failure) {
            MESSAGE("a table of a test was left behind: ", failure.what());
        }
    }

    [[nodiscard]] std::string quoted(const std::string& text) const {
        std::string made{quote_};
        for (const char c : text) {
            made += c;
            if (c == quote_) made += c;
        }
        return made + quote_;
    }
    [[nodiscard]] std::int64_t balance() const {
        return db->query("select balance from " + quoted(name) + " where id = 1", soon())
            .integer(0, 0);
    }
    fenced_write set(fencing_token token, std::int64_t to, std::int64_t id = 1) const {
        return fenced.update(*db, {id}, token, {{"balance", to}}, soon());
    }

    std::unique_ptr<sql::connection> db;
    std::string name;

private:
    char quote_;

public:
    fenced_table fenced;
};

}  // namespace

TEST_CASE("a row refuses writes whose fencing token is older than its own") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const accounts it{database};
        CHECK(it.set(fencing_token{5}, 50) == fenced_write::done);
        CHECK(it.set(fencing_token{4}, 40) == fenced_write::refused);
        CHECK(it.balance() == 50);
        CHECK(it.set(fencing_token{5}, 51) == fenced_write::done);
        CHECK(it.set(fencing_token{5}, 51) == fenced_write::done);  // nothing to change
        CHECK(it.set(fencing_token{9}, 90) == fenced_write::done);
        CHECK(it.balance() == 90);
        CHECK(it.set(fencing_token{9}, 1, 2) == fenced_write::missing);
        // Like a row that existed before its column could be NULL.
        const auto token = it.quoted("the token");
        if (database.speaks() == sql::dialect::postgresql) {
            it.db->query(
                "alter table " + it.quoted(it.name) + " alter column " + token + " drop not null",
                soon());
            it.db->query("update " + it.quoted(it.name) + " set " + token + " = null", soon());
            CHECK(it.set(fencing_token{1}, 10) == fenced_write::done);
        }
    }
}

TEST_CASE("a fenced write inserts a row that is missing, once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const accounts it{database};
        const auto put = [&](std::int64_t token, std::int64_t to) {
            return it.fenced.put(*it.db, {7}, fencing_token{token}, {{"balance", to}}, soon());
        };
        CHECK(put(3, 30) == fenced_write::done);
        CHECK(put(2, 20) == fenced_write::refused);
        CHECK(put(4, 40) == fenced_write::done);
        CHECK(it.db->query("select balance from " + it.quoted(it.name) + " where id = 7", soon())
                  .integer(0, 0) == 40);
    }
}

TEST_CASE(
    "a fenced write increments an existing value, and refuses an increment in a row that may be "
    "new") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const accounts it{database};
        const auto add = [&](std::int64_t token, std::int64_t by) {
            return it.fenced.update(*it.db, 1, fencing_token{token}, {increment("balance", by)},
                                    soon());
        };
        CHECK(add(5, 20) == fenced_write::done);
        CHECK(add(5, -50) == fenced_write::done);
        CHECK(it.balance() == 70);
        CHECK(add(4, 1000) == fenced_write::refused);
        CHECK(add(5, 0) == fenced_write::done);  // nothing to change
        CHECK(it.balance() == 70);
        for (const int id : {1, 8}) {
            CHECK(kind_of([&] {
                      it.fenced.put(*it.db, id, fencing_token{6}, {increment("balance")}, soon());
                  }) == errc::invalid_options);
        }
        CHECK(it.balance() == 70);
    }
}

// shows: fencing-token-columns
TEST_CASE("a row refuses the write of a holder that was paused past its expiry") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const accounts it{database};
        client locks{database.source(), database.options()};
        const auto paused = locks.acquire("account/1");
        REQUIRE(locks.force_release("account/1"));  // as after its expiry
        const auto successor = locks.acquire("account/1");
        CHECK(it.set(successor.token(), 200) == fenced_write::done);
        CHECK(it.set(paused.token(), 300) == fenced_write::refused);
        CHECK(it.balance() == 200);
        // The control: without the token's condition the write succeeds.
        it.db->query("update " + it.quoted(it.name) + " set balance = 300", soon());
        CHECK(it.balance() == 300);
    }
}

// shows: fencing-token-columns
TEST_CASE("a write that waited for one with a greater token is refused") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const accounts it{database};
        const auto other = database.source().connect(soon());
        it.db->query("begin", soon());
        REQUIRE(it.set(fencing_token{8}, 80) == fenced_write::done);
        auto late = std::async(std::launch::async, [&] {
            return it.fenced.update(*other, {1}, fencing_token{7}, {{"balance", 70}}, soon());
        });
        REQUIRE(support::somebody_waits_for_a_row(database));
        it.db->query("commit", soon());
        CHECK(late.get() == fenced_write::refused);
        CHECK(it.balance() == 80);
    }
}

// shows: fencing-token-columns
TEST_CASE("the trigger refuses a smaller token from any program, and nothing else") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const accounts it{database, true};
        REQUIRE(it.set(fencing_token{8}, 80) == fenced_write::done);
        const std::string careless =
            "update " + it.quoted(it.name) + " set balance = 70, " + it.quoted("the token") + " = ";
        CHECK(kind_of([&] { it.db->query(careless + "7", soon()); }) != errc{});
        CHECK(it.balance() == 80);
        it.db->query(careless + "8", soon());
        CHECK(it.balance() == 70);
        CHECK(it.set(fencing_token{7}, 1) == fenced_write::refused);  // before the trigger sees it
        CHECK(it.set(fencing_token{9}, 90) == fenced_write::done);
    }
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {  // the control
        const accounts it{database};
        REQUIRE(it.set(fencing_token{8}, 80) == fenced_write::done);
        it.db->query("update " + it.quoted(it.name) + " set balance = 70, " +
                         it.quoted("the token") + " = 7",
                     soon());
        CHECK(it.balance() == 70);
    }
}

TEST_CASE("errors in a fenced table's description and calls are reported") {
    CHECK(kind_of([] { fenced_table{"", {"id"}}; }) == errc::invalid_options);
    CHECK(kind_of([] { fenced_table{"a.b.c", {"id"}}; }) == errc::invalid_options);
    CHECK(kind_of([] { fenced_table{"a", {}}; }) == errc::invalid_options);
    CHECK(kind_of([] { fenced_table{"a", {"id", "id"}}; }) == errc::invalid_options);
    CHECK(kind_of([] { fenced_table{"a", {"fence_token"}}; }) == errc::invalid_options);
    CHECK(kind_of([] { static_cast<void>(fence_token_sql(sql::dialect::sqlite, "a\nb")); }) ==
          errc::invalid_options);
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite) {
        const accounts it{database};
        const auto& table = it.fenced;
        const fencing_token token{1};
        CHECK(kind_of([&] { table.update(*it.db, {1}, {}, {}, soon()); }) == errc::invalid_options);
        CHECK(kind_of([&] {
                  table.update(*it.db, {1, 2}, token, {}, soon());
              }) == errc::invalid_options);
        CHECK(kind_of([&] { table.update(*it.db, {nullptr}, token, {}, soon()); }) ==
              errc::invalid_options);
        CHECK(kind_of([&] {
                  table.update(*it.db, {1}, token, {{"the token", 9}}, soon());
              }) == errc::invalid_options);
        CHECK(kind_of([&] {
                  table.update(*it.db, {1}, token, {{"nonesuch", 9}}, soon());
              }) == errc::schema_outdated);
        CHECK(table.update(*it.db, {1}, token, {}, soon()) == fenced_write::done);
    }
}

TEST_CASE("the token column cannot be assigned in another case where case does not count") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::sqlite) {
        const accounts it{database};
        REQUIRE(it.set(fencing_token{8}, 80) == fenced_write::done);
        CHECK(kind_of([&] {
                  it.fenced.update(*it.db, {1}, fencing_token{9}, {{"The TOKEN", 1}}, soon());
              }) == errc::invalid_options);
        CHECK(it.set(fencing_token{7}, 70) == fenced_write::refused);
    }
}

TEST_CASE("no column's name ends the body of the trigger's function") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        const std::string column = "a$rowlock$; select 1; --$rowlock_$";
        const auto schema = database.prefix() + "shop";
        const auto db = database.source().connect(soon());
        db->query("create schema " + schema, soon());
        db->query("set search_path = " + schema, soon());
        db->query("create table t (id integer)", soon());
        for (const auto& statement :
             fence_token_sql(database.speaks(), "t", {.column = column, .trigger = true})) {
            db->query(statement, soon());
        }
        db->query("insert into t values (1)", soon());
        db->query("update t set \"" + column + "\" = 5", soon());
        CHECK(kind_of([&] { db->query("update t set \"" + column + "\" = 4", soon()); }) != errc{});
        db->query("drop schema " + schema + " cascade", soon());
    }
}
