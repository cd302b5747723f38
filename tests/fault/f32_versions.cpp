// F32: tables of another version than the client's. Calls work, or fail with schema_outdated and
// change nothing, also when the tables change under a running client.

#include "fault/frame.hpp"
#include "support/failure.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>
#include <rowlock/migrations.hpp>

#include <functional>
#include <string>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using rowlock::errc;
using rowlock::sql::dialect;
using support::kind_of;

/// Makes all calls of a client.
void use(rowlock::client& locks) {
    auto held = locks.acquire("job", {.note = "by version"});
    auto second = locks.try_acquire("other");
    static_cast<void>(locks.try_acquire_for("job", 5ms));
    static_cast<void>(locks.inspect("job"));
    static_cast<void>(locks.list());
    static_cast<void>(locks.waiters("job"));
    held.release();
}

bool works_or_says_so(trial& in, const std::function<void()>& action, const std::string& when) {
    const auto kind = kind_of(action);
    in.must(kind == errc{} || kind == errc::schema_outdated,
            when + ": " + make_error_code(kind).message());
    return kind == errc{};
}

/// Makes the tables of a newer library: one more version, with an unknown table.
void pretend_newer(support::lock_database& database, int version) {
    database.run("create table " + database.prefix() + "of_tomorrow (x int)");
    const std::string now = database.speaks() == dialect::postgresql ? "clock_timestamp()" : "0";
    database.run("insert into rowlock_migration (version, name, checksum, applied_at) values (" +
                 std::to_string(version) + ", 'tomorrow', '0000000000000000', " + now + ")");
}

void forget_newer(support::lock_database& database, int version) {
    database.run("delete from rowlock_migration where version = " + std::to_string(version));
    database.run("drop table " + database.prefix() + "of_tomorrow");
}

void change_versions(trial& in, support::lock_database& database) {
    const int latest = rowlock::schema_status(database.source()).latest;
    for (int round = 0; round < in.rounds(); ++round) {
        rowlock::client steady_one{database.source(),
                                   database.options({.ttl = 8s, .heartbeat = 600ms})};
        use(steady_one);
        for (int version = latest - 1; version >= 0; --version) {
            const auto when = "tables of version " + std::to_string(version);
            rowlock::migrate(database.source(), {}, version);
            {
                rowlock::client fresh{database.source(), database.options()};
                const bool works = works_or_says_so(
                    in, [&] { use(fresh); }, when);
                in.must(!works, when + " were taken for the latest");
            }
            works_or_says_so(
                in, [&] { use(steady_one); }, when + ", under a client that runs");
            in.must(rowlock::schema_status(database.source()).version == version,
                    when + " were changed by a client");
        }
        rowlock::migrate(database.source());
        const bool back =
            support::eventually([&] { return kind_of([&] { use(steady_one); }) == errc{}; });
        in.must(back, "no recovery without a restart once the tables are right");

        pretend_newer(database, latest + 1);
        {
            rowlock::client fresh{database.source(), database.options()};
            works_or_says_so(
                in, [&] { use(fresh); }, "tables of a newer version");
        }
        const bool works = works_or_says_so(
            in, [&] { use(steady_one); }, "a newer version, under a client that runs");
        in.note(works ? "a client that runs goes on with tables that only grew" : "refused");
        in.must(kind_of([&] { rowlock::migrate(database.source()); }) == errc::schema_outdated,
                "an older library migrated newer tables");
        forget_newer(database, latest + 1);
        in.made();
    }
}

const fault::on_databases f32{{.id = "F32",
                               .what = "tables of another version",
                               .databases = fault::all_databases,
                               .quick_rounds = 1,
                               .full_rounds = 10,
                               .run = change_versions}};

}  // namespace
