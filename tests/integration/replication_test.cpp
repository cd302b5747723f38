// Roles of whole servers: a synchronous standby that does not answer, for which all commits wait,
// and a primary that is made read-only. Run alone.

#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;

namespace {

/// Makes commits wait for a missing standby.
class missing_standby {
public:
    explicit missing_standby(support::lock_database& database) : database_{database} {
        database_.run("set synchronous_commit = local");
        database_.run("alter system set synchronous_standby_names = 'gone'");
        reload("gone");
        REQUIRE(eventually([&] { return a_commit_waits(); }));
    }
    ~missing_standby() {
        database_.run("alter system reset synchronous_standby_names");
        reload("");
    }
    missing_standby(const missing_standby&) = delete;
    missing_standby& operator=(const missing_standby&) = delete;

private:
    /// Whether a commit waits. Commits wait once the checkpointer has read the new setting, which
    /// other processes may show earlier.
    bool a_commit_waits() {
        const auto db = database_.connect();
        try {
            db->query("create temporary table probe ()", std::chrono::steady_clock::now() + 700ms);
        } catch (const error&) {
            return true;
        }
        return false;
    }
    void reload(const std::string& expected) {
        database_.run("select pg_reload_conf()");
        REQUIRE(eventually([&] {
            return database_.run("show synchronous_standby_names").text(0, 0) == expected;
        }));
    }

    support::lock_database& database_;
};

/// Makes the server read-only, as a fail-over tool does with a former primary.
class made_read_only {
public:
    explicit made_read_only(support::lock_database& database) : database_{database} {
        database_.run("set global read_only = 1");
    }
    ~made_read_only() { database_.run("set global read_only = 0"); }
    made_read_only(const made_read_only&) = delete;
    made_read_only& operator=(const made_read_only&) = delete;

private:
    support::lock_database& database_;
};

}  // namespace

TEST_CASE(
    "an advisory lock is lost when its server is no longer the primary, and is not granted there") {
    support::lock_database database{support::backend::mariadb};
    if (!database.there()) return;
    advisory_client locks{database.source(), {.check_period = 100ms, .statement_timeout = 1s}};
    const auto held = locks.try_lock("job");
    REQUIRE(held);
    {
        const made_read_only demoted{database};
        CHECK(eventually([&] { return !held->held(); }));
        CHECK(support::kind_of([&] { static_cast<void>(locks.try_lock("job")); }) ==
              errc::read_only);
    }
    CHECK(locks.try_lock_for("job", 20s));
}

// shows: fault-unconfirmed-commit
TEST_CASE("a grant without a synchronous standby's confirmation is not reported as granted") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    client locks{database.source(), database.options({.statement_timeout = 700ms})};
    const auto held = locks.acquire("held before");
    {
        const missing_standby gone{database};
        try {
            static_cast<void>(locks.try_acquire("job"));
            FAIL("granted, although a promotion would lose the grant");
        } catch (const error& failure) {
            CHECK((failure.kind() == errc::outcome_unknown || failure.kind() == errc::timed_out));
        }
        // It is committed on the primary, where readers see it held.
        CHECK(
            database.number(
                "select count(*) from rowlock_lease where name = 'job' and session is not null") ==
            1);
    }
    const auto lease = locks.try_acquire_for("job", 20s);
    CHECK(lease);
    CHECK(held.held());
}
