#include "sql/statements.hpp"

#include "base/embedded.hpp"
#include "sql/table_names.hpp"
#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

using rowlock::sql::dialect;
using rowlock::sql::statement_set;

TEST_CASE("every statement of a dialect loads, with all fragments replaced") {
    for (const dialect which : {dialect::postgresql, dialect::mysql, dialect::sqlite}) {
        const statement_set all{which, {.tables = {.prefix = "app_"}}};
        for (const auto& each : rowlock::sql::written_statements(which)) {
            CAPTURE(each.name);
            const std::string text = all(each.name).text();
            CHECK(text.starts_with("/* rowlock " + std::string{each.name} + " */ "));
            CHECK(text.find('{') == std::string::npos);
            CHECK(text.find(" rowlock_") == std::string::npos);
            CHECK(text.find("\n--") == std::string::npos);
        }
        for (const auto* const name : {"heartbeat", "probe", "release", "list", "reap_sessions"}) {
            CHECK(all(name).text().find("app_") != std::string::npos);
        }
    }
}

TEST_CASE("each statement of a set is loaded once, and its copies share one prepared handle") {
    const statement_set all{dialect::sqlite};
    const statement_set same = all;  // NOLINT(performance-unnecessary-copy-initialization)
    CHECK(all("take").id() == same("take").id());
    CHECK(all("take").id() != all("probe").id());
    CHECK(all("take").id() != statement_set{dialect::sqlite}("take").id());
    CHECK_THROWS_AS((void)all("grant_next"), const rowlock::error&);  // only PostgreSQL has it
}

TEST_CASE("a caller's text replaces a fragment, and may contain others") {
    const statement_set all{dialect::mysql};
    const auto text =
        all.text_of("fence_write", {{"bounded_update", "{mariadb_update}"}, {"longest", "5.250"}});
    CHECK(
        text.starts_with("/* rowlock fence_write */ set statement max_statement_time = 5.250 "
                         "for update rowlock_lock"));
    CHECK(all("fence_write").text().starts_with("/* rowlock fence_write */ update rowlock_lock"));
    CHECK(all.text_of("fence", {{"bounded_select", "{mariadb_select}"},
                                {"idle_limit", "idle_transaction_timeout"},
                                {"longest", "5.250"}})
              .starts_with("/* rowlock fence */ set statement max_statement_time = 5.250, "
                           "max_join_size = 18446744073709551615, "
                           "sql_select_limit = 18446744073709551615 for "
                           "select straight_join count(*), @@session.idle_transaction_timeout\n"));
    CHECK(all.text_of("lock_lease", {{"bounded_select", "{mysql_select}"}, {"longest", "5250"}})
              .starts_with("/* rowlock lock_lease */ select /*+ MAX_EXECUTION_TIME(5250) "
                           "SET_VAR(max_join_size = 18446744073709551615) "
                           "SET_VAR(sql_select_limit = 18446744073709551615) */ 1 "
                           "from rowlock_lock"));
    CHECK_THROWS_AS((void)all.text_of("fence", {{"bounded_select", "{none}"}}),
                    const rowlock::error&);
}

TEST_CASE("a schema qualifies every table on PostgreSQL and is refused elsewhere") {
    const statement_set all{dialect::postgresql, {.tables = {.schema = "locks"}}};
    CHECK(all("release").text().find("\"locks\".rowlock_lock") != std::string::npos);
    CHECK_THROWS_AS((statement_set{dialect::mysql, {.tables = {.schema = "locks"}}}),
                    const rowlock::error&);
    CHECK_THROWS_AS((statement_set{dialect::sqlite, {.tables = {.schema = "locks"}}}),
                    const rowlock::error&);
}

TEST_CASE("a shared text names types and schemas for PostgreSQL alone") {
    const auto text = [](dialect which, std::string_view name) {
        return std::string{statement_set{which}(name).text()};
    };
    CHECK(
        text(dialect::postgresql, "find_grant")
            .ends_with("where name = $1::text and session = $2::bigint and grant_id = $3::bigint"));
    for (const auto which : {dialect::mysql, dialect::sqlite}) {
        CHECK(text(which, "find_grant")
                  .ends_with("where name = $1 and session = $2 and grant_id = $3"));
        CHECK(text(which, "version_read").ends_with("where resource = $1"));
        for (const auto& each : rowlock::sql::written_statements(which)) {
            CAPTURE(each.name);
            const auto whole = text(which, each.name);
            CHECK(whole.find("::") == std::string::npos);
            CHECK(whole.find("pg_catalog") == std::string::npos);
        }
    }
    const auto quoted = statement_set{dialect::mysql}.text_of(
        "lock_lease",
        {{"bounded_select", "select 'a::b', pg_catalog.f(x::int[]) operator(pg_catalog.+) "}});
    CHECK(quoted.find("select 'a::b', f(x) +  1 from") != std::string::npos);
}

TEST_CASE("the testing clock replaces SQLite's") {
    const auto real = statement_set{dialect::sqlite}("heartbeat");
    const auto moved = statement_set{dialect::sqlite, {.testing_clock = true}}("heartbeat");
    CHECK(real.text().find("julianday") != std::string::npos);
    CHECK(moved.text().find("julianday") == std::string::npos);
    CHECK(moved.text().find("rowlock_testing_now()") != std::string::npos);
}

TEST_CASE("no statement reads a clock that does not advance while it waits") {
    for (const auto& file : rowlock::embedded::statement_files()) {
        // The times in rowlock_version are for people, on connections with any time zone, and
        // utc_now does not wait.
        if (file.path == "transaction/optimistic/sql/mysql.sql") continue;
        const std::string text{file.text};
        std::string code;
        for (std::size_t at = 0; at < text.size();) {  // without the comment lines
            const auto end = std::min(text.find('\n', at), text.size());
            if (text.compare(at, 2, "--") != 0) code += text.substr(at, end - at) + "\n";
            at = end + 1;
        }
        CAPTURE(file.path);
        CHECK(code.find("now()") == std::string::npos);
        CHECK(code.find("current_timestamp") == std::string::npos);
        // The one exception is a fragment for connections with the caller's time zone, which says
        // so.
        const bool excepted = file.path == "sql/fragments/mysql.sql";
        const auto at = code.find("utc_timestamp");
        CHECK((at != std::string::npos) == excepted);
        if (excepted) CHECK(code.find("utc_timestamp", at + 1) == std::string::npos);
    }
}

TEST_CASE("each statement of a dialect is defined once, and its name is an identifier") {
    constexpr std::string_view mark = "-- statement ";
    for (const std::string_view dialect : {"postgresql", "mysql", "sqlite", "common"}) {
        std::set<std::string_view> names;
        for (const auto& file : rowlock::embedded::statement_files()) {
            if (!file.path.ends_with("/sql/" + std::string{dialect} + ".sql")) continue;
            for (std::size_t at = 0; at < file.text.size();) {
                const auto end = std::min(file.text.find('\n', at), file.text.size());
                const auto line = file.text.substr(at, end - at);
                at = end + 1;
                if (!line.starts_with(mark)) continue;
                const auto name = line.substr(mark.size());
                CAPTURE(name);
                CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos);
                CHECK(names.insert(name).second);
            }
        }
        CHECK(names.size() > 20);
    }
}

TEST_CASE("a dialect's own statement precedes the common one of the others") {
    const auto has = [](dialect which, std::string_view name) {
        for (const auto& each : rowlock::sql::written_statements(which)) {
            if (each.name == name) return std::string{each.file};
        }
        return std::string{};
    };
    CHECK(has(dialect::mysql, "glance") == "lock/protocol/lease/sql/common.sql");
    CHECK(has(dialect::postgresql, "probe") == "lock/protocol/lease/sql/postgresql.sql");
    CHECK(has(dialect::sqlite, "probe") == "lock/protocol/lease/sql/two_step.sql");
    CHECK(has(dialect::mysql, "read_member") == "quorum/sql/servers.sql");
    CHECK(has(dialect::sqlite, "read_member").empty());
    CHECK(has(dialect::sqlite, "grant_next").empty());
}

TEST_CASE("a text without quotes is qualified as the lexer does it") {
    const rowlock::sql::table_names names{.schema = "", .prefix = "x_"};
    for (const auto which : {dialect::postgresql, dialect::mysql, dialect::sqlite}) {
        for (const auto& each : rowlock::sql::written_statements(which)) {
            CAPTURE(std::string{each.name});
            const auto text = rowlock::sql::without_comments(each.text);
            // The literal makes the lexer read it.
            CHECK("''" + rowlock::sql::qualify(text, which, names) ==
                  rowlock::sql::qualify("''" + text, which, names));
        }
        for (const std::string text :
             {"rowlock_lock", "a.rowlock_lock rowlock_lock", "xrowlock_lease rowlock_",
              "rowlock_testing_now() rowlock_testing_nowadays", "a-rowlock_b/rowlock_c",
              "$1::rowlock_x, -$2", ""}) {
            CAPTURE(text);
            CHECK("'' " + rowlock::sql::qualify(text, which, names) ==
                  rowlock::sql::qualify("'' " + text, which, names));
        }
    }
}
