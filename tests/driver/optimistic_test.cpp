// The promises of versioned_table, versions and retry_on_conflict, on rowlock's own connections and
// on the caller's handles, through every driver.
#include "driver/driver_fixtures.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/optimistic.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using outcome = update_result::outcome;
using support::kind_of;
using support::soon;

namespace {

struct subject {
    std::string name;
    sql::dialect speaks;
    bool borrowed;
    bool (*available)();
    sql::connection_source (*source)();
    std::unique_ptr<contract::borrowed_handle> (*borrow)();
};

template <typename... F>
std::vector<subject> subjects_of(std::tuple<F...>) {
    std::vector<subject> all;
    (all.push_back({std::string{F::name} + ", our own", F::speaks, false, F::available, F::source,
                    F::borrow}),
     ...);
    (all.push_back({std::string{F::name} + ", borrowed", F::speaks, true, F::available, F::source,
                    F::borrow}),
     ...);
    return all;
}

const std::vector<subject>& subjects() {
    static const auto all = subjects_of(contract::driver_fixtures{});
    return all;
}

/// The test's own table, and two connections: `db`, which is under test, and another.
class place {
public:
    place(const subject& on, const std::string& columns)
        : on_{on},
          table_{"optimistic_" + std::to_string(::getpid()) + "_" + std::to_string(++count())},
          other_{on.source().connect(soon())} {
        if (on.borrowed) {
            handle_ = on.borrow();
            db_ = handle_->ref();
        } else {
            db_ = on.source().connect(soon());
        }
        sql("create table " + table_ + " (" + columns + ")" +
            (on.speaks == sql::dialect::mysql ? " engine=InnoDB" : ""));
    }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() {
        try {
            if (db_->transaction() != sql::transaction_state::none) db_->query("rollback", soon());
        } catch (const std::exception&) {  // not in one
        }
        db_.reset();
        handle_.reset();
        try {
            other_->query("drop table " + table_, soon());
        } catch (const std::exception& failure) {
            FAIL_CHECK("a table was left behind: " << failure.what());
        }
    }

    [[nodiscard]] sql::connection& db() const { return *db_; }
    [[nodiscard]] sql::connection& other() const { return *other_; }
    [[nodiscard]] const std::string& table() const { return table_; }
    [[nodiscard]] bool speaks(sql::dialect which) const { return on_.speaks == which; }

    sql::result sql(const std::string& text) const { return other_->query(text, soon()); }
    [[nodiscard]] std::string cell(const std::string& text) const {
        const auto rows = sql(text);
        return rows.is_null(0, 0) ? "NULL" : std::string{rows.text(0, 0)};
    }
    [[nodiscard]] std::string stock() const {
        return cell("select quantity from " + table_ + " where sku = 'A1'");
    }

private:
    static std::atomic<int>& count() {
        static std::atomic<int> so_far{0};
        return so_far;
    }

    const subject& on_;
    std::string table_;
    std::unique_ptr<sql::connection> other_;
    std::unique_ptr<contract::borrowed_handle> handle_;
    std::unique_ptr<sql::connection> db_;
};

const std::string inventory =
    "sku varchar(40) primary key, quantity bigint, note varchar(40), version bigint not null";

/// The inventory with one row: A1, 10 pieces, version 1.
class shop : public place {
public:
    explicit shop(const subject& on)
        : place{on, inventory},
          stock_table{{.table = table(), .key = {"sku"}, .version = "version"}} {
        sql("insert into " + table() + " values ('A1', 10, null, 1)");
    }
    versioned_table stock_table;
};

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is the name of a variable
#define FOR_EACH_SUBJECT(one)                                               \
    for (const subject& one : subjects()) DOCTEST_SUBCASE(one.name.c_str()) \
    if (one.available())
// NOLINTEND(bugprone-macro-parentheses)

TEST_CASE("an update of the current version succeeds, and one of an older version is a conflict") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        const auto row = at.stock_table.read(at.db(), "A1", {"quantity", "note"});
        REQUIRE(row);
        CHECK(row->integer("quantity") == 10);
        CHECK(row->is_null("note"));
        CHECK_FALSE(row->maybe_integer("note"));
        CHECK(row->version() == row_version{1});
        CHECK(kind_of([&] { (void)row->text("price"); }) == errc::invalid_options);

        const auto sold = at.stock_table.update(at.db(), "A1", row->version(),
                                                {increment("quantity", -1), {"note", "sold"}});
        CHECK(sold);
        CHECK(sold.version() == row_version{2});
        CHECK(at.stock() == "9");

        const auto late =
            at.stock_table.update(at.db(), "A1", row->version(), {{"quantity", 1000}});
        CHECK_FALSE(late);
        CHECK(late.what() == outcome::conflict);
        CHECK(kind_of([&] { (void)late.version(); }) == errc::conflict);
        CHECK(at.stock() == "9");
        CHECK(at.stock_table.read(at.db(), "A1", {"note"})->text("note") == "sold");
    }
}

TEST_CASE("a row that is gone is distinguished from one that changed") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        CHECK_FALSE(at.stock_table.read(at.db(), "B2", {}));
        CHECK(at.stock_table.update(at.db(), "B2", row_version{1}, {}).what() == outcome::gone);
        CHECK(at.stock_table.erase(at.db(), "A1", row_version{7}).what() == outcome::conflict);
        CHECK(at.stock_table.erase(at.db(), "A1", row_version{-7}).what() == outcome::conflict);
        CHECK(at.stock_table.erase(at.db(), "A1", row_version{1}));
        CHECK(at.stock_table.erase(at.db(), "A1", row_version{1}).what() == outcome::gone);
        CHECK(at.stock_table.update(at.db(), "A1", row_version{1}, {}).what() == outcome::gone);
    }
}

// shows: optimistic-versions
TEST_CASE("a value that went from A to B and back to A is a conflict") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        const auto seen = at.stock_table.read(at.db(), "A1", {"quantity"})->version();
        auto now = at.stock_table.update(at.other(), "A1", seen, {{"quantity", 3}}).version();
        now = at.stock_table.update(at.other(), "A1", now, {{"quantity", 10}}).version();
        CHECK(at.stock() == "10");
        CHECK_FALSE(at.stock_table.update(at.db(), "A1", seen, {{"quantity", 9}}));
    }
}

TEST_CASE("the version increases although nothing else changes") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        // MySQL counts changed rows, not matched ones.
        auto version =
            at.stock_table.update(at.db(), "A1", row_version{1}, {{"quantity", 10}}).version();
        CHECK(version == row_version{2});
        version = at.stock_table.update(at.db(), "A1", version, {}).version();
        CHECK(version == row_version{3});
        CHECK(at.cell("select version from " + at.table()) == "3");
    }
}

TEST_CASE("keys of several columns, nulls and large numbers") {
    FOR_EACH_SUBJECT(one) {
        const place at{one,
                       "region varchar(10), id bigint, amount bigint, note varchar(99), "
                       "version bigint not null, primary key (region, id)"};
        const versioned_table accounts{
            {.table = at.table(), .key = {"region", "id"}, .version = "version"}};
        constexpr auto most = std::numeric_limits<std::int64_t>::max();
        CHECK(accounts.insert(at.db(), {"eu", most}, {{"amount", most}, {"note", "it's; -- ü"}}) ==
              row_version{1});
        CHECK(accounts.insert(at.db(), {"us", most}, {{"amount", 5}}) == row_version{1});
        const auto row = accounts.read(at.db(), {"eu", most}, {"amount", "note"});
        REQUIRE(row);
        CHECK(row->integer("amount") == most);
        CHECK(row->text("note") == "it's; -- ü");
        CHECK(accounts.update(at.db(), {"eu", most}, row->version(),
                              {{"amount", -most}, {"note", nullptr}}));
        const auto after = accounts.read(at.db(), {"eu", most}, {"amount", "note"});
        CHECK(after->integer("amount") == -most);
        CHECK(after->is_null("note"));
        CHECK(accounts.read(at.db(), {"us", most}, {"amount"})->integer("amount") == 5);

        CHECK(kind_of([&] { (void)accounts.read(at.db(), "eu", {}); }) == errc::invalid_options);
        CHECK(kind_of([&] {
                  (void)accounts.read(at.db(), {"eu", nullptr}, {});
              }) == errc::invalid_options);
    }
}

TEST_CASE("an invalid assignment is refused before a statement is sent") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        const auto refused = [&](const std::vector<assignment>& what) {
            return kind_of(
                [&] { (void)at.stock_table.update(at.db(), "A1", row_version{1}, what); });
        };
        CHECK(refused({{"version", 9}}) == errc::invalid_options);
        CHECK(refused({{"sku", "B2"}}) == errc::invalid_options);
        CHECK(refused({{"note", "a"}, {"note", "b"}}) == errc::invalid_options);
        CHECK(refused({{"", 1}}) == errc::invalid_options);
        if (!at.speaks(sql::dialect::postgresql)) {
            CHECK(refused({{"VERSION", 9}}) == errc::invalid_options);
        }
        CHECK(kind_of([&] {
                  (void)at.stock_table.insert(at.db(), "B2", {increment("quantity")});
              }) == errc::invalid_options);
        CHECK(kind_of([&] { (void)at.stock_table.soft_delete(at.db(), "A1", row_version{1}); }) ==
              errc::invalid_options);
        CHECK(kind_of([&] {
                  (void)at.stock_table.update(at.db(), "A1", row_version{"; drop"}, {});
              }) == errc::invalid_options);
        CHECK(at.cell("select version from " + at.table()) == "1");
    }
    CHECK(kind_of([] { versioned_table{{.table = "t", .key = {}, .version = "v"}}; }) ==
          errc::invalid_options);
    CHECK(kind_of([] { versioned_table{{.table = "t", .key = {"v"}, .version = "v"}}; }) ==
          errc::invalid_options);
    CHECK(kind_of([] {
              versioned_table{
                  {.table = "t", .key = {"k"}, .version = "v", .statement_timeout = 0s}};
          }) == errc::invalid_options);
}

TEST_CASE("names with any characters are quoted") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        const auto quoted = [&](std::string name) {
            const char quote = at.speaks(sql::dialect::mysql) ? '`' : '"';
            for (std::size_t i = 0; (i = name.find(quote, i)) != std::string::npos; i += 2) {
                name.insert(i, 1, quote);
            }
            return quote + name + quote;
        };
        const std::string table = at.table() + "\"`; drop table " + at.table() + " --";
        at.sql("create table " + quoted(table) + " (" + quoted("select") +
               " varchar(9) primary key, " + quoted("a\"b`c $1 ?") + " integer, " +
               quoted("Größe; --") + " bigint not null)");
        const versioned_table odd{{.table = table, .key = {"select"}, .version = "Größe; --"}};
        CHECK(odd.insert(at.db(), "k", {{"a\"b`c $1 ?", 5}}));
        CHECK(odd.update(at.db(), "k", row_version{1}, {increment("a\"b`c $1 ?", 2)}));
        CHECK(odd.read(at.db(), "k", {"a\"b`c $1 ?"})->integer("a\"b`c $1 ?") == 7);
        CHECK(odd.erase(at.db(), "k", row_version{2}));
        at.sql("drop table " + quoted(table));
        CHECK(at.stock() == "10");
    }
}

TEST_CASE(
    "a change in the caller's transaction is undone with it, and a conflict does not end it") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        at.db().query("begin", soon());
        CHECK(at.stock_table.update(at.db(), "A1", row_version{1}, {{"quantity", 5}}));
        CHECK(at.stock_table.update(at.db(), "A1", row_version{1}, {}).what() == outcome::conflict);
        CHECK(at.stock_table.update(at.db(), "B2", row_version{1}, {}).what() == outcome::gone);
        CHECK_FALSE(at.stock_table.insert(at.db(), "A1"));
        // The transaction goes on.
        CHECK(at.stock_table.update(at.db(), "A1", row_version{2}, {{"quantity", 4}}));
        at.db().query("rollback", soon());
        CHECK(at.stock() == "10");
        CHECK(at.cell("select version from " + at.table()) == "1");

        at.db().query("begin", soon());
        CHECK(at.stock_table.update(at.db(), "A1", row_version{1}, {{"quantity", 5}}));
        at.db().query("commit", soon());
        CHECK(at.stock() == "5");
    }
}

TEST_CASE("outside a transaction each change commits by itself and none is left open") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        CHECK(at.stock_table.update(at.db(), "A1", row_version{1}, {{"quantity", 5}}));
        const auto state = at.db().transaction();
        const bool none =
            state == sql::transaction_state::none || state == sql::transaction_state::unknown;
        CHECK(none);
        CHECK(at.stock() == "5");
        // Another connection does not wait.
        CHECK(at.stock_table.update(at.other(), "A1", row_version{2}, {}));
    }
}

TEST_CASE("a change costs one round trip, and its prepared statement is found again") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        row_version version{1};
        const auto sell = [&] {
            const auto before = at.db().round_trips();
            version = at.stock_table.update(at.db(), "A1", version, {increment("quantity", -1)})
                          .version();
            return at.db().round_trips() - before;
        };
        sell();
        sell();  // a borrowed PostgreSQL handle prepares now
        for (int i = 0; i < 3; ++i) CHECK(sell() == 1);
        CHECK(at.stock() == "5");
    }
}

TEST_CASE("a soft-deleted row is hidden, found with deleted_rows::shown, and can be restored") {
    FOR_EACH_SUBJECT(one) {
        const char* const time = one.speaks == sql::dialect::postgresql ? "timestamptz"
                                 : one.speaks == sql::dialect::mysql    ? "datetime(6)"
                                                                        : "text";
        for (const std::string& type : {std::string{time}, std::string{"bigint"}}) {
            const place at{one, inventory + ", deleted_at " + type};
            const versioned_table stock{{.table = at.table(),
                                         .key = {"sku"},
                                         .version = "version",
                                         .deleted_at = "deleted_at"}};
            CHECK(stock.insert(at.db(), "A1", {{"quantity", 10}}));
            CHECK(stock.restore(at.db(), "A1", row_version{1}).what() == outcome::gone);
            CHECK(stock.soft_delete(at.db(), "A1", row_version{3}).what() == outcome::conflict);
            const auto deleted = stock.soft_delete(at.db(), "A1", row_version{1});
            REQUIRE(deleted);
            CHECK(at.cell("select deleted_at from " + at.table()) != "NULL");
            CHECK_FALSE(stock.read(at.db(), "A1", {}));
            CHECK(stock.read(at.db(), "A1", {}, deleted_rows::shown)->deleted());
            CHECK(stock.update(at.db(), "A1", deleted.version(), {}).what() == outcome::gone);
            CHECK(stock.soft_delete(at.db(), "A1", deleted.version()).what() == outcome::gone);
            CHECK_FALSE(stock.insert(at.db(), "A1"));  // the key is taken
            CHECK(stock.restore(at.db(), "A1", row_version{1}).what() == outcome::conflict);
            const auto back = stock.restore(at.db(), "A1", deleted.version());
            CHECK(back.version() == row_version{3});
            CHECK_FALSE(stock.read(at.db(), "A1", {})->deleted());
            CHECK(kind_of([&] {
                      (void)stock.update(at.db(), "A1", back.version(), {{"deleted_at", nullptr}});
                  }) == errc::invalid_options);
            CHECK(stock.erase(at.db(), "A1", back.version()));
        }
    }
}

TEST_CASE("a violation of another unique index is the caller's error") {
    FOR_EACH_SUBJECT(one) {
        const place at{one, inventory + ", unique (note)"};
        const versioned_table stock{{.table = at.table(), .key = {"sku"}, .version = "version"}};
        CHECK(stock.insert(at.db(), "A1", {{"note", "x"}}));
        CHECK_FALSE(stock.insert(at.db(), "A1", {{"note", "y"}}));
        CHECK(kind_of([&] {
                  (void)stock.insert(at.db(), "B2", {{"note", "x"}});
              }) == errc::unique_violation);
    }
}

TEST_CASE("MySQL: a taken key that is erased before it is looked up is inserted") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks != sql::dialect::mysql || one.borrowed) continue;
        const shop at{one};
        support::interception by;
        const auto db = by.wrap(one.source()).connect(soon());
        int erased = 0;
        by.before([&](std::string_view text) {
            if (text.find("lock in share mode") == std::string_view::npos) return;
            ++erased;
            at.sql("delete from " + at.table());
        });
        CHECK(at.stock_table.insert(*db, "A1", {{"quantity", 5}}) == row_version{1});
        CHECK(erased == 1);
        CHECK(at.stock() == "5");
    }
}

// shows: optimistic-versions
TEST_CASE("a time as version increases with every update, even from a future time") {
    FOR_EACH_SUBJECT(one) {
        std::vector<std::pair<std::string, std::string>> kinds;  // type, a value far ahead
        if (one.speaks == sql::dialect::postgresql) {
            kinds = {{"timestamptz", "2150-01-01 00:00:00.999999+00"},
                     {"timestamp", "2150-01-01 00:00:00.999999"},
                     {"timestamptz(6)", "2150-01-01 00:00:00+00"}};
        } else if (one.speaks == sql::dialect::mysql) {
            kinds = {{"datetime(6)", "2150-01-01 00:00:00.999999"}};
        } else {
            kinds = {{"text", "2150-01-01 00:00:00.999"},
                     {"text", "2150-01-01T00:00:00.999Z"},
                     {"text", "2150-01-01"},
                     {"integer", "5680281600999999"}};
        }
        for (const auto& kind : kinds) {
            const auto& type = kind.first;
            const auto& future = kind.second;
            CAPTURE(type);
            CAPTURE(future);
            const place at{
                one, "sku varchar(9) primary key, quantity int, changed " + type + " not null"};
            const versioned_table stock{
                {.table = at.table(), .key = {"sku"}, .version = updated_at{"changed"}}};
            const auto made = stock.insert(at.db(), "A1", {{"quantity", 1}});
            REQUIRE(made);
            CHECK(stock.read(at.db(), "A1", {})->version() == *made);
            const auto next = stock.update(at.db(), "A1", *made, {{"quantity", 2}});
            REQUIRE(next);
            CHECK(stock.read(at.db(), "A1", {})->version() == next.version());
            // The clock was set back meanwhile, or another server's is ahead.
            at.sql("update " + at.table() + " set changed = '" + future + "'");
            const auto seen = stock.read(at.db(), "A1", {})->version();
            const auto first = stock.update(at.db(), "A1", seen, {increment("quantity")});
            REQUIRE(first);
            const auto second = stock.update(at.db(), "A1", first.version(), {});
            REQUIRE(second);
            CHECK(first.version() != seen);
            CHECK(second.version() != first.version());
            CHECK(second.version() != seen);
            CHECK(stock.read(at.db(), "A1", {})->version() == second.version());
            CHECK(stock.update(at.db(), "A1", seen, {}).what() == outcome::conflict);
            CHECK(stock.update(at.db(), "A1", first.version(), {}).what() == outcome::conflict);
            CHECK(at.cell("select count(*) from " + at.table() + " where changed > '" + future +
                          "'") == "1");
            CHECK(stock.erase(at.db(), "A1", second.version()));
        }
    }
}

TEST_CASE("the time that is written is the database's time in UTC") {
    FOR_EACH_SUBJECT(one) {
        const bool postgresql = one.speaks == sql::dialect::postgresql;
        const bool mysql = one.speaks == sql::dialect::mysql;
        const place at{one, std::string{"sku varchar(9) primary key, changed "} +
                                (postgresql ? "timestamp"
                                 : mysql    ? "datetime(6)"
                                            : "text") +
                                " not null"};
        // A session far from Greenwich.
        if (postgresql) at.db().query("set time zone 'Pacific/Auckland'", soon());
        if (mysql) at.db().query("set time_zone = '+13:00'", soon());
        const versioned_table stock{
            {.table = at.table(), .key = {"sku"}, .version = updated_at{"changed"}}};
        const auto made = stock.insert(at.db(), "A1");
        (void)stock.update(at.db(), "A1", *made, {}).or_throw();
        const std::string age =
            postgresql ? "extract(epoch from (now() at time zone 'UTC') - changed)::bigint"
            : mysql    ? "timestampdiff(second, changed, utc_timestamp(6))"
                       : "cast((julianday('now') - julianday(changed)) * 86400 as integer)";
        CHECK(std::abs(std::stoi(at.cell("select " + age + " from " + at.table()))) < 60);
        if (postgresql) at.db().query("reset time zone", soon());
    }
}

TEST_CASE("a version column that cannot distinguish two updates is refused") {
    FOR_EACH_SUBJECT(one) {
        const auto verdict = [&](const std::string& type, const version_column& version) {
            const place at{one, "sku varchar(9) primary key, v " + type};
            const versioned_table stock{{.table = at.table(), .key = {"sku"}, .version = version}};
            return kind_of([&] { (void)stock.read(at.db(), "A1", {}); });
        };
        if (one.speaks == sql::dialect::postgresql) {
            CHECK(verdict("timestamptz(3)", updated_at{"v"}) == errc::unsupported);
            CHECK(verdict("timestamp(0)", updated_at{"v"}) == errc::unsupported);
            CHECK(verdict("date", updated_at{"v"}) == errc::unsupported);
            CHECK(verdict("text", "v") == errc::unsupported);
            CHECK(verdict("smallint", "v") == errc{});
        }
        if (one.speaks == sql::dialect::mysql) {
            CHECK(verdict("datetime", updated_at{"v"}) == errc::unsupported);
            CHECK(verdict("datetime(3)", updated_at{"v"}) == errc::unsupported);
            CHECK(verdict("timestamp(6) not null", updated_at{"v"}) == errc::unsupported);
            CHECK(verdict("double", "v") == errc::unsupported);
            CHECK(verdict("int unsigned", "v") == errc{});
        }
        if (one.speaks == sql::dialect::sqlite) {
            CHECK(verdict("DOUBLE", "v") == errc::unsupported);  // 1 would come back as 1.0
            CHECK(verdict("real", updated_at{"v"}) == errc{});
            CHECK(verdict("", "v") == errc{});
        }
        CHECK(verdict("bigint", "w") == errc::schema_outdated);
        const shop at{one};
        const versioned_table missing{{.table = "no_such", .key = {"sku"}, .version = "v"}};
        CHECK(kind_of([&] { (void)missing.read(at.db(), "A1", {}); }) == errc::schema_outdated);
    }
}

TEST_CASE("a version that is null, no time, or cannot grow is an error that says so") {
    FOR_EACH_SUBJECT(one) {
        constexpr auto most = std::numeric_limits<std::int64_t>::max();
        {
            const shop at{one};
            at.sql("update " + at.table() + " set version = " + std::to_string(most));
            CHECK(kind_of([&] {
                      (void)at.stock_table.update(at.db(), "A1", row_version{most}, {});
                  }) == errc::database_error);
            CHECK(at.cell("select version from " + at.table()) == std::to_string(most));
            CHECK(at.stock_table.erase(at.db(), "A1", row_version{most}));
        }
        {
            const place at{one, "sku varchar(9) primary key, quantity int, version int"};
            if (at.speaks(sql::dialect::mysql)) at.db().query("set sql_mode = ''", soon());
            const versioned_table stock{
                {.table = at.table(), .key = {"sku"}, .version = "version"}};
            at.sql("insert into " + at.table() + " values ('A1', 1, null), ('B2', 1, 2147483647)");
            CHECK(kind_of([&] { (void)stock.read(at.db(), "A1", {}); }) == errc::database_error);
            if (!at.speaks(sql::dialect::sqlite)) {
                // Without a strict sql_mode MySQL would write 2147483647 again, and a second writer
                // would overwrite the first.
                CHECK(kind_of([&] {
                          (void)stock.update(at.db(), "B2", row_version{2147483647},
                                             {{"quantity", 2}});
                      }) == errc::database_error);
                CHECK(at.cell("select quantity from " + at.table() + " where sku = 'B2'") == "1");
            }
        }
        if (one.speaks == sql::dialect::mysql) continue;
        const bool postgresql = one.speaks == sql::dialect::postgresql;
        const place at{one, std::string{"sku varchar(9) primary key, changed "} +
                                (postgresql ? "timestamptz" : "text")};
        const versioned_table stock{
            {.table = at.table(), .key = {"sku"}, .version = updated_at{"changed"}}};
        at.sql("insert into " + at.table() + " values ('A1', '" +
               (postgresql ? "infinity" : "9999-12-31 23:59:59.999") + "')");
        if (postgresql) {
            CHECK(kind_of([&] { (void)stock.read(at.db(), "A1", {}); }) == errc::database_error);
        } else {
            const auto seen = stock.read(at.db(), "A1", {})->version();
            CHECK(kind_of([&] { (void)stock.update(at.db(), "A1", seen, {}); }) ==
                  errc::database_error);
            at.sql("update " + at.table() +
                   " set changed = '1700000000'");  // text that is not read as a time
            CHECK(kind_of([&] { (void)stock.read(at.db(), "A1", {}); }) == errc::database_error);
        }
    }
}

TEST_CASE("a key column without a unique index is refused") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        at.sql("insert into " + at.table() + " values ('B2', 10, null, 1)");
        const versioned_table by_quantity{
            {.table = at.table(), .key = {"quantity"}, .version = "version"}};
        CHECK(kind_of([&] { (void)by_quantity.read(at.db(), 10, {}); }) == errc::unindexed_key);
        at.db().query("begin", soon());
        CHECK(kind_of([&] {
                  (void)by_quantity.update(at.db(), 10, row_version{1}, {{"note", "x"}});
              }) == errc::unindexed_key);
        at.db().query("rollback", soon());
        at.db().query("begin", soon());
        CHECK(kind_of([&] { (void)by_quantity.erase(at.db(), 10, row_version{1}); }) ==
              errc::unindexed_key);
        at.db().query("rollback", soon());
        CHECK(at.cell("select count(*) from " + at.table() + " where version = 1") == "2");
    }
}

TEST_CASE("MySQL: a key is compared with a value of the key's own kind only") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks != sql::dialect::mysql) continue;
        const place at{one, inventory};
        const versioned_table stock{{.table = at.table(), .key = {"sku"}, .version = "version"}};
        at.sql("insert into " + at.table() + " values ('5 apples', 1, null, 1)");
        CHECK_FALSE(stock.read(at.db(), 5, {}));
        CHECK(stock.update(at.db(), 5, row_version{1}, {}).what() == outcome::gone);
        // Control: a plain comparison finds the apples.
        CHECK(at.cell("select count(*) from " + at.table() + " where sku = 5") == "1");

        const place numbers{one, "id bigint primary key, version int not null"};
        const versioned_table by_id{
            {.table = numbers.table(), .key = {"id"}, .version = "version"}};
        numbers.sql("insert into " + numbers.table() + " values (0, 1), (42, 1)");
        CHECK(kind_of([&] { (void)by_id.read(numbers.db(), "abc", {}); }) == errc::invalid_options);
        CHECK(by_id.read(numbers.db(), "42", {}));
    }
}

TEST_CASE("a trigger that keeps the version from increasing is detected") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks != sql::dialect::postgresql) continue;
        const shop at{one};
        const std::string name = at.table() + "_hold";
        at.sql("create function " + name +
               "() returns trigger language plpgsql as "
               "$f$ begin new.version = old.version; return new; end $f$");
        at.sql("create trigger hold before update on " + at.table() +
               " for each row execute function " + name + "()");
        CHECK(kind_of([&] { (void)at.stock_table.update(at.db(), "A1", row_version{1}, {}); }) ==
              errc::unsupported);
        at.sql("drop trigger hold on " + at.table());
        at.sql("drop function " + name + "()");
    }
}

TEST_CASE("versions serve resources without a table") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const auto db = database.connect();
        const versions files{database.source().tables()};
        CHECK_FALSE(files.read(*db, "report"));
        CHECK(files.update(*db, "report", row_version{1}).what() == outcome::gone);
        CHECK(files.create(*db, "report") == row_version{1});
        CHECK_FALSE(files.create(*db, "report"));
        CHECK(files.update(*db, "report", row_version{1}).version() == row_version{2});
        CHECK(files.update(*db, "report", row_version{1}).what() == outcome::conflict);
        CHECK(files.read(*db, "report") == row_version{2});

        // The version of a deleted resource goes on increasing: an earlier one never matches again.
        CHECK(files.erase(*db, "report", row_version{1}).what() == outcome::conflict);
        CHECK(files.erase(*db, "report", row_version{2}).version() == row_version{3});
        CHECK(files.erase(*db, "report", row_version{3}).what() == outcome::gone);
        CHECK_FALSE(files.read(*db, "report"));
        CHECK(files.read(*db, "report", deleted_rows::shown) == row_version{3});
        CHECK_FALSE(files.create(*db, "report"));
        CHECK(files.update(*db, "report", row_version{3}).what() == outcome::gone);
        CHECK(files.restore(*db, "report", row_version{2}).what() == outcome::conflict);
        CHECK(files.restore(*db, "report", row_version{3}).version() == row_version{4});
        CHECK(files.restore(*db, "report", row_version{4}).what() == outcome::gone);

        for (const char* name : {"report/b", "report/a", "Report", "other"}) {
            CHECK(files.create(*db, name));
        }
        const auto page_one = files.list(*db, "report", {.limit = 2});
        REQUIRE(page_one.size() == 2);
        CHECK(page_one[0].resource == "report");
        CHECK(page_one[0].version == row_version{4});
        CHECK_FALSE(page_one[0].deleted);
        CHECK(page_one[0].since_update < 1min);
        CHECK(page_one[1].resource == "report/a");
        const auto page_two = files.list(*db, "report", {.after = "report/a"});
        REQUIRE(page_two.size() == 1);
        CHECK(page_two[0].resource == "report/b");
        CHECK(files.list(*db).size() == 5);

        database.run("update rowlock_version set version = 9223372036854775807");
        CHECK(kind_of([&] {
                  (void)files.update(*db, "other",
                                     row_version{std::numeric_limits<std::int64_t>::max()});
              }) == errc::database_error);
        CHECK(kind_of([&] { (void)files.read(*db, ""); }) == errc::invalid_name);

        // In a transaction, which no refusal ends.
        db->query("begin", soon());
        CHECK(files.create(*db, "in"));
        CHECK_FALSE(files.create(*db, "in"));
        CHECK(files.update(*db, "in", row_version{7}).what() == outcome::conflict);
        CHECK(files.update(*db, "in", row_version{1}));
        db->query("rollback", soon());
        CHECK_FALSE(files.read(*db, "in"));
    }
    CHECK(kind_of([] { versions{{.prefix = "Bad Prefix"}}; }) == errc::invalid_options);
}

TEST_CASE("retry_on_conflict with a connection begins and commits one transaction per attempt") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        int calls = 0;
        const auto sold = retry_on_conflict(at.db(), {.backoff = 1ms}, [&](int attempt) {
            CHECK(attempt == ++calls);
            if (attempt == 1) {
                at.db().query("update " + at.table() + " set note = 'undone'", soon());
                return update_result::conflict();
            }
            const auto row = at.stock_table.read(at.db(), "A1", {"note"});
            CHECK(row->is_null("note"));  // the first attempt was rolled back
            return at.stock_table.update(at.db(), "A1", row->version(),
                                         {increment("quantity", -1)});
        });
        CHECK(sold.attempts == 2);
        CHECK(sold.value.version() == row_version{2});
        CHECK(at.stock() == "9");

        // The answer "gone" rolls the attempt's changes back, and is returned.
        const auto gone = retry_on_conflict(at.db(), {}, [&](int) {
            at.db().query("update " + at.table() + " set quantity = 1", soon());
            return at.stock_table.update(at.db(), "B2", row_version{1}, {});
        });
        CHECK(gone.value.what() == outcome::gone);
        CHECK(gone.attempts == 1);
        CHECK(at.stock() == "9");

        // Another result, by or_throw(), and none.
        const auto left = retry_on_conflict(at.db(), {}, [&](int) {
            const auto row = at.stock_table.read(at.db(), "A1", {"quantity"});
            (void)at.stock_table.update(at.db(), "A1", row->version(), {}).or_throw();
            return row->integer("quantity");
        });
        CHECK(left.value == 9);
        CHECK(retry_on_conflict(at.db(), {}, [](int) {}).attempts == 1);
    }
}

TEST_CASE("retry_on_conflict gives up with the number of attempts, and passes other errors on") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        try {
            retry_on_conflict(at.db(), {.attempts = 3, .backoff = 1ms}, [&](int) {
                return at.stock_table.update(at.db(), "A1", row_version{7}, {});
            });
            FAIL_CHECK("no error was thrown");
        } catch (const error& failure) {
            CHECK(failure.kind() == errc::conflict);
            CHECK(std::string{failure.what()}.find("attempts made: 3") != std::string::npos);
        }
        int calls = 0;
        CHECK(kind_of([&] {
                  retry_on_conflict(at.db(), {}, [&](int) {
                      ++calls;
                      at.db().query("update " + at.table() + " set quantity = 1", soon());
                      throw error{errc::outcome_unknown, "lost"};
                  });
              }) == errc::outcome_unknown);
        CHECK(calls == 1);
        CHECK_THROWS_AS(retry_on_conflict(at.db(), {}, [](int) { throw 42; }), int);
        CHECK(at.stock() == "10");
        CHECK(at.stock_table.update(at.db(), "A1", row_version{1}, {}));  // no transaction is open
    }
}

TEST_CASE("retry_on_conflict refuses a connection that is in a transaction, which goes on") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        at.db().query("begin", soon());
        at.db().query("update " + at.table() + " set quantity = 3", soon());
        CHECK(kind_of([&] { retry_on_conflict(at.db(), {}, [](int) {}); }) ==
              errc::invalid_options);
        at.db().query("rollback", soon());
        CHECK(at.stock() == "10");
    }
}

// shows: optimistic-versions
TEST_CASE("an error that the action swallowed is not reported as a commit") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks != sql::dialect::postgresql) continue;
        const shop at{one};
        CHECK(kind_of([&] {
                  retry_on_conflict(at.db(), {}, [&](int) {
                      at.db().query("update " + at.table() + " set quantity = 3", soon());
                      CHECK_THROWS_AS(at.db().query("select 1/0", soon()), error);
                  });
              }) == errc::database_error);
        CHECK(at.stock() == "10");
        CHECK(at.stock_table.update(at.db(), "A1", row_version{1}, {}));
    }
}

TEST_CASE("a transaction that the action ended is not reported as committed") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        CHECK(kind_of([&] {
                  retry_on_conflict(at.db(), {}, [&](int) {
                      at.db().query("update " + at.table() + " set quantity = 3", soon());
                      at.db().query("rollback", soon());
                  });
              }) == errc::database_error);
        CHECK(at.stock() == "10");
        CHECK(retry_on_conflict(at.db(), {}, [](int) {}).attempts == 1);
    }
}

// shows: optimistic-versions
TEST_CASE("a commit whose reply is lost is unknown and is not repeated") {
    FOR_EACH_SUBJECT(one) {
        if (one.borrowed) continue;
        const shop at{one};
        support::interception by;
        const auto db = by.wrap(one.source()).connect(soon());
        by.after([](std::string_view text) {
            if (text == "commit") support::interception::lose_reply();
        });
        int calls = 0;
        CHECK(kind_of([&] {
                  retry_on_conflict(*db, {}, [&](int) {
                      ++calls;
                      const auto row = at.stock_table.read(*db, "A1", {});
                      return at.stock_table.update(*db, "A1", row->version(),
                                                   {increment("quantity", -1)});
                  });
              }) == errc::outcome_unknown);
        CHECK(calls == 1);
        CHECK(at.stock() == "9");

        // A broken connection is not retried.
        retry_policy eager;
        int asked = 0;
        eager.decide = [&](const error&, int, std::chrono::milliseconds) {
            ++asked;
            return std::optional<std::chrono::milliseconds>{};
        };
        CHECK(kind_of([&] { retry_on_conflict(*db, eager, [&](int) { ++calls; }); }) ==
              errc::database_unreachable);
        CHECK(asked == 0);
        CHECK(calls == 1);
    }
}

TEST_CASE("retry_on_conflict without a connection leaves transactions to the action") {
    int calls = 0;
    const auto done = retry_on_conflict({.backoff = 1ms}, [&](int attempt) {
        ++calls;
        if (attempt < 3) return update_result::conflict();
        return update_result::done(row_version{5});
    });
    CHECK(done.attempts == 3);
    CHECK(calls == 3);
    std::stop_source stop;
    stop.request_stop();
    CHECK(kind_of([&] {
              retry_on_conflict(retry_policy{}, [](int) { return update_result::conflict(); },
                                {.stop = stop.get_token()});
          }) == errc::conflict);
}

TEST_CASE("a column that does not exist is an error, not its own name") {
    FOR_EACH_SUBJECT(one) {
        const shop at{one};
        CHECK(kind_of([&] { (void)at.stock_table.read(at.db(), "A1", {"quantty"}); }) ==
              errc::schema_outdated);
        CHECK(kind_of([&] {
                  (void)at.stock_table.update(at.db(), "A1", row_version{1},
                                              {increment("quantty")});
              }) == errc::schema_outdated);
        CHECK(at.cell("select version from " + at.table()) == "1");
    }
}

TEST_CASE("the version cannot be assigned under its name in capitals beyond ASCII") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks != sql::dialect::mysql) continue;
        const place at{one, "sku varchar(9) primary key, quantity int, zähler bigint not null"};
        const versioned_table stock{{.table = at.table(), .key = {"sku"}, .version = "zähler"}};
        CHECK(stock.insert(at.db(), "A1", {{"quantity", 10}}));
        CHECK(
            kind_of([&] {
                (void)stock.update(at.db(), "A1", row_version{1}, {{"ZÄHLER", 1}, {"quantity", 9}});
            }) == errc::invalid_options);
        CHECK(at.stock() == "10");
        // Control: the server takes both names for one column, and the version would not change.
        CHECK(at.cell("select ZÄHLER from " + at.table()) == "1");
        CHECK(stock.update(at.db(), "A1", row_version{1}, {{"quantity", 9}}));
    }
}

TEST_CASE("MySQL: a decimal key is compared with numbers only") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks != sql::dialect::mysql) continue;
        const place at{one, "id decimal(20) primary key, version int not null"};
        const versioned_table by_id{{.table = at.table(), .key = {"id"}, .version = "version"}};
        at.sql("insert into " + at.table() + " values (5, 1), (9007199254740992, 1)");
        CHECK(kind_of([&] { (void)by_id.update(at.db(), "5 apples", row_version{1}, {}); }) ==
              errc::invalid_options);
        // Control: a plain comparison finds 5.
        CHECK(at.cell("select count(*) from " + at.table() + " where id = '5 apples'") == "1");
        // In floating point the two would be equal.
        CHECK_FALSE(by_id.read(at.db(), "9007199254740993", {}));
        CHECK(by_id.read(at.db(), "9007199254740992", {}));
        CHECK(by_id.update(at.db(), 5, row_version{1}, {}));
    }
}

TEST_CASE("a version beyond the column's range is refused before it can abort the transaction") {
    FOR_EACH_SUBJECT(one) {
        const place at{one, "sku varchar(9) primary key, version int not null"};
        if (one.speaks == sql::dialect::sqlite) continue;  // its integers have 64 bits
        const versioned_table stock{{.table = at.table(), .key = {"sku"}, .version = "version"}};
        CHECK(stock.insert(at.db(), "A1"));
        at.db().query("begin", soon());
        for (const row_version& sent :
             {row_version{99'999'999'999}, row_version{-99'999'999'999}}) {
            CHECK(kind_of([&] { (void)stock.update(at.db(), "A1", sent, {}); }) ==
                  errc::invalid_options);
            CHECK(kind_of([&] { (void)stock.erase(at.db(), "A1", sent); }) ==
                  errc::invalid_options);
        }
        CHECK(stock.update(at.db(), "A1", row_version{1}, {}));
        at.db().query("rollback", soon());
    }
}

TEST_CASE("an insert without a unique index that detects a taken key is refused") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks == sql::dialect::mysql) continue;  // documented: it makes a second row
        const place at{one, "sku varchar(9), version int not null"};
        const versioned_table stock{{.table = at.table(), .key = {"sku"}, .version = "version"}};
        CHECK(kind_of([&] { (void)stock.insert(at.db(), "A1"); }) == errc::unindexed_key);
        CHECK(at.cell("select count(*) from " + at.table()) == "0");
    }
}

TEST_CASE("a change that the database suppresses is an error, not an endless conflict") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks == sql::dialect::mysql) continue;  // MySQL has no such triggers
        const shop at{one};
        const std::string name = at.table() + "_ignore";
        if (one.speaks == sql::dialect::postgresql) {
            at.sql("create function " + name +
                   "() returns trigger language plpgsql as $f$ begin return null; end $f$");
            at.sql("create trigger suppress before update or delete on " + at.table() +
                   " for each row execute function " + name + "()");
        } else {
            for (const std::string event : {"update", "delete"}) {
                at.sql("create trigger " + name + event + " before " + event + " on " + at.table() +
                       " begin select raise(ignore); end");
            }
        }
        const row_version seen{1};
        CHECK(kind_of([&] { (void)at.stock_table.update(at.db(), "A1", seen, {}); }) ==
              errc::unsupported);
        CHECK(kind_of([&] { (void)at.stock_table.erase(at.db(), "A1", seen); }) ==
              errc::unsupported);
        CHECK(at.stock_table.update(at.db(), "A1", row_version{7}, {}).what() == outcome::conflict);
        if (one.speaks == sql::dialect::postgresql) {
            at.sql("drop trigger suppress on " + at.table());
            at.sql("drop function " + name + "()");
        }
    }
}

TEST_CASE("retry_on_conflict refuses a MySQL connection with autocommit off") {
    FOR_EACH_SUBJECT(one) {
        if (one.speaks != sql::dialect::mysql) continue;
        const shop at{one};
        at.db().query("set autocommit = 0", soon());
        // A deadlock victim goes on in a new transaction there, which would look like the whole
        // one.
        CHECK(kind_of([&] {
                  retry_on_conflict(at.db(), {}, [&](int) {
                      at.db().query("update " + at.table() + " set quantity = 3", soon());
                      at.db().query("rollback", soon());
                      at.db().query("update " + at.table() + " set note = 'half'", soon());
                  });
              }) == errc::invalid_options);
        at.db().query("set autocommit = 1", soon());
        CHECK(at.cell("select note from " + at.table()) == "NULL");
        CHECK(retry_on_conflict(at.db(), {}, [](int) {}).attempts == 1);
    }
}

TEST_CASE("an update_result is understood when the action returns it as const") {
    int calls = 0;
    // NOLINTNEXTLINE(readability-const-return-type): that it is const is the point
    const auto done = retry_on_conflict({.backoff = 1ms}, [&](int) -> const update_result {
        if (++calls < 3) return update_result::conflict();
        return update_result::done(row_version{5});
    });
    CHECK(done.attempts == 3);
    CHECK(done.value.version() == row_version{5});
}
