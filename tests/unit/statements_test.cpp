#include "sql/statements.hpp"

#include "base/embedded.hpp"
#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

using rowlock::sql::dialect;
using rowlock::sql::statement_set;
using rowlock::sql::statements;

TEST_CASE("every dialect has its statements, with nothing left to be replaced") {
    for (const dialect which : {dialect::postgresql, dialect::mysql, dialect::sqlite}) {
        const statements sql{which, {.prefix = "app_"}};
        CHECK(sql.acquire.has_value() == (which != dialect::mysql));
        CHECK(sql.take.has_value() == (which != dialect::postgresql));
        CHECK(sql.reap_leases.has_value() == (which != dialect::mysql));
        CHECK(sql.session_setup.has_value() == (which == dialect::postgresql));
        for (const auto* each : {&sql.heartbeat, &sql.probe, &sql.release, &sql.inspect, &sql.list,
                                 &sql.reap_sessions, &sql.raise_floor}) {
            CHECK(each->text().starts_with("/* rowlock "));
            CHECK(each->text().find('{') == std::string::npos);
            CHECK(each->text().find("rowlock_") == std::string::npos);
            CHECK(each->text().find("--") == std::string::npos);
            CHECK(each->text().find("app_") != std::string::npos);
        }
    }
}

TEST_CASE("a statement of a set is loaded once, and its copies share one prepared handle") {
    const statement_set all{dialect::sqlite};
    const statement_set same = all;
    CHECK(all("take").id() == same("take").id());
    CHECK(all("take").id() != all("probe").id());
    CHECK(all("take").id() != statement_set{dialect::sqlite}("take").id());
    CHECK_THROWS_AS((void)all("grant_next"), const rowlock::error&);  // only PostgreSQL has it
}

TEST_CASE("a schema qualifies every table on PostgreSQL and is refused elsewhere") {
    const statements sql{dialect::postgresql, {.schema = "locks"}};
    CHECK(sql.release.text().find("\"locks\".rowlock_lease") != std::string::npos);
    CHECK_THROWS_AS((statements{dialect::mysql, {.schema = "locks"}}), const rowlock::error&);
    CHECK_THROWS_AS((statements{dialect::sqlite, {.schema = "locks"}}), const rowlock::error&);
}

TEST_CASE("the testing clock stands in for SQLite's") {
    const statements real{dialect::sqlite, rowlock::sql::statement_options{}};
    const statements moved{dialect::sqlite, {.testing_clock = true}};
    CHECK(real.heartbeat.text().find("julianday") != std::string::npos);
    CHECK(moved.heartbeat.text().find("julianday") == std::string::npos);
    CHECK(moved.heartbeat.text().find("rowlock_testing_now()") != std::string::npos);
}

TEST_CASE("no statement reads a clock that stands still while it waits") {
    for (const auto& file : rowlock::embedded::statement_files()) {
        // Times of rowlock_version are for people, on connections whose time zone is not ours;
        // utc_now waits for nobody.
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
        // But for the fragment that says why it may: on a connection whose time zone is the
        // caller's.
        const bool excepted = file.path == "sql/fragments/mysql.sql";
        const auto at = code.find("utc_timestamp");
        CHECK((at != std::string::npos) == excepted);
        if (excepted) CHECK(code.find("utc_timestamp", at + 1) == std::string::npos);
    }
}

TEST_CASE("each statement of a dialect is written once, under a name that is an identifier") {
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

TEST_CASE("a dialect's own statement comes before the common one, which the others have") {
    const auto has = [](dialect which, std::string_view name) {
        for (const auto& each : rowlock::sql::written_statements(which)) {
            if (each.name == name) return std::string{each.file};
        }
        return std::string{};
    };
    CHECK(has(dialect::mysql, "find_grant") == "coordination/lease/sql/common.sql");
    CHECK(has(dialect::sqlite, "find_grant") == "coordination/lease/sql/common.sql");
    CHECK(has(dialect::postgresql, "find_grant") == "coordination/lease/sql/postgresql.sql");
    CHECK(has(dialect::sqlite, "grant_next").empty());
}
