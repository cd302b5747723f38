// Quorum locks: one lock over several databases, by a majority of them.

// shows: promise-20
#include "quorum/quorum_admin.hpp"
#include "sql/table_names.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/protocol_session.hpp"
#include "support/test_quorum.hpp"
#include "support/waits.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;
using support::test_quorum;

namespace {

/// A ttl after which nothing here waits.
client_options patient() {
    return {.ttl = 20s};
}

protocol::quorum_protocol::grant_key key(session_id session, std::int64_t grant) {
    return {.name = "job", .session = session, .grant_id = grant_id{grant}};
}

std::int64_t known_token(test_quorum& quorum, std::size_t member) {
    return quorum.member(member).number(
        "select coalesce(max(token), 0) from rowlock_quorum where name = 'job'");
}

/// Every statement to that member fails from now on, as if its server were gone.
void cut(test_quorum& quorum, std::size_t member) {
    quorum.calls(member).before([](std::string_view) { interception::refuse_to_send(); });
}

void mend(test_quorum& quorum, std::size_t member) {
    quorum.calls(member).before({});
}

/// Jumps ahead at a reading of one thread. The others see the jump at the same moment; those that
/// wait for a time look at it every 10 ms.
class sudden_clock final : public time_source {
public:
    [[nodiscard]] std::chrono::nanoseconds now() const noexcept override {
        if (std::this_thread::get_id() == armed_ && readings_-- == 0) {
            ahead_ = ahead_.load() + by_;
            armed_ = std::thread::id{};
        }
        return std::chrono::steady_clock::now().time_since_epoch() + ahead_.load();
    }
    [[nodiscard]] std::shared_ptr<void> on_advance(std::function<void()> wake) override {
        auto ringing =
            std::make_shared<std::jthread>([wake = std::move(wake)](const std::stop_token& stop) {
                while (!stop.stop_requested()) {
                    wake();
                    std::this_thread::sleep_for(10ms);
                }
            });
        return ringing;
    }
    /// At the calling thread's reading behind so many others.
    void jump_after(int readings, std::chrono::nanoseconds by) {
        readings_ = readings;
        by_ = by;
        armed_ = std::this_thread::get_id();
    }
    /// Returns whether it has jumped.
    bool disarm() { return armed_.exchange(std::thread::id{}) == std::thread::id{}; }

private:
    mutable std::atomic<std::thread::id> armed_{};
    mutable std::atomic<int> readings_{0};
    std::chrono::nanoseconds by_{0};  ///< used by the armed thread alone
    mutable std::atomic<std::chrono::nanoseconds> ahead_{std::chrono::nanoseconds{0}};
};

/// As if another server had taken the place of the one that voted.
void replace_server(test_quorum& quorum, std::size_t replaced) {
    std::string members;
    for (std::size_t i = 0; i < quorum.size(); ++i) {
        if (i > 0) members.push_back('\n');
        members.append(i == replaced ? "former" : quorum.servers()[i]);
    }
    for (std::size_t i = 0; i < quorum.size(); ++i) {
        quorum.member(i).run("update rowlock_member set members = '" + members + "'");
    }
    quorum.member(replaced).run("update rowlock_member set ready_for = 'former'");
}

}  // namespace

TEST_CASE("a quorum lock is granted by all members at once, and its tokens rise") {
    ROWLOCK_FOR_A_QUORUM(quorum) {
        quorum_client locks{quorum.sources(), quorum.options(patient())};
        std::int64_t last = 0;
        for (int i = 0; i < 3; ++i) {
            auto held = locks.acquire("job", "a report");
            CHECK(held.held());
            CHECK(held.name() == "job");
            CHECK(held.token().value() > last);
            CHECK(held.remaining() > 5s);
            CHECK_FALSE(held.lost().stop_requested());
            CHECK(eventually([&] { return held.counted() == 3; }));
            for (std::size_t member = 0; member < 3; ++member) {
                CHECK(known_token(quorum, member) >= held.token().value());
            }
            last = held.token().value();
            held.release();
            CHECK_FALSE(held.held());
            CHECK(held.remaining() == 0ms);
            CHECK_FALSE(held.lost().stop_requested());
            held.release();
        }
        for (const auto& each : locks.members()) {
            CHECK(each.answers);
            CHECK(each.votes);
            CHECK(each.problem == "");
        }
    }
}

TEST_CASE("a waiter for a quorum lock gets it after the release, with a greater token") {
    ROWLOCK_FOR_A_QUORUM(quorum) {
        quorum_client first{quorum.sources(), quorum.options(patient())};
        quorum_client second{quorum.sources(), quorum.options(patient())};
        auto held = first.acquire("job");
        CHECK_FALSE(second.try_acquire_for("job", 100ms));
        std::atomic<bool> got{false};
        std::optional<quorum_lease> waited;
        std::jthread waiter{[&] {
            waited = second.try_acquire_for("job", support::patience);
            got = true;
        }};
        client observer{quorum.member(0).source(), quorum.member(0).options()};
        REQUIRE(eventually([&] { return observer.waiters("job").size() == 1; }));
        CHECK_FALSE(got);
        const auto token = held.token();
        held.release();
        waiter.join();
        REQUIRE(waited);
        CHECK(waited->held());
        CHECK(waited->token() > token);
    }
}

ROWLOCK_SIMULATED_QUORUM_CASE("a stop ends the wait for a quorum lock, and nothing stays behind",
                              quorum) {
    quorum_client first{quorum.sources(), quorum.options(patient())};
    quorum_client second{quorum.sources(), quorum.options(patient())};
    const auto held = first.acquire("job");
    client observer{quorum.member(0).source(), quorum.member(0).options()};
    std::jthread waiter{
        [&](const std::stop_token& stop) { CHECK_FALSE(second.acquire("job", stop)); }};
    REQUIRE(eventually([&] { return observer.waiters("job").size() == 1; }));
    waiter.request_stop();
    waiter.join();
    for (std::size_t member = 0; member < 3; ++member) {
        CHECK(eventually([&] {
            return quorum.member(member).number("select count(*) from rowlock_ticket") == 0;
        }));
    }
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "a quorum lock works without one of its members, and counts it again when it is back", quorum) {
    quorum_client locks{quorum.sources(), quorum.options({.ttl = 8s, .heartbeat = 300ms})};
    auto held = locks.acquire("job");
    REQUIRE(eventually([&] { return held.counted() == 3; }));
    for (std::size_t away = 0; away < 3; ++away) {
        cut(quorum, away);
        CHECK(eventually([&] { return held.counted() == 2; }));
        CHECK(held.held());
        const auto token = held.token();
        held.release();
        held = locks.acquire("job");
        CHECK(held.counted() == 2);
        CHECK(held.token() > token);
        mend(quorum, away);
        CHECK(eventually([&] { return held.counted() == 3; }));
        CHECK(held.held());
    }
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "a quorum lock is lost without a majority, in time, and does not come back", quorum) {
    quorum_client locks{quorum.sources(), quorum.options({.ttl = 8s, .heartbeat = 300ms})};
    const auto held = locks.acquire("job");
    REQUIRE(eventually([&] { return held.counted() == 3; }));
    std::atomic<bool> heard{false};
    const std::stop_callback callback{held.lost(), [&] { heard = true; }};
    const auto began = std::chrono::steady_clock::now();
    cut(quorum, 0);
    cut(quorum, 2);
    CHECK(eventually([&] { return !held.held(); }));
    CHECK(std::chrono::steady_clock::now() - began < 14s);
    CHECK(eventually([&] { return heard.load(); }));
    CHECK_FALSE(locks.try_acquire_for("job", 300ms));
    mend(quorum, 0);
    mend(quorum, 2);
    const auto again = locks.acquire("job");
    CHECK(again.held());
    CHECK(again.token() > held.token());
    CHECK_FALSE(held.held());
}

TEST_CASE("what is left of a quorum lock is never more than its ttl, whenever its time ends") {
    ROWLOCK_FOR_A_QUORUM(quorum) {
        const auto clock = std::make_shared<sudden_clock>();
        const auto ttl = patient().ttl;
        quorum_client locks{quorum.sources(), quorum.options({.ttl = ttl, .time = clock})};
        // The time ends at the first reading of the clock within remaining(), at the second, ….
        int readings = 0;
        for (bool reached = true; reached; ++readings) {
            CAPTURE(readings);
            const auto held = locks.try_acquire_for("job", support::patience);
            REQUIRE(held);
            REQUIRE(eventually([&] { return held->counted() == 3; }));
            clock->jump_after(readings, 10 * ttl);
            CHECK(held->remaining() <= ttl);
            reached = clock->disarm();
            if (reached) CHECK_FALSE(held->held());
        }
        CHECK(readings > 4);
    }
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "a member whose lease was broken is counted again; two broken ones end the hold", quorum) {
    quorum_client locks{quorum.sources(), quorum.options({.ttl = 20s, .heartbeat = 300ms})};
    const auto held = locks.acquire("job");
    REQUIRE(eventually([&] { return held.counted() == 3; }));
    client first{quorum.member(0).source(), quorum.member(0).options()};
    client second{quorum.member(1).source(), quorum.member(1).options()};
    CHECK(first.force_release("job"));
    CHECK(eventually([&] { return first.is_locked("job") && held.counted() == 3; }));
    CHECK(held.held());
    // Others are in line there before this client asks again.
    std::optional<lease> taken, also_taken;
    std::jthread thief{[&] { taken = first.try_acquire_for("job", 15s); }};
    std::jthread other{[&] { also_taken = second.try_acquire_for("job", 15s); }};
    REQUIRE(eventually(
        [&] { return first.waiters("job").size() == 1 && second.waiters("job").size() == 1; }));
    CHECK(first.force_release("job"));
    CHECK(second.force_release("job"));
    CHECK(eventually([&] { return !held.held(); }));
    CHECK(eventually([&] { return held.lost().stop_requested(); }));
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "minorities give way: clients that each hold one member end with one holder", quorum) {
    std::vector<std::unique_ptr<quorum_client>> clients;
    for (int i = 0; i < 3; ++i) {
        clients.push_back(std::make_unique<quorum_client>(
            quorum.sources(), quorum.options({.ttl = 6s, .heartbeat = 300ms})));
    }
    // Each client asks another member first: the others' answers are held back.
    std::atomic<int> inside{0};
    std::atomic<int> overlaps{0};
    std::atomic<int> served{0};
    std::vector<std::jthread> threads;
    for (auto& each : clients) {
        threads.emplace_back([&, locks = each.get()] {
            for (int i = 0; i < 10; ++i) {
                const auto held = locks->acquire("job");
                if (++inside > 1) ++overlaps;
                --inside;
                ++served;
            }
        });
    }
    threads.clear();
    CHECK(served == 30);
    CHECK(overlaps == 0);
}

TEST_CASE("a token is claimed only under the grant, the epoch and the server that may vote") {
    ROWLOCK_FOR_A_QUORUM(quorum) {
        auto& member = quorum.member(0);
        const auto protocol = quorum.protocol(0);
        const protocol::known_quorum known{"test", 1};
        const support::protocol_session ours{member, session_id{101}, {.ttl = 25s}};
        const support::protocol_session other{member, session_id{102}, {.ttl = 25s}};
        REQUIRE(ours.try_acquire("job", grant_id{11}));
        const auto db = member.connect();
        const auto raise = [&](const auto& grant, const auto& under,
                               std::optional<std::int64_t> token = {}) {
            return protocol.raise(*db, grant, under, token, soon());
        };
        CHECK(raise(key(session_id{101}, 11), known) == 1);
        CHECK(raise(key(session_id{101}, 11), known) == 2);
        CHECK(raise(key(session_id{101}, 11), known, 10) == 10);
        CHECK(raise(key(session_id{101}, 11), known, 5) == 10);
        CHECK(raise(key(session_id{101}, 11), known) == 11);
        protocol.seal(*db, "job", 20, "test", soon());
        protocol.seal(*db, "job", 15, "test", soon());
        protocol.seal(*db, "job", 99, "another", soon());
        CHECK(known_token(quorum, 0) == 20);

        CHECK_FALSE(raise(key(session_id{101}, 12), known));  // another grant
        CHECK_FALSE(raise(key(session_id{102}, 11), known));  // another session
        CHECK_FALSE(raise(key(session_id{101}, 11), protocol::known_quorum{"test", 2}));
        CHECK_FALSE(raise(key(session_id{101}, 11), protocol::known_quorum{"test", 0}));
        CHECK_FALSE(raise(key(session_id{101}, 11), protocol::known_quorum{"other", 1}));
        member.run("update rowlock_member set ready_for = 'former'");
        CHECK_FALSE(raise(key(session_id{101}, 11), known));
        quorum.join(0, 1);
        member.run("update rowlock_member set max_ttl_us = 5000000");  // the session's is longer
        CHECK_FALSE(raise(key(session_id{101}, 11), known));
        quorum.join(0, 1);
        member.run("update rowlock_member set ready_for = ''");
        CHECK_FALSE(raise(key(session_id{101}, 11), known));
        quorum.join(0, 1);
        CHECK(raise(key(session_id{101}, 11), known) == 21);
        member.run("update rowlock_member set floor = 1000");
        CHECK(raise(key(session_id{101}, 11), known) == 1001);
        ours.end();
        CHECK_FALSE(raise(key(session_id{101}, 11), known));
        CHECK(known_token(quorum, 0) == 1001);
    }
}

TEST_CASE("a rise of the epoch waits for a claim in progress, and later ones are refused") {
    ROWLOCK_FOR_A_QUORUM(quorum) {
        auto& member = quorum.member(0);
        const auto protocol = quorum.protocol(0);
        const support::protocol_session ours{member, session_id{101}, {.ttl = 25s}};
        REQUIRE(ours.try_acquire("job", grant_id{11}));
        const auto claims = member.connect();
        const auto raises = member.connect();
        claims->query("begin", soon());
        CHECK(protocol.raise(*claims, key(session_id{101}, 11), {"test", 1}, {}, soon()));
        std::atomic<bool> raised{false};
        std::jthread thread{[&] {
            CHECK(protocol.raise_epoch(*raises, quorum.membership(2), soon()));
            raised = true;
        }};
        CHECK(support::somebody_waits_for_a_row(member));
        CHECK_FALSE(raised);
        claims->query("commit", soon());
        thread.join();
        // What was claimed before is in the list of those that are asked for.
        const auto held = protocol.leases(*raises, soon());
        REQUIRE(held.size() == 1);
        CHECK(held[0].name == "job");
        CHECK_FALSE(protocol.raise(*claims, key(session_id{101}, 11), {"test", 1}, {}, soon()));
        CHECK(protocol.raise(*claims, key(session_id{101}, 11), {"test", 2}, {}, soon()) == 2);
        CHECK_FALSE(protocol.raise_epoch(*raises, quorum.membership(2), soon()));
    }
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "a server that is not the member that voted does not count until it is readmitted", quorum) {
    const auto ttl = 8s;
    quorum.shorten(ttl);
    const auto options = quorum.options({.ttl = ttl, .heartbeat = 300ms, .margin = 100ms});
    quorum_client locks{quorum.sources(), options};
    std::int64_t last = 0;
    for (int i = 0; i < 3; ++i) last = locks.acquire("job").token().value();
    // The member forgets what it knew, and is another server now.
    quorum.member(0).run("delete from rowlock_quorum");
    replace_server(quorum, 0);
    {
        quorum_client fresh{quorum.sources(), options};
        const auto held = fresh.acquire("job");
        CHECK(held.counted() == 2);
        CHECK(held.token().value() > last);
        last = held.token().value();
        CHECK(eventually([&] { return !fresh.members()[0].problem.empty(); }));
        CHECK_FALSE(fresh.members()[0].votes);

        rowlock::detail::readmit(quorum.sources(), 0, false);
        // The readmission has taken the lock from its holder, which may have counted the former
        // server.
        CHECK(eventually([&] { return !held.held(); }));
    }
    for (const auto& each : inspect_quorum(quorum.sources())) CHECK(each.votes);
    // This client knew the epoch before, and learns of the new one.
    auto held = locks.acquire("job");
    CHECK(held.token().value() > last);
    CHECK(eventually([&] { return held.counted() == 3; }));
    last = held.token().value();
    held.release();
    // Without another member the readmitted one must know what it had forgotten.
    cut(quorum, 1);
    held = locks.acquire("job");
    CHECK(held.token().value() > last);
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "a readmission needs a majority of the other members, and changes nothing without it", quorum) {
    quorum.shorten(1s);
    replace_server(quorum, 0);
    CHECK(kind_of([&] { rowlock::detail::readmit(quorum.sources(), 2, false); }) ==
          errc::conflict);  // it votes
    quorum.member(1).run("update rowlock_member set ready_for = ''");
    CHECK(kind_of([&] { rowlock::detail::readmit(quorum.sources(), 0, false); }) == errc::conflict);
    CHECK(quorum.member(2).number("select epoch from rowlock_member") == 1);
    CHECK(kind_of([&] { readmit_member(quorum.sources(), 7); }) == errc::invalid_options);
}

TEST_CASE("a transaction beside a member commits only under the quorum lock") {
    ROWLOCK_FOR_A_QUORUM(quorum) {
        auto& member = quorum.member(0);
        member.run("create table rowlock_data (n int)");
        quorum_client locks{quorum.sources(), quorum.options(patient())};
        const auto held = locks.acquire("job");
        REQUIRE(eventually([&] { return held.counted() == 3; }));
        const auto db = member.source().connect(soon());
        const auto insert = sql::qualify("insert into rowlock_data values (1)", member.speaks(),
                                         member.source().tables());
        db->query("begin", soon());
        fence(*db, held, 0, {.statement_timeout = 20s});
        db->query(insert, soon());
        db->query("commit", soon());
        CHECK(member.number("select count(*) from rowlock_data") == 1);

        // Another holder is known here, although the lease is still ours.
        quorum.protocol(0).seal(member.admin(), "job", held.token().value() + 1, "test", soon());
        db->query("begin", soon());
        CHECK(kind_of([&] { fence(*db, held, 0); }) == errc::lock_lost);
        db->query("rollback", soon());
        // Control: the member's lease alone would have let it through.
        client observer{member.source(), member.options()};
        const auto row = observer.inspect("job");
        REQUIRE(row);
        REQUIRE(row->holder);
        CHECK(row->holder->remaining > 0ms);

        CHECK(kind_of([&] { fence(*db, held, 9); }) == errc::invalid_options);
        CHECK(kind_of([&] { fence(*db, held, 0, {.two_phase = true}); }) == errc::invalid_options);
        CHECK(kind_of([&] { fence(*db, quorum_lease{}, 0); }) == errc::not_owner);
        CHECK(kind_of([&] { fence(*db, held, 1); }) ==
              errc::invalid_options);  // outside a transaction
        member.run("drop table rowlock_data");
    }
}

TEST_CASE("a member that knows too much, and always answers late, refuses one hold's guard") {
    ROWLOCK_FOR_A_QUORUM(quorum) {
        auto& member = quorum.member(0);
        // As a claim whose reply was lost leaves it.
        quorum.protocol(0).seal(member.admin(), "job", 5, "test", soon());
        std::mutex mutex;
        std::shared_future<void> belief;
        quorum.calls(0).before([&](std::string_view what) {
            if (what != "raise_quorum_token") return;
            const auto until = [&] {
                const std::lock_guard lock{mutex};
                return belief;
            }();
            until.wait_for(support::patience);
        });
        quorum_client locks{quorum.sources(), quorum.options(patient())};
        const auto acquire = [&] {
            std::promise<void> believed;
            {
                const std::lock_guard lock{mutex};
                belief = believed.get_future().share();
            }
            auto held = locks.acquire("job");
            believed.set_value();
            CHECK(eventually([&] { return held.counted() == 3; }));
            return held;
        };
        const auto db = member.source().connect(soon());
        const auto fences = [&](const quorum_lease& held) {
            db->query("begin", soon());
            const auto kind = kind_of([&] { fence(*db, held, 0); });
            db->query("rollback", soon());
            return kind;
        };
        auto held = acquire();
        CHECK(fences(held) == errc::lock_lost);
        held.release();
        held = acquire();
        CHECK(fences(held) == errc{});
    }
}

TEST_CASE("a fenced transaction keeps later tokens out until it ends") {
    ROWLOCK_FOR_A_QUORUM(quorum) {
        auto& member = quorum.member(0);
        quorum_client locks{quorum.sources(), quorum.options(patient())};
        const auto held = locks.acquire("job");
        REQUIRE(eventually([&] { return held.counted() == 3; }));
        const auto db = member.source().connect(soon());
        db->query("begin", soon());
        fence(*db, held, 0, {.statement_timeout = 20s});
        const auto seals = member.connect();
        std::atomic<bool> sealed{false};
        std::jthread thread{[&] {
            quorum.protocol(0).seal(*seals, "job", held.token().value() + 1, "test", soon());
            sealed = true;
        }};
        CHECK(support::somebody_waits_for_a_row(member));
        CHECK_FALSE(sealed);
        db->query("commit", soon());
        thread.join();
    }
}

TEST_CASE("members that cannot be a quorum are refused, with what to do") {
    support::lock_database sqlite{support::backend::sqlite};
    const auto of_sqlite = [&] { return std::vector<sql::connection_source>(3, sqlite.source()); };
    if (sqlite.there()) {
        CHECK(kind_of([&] { quorum_client{of_sqlite()}; }) == errc::unsupported);
        CHECK(kind_of([&] { found_quorum(of_sqlite()); }) == errc::unsupported);
    }
    ROWLOCK_FOR_A_QUORUM(quorum) {
        auto two = quorum.sources();
        two.pop_back();
        CHECK(kind_of([&] { quorum_client{two}; }) == errc::invalid_options);
        CHECK(kind_of([&] {
                  quorum_client{quorum.sources(), quorum_options{.member = {.owner = "me"}}};
              }) == errc::invalid_options);
        // The members share a server here.
        for (std::size_t i = 0; i < 3; ++i) quorum.member(i).run("delete from rowlock_member");
        CHECK(kind_of([&] { found_quorum(quorum.sources()); }) == errc::conflict);
        quorum_client locks{quorum.sources(), quorum.options(patient())};
        CHECK(kind_of([&] { static_cast<void>(locks.acquire("job")); }) == errc::conflict);
        for (std::size_t i = 0; i < 3; ++i) quorum.join(i, 1, 10s);
        CHECK(kind_of([&] { static_cast<void>(locks.acquire("job")); }) == errc::invalid_options);
        for (std::size_t i = 0; i < 3; ++i) {
            quorum.member(i).run("update rowlock_member set quorum = '" + std::to_string(i) + "'");
        }
        quorum_client fresh{quorum.sources(), quorum.options({.ttl = 5s})};
        CHECK(kind_of([&] { static_cast<void>(fresh.acquire("job")); }) == errc::conflict);
    }
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "a quorum client that is destroyed leaves inert holds and free members", quorum) {
    std::optional<quorum_lease> held;
    {
        quorum_client locks{quorum.sources(), quorum.options(patient())};
        held.emplace(locks.acquire("job"));
        CHECK(held->held());
    }
    CHECK_FALSE(held->held());
    quorum_client next{quorum.sources(), quorum.options(patient())};
    const auto got = next.try_acquire_for("job", support::patience);
    REQUIRE(got);
    CHECK(got->token() > held->token());
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "lost() of a quorum lock fires on a thread of its own, and when the client is destroyed",
    quorum) {
    auto locks = std::make_unique<quorum_client>(quorum.sources(),
                                                 quorum.options({.ttl = 3s, .heartbeat = 300ms}));
    std::mutex mutex;
    std::atomic<int> heard{0};
    const auto first = locks->acquire("job");
    const std::stop_callback callback{first.lost(), [&] {
                                          const std::lock_guard lock{mutex};
                                          ++heard;
                                      }};
    cut(quorum, 0);
    cut(quorum, 1);
    {
        // A callback on this thread would wait for itself.
        const std::lock_guard lock{mutex};
        CHECK(eventually([&] { return !first.held(); }));
    }
    CHECK(eventually([&] { return heard == 1; }));
    mend(quorum, 0);
    mend(quorum, 1);
    const auto second = locks->acquire("job");
    const std::stop_callback another{second.lost(), [&] { ++heard; }};
    locks.reset();
    CHECK(eventually([&] { return heard == 2; }));
    CHECK_FALSE(second.held());
}

ROWLOCK_SIMULATED_QUORUM_CASE("a quorum client that is destroyed ends the waits of its callers",
                              quorum) {
    quorum_client holder{quorum.sources(), quorum.options(patient())};
    auto waits = std::make_unique<quorum_client>(quorum.sources(), quorum.options(patient()));
    const auto held = holder.acquire("job");
    std::jthread waiter{[locks = waits.get()] {
        const auto asks = [&] {
            static_cast<void>(locks->try_acquire_for("job", support::patience));
        };
        CHECK(kind_of(asks) == errc::lock_lost);
    }};
    client observer{quorum.member(0).source(), quorum.member(0).options()};
    REQUIRE(eventually([&] { return observer.waiters("job").size() == 1; }));
    waits.reset();
    waiter.join();
    CHECK(held.held());
}

ROWLOCK_SIMULATED_QUORUM_CASE(
    "a failure of a member in the past does not end a later wait for a quorum lock", quorum) {
    quorum_client locks{quorum.sources(), quorum.options({.ttl = 6s})};
    static_cast<void>(locks.acquire("job"));
    for (std::size_t i = 0; i < 3; ++i) cut(quorum, i);
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire_for("job", 30s)); }) ==
          errc::database_unreachable);
    for (std::size_t i = 0; i < 3; ++i) mend(quorum, i);
    CHECK(locks.acquire("job").held());
}
