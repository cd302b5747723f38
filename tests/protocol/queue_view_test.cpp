// The views of queues: client::waiters, inspect and list.

#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;

namespace {

/// Waiters as rows, without clients behind them.
class crowd {
public:
    explicit crowd(support::lock_database& database)
        : database_{database}, protocol_{database.protocol()}, db_{database.connect()} {}

    session_id session(std::chrono::microseconds ttl = 1min) {
        const std::int64_t id = ++last_;
        protocol_.sessions().open(*db_,
                                  {.id = session_id{id},
                                   .owner = "owner " + std::to_string(id),
                                   .host = "host\n\x1b[31m",
                                   .program = "prögram",
                                   .pid = 1000 + id,
                                   .ttl = ttl},
                                  support::soon());
        return session_id{id};
    }

    void wait(const std::string& name, session_id session, const std::string& note = {}) {
        database_.queue().enqueue(*db_,
                                  {.name = name,
                                   .session = session,
                                   .grant_id = grant_id{++last_},
                                   .thread = "thread 7",
                                   .note = note,
                                   .deadline_us = {}},
                                  support::soon());
    }

    /// Makes a session expire without ending it, as a peer that died leaves it.
    void expire(session_id session) {
        const std::string id = to_string(session);
        database_.run(database_.speaks() == sql::dialect::postgresql
                          ? "update rowlock_session set expires_at = clock_timestamp() - interval "
                            "'1 second' where id = " +
                                id
                          : "update rowlock_session set expires_at = 1 where id = " + id);
    }
    void end(session_id session) { protocol_.sessions().end(*db_, session, support::soon()); }

private:
    support::lock_database& database_;
    const protocol::lease_protocol& protocol_;
    std::unique_ptr<sql::connection> db_;
    std::int64_t last_ = 100;
};

std::vector<std::string> names_of(const std::vector<lease_info>& rows) {
    std::vector<std::string> names;
    for (const auto& row : rows) names.push_back(row.name);
    return names;
}

}  // namespace

TEST_CASE("waiters() lists the live waiters with their identities, in the order of their tickets") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        CHECK(locks.waiters("job").empty());
        const auto held = locks.acquire("job");
        crowd others{database};
        const auto first = others.session();
        const auto second = others.session();
        const auto expired = others.session();
        const auto ended = others.session();
        others.wait("job", expired);
        others.wait("job", first, "the ☾ report");
        others.wait("job", ended);
        others.wait("job", second);
        others.wait("job", first);
        others.wait("another job", second);
        others.expire(expired);
        others.end(ended);

        const auto queue = locks.waiters("job");
        REQUIRE(queue.size() == 3);
        CHECK(queue[0].session == first);
        CHECK(queue[1].session == second);
        CHECK(queue[2].session == first);
        for (std::size_t i = 0; i < queue.size(); ++i) {
            CHECK(queue[i].name == "job");
            CHECK(queue[i].position == static_cast<std::int64_t>(i) + 1);
            CHECK((i == 0 || queue[i].ticket > queue[i - 1].ticket));
            CHECK(queue[i].waited >= 0ms);
            CHECK(queue[i].waited < 1min);
        }
        CHECK(queue[0].owner == "owner " + to_string(first));
        CHECK(queue[0].host == "host\n\x1b[31m");
        CHECK(queue[0].program == "prögram");
        CHECK(queue[0].pid == 1000 + static_cast<std::int64_t>(first));
        CHECK(queue[0].thread == "thread 7");
        CHECK(queue[0].note == "the ☾ report");
        CHECK(queue[1].note.empty());
        CHECK(locks.waiters("Job").empty());
    }
}

TEST_CASE("inspect and list count the live waiters and know how long the first has waited") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto held = locks.acquire("a");
        const auto quiet = locks.acquire("b");
        crowd others{database};
        const auto alive = others.session();
        const auto dead = others.session();
        others.wait("a", session_id{dead});
        others.wait("a", session_id{alive});
        others.wait("a", session_id{alive});
        others.wait("b", session_id{dead});
        others.expire(session_id{dead});
        REQUIRE(support::eventually([&] { return locks.inspect("a")->longest_wait >= 20ms; }));

        const auto busy = locks.inspect("a");
        REQUIRE(busy);
        CHECK(busy->holder);
        CHECK(busy->waiting == 2);
        CHECK(busy->longest_wait >= 20ms);
        CHECK(busy->longest_wait < 1min);
        const auto rows = locks.list();
        REQUIRE(rows.size() == 2);
        CHECK(rows[0].name == "a");
        CHECK(rows[0].waiting == 2);
        CHECK(rows[0].longest_wait >= busy->longest_wait);
        CHECK(rows[1].name == "b");
        CHECK(rows[1].waiting == 0);
        CHECK(rows[1].longest_wait == 0ms);
    }
}

TEST_CASE("a queue whose lease row was reaped is listed, unless all its waiters are dead") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        crowd others{database};
        const auto alive = others.session();
        const auto dead = others.session();
        others.wait("reaped", session_id{alive});
        others.wait("deserted", session_id{dead});
        others.expire(session_id{dead});

        const auto waited = locks.inspect("reaped");
        REQUIRE(waited);
        CHECK(waited->name == "reaped");
        CHECK(waited->token == fencing_token{});
        CHECK_FALSE(waited->holder);
        CHECK(waited->waiting == 1);
        CHECK_FALSE(locks.inspect("deserted"));
        CHECK(names_of(locks.list()) == std::vector<std::string>{"reaped"});
    }
}

TEST_CASE("pages of a list show each name once, whether it has a lease, waiters, or both") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        crowd others{database};
        const auto alive = others.session();
        std::vector<lease> held;
        std::vector<std::string> expected;
        for (int i = 0; i < 12; ++i) {
            const std::string name = "p" + std::to_string(100 + i) + " it's $1 ☾";
            expected.push_back(name);
            if (i % 3 != 1) held.push_back(*locks.try_acquire(name));
            for (int j = 0; i % 3 != 0 && j < 3; ++j) others.wait(name, session_id{alive});
        }
        others.wait("q", session_id{alive});

        for (const int limit : {1, 2, 5, 100}) {
            std::vector<std::string> seen;
            page next{.after = "", .limit = limit};
            for (;;) {
                const auto rows = locks.list("p", next);
                REQUIRE(rows.size() <= static_cast<std::size_t>(limit));
                for (const auto& row : rows) {
                    seen.push_back(row.name);
                    const auto which = (seen.size() - 1) % 3;
                    CHECK(row.holder.has_value() == (which != 1));
                    CHECK(row.waiting == (which == 0 ? 0 : 3));
                }
                if (rows.size() < static_cast<std::size_t>(limit)) break;
                next.after = rows.back().name;
            }
            CHECK(seen == expected);
        }
    }
}
