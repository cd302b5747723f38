// Permits that the threads of a client ask for, and give back, by one commit: which requests fit
// together, what a waiter, a dead session or another client that is faster does to them, and what
// becomes of each after a lost reply.
// shows: promise-12, batches

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/sql/forwarding_connection.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::attempt;
using protocol::grant_request;
using protocol::own_hold;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;
using outcome = attempt::outcome;

namespace {

/// The live sessions 1 and 2, and a semaphore.
struct counted {
    counted(support::lock_database& which, std::int64_t capacity)
        : database{which},
          hand{which},
          semaphores{protocol::make_semaphore_protocol(which.statements())} {
        for (const std::int64_t id : {1, 2}) hand.open(session_id{id});
        semaphores->set_capacity(hand.db(), "api", capacity, soon());
    }

    [[nodiscard]] static grant_request wants(std::int64_t id, std::int64_t count,
                                             session_id session = session_id{1}) {
        return {.name = "api",
                .session = session,
                .grant_id = grant_id{id},
                .thread = {},
                .note = {},
                .deadline_us = std::nullopt,
                .permits = {.count = count}};
    }
    [[nodiscard]] std::vector<std::optional<attempt>> take(
        const std::vector<grant_request>& requests) const {
        return semaphores->acquire_together(hand.db(), requests, soon());
    }
    [[nodiscard]] std::vector<bool> give(const std::vector<own_hold>& holds) const {
        return semaphores->release_together(hand.db(), "api", session_id{1}, holds, soon());
    }
    [[nodiscard]] std::int64_t used() const {
        return database.number("select used from rowlock_lock where name = 'api'");
    }
    /// What the holds have together.
    [[nodiscard]] std::int64_t held() const {
        return database.number("select coalesce(sum(weight), 0) from rowlock_hold");
    }

    support::lock_database& database;
    const support::protocol_connection hand;
    const std::unique_ptr<const protocol::semaphore_protocol> semaphores;
};

bool granted(const std::optional<attempt>& found) {
    return found && found->what == outcome::granted;
}

/// Threads of a client that all call at the same moment, again and again, until `enough`.
struct crowd {
    explicit crowd(support::lock_database& database)
        : locks{network.wrap(database.source()), database.options({.statement_timeout = 20s})} {}

    /// False if there was never enough.
    [[nodiscard]] bool until(const std::function<bool()>& enough,
                             const std::function<void(int)>& call) const {
        std::atomic<bool> over{false};
        std::barrier start{many};
        const auto end = std::chrono::steady_clock::now() + 20s;
        {
            std::vector<std::jthread> all;
            for (int i = 0; i < many; ++i) {
                all.emplace_back([&, i] {
                    for (;;) {
                        start.arrive_and_wait();
                        if (i == 0) over = enough() || std::chrono::steady_clock::now() > end;
                        start.arrive_and_wait();
                        if (over) return;
                        call(i);
                    }
                });
            }
        }
        return enough();
    }

    static constexpr int many = 8;
    interception network;
    client locks;
};

/// A connection that can post statements, and fail them or what follows.
class posting final : public sql::forwarding_connection {
public:
    explicit posting(sql::connection& inner) : forwarding_connection{inner} {}

    std::function<void()> takes, flushes;
    bool keeps_answers = false;

    bool post(const sql::statement& what, std::span<const sql::value> parameters,
              sql::deadline until, sql::posted_answer on_answer) override {
        try {
            if (takes) takes();
            kept_ = {inner().execute(what, parameters, until)};
            on_answer_ = std::move(on_answer);
            if (!keeps_answers) answer();
        } catch (const error& failure) {
            on_answer(nullptr, &failure);
        }
        return true;
    }
    void answer() { on_answer_(&*kept_, nullptr); }

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        if (flushes && what.text().find("flush_taken_permits") != std::string_view::npos) flushes();
        return inner().execute(what, parameters, until);
    }

private:
    std::optional<sql::result> kept_;
    sql::posted_answer on_answer_;
};

/// Whether this is the statement that takes the permits of several requests.
bool takes_together(std::string_view what) {
    return what == "take_permits_together" || what == "find_several_permits";
}

}  // namespace

TEST_CASE("requests for permits that fit together are granted by one statement, in their order") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const counted on{database, 10};
        const auto found =
            on.take({counted::wants(11, 3), counted::wants(12, 1), counted::wants(13, 5)});
        REQUIRE(found.size() == 3);
        for (const auto& each : found) REQUIRE(granted(each));
        CHECK(found[0]->token < found[1]->token);
        CHECK(found[1]->token < found[2]->token);
        CHECK(on.used() == 9);
        CHECK(on.held() == 9);
        // The next single take draws a token above all of them.
        const auto single = on.semaphores->acquire(on.hand.db(), counted::wants(14, 1), soon());
        CHECK(single.what == outcome::granted);
        CHECK(single.token > found[2]->token);

        CHECK(on.give({{grant_id{11}, 3}, {grant_id{13}, 5}}) == std::vector{true, true});
        CHECK(on.used() == 2);
        // Again, beside one that is held: only that one is ended.
        CHECK(on.give({{grant_id{11}, 3}, {grant_id{12}, 1}}) == std::vector{false, true});
        CHECK(on.give({{grant_id{11}, 3}, {grant_id{12}, 1}}) == std::vector{false, false});
        CHECK(on.used() == 1);
        CHECK(on.held() == 1);
    }
}

TEST_CASE("a batch has as many requests as one statement takes, and more than fit into a list") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        constexpr auto many = protocol::semaphore_protocol::most_together;
        const counted on{database, 100};
        std::vector<grant_request> requests;
        std::vector<own_hold> holds;
        for (std::size_t i = 0; i < many; ++i) {
            requests.push_back(counted::wants(100 + static_cast<std::int64_t>(i), 1));
            requests.back().note = "quotes \" and \\ braces {}, 'all'";
            holds.push_back({requests.back().grant_id, 1});
        }
        std::int64_t last = 0;
        for (const auto& each : on.take(requests)) {
            REQUIRE(granted(each));
            CHECK(each->token > last);
            last = each->token;
        }
        CHECK(database.number("select count(*) from rowlock_hold where note like 'quotes \" %'") ==
              static_cast<std::int64_t>(many));
        CHECK(on.used() == static_cast<std::int64_t>(many));
        for (const bool each : on.give(holds)) CHECK(each);
        CHECK(on.used() == 0);
    }
}

TEST_CASE("no request of a batch overtakes a larger one before it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const counted on{database, 10};
        const auto found =
            on.take({counted::wants(11, 4), counted::wants(12, 7), counted::wants(13, 1)});
        CHECK(granted(found[0]));
        REQUIRE(found[1]);
        CHECK(found[1]->what == outcome::held);
        // It would fit now: only an attempt of its own can tell whether a waiter is before it.
        CHECK_FALSE(found[2].has_value());
        CHECK(on.used() == 4);
        CHECK(on.held() == 4);
    }
}

TEST_CASE("a batch takes nothing past a waiter, nor for an ended session, nor of another kind") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const counted on{database, 10};
        SUBCASE("a waiter") {
            on.hand.queue().enqueue(on.hand.db(), counted::wants(21, 1, session_id{2}), soon());
            for (const auto& each : on.take({counted::wants(11, 1), counted::wants(12, 1)})) {
                REQUIRE(each);
                CHECK(each->what == outcome::held);
                CHECK(each->seen.waited);
            }
        }
        SUBCASE("a session that ended") {
            database.run("update rowlock_session set ended = " +
                         std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                         " where id = 1");
            for (const auto& each : on.take({counted::wants(11, 1), counted::wants(12, 1)})) {
                CHECK_FALSE(each.has_value());
            }
        }
        SUBCASE("a shared_mutex") {
            auto first = counted::wants(11, 1);
            first.permits.of = protocol::counter_kind::shared_mutex;
            auto second = counted::wants(12, 1);
            second.permits.of = protocol::counter_kind::shared_mutex;
            for (const auto& each : on.take({first, second})) CHECK_FALSE(each.has_value());
        }
        SUBCASE("more than there are") {
            for (const auto& each : on.take({counted::wants(11, 11), counted::wants(12, 12)})) {
                CHECK_FALSE(each.has_value());
            }
        }
        CHECK(on.used() == 0);
        CHECK(on.held() == 0);
    }
}

TEST_CASE("a batch counts what another client takes meanwhile") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const counted on{database, 3};
        std::vector<std::optional<attempt>> found;
        if (database.speaks() == sql::dialect::postgresql) {
            // The other client has the counter locked, and has not committed.
            const auto other = database.connect();
            other->query("begin", soon());
            other->query("update " + database.prefix() + "lock set used = used + 2", soon());
            auto waiting = std::async(std::launch::async, [&] {
                return on.take({counted::wants(11, 1), counted::wants(12, 1)});
            });
            REQUIRE(support::somebody_waits_for_a_row(database));
            other->query("commit", soon());
            found = waiting.get();
            CHECK(granted(found[0]));
            CHECK(on.held() == 1);
        } else {
            // Between the read and the transaction.
            interception network;
            const auto db = network.wrap(database.source()).connect(soon());
            std::atomic<bool> once{false};
            network.after([&](std::string_view what) {
                if (what != "semaphore_state" || once.exchange(true)) return;
                database.run("update rowlock_lock set used = used + 2");
            });
            found = on.semaphores->acquire_together(
                *db, std::vector{counted::wants(11, 1), counted::wants(12, 1)}, soon());
            CHECK(once);
            CHECK_FALSE(granted(found[0]));
            CHECK(on.held() == 0);
        }
        CHECK_FALSE(granted(found[1]));
        CHECK(on.used() == on.held() + 2);
    }
}

TEST_CASE("a hold that a downgrade has lowered since is given back with what it has left") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const counted on{database, 10};
        for (const auto& each : on.take({counted::wants(11, 4), counted::wants(12, 4)}))
            REQUIRE(granted(each));
        const auto shrink = [&](std::int64_t to) {
            CHECK(on.semaphores->shrink(on.hand.db(), "api", session_id{1}, grant_id{12}, to,
                                        soon()));
        };
        shrink(2);
        SUBCASE("alone") {
            CHECK(on.semaphores->release(on.hand.db(), "api", session_id{1}, grant_id{12}, 4,
                                         soon()));
            CHECK(on.used() == 4);
        }
        SUBCASE("together with another") {
            CHECK(on.give({{grant_id{11}, 4}, {grant_id{12}, 4}}) == std::vector{true, true});
            CHECK(on.used() == 0);
        }
        SUBCASE("together, and lowered again between the read and the transaction") {
            interception network;
            const auto db = network.wrap(database.source()).connect(soon());
            network.after([&](std::string_view what) {
                if (what == "find_several_permits") shrink(1);
            });
            const auto ended = on.semaphores->release_together(
                *db, "api", session_id{1},
                std::vector<own_hold>{{grant_id{11}, 4}, {grant_id{12}, 4}}, soon());
            const bool postgresql = database.speaks() == sql::dialect::postgresql;
            CHECK(ended == std::vector{postgresql, postgresql});
        }
        CHECK(on.used() == on.held());
    }
}

TEST_CASE("threads of one client that ask a semaphore at the same moment share statements") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        crowd all{database};
        semaphore api{all.locks, "api"};
        api.set_capacity(100);
        std::atomic<int> takes{0};
        std::atomic<int> gives{0};
        all.network.after([&](std::string_view what) {
            if (takes_together(what)) ++takes;
            if (what == "give_permits_together" || what == "find_several_permits") ++gives;
        });
        std::atomic<int> wrong{0};
        CHECK(all.until([&] { return takes > 3 && gives > 3; },
                        [&](int) {
                            auto mine = api.try_acquire();
                            if (!mine || !mine->held()) return void(++wrong);
                            mine->release();
                        }));
        CHECK(wrong == 0);
        CHECK(api.available() == 100);
    }
}

TEST_CASE("a mistake of one thread, or a semaphore without room, fails no other thread's request") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        crowd all{database};
        semaphore api{all.locks, "api"};
        semaphore full{all.locks, "full"};
        semaphore none{all.locks, "none"};
        api.set_capacity(100);
        full.set_capacity(0);
        shared_mutex page{
            all.locks, "page", {.note = {}, .max_duration = {}, .reader_linger = 0ms}};
        constexpr auto most = std::numeric_limits<std::int64_t>::max();
        int rounds = 0;
        std::atomic<int> takes{0};
        all.network.after([&](std::string_view what) {
            if (takes_together(what)) ++takes;
        });
        std::atomic<int> wrong{0};
        CHECK(all.until(
            [&] { return takes > 3; },
            [&](int i) {
                if (i == 0) {
                    if (kind_of([&] { (void)api.try_acquire(rounds++ % 2 == 0 ? most : 101); }) !=
                        errc::invalid_options)
                        ++wrong;
                } else if (i == 1) {
                    if (kind_of([&] { (void)none.try_acquire(); }) != errc::invalid_options)
                        ++wrong;
                } else if (i == 2) {
                    if (kind_of([&] { (void)full.try_acquire(); }) != errc::invalid_options)
                        ++wrong;
                } else if (i == 3) {
                    const std::shared_lock reading{page};
                } else if (!api.try_acquire()) {
                    ++wrong;
                }
            }));
        CHECK(wrong == 0);
        CHECK(eventually([&] { return api.available() == 100; }));
    }
}

TEST_CASE("a semaphore whose row is locked for long holds up no thread that uses another") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        crowd all{database};
        std::deque<semaphore> each;
        for (int i = 0; i < 40; ++i) {  // more names than lanes: some share one
            each.emplace_back(all.locks, "name " + std::to_string(i)).set_capacity(100);
        }
        const auto db = database.source().connect(soon());
        db->query("begin", soon());
        db->query("update " + database.prefix() +
                      "lock set used = used where name in ('name 0', 'name 1')",
                  soon());
        std::vector<std::future<void>> stuck;
        for (int i = 0; i < 2; ++i) {
            stuck.push_back(std::async(std::launch::async, [&each, i] {
                const auto mine = each[static_cast<std::size_t>(i)].acquire();
            }));
        }
        REQUIRE(support::waiting_for_rows(database, 1));
        std::atomic<int> slow{0};
        std::atomic<int> rounds{0};
        CHECK(all.until([&] { return rounds > 6 * crowd::many; },
                        [&](int i) {
                            const auto which = static_cast<std::size_t>(2 + (i + rounds) % 38);
                            const auto began = std::chrono::steady_clock::now();
                            each[which].acquire().release();
                            if (std::chrono::steady_clock::now() - began > 10s) ++slow;
                            ++rounds;
                        }));
        CHECK(slow == 0);
        db->query("commit", soon());
        for (auto& one : stuck) CHECK_NOTHROW(one.get());
    }
}

ROWLOCK_SIMULATED_CASE(
    "a lost reply to a batch of permits costs no thread its hold, and leaves none behind",
    database) {
    crowd all{database};
    semaphore api{all.locks, "api"};
    api.set_capacity(100);
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    std::string meant;
    SUBCASE("of a take") {
        meant = postgresql ? "take_permits_together" : "commit";
    }
    SUBCASE("of the read or flush behind it") {
        meant = postgresql ? "flush_commits" : "find_several_permits";
    }
    SUBCASE("of a release") {
        meant = postgresql ? "give_permits_together" : "return_permits";
    }
    std::atomic<bool> together{false};
    std::atomic<int> lost{0};
    all.network.after([&](std::string_view what) {
        if (takes_together(what)) together = true;
        if (what == meant && together && lost.fetch_add(1) == 0) interception::lose_reply();
    });
    std::atomic<int> wrong{0};
    CHECK(all.until([&] { return lost > 0; },
                    [&](int) {
                        auto mine = api.try_acquire();
                        if (!mine || !mine->held()) return void(++wrong);
                        mine->release();
                    }));
    CHECK(wrong == 0);
    CHECK(all.locks.stats().unknown_outcomes > 0);
    CHECK(eventually([&] { return api.available() == 100; }));
    CHECK(eventually([&] { return all.locks.stats().unresolved == 0; }));
    CHECK(database.number("select count(*) from rowlock_hold") == 0);
}

TEST_CASE("PostgreSQL: a take and its flush are one round trip") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        const counted on{database, 7};
        const auto db = database.connect();
        const auto take = [&](const std::vector<grant_request>& requests) {
            const auto before = db->round_trips();
            for (const auto& each : on.semaphores->acquire_together(*db, requests, soon())) {
                CHECK(granted(each));
            }
            return db->round_trips() - before;
        };
        const auto take_one = [&](std::int64_t id) {
            const auto before = db->round_trips();
            const auto found = on.semaphores->acquire(*db, counted::wants(id, 1), soon());
            CHECK(found.what == outcome::granted);
            return db->round_trips() - before;
        };
        (void)take_one(11);  // prepares the statements
        (void)take_one(12);
        CHECK(take_one(13) == 1);
        (void)take({counted::wants(21, 1), counted::wants(22, 1)});
        CHECK(take({counted::wants(23, 1), counted::wants(24, 1)}) == 1);
        CHECK(on.semaphores->acquire(*db, counted::wants(31, 1), soon()).what == outcome::held);
        CHECK(on.used() == 7);
        CHECK(on.held() == 7);
    }
}

TEST_CASE(
    "PostgreSQL: a take whose flush fails has an unknown outcome, a take that fails its own") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        const counted on{database, 3};
        posting db{on.hand.db()};
        db.flushes = [] { throw error{errc::database_error, "no disk"}; };
        CHECK(kind_of([&] { (void)on.semaphores->acquire(db, counted::wants(11, 1), soon()); }) ==
              errc::outcome_unknown);
        CHECK(on.used() == 1);
        db.takes = [] { throw error{errc::conflict, "locked"}; };
        db.flushes = nullptr;
        CHECK(kind_of([&] { (void)on.semaphores->acquire(db, counted::wants(12, 1), soon()); }) ==
              errc::conflict);
        CHECK(on.used() == 1);
        // One that execute() can mend is repeated by it.
        db.takes = [] { throw error{errc::database_error, "no such prepared statement"}; };
        CHECK(on.semaphores->acquire(db, counted::wants(12, 1), soon()).what == outcome::granted);
        CHECK(on.semaphores->release(on.hand.db(), "api", session_id{1}, grant_id{12}, 0, soon()));
        // The answer does not come at all: a later call of the connection reads it.
        db.takes = nullptr;
        db.keeps_answers = true;
        db.flushes = [] { throw error{errc::timed_out, "too late"}; };
        CHECK(kind_of([&] { (void)on.semaphores->acquire(db, counted::wants(13, 1), soon()); }) ==
              errc::outcome_unknown);
        db.answer();
        CHECK(on.used() == 2);
        // Nothing is taken, and the flush fails for a reason of its own.
        db.keeps_answers = false;
        db.flushes = [] { throw error{errc::database_error, "no disk"}; };
        CHECK(kind_of([&] { (void)on.semaphores->acquire(db, counted::wants(14, 2), soon()); }) ==
              errc::database_error);
        CHECK(on.used() == on.held());
    }
}

TEST_CASE("a fenced hold is released alone: a transaction may have it locked for long") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        if (database.speaks() == sql::dialect::sqlite) continue;  // one writer at a time
        crowd all{database};
        semaphore api{all.locks, "api"};
        api.set_capacity(100);
        auto fenced = api.acquire();
        const auto db = database.source().connect(soon());
        db->query("begin", soon());
        fence(*db, fenced);
        auto slow = std::async(std::launch::async, [&] { fenced.release(); });
        REQUIRE(support::somebody_waits_for_a_row(database));
        std::atomic<int> rounds{0};
        CHECK(all.until([&] { return rounds > 4 * crowd::many; },
                        [&](int) {
                            const auto mine = api.try_acquire();
                            if (mine) ++rounds;
                        }));
        CHECK(slow.wait_for(0s) == std::future_status::timeout);
        db->query("commit", soon());
        slow.get();
        CHECK(eventually([&] { return api.available() == 100; }));
    }
}
