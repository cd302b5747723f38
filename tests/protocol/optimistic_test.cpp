// Races between optimistic updates. Open transactions force the orders. Each danger has a control
// that shows it.

#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include <rowlock/optimistic.hpp>

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <future>
#include <string>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using outcome = update_result::outcome;
using support::backend;
using support::kind_of;
using support::soon;

namespace {

std::string time_type(sql::dialect speaks) {
    switch (speaks) {
        case sql::dialect::postgresql:
            return "timestamptz";
        case sql::dialect::mysql:
            return "datetime(6)";
        case sql::dialect::sqlite:
            break;
    }
    return "text";
}

/// One article, A1, with a stock of 10, and two connections, A's and B's.
class shop {
public:
    explicit shop(support::lock_database& database)
        : database_{database},
          table_{database.prefix() + "shop"},
          a_{database.connect()},
          b_{database.connect()},
          stock{
              {.table = table_, .key = {"sku"}, .version = "version", .deleted_at = "deleted_at"}},
          by_time{{.table = table_, .key = {"sku"}, .version = updated_at{"changed"}}} {
        const std::string time = time_type(database.speaks());
        database.run(
            "create table rowlock_shop (sku varchar(9) primary key, quantity bigint, "
            "version bigint not null, changed " +
            time + " not null, deleted_at " + time + " null)");
        database.run("insert into rowlock_shop values ('A1', 10, 1, '2026-01-02 03:04:05', null)");
        // Reads the catalogs now, and not during the races.
        (void)stock.read(*a_, "A1", {});
        (void)by_time.read(*a_, "A1", {});
    }
    shop(const shop&) = delete;
    shop& operator=(const shop&) = delete;
    ~shop() {
        a_.reset();
        b_.reset();
        database_.run("drop table rowlock_shop");
    }

    [[nodiscard]] sql::connection& a() const { return *a_; }
    [[nodiscard]] sql::connection& b() const { return *b_; }
    [[nodiscard]] const std::string& table() const { return table_; }
    [[nodiscard]] std::int64_t quantity() const {
        return database_.number("select quantity from rowlock_shop");
    }
    /// Waits until the server shows that B waits for a row that A has locked.
    [[nodiscard]] bool b_waits() const { return support::somebody_waits_for_a_row(database_); }
    /// A runs `first` without committing, B begins `second` and waits, then A ends with `end`.
    template <typename First, typename Second>
    auto interleave(First first, const char* end, Second second) const {
        a_->query("begin", soon());
        first();
        auto late = std::async(std::launch::async, second);
        const bool waited = b_waits();
        a_->query(end, soon());
        REQUIRE(waited);
        return late.get();
    }

private:
    support::lock_database& database_;
    std::string table_;
    std::unique_ptr<sql::connection> a_;
    std::unique_ptr<sql::connection> b_;

public:
    versioned_table stock;
    versioned_table by_time;
};

}  // namespace

// shows: optimistic-versions
TEST_CASE("an update that waited for another writer's commit is a conflict") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        for (const char* level : {"read committed", "repeatable read"}) {
            if (database.speaks() == sql::dialect::postgresql && level[0] == 'r' && level[2] == 'p')
                continue;  // a case below covers it
            CAPTURE(level);
            const shop at{database};
            at.b().query(database.speaks() == sql::dialect::mysql
                             ? "set session transaction isolation level " + std::string{level}
                             : "set default_transaction_isolation = 'read committed'",
                         soon());
            at.b().query("begin", soon());
            const auto seen = at.stock.read(at.b(), "A1", {"quantity"});
            const auto late = at.interleave(
                [&] {
                    CHECK(at.stock.update(at.a(), "A1", seen->version(), {{"quantity", 9}}));
                },
                "commit",
                [&] {
                    return at.stock
                        .update(at.b(), "A1", seen->version(),
                                {{"quantity", seen->integer("quantity") - 1}})
                        .what();
                });
            CHECK(late == outcome::conflict);
            // The transaction is not aborted and can go on.
            at.b().query("select 1 from " + at.table(), soon());
            at.b().query("commit", soon());
            CHECK(at.quantity() == 9);
        }
    }
}

// shows: optimistic-versions
TEST_CASE("control: a blind update in the same order loses the other one") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const shop at{database};
        const auto seen = at.stock.read(at.b(), "A1", {"quantity"})->integer("quantity");
        const std::string blind =
            "update " + at.table() + " set quantity = " + std::to_string(seen - 1);
        at.interleave([&] { at.a().query(blind, soon()); }, "commit",
                      [&] { at.b().query(blind, soon()); });
        CHECK(at.quantity() == 9);  // two were sold
    }
}

TEST_CASE("an update that waited for a writer that rolled back succeeds") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const shop at{database};
        const auto late = at.interleave(
            [&] {
                CHECK(at.stock.update(at.a(), "A1", row_version{1}, {{"quantity", 1}}));
            },
            "rollback",
            [&] {
                return at.stock.update(at.b(), "A1", row_version{1}, {{"quantity", 9}}).what();
            });
        CHECK(late == outcome::done);
        CHECK(at.quantity() == 9);
    }
}

// shows: optimistic-versions
TEST_CASE("an update that waited for a deletion finds the row gone") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const shop at{database};
        const auto late =
            at.interleave([&] { CHECK(at.stock.erase(at.a(), "A1", row_version{1})); }, "commit",
                          [&] { return at.stock.update(at.b(), "A1", row_version{1}, {}).what(); });
        CHECK(late == outcome::gone);
    }
}

// shows: optimistic-versions
TEST_CASE("a soft deletion and an update exclude each other in either order") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        {
            const shop at{database};
            const auto late = at.interleave(
                [&] { CHECK(at.stock.soft_delete(at.a(), "A1", row_version{1})); }, "commit",
                [&] {
                    return at.stock.update(at.b(), "A1", row_version{1}, {{"quantity", 9}}).what();
                });
            CHECK(late == outcome::gone);
            CHECK(at.quantity() == 10);
        }
        const shop at{database};
        const auto late = at.interleave(
            [&] {
                CHECK(at.stock.update(at.a(), "A1", row_version{1}, {{"quantity", 9}}));
            },
            "commit", [&] { return at.stock.soft_delete(at.b(), "A1", row_version{1}).what(); });
        CHECK(late == outcome::conflict);
        CHECK(at.stock.read(at.a(), "A1", {}));
    }
}

TEST_CASE("a time as version: an update that waited is a conflict") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const shop at{database};
        const auto seen = at.by_time.read(at.b(), "A1", {})->version();
        const auto late = at.interleave(
            [&] {
                CHECK(at.by_time.update(at.a(), "A1", seen, {{"quantity", 9}}));
            },
            "commit",
            [&] {
                return at.by_time.update(at.b(), "A1", seen, {{"quantity", 9}}).what();
            });
        CHECK(late == outcome::conflict);
    }
}

TEST_CASE("two updates within one tick of the clock differ") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const shop at{database};
        // The clock cannot be stopped, but a row can be years ahead of it. Then all readings are in
        // effect equal.
        const std::string tick = "'2150-01-01 00:00:00.000'";
        database.run("update rowlock_shop set changed = " + tick);
        const auto seen = at.by_time.read(at.a(), "A1", {})->version();
        CHECK(at.by_time.update(at.a(), "A1", seen, {{"quantity", 9}}));
        CHECK(at.by_time.update(at.b(), "A1", seen, {{"quantity", 9}}).what() == outcome::conflict);
    }
}

// shows: optimistic-versions
TEST_CASE("control: where both write the same plain clock reading, an update is lost") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const shop at{database};
        const std::string tick = "'2026-06-01 00:00:00.000'";
        database.run("update rowlock_shop set changed = " + tick);
        const std::string plain =
            "update " + at.table() + " set changed = " + tick +
            ", quantity = quantity - 1 where sku = 'A1' and changed = " + tick;
        CHECK(at.a().query(plain, soon()).affected() == 1);
        CHECK(at.b().query(plain, soon()).affected() ==
              1);  // based on a value that A has overwritten
    }
}

TEST_CASE("PostgreSQL's snapshots: an update of a row that changed since is a retryable conflict") {
    if (support::lock_database database{backend::postgresql}; database.there()) {
        for (const char* level : {"repeatable read", "serializable"}) {
            CAPTURE(level);
            const shop at{database};
            at.b().query("begin isolation level " + std::string{level}, soon());
            const auto seen = at.stock.read(at.b(), "A1", {})->version();
            CHECK(at.stock.update(at.a(), "A1", seen, {{"quantity", 9}}));
            try {
                (void)at.stock.update(at.b(), "A1", seen, {{"quantity", 8}});
                FAIL_CHECK("the update was not refused");
            } catch (const error& failure) {
                CHECK(failure.kind() == errc::conflict);
                CHECK(failure.sqlstate() == "40001");
                CHECK(failure.retryable());
            }
            at.b().query("rollback", soon());
            CHECK(at.quantity() == 9);
        }
    }
}

// shows: optimistic-versions
TEST_CASE("MariaDB's REPEATABLE READ: the snapshot is old, and the update sees the newest row") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const shop at{database};
        at.b().query("set session transaction isolation level repeatable read", soon());
        at.b().query("begin", soon());
        const auto seen = at.stock.read(at.b(), "A1", {})->version();
        const auto newer = at.stock.update(at.a(), "A1", seen, {{"quantity", 9}});
        REQUIRE(newer);
        CHECK(at.stock.read(at.b(), "A1", {})->version() == seen);  // still
        std::optional<update_result> stale;
        const auto refused = kind_of([&] {
            stale = at.stock.update(at.b(), "A1", seen, {{"quantity", 8}});
        });
        if (refused == errc{}) {
            CHECK(stale->what() == outcome::conflict);
            CHECK(at.stock.update(at.b(), "A1", newer.version(), {{"quantity", 7}}));
            at.b().query("commit", soon());
            CHECK(at.quantity() == 7);
        } else {
            CHECK(refused == errc::conflict);  // 11.6 and later: 1020
            at.b().query("rollback", soon());
            CHECK(at.quantity() == 9);
        }
    }
}

TEST_CASE("in a MariaDB transaction with an old snapshot a row that is gone is a conflict") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const shop at{database};
        at.b().query("set session transaction isolation level repeatable read", soon());
        at.b().query("begin", soon());
        const auto seen = at.stock.read(at.b(), "A1", {})->version();
        CHECK(at.stock.erase(at.a(), "A1", seen));
        std::optional<update_result> late;
        const auto refused = kind_of([&] { late = at.stock.update(at.b(), "A1", seen, {}); });
        CHECK((refused == errc::conflict || late->what() == outcome::conflict));
        at.b().query("rollback", soon());
        CHECK(at.stock.update(at.b(), "A1", seen, {}).what() == outcome::gone);
    }
}

TEST_CASE("SQLite: a transaction that read before another connection wrote gets a conflict") {
    ROWLOCK_FOR_EACH_BACKEND(database, backend::sqlite, backend::soci_sqlite) {
        const shop at{database};
        at.b().query("begin", soon());
        const auto seen = at.stock.read(at.b(), "A1", {})->version();
        CHECK(at.stock.update(at.a(), "A1", seen, {{"quantity", 9}}));
        CHECK(kind_of([&] {
                  (void)at.stock.update(at.b(), "A1", seen, {{"quantity", 8}});
              }) == errc::conflict);
        at.b().query("rollback", soon());
        CHECK(at.quantity() == 9);
        // Outside a transaction the conflict is reported at once.
        CHECK(at.stock.update(at.b(), "A1", seen, {}).what() == outcome::conflict);
    }
}

TEST_CASE("of two inserts of one key one succeeds, and the other reports the taken key") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const shop at{database};
        const auto late = at.interleave(
            [&] {
                CHECK(at.stock.insert(at.a(), "B2", {{"changed", "2026-01-01 00:00:00"}}));
            },
            "commit",
            [&] {
                return at.stock.insert(at.b(), "B2", {{"changed", "2026-01-01 00:00:00"}})
                    .has_value();
            });
        CHECK_FALSE(late);
    }
}

TEST_CASE("a key that was inserted after the snapshot counts as taken") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const shop at{database};
        at.b().query("set session transaction isolation level repeatable read", soon());
        at.b().query("begin", soon());
        CHECK_FALSE(at.stock.read(at.b(), "B2", {}));
        const std::vector<assignment> made{{"changed", "2026-01-01 00:00:00"}};
        CHECK(at.stock.insert(at.a(), "B2", made));
        CHECK_FALSE(at.stock.insert(at.b(), "B2", made));
        CHECK_FALSE(at.stock.read(at.b(), "B2", {}));  // the snapshot does not contain it
        at.b().query("rollback", soon());
    }
}

TEST_CASE(
    "a version seen before an erase matches the row inserted again; after a soft delete it does "
    "not") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const shop at{database};
        const std::vector<assignment> made{{"changed", "2026-01-01 00:00:00"}};
        CHECK(at.stock.insert(at.a(), "B2", made) == row_version{1});
        CHECK(at.stock.erase(at.a(), "B2", row_version{1}));
        CHECK(at.stock.insert(at.a(), "B2", made) == row_version{1});
        CHECK(at.stock.update(at.b(), "B2", row_version{1},
                              {}));  // documented: a version seen before the erase

        const auto deleted = at.stock.soft_delete(at.a(), "A1", row_version{1});
        CHECK(at.stock.restore(at.a(), "A1", deleted.version()));
        CHECK(at.stock.update(at.b(), "A1", row_version{1}, {}).what() == outcome::conflict);
    }
}

TEST_CASE("versions: an update that waited is a conflict, and of two creators one wins") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const shop at{database};
        const versions files{database.source().tables()};
        REQUIRE(files.create(at.a(), "report"));
        const auto late =
            at.interleave([&] { CHECK(files.update(at.a(), "report", row_version{1})); }, "commit",
                          [&] { return files.update(at.b(), "report", row_version{1}).what(); });
        CHECK(late == outcome::conflict);
        CHECK(files.read(at.a(), "report") == row_version{2});

        const auto second = at.interleave([&] { CHECK(files.create(at.a(), "new")); }, "commit",
                                          [&] { return files.create(at.b(), "new").has_value(); });
        CHECK_FALSE(second);
        const auto instead =
            at.interleave([&] { CHECK(files.create(at.a(), "newer")); }, "rollback",
                          [&] { return files.create(at.b(), "newer").has_value(); });
        CHECK(instead);
    }
}

TEST_CASE("four threads count to two hundred by retry_on_conflict, with conflicts on the way") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const shop at{database};
        const versioned_table* const tables[]{&at.stock, &at.by_time};
        for (const versioned_table* table : tables) {
            database.run("update rowlock_shop set quantity = 0");
            std::atomic<int> attempts{0};
            const auto count = [&](int thread) {
                const auto db = database.connect();
                const auto meddler = database.connect();
                for (int i = 0; i < 50; ++i) {
                    const auto done = retry_on_conflict(
                        {.attempts = 1000, .backoff = 1ms, .max_backoff = 20ms, .total = 60s},
                        [&](int attempt) {
                            const auto row = table->read(*db, "A1", {"quantity"});
                            // Forces at least one conflict by an earlier update.
                            if (thread == 0 && i == 0 && attempt == 1) {
                                const auto theirs = retry_on_conflict(
                                    {.attempts = 1000, .backoff = 1ms, .total = 60s}, [&](int) {
                                        const auto now = table->read(*meddler, "A1", {});
                                        return table->update(*meddler, "A1", now->version(), {});
                                    });
                                CHECK(theirs.value);
                            }
                            return table->update(*db, "A1", row->version(),
                                                 {{"quantity", row->integer("quantity") + 1}});
                        });
                    attempts += done.attempts;
                }
            };
            std::vector<std::future<void>> threads;
            for (int thread = 0; thread < 4; ++thread) {
                threads.push_back(std::async(std::launch::async, count, thread));
            }
            for (auto& each : threads) each.get();
            CHECK(at.quantity() == 200);
            CHECK(attempts > 200);
        }
    }
}

TEST_CASE("four threads count exactly with a transaction per attempt too") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const shop at{database};
        database.run("update rowlock_shop set quantity = 0");
        std::atomic<int> attempts{0};
        std::vector<std::future<void>> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.push_back(std::async(std::launch::async, [&] {
                const auto db = database.connect();
                if (database.speaks() == sql::dialect::postgresql) {
                    db->query("set default_transaction_isolation = 'repeatable read'", soon());
                }
                for (int i = 0; i < 50; ++i) {
                    attempts +=
                        retry_on_conflict(
                            *db,
                            {.attempts = 1000, .backoff = 1ms, .max_backoff = 20ms, .total = 60s},
                            [&](int) {
                                const auto row = at.stock.read(*db, "A1", {"quantity"});
                                return at.stock.update(
                                    *db, "A1", row->version(),
                                    {{"quantity", row->integer("quantity") + 1}});
                            })
                            .attempts;
                }
            }));
        }
        for (auto& each : threads) each.get();
        CHECK(at.quantity() == 200);
        CHECK(attempts >= 200);
    }
}

TEST_CASE("many threads that create and update the same resources in transactions all finish") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const versions files{database.source().tables()};
        std::atomic<int> created{0};
        std::atomic<int> attempts{0};
        std::vector<std::future<void>> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.push_back(std::async(std::launch::async, [&] {
                const auto db = database.connect();
                for (int i = 0; i < 40; ++i) {
                    const std::string name = "resource " + std::to_string(i % 5);
                    bool mine = false;
                    const auto done = retry_on_conflict(
                        *db, {.attempts = 1000, .backoff = 1ms, .max_backoff = 20ms, .total = 60s},
                        [&](int) {
                            mine = files.create(*db, name).has_value();
                            const auto seen = files.read(*db, name);
                            // Another thread created it after this snapshot.
                            if (!seen) return update_result::conflict();
                            return files.update(*db, name, *seen);
                        });
                    created += mine ? 1 : 0;
                    attempts += done.attempts;
                }
            }));
        }
        for (auto& each : threads) each.get();
        CHECK(created == 5);
        CHECK(database.number("select sum(version) from rowlock_version") == 160 + 5);
        CHECK(attempts < 160 * 20);
        MESSAGE("attempts for 160 changes: ", attempts.load());
    }
}

TEST_CASE("PostgreSQL: a domain is treated like its underlying type") {
    if (support::lock_database database{backend::postgresql}; database.there()) {
        const auto db = database.connect();
        const std::string prefix = database.prefix();
        database.run("create domain " + prefix + "fine as timestamptz not null");
        database.run("create domain " + prefix + "coarse as timestamptz(3)");
        database.run("create table rowlock_domains (id int primary key, fine " + prefix +
                     "fine, coarse " + prefix + "coarse)");
        database.run("insert into rowlock_domains values (1, now(), now())");
        const versioned_table fine{
            {.table = prefix + "domains", .key = {"id"}, .version = updated_at{"fine"}}};
        const versioned_table coarse{
            {.table = prefix + "domains", .key = {"id"}, .version = updated_at{"coarse"}}};
        const auto seen = fine.read(*db, 1, {})->version();
        CHECK(fine.update(*db, 1, seen, {}));
        CHECK_FALSE(fine.update(*db, 1, seen, {}));
        CHECK(kind_of([&] { (void)coarse.read(*db, 1, {}); }) == errc::unsupported);
        database.run("drop table rowlock_domains");
        database.run("drop domain " + prefix + "fine");
        database.run("drop domain " + prefix + "coarse");
    }
}

TEST_CASE("one table object serves several threads, each with its own connection") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const shop at{database};
        const versioned_table fresh{
            {.table = at.table(), .key = {"sku"}, .version = "version"}};  // no catalog read yet
        std::vector<std::future<bool>> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.push_back(std::async(std::launch::async, [&] {
                const auto db = database.connect();
                for (int i = 0; i < 20; ++i) {
                    // In the end more shapes than the object keeps.
                    const auto row = fresh.read(
                        *db, "A1",
                        std::vector<std::string>(static_cast<std::size_t>(i * 8), "quantity"));
                    if (!row) return false;
                    (void)fresh.update(*db, "A1", row->version(), {});
                }
                return true;
            }));
        }
        for (auto& each : threads) CHECK(each.get());
    }
}

// shows: optimistic-versions
TEST_CASE(
    "a change whose reply was lost may be applied later, and a repetition of it is applied once") {
    if (support::lock_database database{backend::postgresql}; database.there()) {
        const shop at{database};
        const auto change = [&](sql::connection& db) {
            return at.stock.update(db, "A1", row_version{1}, {increment("quantity", -1)}).what();
        };
        const auto lost = database.connect();
        at.a().query("begin", soon());
        at.a().query("update " + at.table() + " set quantity = quantity", soon());
        auto late = std::async(std::launch::async, [&] { return kind_of([&] { change(*lost); }); });
        REQUIRE(at.b_waits());
        ::shutdown(lost->socket(), SHUT_RDWR);  // the server does not notice it while it waits
        CHECK(late.get() == errc::outcome_unknown);
        // Control: the row does not show the change yet.
        CHECK(at.stock.read(at.b(), "A1", {})->version() == row_version{1});
        auto again = std::async(std::launch::async, [&] { return change(at.b()); });
        const bool both_wait = support::waiting_for_rows(database, 2);
        at.a().query("rollback", soon());
        REQUIRE(both_wait);
        CHECK(again.get() == outcome::conflict);
        CHECK(at.quantity() == 9);
        CHECK(at.stock.read(at.b(), "A1", {})->version() == row_version{2});
    }
}

// shows: optimistic-versions
TEST_CASE("documented: a version that was rolled back may be assigned again and match") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const shop at{database};
        at.a().query("begin", soon());
        const auto undone = at.stock.update(at.a(), "A1", row_version{1}, {{"quantity", 1}});
        at.a().query("rollback", soon());
        CHECK(at.stock.update(at.b(), "A1", row_version{1}, {{"quantity", 5}}));
        CHECK(at.stock.update(at.a(), "A1", undone.version(), {}));
    }
}

TEST_CASE(
    "documented: at MySQL's READ UNCOMMITTED a version may be read that is rolled back later") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const shop at{database};
        for (const char* level : {"read uncommitted", "read committed"}) {
            CAPTURE(level);
            const auto before = at.stock.read(at.a(), "A1", {})->version();
            at.b().query("set session transaction isolation level " + std::string{level}, soon());
            at.a().query("begin", soon());
            CHECK(at.stock.update(at.a(), "A1", before, {{"quantity", 1}}));
            const auto seen = at.stock.read(at.b(), "A1", {})->version();
            at.a().query("rollback", soon());
            CHECK(at.stock.update(at.a(), "A1", before, {{"quantity", 5}}));
            const auto late = at.stock.update(at.b(), "A1", seen, {{"quantity", 0}}).what();
            CHECK(late == (level[5] == 'u' ? outcome::done : outcome::conflict));
        }
    }
}

TEST_CASE(
    "MySQL's SERIALIZABLE: of two transactions that read and then write one is a deadlock victim") {
    ROWLOCK_FOR_EACH_BACKEND(database, backend::mariadb, backend::soci_mariadb) {
        const shop at{database};
        const auto begin = [&](sql::connection& db) {
            db.query("set session transaction isolation level serializable", soon());
            db.query("begin", soon());
            return at.stock.read(db, "A1", {})->version();
        };
        const auto write = [&](sql::connection& db, const row_version& seen) {
            try {
                if (!at.stock.update(db, "A1", seen, {increment("quantity", -1)})) return errc{};
                db.query("commit", soon());
                return errc{};
            } catch (const error& failure) {
                CHECK(failure.retryable());
                return failure.kind();
            }
        };
        const auto seen = begin(at.a());
        CHECK(begin(at.b()) == seen);
        auto late = std::async(std::launch::async, [&] { return write(at.b(), seen); });
        REQUIRE(at.b_waits());
        const errc first = write(at.a(), seen);
        const errc second = late.get();
        CHECK((first == errc::deadlock) != (second == errc::deadlock));
        at.a().query("rollback", soon());
        at.b().query("rollback", soon());
        CHECK(at.quantity() == 9);
    }
}

// shows: newer-rows
TEST_CASE("MariaDB's innodb_snapshot_isolation: a row that changed since is a retryable conflict") {
    ROWLOCK_FOR_EACH_BACKEND(database, backend::mariadb, backend::soci_mariadb) {
        const shop at{database};
        const errc known =
            kind_of([&] { at.b().query("set innodb_snapshot_isolation = on", soon()); });
        if (known != errc{}) {
            MESSAGE("this server does not have innodb_snapshot_isolation");
            continue;
        }
        at.b().query("set session transaction isolation level repeatable read", soon());
        at.b().query("begin", soon());
        const auto seen = at.stock.read(at.b(), "A1", {})->version();
        CHECK(at.stock.update(at.a(), "A1", seen, {{"quantity", 9}}));
        CHECK(kind_of([&] {
                  (void)at.stock.update(at.b(), "A1", seen, {{"quantity", 8}});
              }) == errc::conflict);
        at.b().query("rollback", soon());
        CHECK(at.quantity() == 9);
    }
}
