#include "schema/catalog.hpp"
#include "schema/migrator.hpp"
#include "schema/script.hpp"
#include "sql/table_names.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;
using namespace std::string_literals;
using rowlock::errc;
using rowlock::error;
using rowlock::migration_options;
using rowlock::schema::catalog;
using rowlock::schema::split_statements;
using rowlock::sql::dialect;
using rowlock::sql::qualify;

namespace {

constexpr std::array dialects{dialect::postgresql, dialect::mysql, dialect::sqlite};

/// The error that `call` throws.
template <typename Call>
error failure_of(Call call) {
    try {
        call();
    } catch (const error& failure) {
        return failure;
    }
    FAIL("nothing was thrown");
    return error{errc::database_error, "nothing was thrown"};
}

template <typename Call>
errc kind_of(Call call) {
    return failure_of(call).kind();
}

std::string pg(std::string_view sql, std::string_view schema = {},
               std::string_view prefix = "rowlock_") {
    return qualify(sql, dialect::postgresql,
                   {.schema = std::string{schema}, .prefix = std::string{prefix}});
}

/// A database whose answers a function gives.
class scripted_connection final : public rowlock::sql::connection {
public:
    using answer = std::function<rowlock::sql::result(std::string_view)>;

    scripted_connection(dialect speaks, std::vector<std::string>& log, answer reply)
        : speaks_{speaks}, log_{log}, reply_{std::move(reply)} {}

    [[nodiscard]] dialect speaks() const noexcept override { return speaks_; }
    rowlock::sql::result execute(const rowlock::sql::statement& what,
                                 std::span<const rowlock::sql::value> /*parameters*/,
                                 rowlock::sql::deadline until) override {
        return query(what.text(), until);
    }
    rowlock::sql::result query(std::string_view text, rowlock::sql::deadline /*until*/) override {
        log_.emplace_back(text);
        return reply_(text);
    }
    [[nodiscard]] bool alive() const noexcept override { return true; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return log_.size(); }

private:
    dialect speaks_;
    std::vector<std::string>& log_;
    answer reply_;
};

rowlock::sql::result cells(std::initializer_list<std::string_view> row) {
    rowlock::sql::result made{row.size()};
    for (const auto cell : row) made.append_text(cell);
    return made;
}

/// The answer to the migrator's question about the history.
rowlock::sql::result no_history() {
    return cells({"0", "0"});
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

std::size_t count(const std::vector<std::string>& log, std::string_view part) {
    return static_cast<std::size_t>(std::count_if(
        log.begin(), log.end(), [&](const auto& entry) { return contains(entry, part); }));
}

catalog two_migrations(dialect which) {
    static const auto files = [] {
        std::vector<rowlock::embedded::file> made;
        for (const auto folder : {"postgresql", "mysql", "sqlite"}) {
            static std::vector<std::unique_ptr<std::string>> paths;
            const auto add = [&](const char* name, std::string_view text) {
                paths.push_back(std::make_unique<std::string>(folder + "/"s + name));
                made.push_back({*paths.back(), text});
            };
            add("0000_record.up.sql", "create record;\n");
            add("0000_record.down.sql", "drop record;\n");
            add("0001_first.up.sql", "one;\n");
            add("0001_first.down.sql", "undo one;\n");
            add("0002_second.up.sql", "two;\n");
            add("0002_second.down.sql", "undo two;\n");
        }
        return made;
    }();
    return rowlock::schema::read_catalog(files, which);
}

}  // namespace

TEST_CASE("the marker of a table becomes schema and prefix, at the start of a word only") {
    CHECK(pg("select token from rowlock_lock") == "select token from rowlock_lock");
    CHECK(pg("rowlock_lock", "shop", "x_") == "\"shop\".x_lock");
    CHECK(pg("(rowlock_lock)rowlock_ticket,", {}, "x_") == "(x_lock)x_ticket,");
    CHECK(pg("update rowlock_lock set a = rowlock_lock.a", "s", "p") ==
          "update \"s\".plock set a = \"s\".plock.a");
    CHECK(pg("my_rowlock_lease xrowlock_lease 1rowlock_lease $rowlock_lock", {}, "x_") ==
          "my_rowlock_lease xrowlock_lease 1rowlock_lease $rowlock_lock");
    CHECK(pg("s.rowlock_lock", "shop", "x_") == "s.rowlock_lock");
    CHECK(pg("\xC3\xA9rowlock_lease", {}, "x_") == "\xC3\xA9rowlock_lease");
    CHECK(pg("rowlock_lock$1 rowlock", {}, "x_") == "x_lock$1 rowlock");
    CHECK(pg("rowlock_testing_now()", {}, "x_") == "rowlock_testing_now()");
    CHECK(pg("", {}, "x_").empty());
}

TEST_CASE("literals, quoted identifiers and comments are unchanged") {
    for (const auto text :
         {"'rowlock_lock'", "'it''s rowlock_lock'", "\"rowlock_lock\"", "`rowlock_lock`",
          "-- don't rowlock_lock", "/* don't rowlock_lock */", "'never closed rowlock_lock"}) {
        CHECK(pg(text, "shop", "x_") == text);
    }
    CHECK(pg("-- it's\nrowlock_lock", {}, "x_") == "-- it's\nx_lock");
    CHECK(pg("/* it's */rowlock_lock", {}, "x_") == "/* it's */x_lock");
    CHECK(pg("'\\' rowlock_lock", {}, "x_") == "'\\' x_lock");
    CHECK(qualify("'\\' rowlock_lock', rowlock_lock", dialect::mysql, {.prefix = "x_"}) ==
          "'\\' rowlock_lock', x_lock");
    CHECK(qualify("# it's\nrowlock_lock", dialect::mysql, {.prefix = "x_"}) == "# it's\nx_lock");
    CHECK(pg("a # rowlock_lock", {}, "x_") == "a # x_lock");
    CHECK(pg("E'\\'rowlock_lock'", {}, "x_") == "E'\\'rowlock_lock'");
    CHECK(pg("/* /* */ rowlock_lock */", {}, "x_") == "/* /* */ rowlock_lock */");
    CHECK(qualify("[rowlock_lock] rowlock_lock", dialect::sqlite, {.prefix = "x_"}) ==
          "[rowlock_lock] x_lock");
    CHECK(qualify("1--rowlock_lock", dialect::mysql, {.prefix = "x_"}) == "1--x_lock");
}

TEST_CASE("tables are renamed in dollar quotes and comments that the database executes") {
    CHECK(pg("$$ a rowlock_lock 'rowlock_lock' $$ rowlock_lock", "s", "x_") ==
          "$$ a \"s\".x_lock 'rowlock_lock' $$ \"s\".x_lock");
    CHECK(pg("$a$rowlock_lock$a$rowlock_lock", {}, "x_") == "$a$x_lock$a$x_lock");
    CHECK(pg("$a$ $$rowlock_lock$$ rowlock_", {}, "x_") == "$a$ $$x_lock$$ x_");
    CHECK(qualify("/*! rowlock_lock */ /* rowlock_lock */", dialect::mysql, {.prefix = "x_"}) ==
          "/*! x_lock */ /* rowlock_lock */");
}

TEST_CASE("names that would need escaping are refused") {
    using rowlock::sql::validate_names;
    for (const auto* name : {"", "1st", "Shop", "a b", "a-b", "a\"b", "a;b", "a.b", "\xC3\xA9",
                             "abcdefghijklmnopqrstuvwxyz_12345"}) {
        CAPTURE(name);
        for (const auto which : dialects) {
            CHECK(kind_of([&] { validate_names(which, {.prefix = name}); }) ==
                  errc::invalid_options);
        }
        if (*name == '\0') continue;
        CHECK(kind_of([&] { validate_names(dialect::postgresql, {.schema = name}); }) ==
              errc::invalid_options);
    }
    CHECK_NOTHROW(validate_names(dialect::postgresql,
                                 {.schema = "order", .prefix = "abcdefghijklmnopqrstuvwxyz_1234"}));
    CHECK(kind_of([] { validate_names(dialect::mysql, {.schema = "s", .prefix = "x_"}); }) ==
          errc::invalid_options);
    CHECK(kind_of([] { validate_names(dialect::sqlite, {.schema = "s", .prefix = "x_"}); }) ==
          errc::invalid_options);
    CHECK(kind_of([] { validate_names(dialect::sqlite, {.prefix = "sqlite_x"}); }) ==
          errc::invalid_options);
    CHECK(kind_of([] {
              validate_names(dialect::postgresql, {.schema = "pg_x", .prefix = "x_"});
          }) == errc::invalid_options);
}

TEST_CASE("a script is split at semicolons that end a line, and sent without comments") {
    const auto split = [](std::string_view script) {
        return split_statements(script, dialect::postgresql);
    };
    using list = std::vector<std::string>;
    CHECK(split("").empty());
    CHECK(split("-- nothing;\n\n/* at all; */\n  ;\n").empty());
    CHECK(split("a;\nb;\n") == list{"a", "b"});
    CHECK(split("a;  -- done\nb") == list{"a", "b"});
    CHECK(split("a;\t/* done */ -- really\r\nb;") == list{"a", "b"});
    CHECK(split("a;b;\n") == list{"a;b"});
    CHECK(split("a ';\n' b;\n") == list{"a ';\n' b"});
    CHECK(split("a \";\n\" b;\nc") == list{"a \";\n\" b", "c"});
    CHECK(split("a ';' -- it's;\n, b;\n") == list{"a ';'\n, b"});
    CHECK(split("-- first\n\ncreate (\n    a,  -- why;\n    -- more\n    b\n);\n") ==
          list{"create (\n    a,\n    b\n)"});
    CHECK(split("a/* */b") == list{"a b"});
    CHECK(split("a 'never closed;\nb") == list{"a 'never closed;\nb"});
    // The body of a function. Outside PostgreSQL dollars have no meaning.
    CHECK(split("a $$ b;\n-- c\n $$ d;\ne;\n") == list{"a $$ b;\n-- c\n $$ d", "e"});
    CHECK(split("a $$ never closed;\nb") == list{"a $$ never closed;\nb"});
    CHECK(split_statements("a $$;\nb $$;\n", dialect::sqlite) == list{"a $$", "b $$"});
    CHECK(split("a $f$ b;\n$$;\n $f$ d;\ne;\n") == list{"a $f$ b;\n$$;\n $f$ d", "e"});
    CHECK(split("a E'\\';\n' b;\nc") == list{"a E'\\';\n' b", "c"});
    CHECK(split("a /* /* ' */ ;\n */ b;\nc") == list{"a   b", "c"});
    CHECK(split_statements("a [;\n];\nb", dialect::sqlite) == list{"a [;\n]", "b"});
    CHECK(split_statements("/*! a */;\n/* b */ c--1;\n", dialect::mysql) ==
          list{"/*! a */", "c--1"});
    CHECK(split_statements("a--/* b */1;\n", dialect::mysql) == list{"a--/* b */1"});
}

TEST_CASE("the checksum is the 64-bit FNV-1a in hexadecimal") {
    using rowlock::schema::fingerprint;
    using rowlock::schema::hexadecimal;
    CHECK(hexadecimal(fingerprint("")) == "cbf29ce484222325");
    CHECK(hexadecimal(fingerprint("a")) == "af63dc4c8601ec8c");
    CHECK(hexadecimal(fingerprint("foobar")) == "85944171f73967e8");
    CHECK(hexadecimal(1) == "0000000000000001");
}

TEST_CASE("every dialect has the same migrations") {
    for (const auto which : dialects) {
        const auto& known = rowlock::schema::library_catalog(which);
        REQUIRE(known.latest() >= 1);
        CHECK(known.record.name == "record");
        CHECK(known.at(1).name == "initial");
        CHECK(known.latest() == rowlock::schema::library_catalog(dialect::sqlite).latest());
        for (const auto& step : known.numbered) {
            CHECK_FALSE(split_statements(step.up, which).empty());
            CHECK_FALSE(split_statements(step.down, which).empty());
        }
    }
}

TEST_CASE("a catalog with a gap, an incomplete migration or an unknown file is refused") {
    using rowlock::schema::read_catalog;
    using files = std::vector<rowlock::embedded::file>;
    const files good{{"sqlite/0000_r.up.sql", "a;"},   {"sqlite/0000_r.down.sql", "b;"},
                     {"sqlite/0001_i.up.sql", "c;"},   {"sqlite/0001_i.down.sql", "d;"},
                     {"mysql/0001_x.up.sql", "other"}, {"sqlite/0002_j.down.sql", "f;"},
                     {"sqlite/0002_j.up.sql", "e;"}};
    const auto known = read_catalog(good, dialect::sqlite);
    CHECK(known.latest() == 2);
    CHECK(known.at(2).up == "e;");
    CHECK(known.at(2).title() == "migration 2 (j)");
    CHECK(known.record.down == "b;");

    const auto refused = [&](const std::function<void(files&)>& damage) {
        files bad = good;
        damage(bad);
        return kind_of([&] { (void)read_catalog(bad, dialect::sqlite); }) == errc::database_error;
    };
    CHECK(refused([](files& f) { f.erase(f.begin() + 2, f.begin() + 4); }));
    CHECK(refused([](files& f) { f.erase(f.begin(), f.begin() + 2); }));
    CHECK(refused([](files& f) { f.pop_back(); }));
    CHECK(refused([](files& f) { f.push_back({"sqlite/readme.txt", "x"}); }));
    CHECK(refused([](files& f) { f.push_back({"sqlite/x_x.up.sql", "x"}); }));
    CHECK(refused([](files& f) { f.push_back({"sqlite/0002_other.up.sql", "x"}); }));
    CHECK(refused([](files& f) { f.clear(); }));
}

TEST_CASE("a newer, an edited and an incomplete record are distinguished") {
    using rowlock::schema::verified_version;
    const auto known = two_migrations(dialect::sqlite);
    const auto first = known.at(1).checksum();
    const auto second = known.at(2).checksum();
    CHECK(verified_version({}, known) == 0);
    CHECK(verified_version({{1, first}}, known) == 1);
    CHECK(verified_version({{1, first}, {2, second}}, known) == 2);

    const auto newer = failure_of([&] {
        (void)verified_version({{1, first}, {2, second}, {3, "x"}, {7, "x"}}, known);
    });
    CHECK(newer.kind() == errc::schema_outdated);
    CHECK(contains(newer.what(), "has migration 7, this rowlock knows up to 2: upgrade rowlock"));
    const auto edited = failure_of([&] {
        (void)verified_version({{1, first}, {2, first}}, known);
    });
    CHECK(edited.kind() == errc::schema_outdated);
    CHECK(contains(edited.what(), "migration 2 (second) of the database is not the one"));
    const auto hole = failure_of([&] { (void)verified_version({{2, second}}, known); });
    CHECK(hole.kind() == errc::schema_outdated);
    CHECK(contains(hole.what(), "no record of migration 1"));
    CHECK(kind_of([&] { (void)verified_version({{0, "x"}}, known); }) == errc::schema_outdated);
    CHECK(kind_of([&] {
              (void)verified_version({{1, first}, {1, first}}, known);
          }) == errc::schema_outdated);
}

TEST_CASE("later migrations are accepted if each can stand a library like this one") {
    using rowlock::schema::verified_version;
    const auto known = two_migrations(dialect::sqlite);
    const auto first = known.at(1).checksum();
    const auto second = known.at(2).checksum();
    CHECK(verified_version({{1, first}, {2, second}, {3, "x", 2}}, known) == 3);
    CHECK(verified_version({{1, first}, {2, second}, {3, "x", 2}, {4, "x", 1}}, known) == 4);
    const auto refused = [&](const std::vector<rowlock::schema::recorded_migration>& rows) {
        return kind_of([&] { (void)verified_version(rows, known); }) == errc::schema_outdated;
    };
    CHECK(refused({{1, first}, {2, second}, {3, "x"}, {4, "x", 2}}));
    CHECK(refused({{1, first}, {2, second}, {3, "x", 2}, {4, "x", 3}}));
    // What this library knows is compared all the same.
    CHECK(refused({{1, first}, {2, first}, {3, "x", 2}}));
    CHECK(refused({{1, first}, {2, second}, {4, "x", 2}}));
}

TEST_CASE("a migration says in a line of its own which library can stand it") {
    const auto oldest = [](std::string_view up) {
        return rowlock::schema::migration{.version = 7, .name = "m", .up = up, .down = "d;"}
            .oldest_library();
    };
    CHECK_FALSE(oldest("-- a comment\nselect 1;\n").has_value());
    CHECK(oldest("-- a comment\n-- oldest library: 5\nselect 1;\n") == 5);
    CHECK(oldest("-- a comment\n-- oldest library: 7\n") == 7);
    for (const auto* const damaged :
         {"-- c\n-- oldest library: 8\n", "-- c\n-- oldest library: 0\n",
          "-- c\n-- oldest library: x\n", "-- c\n-- oldest library: 5 6\n",
          "-- c\n-- oldest library: 5"}) {
        CAPTURE(damaged);
        CHECK(kind_of([&] { (void)oldest(damaged); }) == errc::database_error);
    }
}

TEST_CASE("options and targets out of range are refused before a connection is opened") {
    const rowlock::sql::connection_source nowhere{
        dialect::sqlite,
        [](auto) -> std::unique_ptr<rowlock::sql::connection> {
            FAIL("connected");
            return nullptr;
        },
        "nowhere"};
    CHECK(kind_of([&] { rowlock::migrate(nowhere, {.wait = 0ms}); }) == errc::invalid_options);
    CHECK(kind_of([&] { rowlock::migrate(nowhere, {.wait = std::chrono::hours{25}}); }) ==
          errc::invalid_options);
    CHECK(kind_of([&] { rowlock::migrate(nowhere, {}, -2); }) == errc::invalid_options);
    CHECK(kind_of([&] { rowlock::migrate(nowhere, {}, 99); }) == errc::invalid_options);
    for (const rowlock::sql::table_names& names :
         {rowlock::sql::table_names{.schema = "s"}, rowlock::sql::table_names{.prefix = "S"},
          rowlock::sql::table_names{.prefix = ""}}) {
        CHECK(kind_of([&] { (void)nowhere.with_tables(names); }) == errc::invalid_options);
    }
    CHECK(nowhere.with_tables({.prefix = "s_"}).tables().prefix == "s_");
    CHECK(nowhere.tables() == rowlock::sql::table_names{});
    CHECK(kind_of([&] { (void)rowlock::migration_script(dialect::mysql, {.schema = "s"}); }) ==
          errc::invalid_options);
}

TEST_CASE("a current schema is accepted with one statement") {
    for (const auto which : dialects) {
        std::vector<std::string> log;
        const auto& known = rowlock::schema::library_catalog(which);
        scripted_connection db{which, log, [&](auto) {
                                   rowlock::sql::result rows{3};
                                   for (const auto& step : known.numbered) {
                                       rows.append_integer(step.version);
                                       rows.append_text(step.checksum());
                                       rows.append_null();
                                   }
                                   return rows;
                               }};
        CHECK_NOTHROW(rowlock::require_current_schema(db, {.prefix = "x_"}, {}));
        REQUIRE(log.size() == 1);
        CHECK(log.front() ==
              "select version, checksum, oldest_library from x_migration order by version");
    }
}

TEST_CASE("the errors for missing tables and missing rights say what to do") {
    std::vector<std::string> log;
    const auto with = [&](errc kind) {
        scripted_connection db{dialect::postgresql, log, [kind](auto) -> rowlock::sql::result {
                                   throw error{kind, "the server refused", {"XXXXX", 0, {}}};
                               }};
        return failure_of([&] { rowlock::require_current_schema(db, {.schema = "shop"}, {}); });
    };
    CHECK(with(errc::schema_outdated).kind() == errc::schema_outdated);
    CHECK(with(errc::schema_outdated).what() ==
          "no rowlock tables with the prefix rowlock_ in the schema shop: run `rowlock migrate`"s);
    CHECK(with(errc::access_denied).kind() == errc::access_denied);
    CHECK(with(errc::access_denied).sqlstate() == "XXXXX");
    CHECK(with(errc::access_denied).what() ==
          "the server refused; the rights that rowlock needs are in docs/migrations.md"s);
    CHECK(with(errc::outcome_unknown).kind() == errc::outcome_unknown);
}

TEST_CASE(
    "on MySQL nothing is recorded after the lock was lost, for example in a silent reconnect") {
    std::vector<std::string> log;
    const auto known = two_migrations(dialect::mysql);
    int checks = 0;
    scripted_connection db{dialect::mysql, log, [&](std::string_view text) {
                               if (contains(text, "select database()")) return cells({"shop"});
                               if (contains(text, "get_lock(")) return cells({"1"});
                               if (contains(text, "is_used_lock(")) {
                                   return cells({++checks == 1 ? "1" : "0"});
                               }
                               if (contains(text, "rowlock_history")) return no_history();
                               if (contains(text, "count(*)")) return cells({"0"});
                               return rowlock::sql::result{};
                           }};
    const migration_options options;
    rowlock::schema::migrator work{db, known, {}, options};
    CHECK(kind_of([&] { work.move_to(2); }) == errc::conflict);
    CHECK(count(log, "two") == 1);
    CHECK(count(log, "insert into rowlock_migration") == 1);
    CHECK(contains(log.back(), "release_lock("));
}

TEST_CASE("on MySQL a deadlock is not a failure, since every statement can be repeated") {
    std::vector<std::string> log;
    const auto known = two_migrations(dialect::mysql);
    std::vector<std::string> recorded;
    int deadlocks = 0;
    scripted_connection db{
        dialect::mysql, log, [&](std::string_view text) {
            if (contains(text, "select database()")) return cells({"shop"});
            if (contains(text, "rowlock_history")) return no_history();
            if (contains(text, "count(*)")) return cells({recorded.empty() ? "0" : "1"});
            if (contains(text, "insert into rowlock_migration")) {
                if (recorded.size() == 1 && ++deadlocks < 3) throw error{errc::deadlock, "victim"};
                recorded.push_back(known.at(static_cast<int>(recorded.size()) + 1).checksum());
            }
            if (contains(text, "select version")) {
                rowlock::sql::result rows{3};
                for (std::size_t i = 0; i < recorded.size(); ++i) {
                    rows.append_integer(static_cast<std::int64_t>(i) + 1);
                    rows.append_text(recorded[i]);
                    rows.append_null();
                }
                return rows;
            }
            return cells({"1"});
        }};
    const migration_options options;
    rowlock::schema::migrator work{db, known, {}, options};
    CHECK(work.move_to(2) == std::vector<int>{1, 2});
    CHECK(count(log, "one") == 1);
    CHECK(count(log, "two") == 3);
    CHECK(count(log, "release_lock(") == 1);

    deadlocks = -1000;
    recorded.resize(1);
    CHECK(kind_of([&] { work.move_to(2); }) == errc::deadlock);
}

TEST_CASE("on MySQL a migration down removes the tables of one that stopped before its record") {
    std::vector<std::string> log;
    const auto known = two_migrations(dialect::mysql);
    scripted_connection db{dialect::mysql, log, [&](std::string_view text) {
                               if (contains(text, "select version")) return rowlock::sql::result{3};
                               if (contains(text, "rowlock_history")) return no_history();
                               return cells({"1"});
                           }};
    const migration_options options;
    rowlock::schema::migrator work{db, known, {}, options};
    CHECK(work.move_to(0).empty());
    CHECK(count(log, "undo one") == 1);
    CHECK(count(log, "undo two") == 0);
    CHECK(count(log, "drop record") == 1);
}

TEST_CASE("a record that vanishes between two queries means that no tables exist") {
    std::vector<std::string> log;
    const auto known = two_migrations(dialect::postgresql);
    bool there = true;
    const auto look = [&](bool vanishes) {
        there = true;
        scripted_connection db{
            dialect::postgresql, log, [&](std::string_view text) {
                if (contains(text, "select version")) {
                    there = !vanishes;
                    throw error{errc::schema_outdated, "no such table or column"};
                }
                return cells({there ? "1" : "0"});
            }};
        const migration_options options;
        return rowlock::schema::migrator{db, known, {}, options}.version();
    };
    CHECK(look(true) == 0);
    const auto foreign = failure_of([&] { (void)look(false); });
    CHECK(foreign.kind() == errc::schema_outdated);
    CHECK(contains(foreign.what(), "was not made by rowlock, choose another prefix: no such"));
}

TEST_CASE("on MySQL the wait for a held lock is made in slices and ends at its limit") {
    std::vector<std::string> log;
    const auto known = two_migrations(dialect::mysql);
    scripted_connection db{dialect::mysql, log, [&](std::string_view text) {
                               if (contains(text, "select database()")) return cells({"shop"});
                               if (contains(text, "get_lock(")) return cells({"0"});
                               return cells({"0"});
                           }};
    const migration_options options{.wait = 250ms};
    rowlock::schema::migrator work{db, known, {}, options};
    const auto waits_in_slices = [&] {
        log.clear();
        CHECK(kind_of([&] { work.move_to(2); }) == errc::timed_out);
        return count(log, "get_lock('rowlock_migrations_") >= 2;
    };
    CHECK(support::eventually(waits_in_slices));
    CHECK(count(log, "release_lock(") == 0);
    CHECK(count(log, "one") == 0);
}

TEST_CASE(
    "on MySQL the name of the lock depends on the database and the prefix, within 64 characters") {
    const auto name_for = [](std::string_view database, const std::string& prefix) {
        std::vector<std::string> log;
        const auto known = two_migrations(dialect::mysql);
        std::string name;
        scripted_connection db{dialect::mysql, log, [&](std::string_view text) {
                                   if (contains(text, "select database()"))
                                       return cells({database});
                                   if (contains(text, "select get_lock(")) {
                                       const auto open = text.find('\'') + 1;
                                       name = text.substr(open, text.find('\'', open) - open);
                                   }
                                   return cells({"0"});
                               }};
        const migration_options options{.wait = 1ms};
        rowlock::schema::migrator work{db, known, {.prefix = prefix}, options};
        CHECK(kind_of([&] { work.move_to(1); }) == errc::timed_out);
        return name;
    };
    const auto one = name_for("shop", "rowlock_");
    CHECK(one.size() <= 64);
    CHECK(std::none_of(one.begin(), one.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
    CHECK(one == name_for("shop", "rowlock_"));
    CHECK(one != name_for("shop2", "rowlock_"));
    CHECK(one != name_for("shop", "other_"));
}

TEST_CASE("a failure in PostgreSQL or SQLite rolls back and names the migration") {
    for (const auto which : {dialect::postgresql, dialect::sqlite}) {
        std::vector<std::string> log;
        const auto known = two_migrations(which);
        scripted_connection db{
            which, log, [&](std::string_view text) -> rowlock::sql::result {
                if (text == "two") {
                    throw error{errc::out_of_resources, "no room", {"", 13, "x"}};
                }
                if (contains(text, "advisory")) return cells({"1"});
                if (contains(text, "rowlock_history")) return no_history();
                return cells({"0"});
            }};
        const migration_options options;
        rowlock::schema::migrator work{db, known, {}, options};
        const auto failure = failure_of([&] { work.move_to(2); });
        CHECK(failure.kind() == errc::out_of_resources);
        CHECK(failure.native_code() == 13);
        CHECK(failure.what() == "migration 2 (second): no room"s);
        CHECK(log.back() == "rollback");
        CHECK(std::count(log.begin(), log.end(), "commit") == 0);
    }
}

TEST_CASE("a printed script holds every migration, its record, and the chosen names") {
    const auto script =
        rowlock::migration_script(dialect::postgresql, {.schema = "order", .prefix = "app_"});
    CHECK(contains(script, "create schema if not exists \"order\";"));
    CHECK(contains(script, "create table \"order\".app_lock ("));
    CHECK(contains(script, "create index on \"order\".app_ticket (session, thread);"));
    CHECK(contains(script, "insert into \"order\".app_migration (version, name, checksum"));
    CHECK(script.find("\nbegin;\n") < script.find("create schema"));
    CHECK(script.ends_with("\ncommit;\n"));
    CHECK_FALSE(contains(rowlock::migration_script(dialect::postgresql), "create schema"));
    CHECK_FALSE(contains(rowlock::migration_script(dialect::mysql), "begin;"));
    CHECK(contains(rowlock::migration_script(dialect::sqlite), "\nbegin immediate;\n"));
    for (const auto which : dialects) {
        const auto& known = rowlock::schema::library_catalog(which);
        for (const auto& step : known.numbered) {
            CHECK(contains(rowlock::migration_script(which), step.checksum()));
        }
    }
}

TEST_CASE("a released migration never changes, not even in a comment") {
    // The databases of users hold these checksums. To change the schema write a new migration; only
    // before its first release may a migration change, and its checksum here and in
    // docs/protocol/vectors.json with it.
    const std::map<std::string, std::string> known_checksums{
        {"postgresql/1", "1114f9fc8ae85dc8"},
        {"mysql/1", "6985d698ed317ad4"},
        {"sqlite/1", "ba163570ca965d56"},
    };
    for (const auto which : dialects) {
        for (const auto& step : rowlock::schema::library_catalog(which).numbered) {
            const auto key = std::string{to_string(which)} + "/" + std::to_string(step.version);
            CAPTURE(key);
            REQUIRE(known_checksums.contains(key));
            CHECK(step.checksum() == known_checksums.at(key));
        }
    }
}
