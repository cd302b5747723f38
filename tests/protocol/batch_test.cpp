// Batches of concurrent calls and the short statements of solitary ones. The tests force each
// negative result of these, and show beside it the result without the obstacle.

#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::grant_request;
using protocol::granted_name;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;

namespace {

using tokens = support::protocol_connection::tokens;

grant_request request(std::string_view name, grant_id grant_id,
                      session_id session = session_id{1}) {
    return {name, session, grant_id, "", "", std::nullopt, false};
}

/// The live sessions 1 and 2 on one connection, and a second connection.
struct two_sessions {
    explicit two_sessions(support::lock_database& which)
        : database{which}, hand{which}, other{which} {
        for (const std::int64_t id : {1, 2}) hand.open(session_id{id});
    }

    std::int64_t acquire(std::string_view name, grant_id grant_id,
                         session_id session = session_id{1}) const {
        const auto token = hand.try_acquire(name, session, grant_id);
        REQUIRE(token);
        return *token;
    }
    /// Grants the name to session 1 and frees it. Returns the token.
    std::int64_t used(std::string_view name) const {
        return hand.acquire_and_free(name, session_id{1});
    }
    [[nodiscard]] bool reacquire(std::string_view name, std::int64_t known) const {
        return hand.reacquire(request(name, grant_id{50}), known);
    }
    [[nodiscard]] tokens acquire_all(const std::vector<grant_request>& wanted) const {
        return hand.acquire_all(wanted);
    }
    [[nodiscard]] tokens reacquire_all(const std::vector<grant_request>& wanted,
                                       const std::vector<std::int64_t>& known) const {
        return hand.batch().reacquire_all(hand.db(), wanted, known, soon());
    }
    [[nodiscard]] std::vector<bool> release_all(const std::vector<granted_name>& grants) const {
        return hand.release_all(session_id{1}, grants);
    }
    [[nodiscard]] std::vector<bool> held(std::span<const std::string_view> names) const {
        return hand.batch().held(hand.db(), names, soon());
    }
    void enqueue(std::string_view name, grant_id grant_id) const {
        hand.enqueue(name, session_id{2}, grant_id);
    }
    [[nodiscard]] std::int64_t holder(const std::string& name) {
        return database.number(
            "select coalesce(max(grant_id), 0) from rowlock_lock "
            "where session is not null and name = '" +
            name + "'");
    }
    [[nodiscard]] std::int64_t token(const std::string& name) {
        return database.number("select token from rowlock_lock where name = '" + name + "'");
    }

    support::lock_database& database;
    const support::protocol_connection hand, other;
};

#define ROWLOCK_FAST_BACKENDS ROWLOCK_NATIVE_BACKENDS

}  // namespace

// --- reacquiring

TEST_CASE("a lease without a later grant is reacquired with the next token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        const auto token = on.used("job");
        CHECK(on.reacquire("job", token));
        CHECK(on.holder("job") == 50);
        CHECK(on.token("job") == token + 1);
    }
}

TEST_CASE("a lease that another session has, or had since, is not reacquired") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        const auto token = on.used("job");
        on.acquire("job", grant_id{77}, session_id{2});
        CHECK_FALSE(on.reacquire("job", token));
        CHECK_FALSE(on.reacquire("job", token + 1));
        CHECK(on.holder("job") == 77);
        REQUIRE(on.hand.free("job", session_id{2}, grant_id{77}));
        CHECK_FALSE(on.reacquire("job", token));
        CHECK(on.reacquire("job", token + 1));  // control
    }
}

TEST_CASE("a lease is not reacquired past a waiter, below the floor, or by an ended session") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        const auto token = on.used("job");
        SUBCASE("waiter") {
            on.enqueue("job", grant_id{22});
        }
        SUBCASE("floor") {
            database.run("update rowlock_token_floor set floor = " + std::to_string(token + 1));
        }
        SUBCASE("ended") {
            on.hand.end(session_id{1});
        }
        if (database.speaks() == sql::dialect::postgresql) {
            SUBCASE("promise") {
                database.run("update rowlock_lock set successor = 33 where name = 'job'");
            }
        }
        CHECK_FALSE(on.reacquire("job", token));
        CHECK(on.holder("job") == 0);
    }
}

TEST_CASE("a reacquire that waits for a concurrent grant gets nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        two_sessions on{database};
        const auto token = on.used("job");
        on.other.run("begin");
        REQUIRE(on.other.try_acquire("job", session_id{2}, grant_id{77}));
        auto taken = std::async(std::launch::async, [&] { return on.reacquire("job", token); });
        REQUIRE(eventually([&] {
            return database.number(
                       "select count(*) from pg_stat_activity "
                       "where wait_event_type = 'Lock' and query like '%" +
                       database.prefix() + "%'") > 0;
        }));
        on.other.run("commit");
        CHECK_FALSE(taken.get());
        CHECK(on.holder("job") == 77);
    }
}

// --- several at once

TEST_CASE("one statement grants several old and new names, each with its own token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        const auto token = on.used("old");
        const auto before = on.hand.db().round_trips();
        const auto got =
            on.acquire_all({request("old", grant_id{1}),
                            {"new", session_id{1}, grant_id{2}, "a thread", "a note", 60'000'000}});
        const auto trips = on.hand.db().round_trips() - before;
        if (database.speaks() == sql::dialect::postgresql) CHECK(trips <= 2);  // one prepares
        REQUIRE(got[0]);
        REQUIRE(got[1]);
        CHECK(*got[0] > token);
        CHECK(on.holder("old") == 1);
        CHECK(on.holder("new") == 2);
        CHECK(on.token("new") == *got[1]);
        CHECK(database.number("select count(*) from rowlock_lock where name = 'new' and thread = "
                              "'a thread' and note = 'a note' and deadline is not null") == 1);
        CHECK(on.release_all({{"old", grant_id{1}}, {"new", grant_id{2}}}) ==
              std::vector{true, true});
        CHECK(on.holder("old") == 0);
        CHECK(on.holder("new") == 0);
    }
}

TEST_CASE("a batch may have names with quotes, commas, braces and backslashes") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        const std::array<std::string, 6> names{R"(a"b)", R"(c\d)", "{e,f}", "NULL", "g'h", "ä ö"};
        std::vector<grant_request> wanted;
        std::vector<granted_name> grants;
        for (std::int64_t i = 0; i < 6; ++i) {
            const auto& name = names.at(static_cast<std::size_t>(i));
            wanted.push_back({name, session_id{1}, grant_id{i + 1}, name, name, std::nullopt});
            grants.push_back({name, grant_id{i + 1}});
        }
        for (const auto& each : on.acquire_all(wanted)) CHECK(each);
        for (const auto& lease : on.hand.leases().leases_of(on.hand.db(), session_id{1}, soon())) {
            CHECK(lease.name == names.at(static_cast<std::size_t>(lease.grant_id) - 1));
        }
        CHECK(database.number("select count(*) from rowlock_lock where thread = name and note = "
                              "name") == 6);
        for (const bool freed : on.release_all(grants)) CHECK(freed);
    }
}

// shows: batches
TEST_CASE("a batch leaves out names that are held, waited for or promised, and grants the rest") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        on.used("free");
        on.acquire("held", grant_id{77}, session_id{2});
        on.used("waited for");
        on.enqueue("waited for", grant_id{22});
        on.enqueue("new, waited for", grant_id{23});
        const bool promises = database.speaks() == sql::dialect::postgresql;
        on.used("promised");
        if (promises) {
            database.run("update rowlock_lock set successor = 33 where name = 'promised'");
        }
        const auto got =
            on.acquire_all({request("held", grant_id{1}), request("waited for", grant_id{2}),
                            request("free", grant_id{3}), request("promised", grant_id{4}),
                            request("new, waited for", grant_id{5}), request("new", grant_id{6})});
        const tokens none(1);
        CHECK(got[0] == none[0]);
        CHECK(got[1] == none[0]);
        CHECK(got[2]);
        CHECK(got[3].has_value() != promises);
        CHECK(got[4] == none[0]);
        CHECK(got[5]);
        CHECK(on.holder("held") == 77);
    }
}

TEST_CASE("a batch grants nothing to an ended session") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        on.used("old");
        on.hand.end(session_id{1});
        const tokens nothing(2);
        CHECK(on.acquire_all({request("old", grant_id{1}), request("new", grant_id{2})}) ==
              nothing);
        CHECK(on.acquire_all({request("old", grant_id{1}, session_id{2}),
                              request("new", grant_id{2}, session_id{2})}) != nothing);
    }
}

TEST_CASE("the tokens of a batch are above the token floor") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        on.used("old");
        database.run("update rowlock_token_floor set floor = 1000");
        const auto got = on.acquire_all({request("old", grant_id{1}), request("new", grant_id{2})});
        CHECK(got[0] == 1001);
        CHECK(got[1] == 1001);
    }
}

/// A connection that breaks after the answer to its first change, as after a deadline that passed.
class dying_connection final : public sql::connection {
public:
    explicit dying_connection(std::unique_ptr<sql::connection> inner) : inner_{std::move(inner)} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        if (gone_) throw error{errc::database_unreachable, "nothing was sent"};
        auto answer = inner_->execute(what, parameters, until);
        gone_ = answer.affected() > 0;
        return answer;
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return inner_->query(text, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return !gone_ && inner_->alive(); }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

private:
    std::unique_ptr<sql::connection> inner_;
    bool gone_ = false;
};

TEST_CASE("MariaDB: a batch reports the grants that precede the loss of its connection") {
    support::lock_database database{support::backend::mariadb};
    if (!database.there()) return;
    two_sessions on{database};
    on.used("there");
    dying_connection db{database.connect()};
    const auto got = on.hand.batch().acquire_all(
        db, std::vector{request("there", grant_id{1}), request("new", grant_id{2})}, soon());
    CHECK(got[0].has_value());
    CHECK(on.holder("there") == 1);
    CHECK_FALSE(got[1]);
}

// shows: batches
TEST_CASE("a row that is locked for long does not delay the other requests of a batch") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        two_sessions on{database};
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const std::string share = "select * from " + database.prefix() +
                                  "lock where name = 'locked' " +
                                  (postgresql ? "for share" : "lock in share mode");
        on.used("locked");
        on.used("free");
        on.other.run("begin");
        on.other.run(share);
        const auto got =
            on.acquire_all({request("locked", grant_id{1}), request("free", grant_id{2})});
        CHECK_FALSE(got[0]);
        CHECK(got[1]);
        on.other.run("commit");
        CHECK(on.acquire_all({request("locked", grant_id{3})})[0]);  // control
        if (postgresql) continue;  // there a fenced lease is released alone
        on.other.run("begin");
        on.other.run(share);
        CHECK(on.release_all({{"locked", grant_id{3}}, {"free", grant_id{2}}}) ==
              std::vector{false, true});
        on.other.run("commit");
        CHECK(on.release_all({{"locked", grant_id{3}}}) == std::vector{true});
    }
}

TEST_CASE("leases that were released together are reacquired together, each with its own token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        const std::vector<std::int64_t> known{on.used("a"), on.used("b"), on.used("c"),
                                              on.used("waited for")};
        const auto since = on.acquire("b", grant_id{77}, session_id{2});
        on.enqueue("waited for", grant_id{22});
        const std::vector<grant_request> wanted{
            request("a", grant_id{1}), request("b", grant_id{2}), request("c", grant_id{3}),
            request("waited for", grant_id{4})};
        const auto got = on.reacquire_all(wanted, known);
        CHECK(got == tokens{known[0] + 1, std::nullopt, known[2] + 1, std::nullopt});
        CHECK(on.holder("a") == 1);
        CHECK(on.holder("b") == 77);
        CHECK(on.token("b") == since);
        CHECK(on.holder("c") == 3);
    }
}

TEST_CASE("leases are not reacquired together below the floor, or by an ended session") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        two_sessions on{database};
        const std::vector<std::int64_t> known{on.used("a"), on.used("b")};
        bool all = false;
        SUBCASE("control") {
            all = true;
        }
        SUBCASE("floor") {
            database.run("update rowlock_token_floor set floor = " + std::to_string(known[0] + 1));
        }
        SUBCASE("ended") {
            on.hand.end(session_id{1});
        }
        SUBCASE("promise") {
            database.run("update rowlock_lock set successor = 33");
        }
        const std::vector<grant_request> wanted{request("a", grant_id{1}),
                                                request("b", grant_id{2})};
        for (const auto& token : on.reacquire_all(wanted, known)) {
            CHECK(token.has_value() == all);
        }
    }
}

TEST_CASE("a batch releases only its own grants, and none with a waiter") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        on.acquire("ours", grant_id{1});
        on.acquire("ours, later", grant_id{3});
        on.acquire("another has it", grant_id{77}, session_id{2});
        on.acquire("waited for", grant_id{4});
        on.enqueue("waited for", grant_id{22});
        const std::vector<granted_name> grants{{"ours", grant_id{1}},
                                               {"ours, later", grant_id{2}},
                                               {"another has it", grant_id{77}},
                                               {"waited for", grant_id{4}},
                                               {"unknown", grant_id{5}}};
        if (database.speaks() == sql::dialect::mysql) {
            // The statement cannot report which were freed if one was lost before: the client looks
            // each of them up, as after a lost reply.
            CHECK(kind_of([&] { (void)on.release_all(grants); }) == errc::outcome_unknown);
            CHECK(on.release_all({{"waited for", grant_id{4}}}) == std::vector{false});
        } else {
            CHECK(on.release_all(grants) == std::vector{true, false, false, false, false});
        }
        CHECK(on.holder("ours") == 0);
        CHECK(on.holder("ours, later") == 3);
        CHECK(on.holder("another has it") == 77);
        CHECK(on.holder("waited for") == 4);
    }
}

// shows: batches
TEST_CASE("batches of the same names in opposite orders exclude each other and do not deadlock") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions setting{database};
        constexpr int rounds = 150;
        std::barrier together{2};
        std::mutex mutex;
        std::map<std::pair<std::string, std::int64_t>, int> seen;  // name, token
        std::atomic<int> granted{0};
        std::atomic<int> kept{0};
        const auto run = [&](session_id session, bool forwards) {
            const auto db = database.connect();
            for (int round = 0; round < rounds; ++round) {
                std::vector<std::string> names;
                for (int i = 0; i < 8; ++i) {
                    // Half of them are new in every round.
                    names.push_back(i % 2 == 0 ? "old " + std::to_string(i)
                                               : std::to_string(round) + " " + std::to_string(i));
                }
                if (!forwards) std::ranges::reverse(names);
                std::vector<grant_request> wanted;
                std::vector<granted_name> grants;
                std::vector<granted_name> ours;
                for (const auto& name : names) {
                    const auto id = static_cast<std::int64_t>(session) * 1'000'000 +
                                    std::int64_t{round} * 100 +
                                    static_cast<std::int64_t>(wanted.size());
                    wanted.push_back(request(name, grant_id{id}, session));
                    grants.push_back({name, grant_id{id}});
                }
                together.arrive_and_wait();
                const auto got = setting.hand.batch().acquire_all(*db, wanted, soon());
                {
                    const std::lock_guard lock{mutex};
                    for (std::size_t i = 0; i < got.size(); ++i) {
                        if (!got[i]) continue;
                        ++granted;
                        ++seen[{names[i], *got[i]}];
                        ours.push_back(grants[i]);
                    }
                }
                together.arrive_and_wait();
                for (const bool freed :
                     setting.hand.batch().release_all(*db, session, ours, soon())) {
                    if (!freed) ++kept;
                }
            }
        };
        std::jthread one{[&] { run(session_id{1}, true); }};
        std::jthread two{[&] { run(session_id{2}, false); }};
        one.join();
        two.join();
        CHECK(std::ranges::all_of(seen, [](const auto& each) { return each.second == 1; }));
        CHECK(granted >= rounds * 4);
        CHECK(kept == 0);
        CHECK(database.number("select count(*) from rowlock_lock where session is not null") == 0);
    }
}

TEST_CASE("held() reports only leases with a live holder whose deadline has not passed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        two_sessions on{database};
        on.acquire("held", grant_id{77}, session_id{2});
        on.used("freed");
        on.hand.open(session_id{3});
        on.acquire("of the dead", grant_id{78}, session_id{3});
        on.hand.end(session_id{3});
        REQUIRE(on.hand.try_acquire("past its deadline", session_id{2}, grant_id{79},
                                    {.deadline_us = 1}));
        const std::vector<std::string_view> names{"freed", "held", "new", "of the dead",
                                                  "past its deadline"};
        REQUIRE(eventually([&] { return !on.held(std::span{&names[4], 1}).front(); }));
        CHECK(on.held(names) == std::vector{false, true, false, false, false});
        for (std::size_t i = 0; i < names.size(); ++i) {
            CHECK(on.held(std::span{&names[i], 1}) == std::vector{i == 1});
        }
    }
}

// --- through the client

namespace {

/// A client whose threads call at the same moment, again and again, until they have shared a
/// statement of each kind. Single statements are delayed for long enough that the others form a
/// batch.
struct crowd {
    static constexpr int many = 16;

    explicit crowd(support::lock_database& database, client_options options = {})
        : locks{network.wrap(database.source()), database.options(std::move(options))} {
        static_cast<void>(locks.acquire("opens the session"));
        network.before([this](std::string_view name) { slow_down(name); });
    }

    void slow_down(std::string_view name) {
        {
            const std::lock_guard lock{mutex};
            ++sent[std::string{name}];
        }
        if (name == "acquire" || name == "reacquire" || name == "probe" ||
            name == "release_unwaited" || name == "release") {
            std::this_thread::sleep_for(5ms);
        }
    }
    [[nodiscard]] int count(const std::string& name) {
        const std::lock_guard lock{mutex};
        return sent[name];
    }

    /// The number of shared statements.
    [[nodiscard]] int grants() {
        return count("acquire_all") + count("reacquire_all") + count("take_all") + group_commits();
    }
    [[nodiscard]] int releases() { return count("release_all") + group_commits(); }
    /// On SQLite a batch is a transaction.
    [[nodiscard]] int group_commits() { return count("begin immediate"); }

    /// Runs `turn` in all threads at once, repeatedly. Returns true once `shared` does.
    template <typename Turn>
    bool until(const std::function<bool()>& shared, Turn turn) {
        const auto end = std::chrono::steady_clock::now() + 20s;
        while (!shared()) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::barrier together{many};
            std::vector<std::jthread> threads;
            for (int i = 0; i < many; ++i) {
                threads.emplace_back([&, i] {
                    together.arrive_and_wait();
                    turn("name " + std::to_string(i));
                });
            }
        }
        return true;
    }

    interception network;
    std::mutex mutex;
    std::map<std::string, int> sent;
    client locks;
};

std::int64_t rows_held(support::lock_database& database) {
    return database.number("select count(*) from rowlock_lock where session is not null");
}

}  // namespace

TEST_CASE("threads of one client that call at the same moment share statements") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        crowd all{database};
        std::atomic<int> wrong{0};
        CHECK(all.until([&] { return all.grants() > 0 && all.releases() > 0; },
                        [&](const std::string& name) {
                            auto lease = all.locks.try_acquire(name);
                            if (!lease || !lease->held()) return void(++wrong);
                            const auto seen = all.locks.inspect(name);
                            if (!seen || seen->token != lease->token() || !seen->holder) ++wrong;
                            lease->release();
                        }));
        CHECK(wrong == 0);
        CHECK(rows_held(database) == 0);
        CHECK(all.locks.stats().held == 0);
    }
}

TEST_CASE("a fenced lease is released alone: its row may be locked for long") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        crowd all{database};
        std::atomic<int> wrong{0};
        const int before = all.grants();
        CHECK(all.until([&] { return all.grants() > before + 3; },
                        [&](const std::string& name) {
                            auto lease = all.locks.try_acquire(name);
                            if (!lease) return void(++wrong);
                            const auto db = database.connect();
                            db->query("begin", soon());
                            fence(*db, *lease);
                            db->query("commit", soon());
                            lease->release();
                        }));
        CHECK(wrong == 0);
        CHECK(all.releases() == 0);
    }
}

TEST_CASE("a name that another client holds fails no other request of its batch") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        client other{database.source(), database.options()};
        const auto held = other.acquire("name 3");
        crowd all{database};
        std::atomic<int> wrong{0};
        CHECK(all.until([&] { return all.grants() > 1; },
                        [&](const std::string& name) {
                            auto lease = all.locks.try_acquire(name);
                            if (lease.has_value() == (name == "name 3")) ++wrong;
                        }));
        CHECK(wrong == 0);
        CHECK(held.held());
    }
}

// shows: batches
ROWLOCK_SIMULATED_CASE("a lost reply to a batch costs no thread its lease, and leaves none behind",
                       database) {
    crowd all{database};
    const char* which = nullptr;
    const auto speaks = database.speaks();
    SUBCASE("an acquire") {
        which = speaks == sql::dialect::postgresql ? "acquire_all"
                : speaks == sql::dialect::mysql    ? "take_all"
                                                   : "commit";
    }
    SUBCASE("a release") {
        which = speaks == sql::dialect::sqlite ? "commit" : "release_all";
    }
    std::atomic<int> lost{0};
    all.network.after([&](std::string_view name) {
        const bool acquires = which == std::string_view{"acquire_all"};
        const bool meant =
            database.speaks() == sql::dialect::sqlite
                ? name == "commit"  // a batch is a transaction there
                : name == which || (acquires && (name == "reacquire_all" || name == "take_all"));
        if (meant && lost.fetch_add(1) == 0) interception::lose_reply();
    });
    std::atomic<int> wrong{0};
    CHECK(all.until([&] { return lost > 0; },
                    [&](const std::string& name) {
                        auto lease = all.locks.try_acquire(name);
                        if (!lease || !lease->held()) return void(++wrong);
                        lease->release();
                    }));
    CHECK(wrong == 0);
    CHECK(all.locks.stats().unknown_outcomes > 0);
    CHECK(eventually([&] { return rows_held(database) == 0; }));
    CHECK(eventually([&] { return all.locks.stats().unresolved == 0; }));
    // Every name is free again.
    for (int i = 0; i < crowd::many; ++i) {
        CHECK(all.locks.try_acquire("name " + std::to_string(i)));
    }
}

TEST_CASE(
    "a lease that the first of two shared statements granted is kept if the second one fails") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    crowd all{database};
    std::atomic<int> round{0}, refused{0}, wrong{0};
    std::atomic<bool> retaken{false};
    all.network.after([&](std::string_view name) { retaken = name == "reacquire_all"; });
    all.network.before([&](std::string_view name) {
        if (name != "acquire_all" || !retaken || refused.fetch_add(1) > 0) return;
        throw error{errc::database_error, "refused"};
    });
    CHECK(all.until([&] { return refused > 0; },
                    [&](const std::string& name) {
                        const bool known = (name.back() - '0') % 3 != 0;
                        try {
                            auto lease = all.locks.try_acquire(
                                known ? name : name + " " + std::to_string(++round));
                            if (!lease || !lease->held()) return void(++wrong);
                            lease->release();
                        } catch (const error& failure) {
                            if (failure.kind() != errc::database_error) ++wrong;
                        }
                    }));
    CHECK(wrong == 0);
    CHECK(rows_held(database) == 0);
}

TEST_CASE("a release that waits for a fenced transaction does not delay concurrent releases") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        crowd all{database};
        const auto held_up_in_three_rounds = [&] {
            std::atomic<int> held_up{0};
            for (int round = 0; round < 3; ++round) {
                const auto fenced = database.source().connect(soon());
                fenced->query("begin", soon());
                std::barrier together{crowd::many};
                std::atomic<int> released{0};
                std::vector<std::jthread> threads;
                for (int i = 0; i < crowd::many; ++i) {
                    threads.emplace_back([&, i] {
                        bool arrived = false;
                        try {
                            auto lease = all.locks.acquire("name " + std::to_string(i));
                            if (i == 3) fence(*fenced, lease, {.statement_timeout = 20s});
                            arrived = true;
                            together.arrive_and_wait();
                            const auto start = std::chrono::steady_clock::now();
                            lease.release();
                            ++released;
                            if (i != 3 && std::chrono::steady_clock::now() - start > 700ms) {
                                ++held_up;
                            }
                        } catch (const error& failure) {
                            if (!arrived) together.arrive_and_drop();
                            FAIL_CHECK(std::string{failure.what()});
                        }
                    });
                }
                CHECK(eventually([&] { return released == crowd::many - 1; }));
                fenced->query("commit", soon());
            }
            return held_up.load();
        };
        CHECK(support::at_best(1, held_up_in_three_rounds) == 0);
        CHECK(rows_held(database) == 0);
    }
}

TEST_CASE("threads whose batch follows the end of their session all get their leases") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        crowd all{database};
        std::atomic<int> wrong{0};
        const auto turn = [&](const std::string& name) {
            if (!all.locks.try_acquire_for(name, 10s)) ++wrong;
        };
        const auto shared = [&] { return all.grants() > 0; };
        REQUIRE(all.until(shared, turn));
        database.run(database.speaks() == sql::dialect::postgresql
                         ? "update rowlock_session set ended = true"
                         : "update rowlock_session set ended = 1");
        const auto before = all.grants();
        CHECK(all.until([&] { return all.grants() > before; }, turn));
        CHECK(all.until([&] { return all.locks.stats().sessions > 1; }, turn));
        CHECK(wrong == 0);
    }
}

TEST_CASE(
    "a try of a lease that another client had probes first, and gets it as soon as it is free") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        client other{database.source(), database.options()};
        auto held = other.acquire("job");
        interception network;
        client locks{network.wrap(database.source()), database.options()};
        REQUIRE_FALSE(locks.try_acquire("job"));
        std::vector<std::string> sent;
        network.before([&](std::string_view name) {
            if (name.starts_with("probe") || name == "acquire" || name == "take") {
                sent.emplace_back(name);
            }
        });
        CHECK_FALSE(locks.try_acquire("job"));
        CHECK(sent.size() == 1);
        CHECK(sent.front().starts_with("probe"));
        held.release();
        CHECK(locks.try_acquire("job"));
        CHECK(sent.back() == (database.speaks() == sql::dialect::mysql ? "take" : "acquire"));
    }
}

TEST_CASE("a lease that this client released last is reacquired by one short statement") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_FAST_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()), database.options()};
        auto lease = locks.acquire("job");
        const auto token = lease.token();
        lease.release();
        std::vector<std::string> sent;
        network.before([&](std::string_view name) {
            if (name == "reacquire" || name == "acquire" || name == "take") sent.emplace_back(name);
        });
        lease = locks.acquire("job");
        CHECK(lease.token().value() == token.value() + 1);
        CHECK(sent == std::vector<std::string>{"reacquire"});
        lease.release();
        {
            client other{database.source(), database.options()};
            other.acquire("job").release();
        }
        lease = locks.acquire("job");
        CHECK(lease.token().value() == token.value() + 3);
        CHECK(sent == std::vector<std::string>{
                          "reacquire", "reacquire",
                          database.speaks() == sql::dialect::mysql ? "take" : "acquire"});
    }
}

// --- the check for waiters that follows a release
// -------------------------------------------------

namespace {

/// Counts the checks for waiters that the client's loop sends.
class counted_checks {
public:
    explicit counted_checks(interception& network) {
        network.after([this](std::string_view name) {
            if (name == "names_with_waiters") ++checks_;
        });
    }
    [[nodiscard]] int sent() const { return checks_; }

private:
    std::atomic<int> checks_{0};
};

}  // namespace

TEST_CASE("a lease that its client takes back at once is not checked for waiters in between") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb) {
        interception network;
        client locks{network.wrap(database.source()), database.options()};
        const counted_checks checks{network};
        locks.acquire("job").release();
        REQUIRE(eventually([&] { return checks.sent() == 1; }));  // control: the last release's
        const auto began = std::chrono::steady_clock::now();
        int before = 0;
        for (int i = 0; i < 500; ++i) {
            before = checks.sent();
            locks.acquire("job").release();
        }
        const auto took = std::chrono::steady_clock::now() - began;
        // An attempt defers the check by 20 ms: only a stall is longer. Not deferred, one would
        // come every ten milliseconds.
        CHECK(checks.sent() - 1 <= took / 20ms);
        CHECK(eventually([&] { return checks.sent() > before; }));  // the last one's
    }
}

TEST_CASE("a waiter that an acquire meets after a release that missed it is served at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb) {
        interception network;
        client locks{network.wrap(database.source()), database.options()};
        const protocol::lease_protocol& leases = database.protocol();
        const auto db = database.connect();
        leases.sessions().open(*db, {session_id{2}, "owner", "host", "program", 1, 60s}, soon());
        auto lease = locks.acquire("job");
        std::atomic<bool> missed{false};
        network.after([&](std::string_view name) {
            // As if it had been committed after the release's snapshot. No client serves it.
            if (!name.starts_with("release") || missed.exchange(true)) return;
            database.queue().enqueue(
                *db, {"job", session_id{2}, grant_id{22}, "", "", std::nullopt}, soon());
        });
        lease.release();
        REQUIRE(missed);
        CHECK_FALSE(locks.try_acquire("job"));
        CHECK(eventually([&] {
            return database.number(
                       "select count(*) from rowlock_lock where name = 'job' and session = 2 and "
                       "grant_id = 22") == 1;
        }));
    }
}
