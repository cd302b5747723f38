// Elections: one leader among candidates, terms that rise, priorities, stepping down in favour of a
// candidate, and observers.
// shows: promise-16

#include "lock/protocol/election/election_protocol.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
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

namespace {

std::int64_t entries(support::lock_database& database) {
    return database.number("select count(*) from rowlock_ticket");
}

/// Polls so seldom that only a wake-up can end a wait within the time of a test.
client_options sleepy(const support::lock_database& database) {
    return database.options({.poll_interval = 1h});
}

/// A process of its own: a client, and its candidacy once it campaigns.
class candidate {
public:
    candidate(support::lock_database& database, std::string value, int priority = 0,
              interception* network = nullptr)
        : database_{database},
          locks_{network != nullptr ? network->wrap(database.source()) : database.source(),
                 sleepy(database)},
          office_{locks_, "office", {.value = std::move(value), .priority = priority}} {}
    candidate(const candidate&) = delete;
    candidate& operator=(const candidate&) = delete;
    ~candidate() { stop_.request_stop(); }

    /// Returns once it is in the queue.
    void campaign() {
        const auto before = entries(database_);
        term_ =
            std::async(std::launch::async, [this] { return office_.campaign(stop_.get_token()); });
        REQUIRE(eventually([&] { return entries(database_) == before + 1; }));
    }
    /// Its leadership, or none if it does not lead in time.
    std::optional<leadership> term(std::chrono::milliseconds time = 20s) {
        if (term_.wait_for(time) != std::future_status::ready) return std::nullopt;
        return term_.get();
    }
    [[nodiscard]] bool leads(std::chrono::milliseconds time = 20s) const {
        return term_.wait_for(time) == std::future_status::ready;
    }
    void give_up() {
        stop_.request_stop();
        term_.wait();
    }
    [[nodiscard]] election& office() { return office_; }
    [[nodiscard]] client& locks() { return locks_; }

private:
    support::lock_database& database_;
    client locks_;
    election office_;
    std::stop_source stop_;
    std::future<std::optional<leadership>> term_;
};

/// The session of the candidate with this value.
session_id session_of(election& office, std::string_view value) {
    for (const auto& each : office.candidates()) {
        if (each.value == value) return each.session;
    }
    FAIL("no such candidate");
    return {};
}

std::vector<std::string> values_of(election& office) {
    std::vector<std::string> values;
    for (const auto& each : office.candidates()) values.push_back(each.value);
    return values;
}

/// Lets a session expire, as if its process had vanished.
void expire(support::lock_database& database, session_id session) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    database.run("update rowlock_session set expires_at = expires_at - " +
                 std::string{postgresql ? "interval '1 day'" : "86400000000"} +
                 " where id = " + to_string(session));
}

}  // namespace

TEST_CASE("one candidate leads, the others wait, and terms rise") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        candidate a{database, "a"};
        candidate b{database, "b"};
        CHECK_FALSE(b.office().leader().has_value());
        auto first = a.office().try_campaign();
        REQUIRE(first);
        CHECK(first->held());
        CHECK_FALSE(first->lost().stop_requested());
        CHECK_FALSE(b.office().try_campaign().has_value());
        CHECK_FALSE(b.office().try_campaign_for(1ms).has_value());
        REQUIRE(eventually([&] { return entries(database) == 0; }));
        const auto seen = b.office().leader();
        REQUIRE(seen);
        CHECK(seen->term == first->term());
        CHECK(seen->value == "a");
        CHECK(seen->who.session == first->lease().session_id());
        b.campaign();
        CHECK(values_of(a.office()) == std::vector<std::string>{"b"});
        first->step_down();
        CHECK_FALSE(first->held());
        CHECK_NOTHROW(first->step_down());  // again
        const auto second = b.term();
        REQUIRE(second);
        CHECK(second->term() > seen->term);
        CHECK(a.office().leader()->value == "b");
        CHECK(a.office().candidates().empty());
    }
}

TEST_CASE("the candidate with the greatest priority leads next, of several the first") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        candidate leader{database, "leader"};
        candidate reserve{database, "reserve", -1};
        candidate usual{database, "usual"};
        candidate best{database, "best", 7};
        candidate second_best{database, "second best", 7};
        auto term = leader.office().try_campaign();
        REQUIRE(term);
        for (auto* each : {&reserve, &usual, &best, &second_best}) each->campaign();
        CHECK(values_of(leader.office()) ==
              std::vector<std::string>{"best", "second best", "usual", "reserve"});
        // Without a detour over those whose tickets are older.
        const auto db = database.connect();
        const auto first = protocol::election_protocol{database.statements()}.next(
            *db, "office", {}, support::soon());
        REQUIRE(first);
        CHECK(first->entry.note == "best");
        SUBCASE("the leader steps down") {
            term->step_down();
        }
        SUBCASE("the leader releases the lease, and the first of the queue hands it on") {
            term.reset();
        }
        SUBCASE("the lease is taken from the leader by force") {
            REQUIRE(leader.locks().force_release("office"));
        }
        auto next = best.term();
        REQUIRE(next);
        CHECK_FALSE(reserve.leads(30ms));
        CHECK(leader.office().leader()->value == "best");
        next->step_down();
        next = second_best.term();
        REQUIRE(next);
        next->step_down();
        next = usual.term();
        REQUIRE(next);
        next->step_down();
        CHECK(reserve.term().has_value());
        CHECK(entries(database) == 0);
    }
}

TEST_CASE("a leader steps down in favour of one candidate, whatever its place") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        candidate leader{database, "leader"};
        candidate early{database, "early", 5};
        candidate late{database, "late"};
        auto term = leader.office().try_campaign();
        REQUIRE(term);
        early.campaign();
        late.campaign();
        // Not a candidate: nothing happens.
        CHECK_FALSE(term->step_down(session_id{17}));
        CHECK_FALSE(term->step_down(term->lease().session_id()));
        CHECK(term->held());
        CHECK(leader.office().leader()->value == "leader");
        const auto first_term = term->term();
        CHECK(term->step_down(session_of(leader.office(), "late")));
        CHECK_FALSE(term->held());
        auto next = late.term();
        REQUIRE(next);
        CHECK(next->term() > first_term);
        CHECK_FALSE(early.leads(30ms));
        CHECK_FALSE(term->step_down(session_of(leader.office(), "early")));  // it leads no more
        CHECK(leader.office().leader()->value == "late");
        // The entry that was overtaken is still served.
        next->step_down();
        CHECK(early.term().has_value());
    }
}

TEST_CASE("of three hundred candidates the last is chosen, and the others are served in order") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    candidate leader{database, "leader"};
    auto term = leader.office().try_campaign();
    REQUIRE(term);
    candidate first{database, "first"};
    first.campaign();
    // Tickets that were drawn and cancelled: those behind are more than the queue's look-back away.
    for (int i = 0; i < 300; ++i)
        database.run("select nextval(pg_get_serial_sequence('" + database.prefix() +
                     "ticket', 'ticket'))");
    candidate last{database, "last"};
    last.campaign();
    CHECK(term->step_down(session_of(leader.office(), "last")));
    auto next = last.term();
    REQUIRE(next);
    next->step_down();
    CHECK(first.leads());
}

TEST_CASE("a candidate that leaves at the last moment gets nothing, and the next one leads") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        candidate leader{database, "leader", 0, &network};
        candidate leaving{database, "leaving"};
        candidate staying{database, "staying"};
        auto term = leader.office().try_campaign();
        REQUIRE(term);
        leaving.campaign();
        staying.campaign();
        const auto to = session_of(leader.office(), "leaving");
        std::atomic<bool> once{false};
        network.after([&](std::string_view what) {
            if (what != "candidate" || once.exchange(true)) return;
            leaving.give_up();
            // On a busy machine its call returns before its entry is deleted.
            CHECK(eventually([&] { return entries(database) == 1; }));
        });
        CHECK_FALSE(term->step_down(to));
        CHECK(once);
        CHECK_FALSE(term->held());
        CHECK(staying.leads());
        CHECK(leader.office().leader()->value == "staying");
    }
}

TEST_CASE("a term counts as held once its call returns it, and not while others are looked for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()), database.options()};
        election office{locks, "office", {.value = "leader"}};
        std::atomic<int> looks{0};
        std::atomic<int> early{0};
        network.after([&](std::string_view what) {
            if (what != "candidate") return;
            ++looks;
            if (locks.holds("office")) ++early;
        });
        const auto term = office.try_campaign();
        REQUIRE(term);
        CHECK(locks.holds("office"));
        CHECK(looks > 0);
        CHECK(early == 0);
    }
}

ROWLOCK_SIMULATED_CASE("a leader that lost its lease hands over no other client's", database) {
    interception network;
    candidate leader{database, "leader", 0, &network};
    candidate usurper{database, "usurper"};
    candidate waiting{database, "waiting"};
    auto term = leader.office().try_campaign();
    REQUIRE(term);
    waiting.campaign();
    const auto to = session_of(leader.office(), "waiting");
    std::optional<lease> taken;
    const auto take = [&] {
        // Past the queue: the row goes from the one grant to another.
        REQUIRE(usurper.locks().force_release("office"));
        taken = usurper.locks().try_acquire("office", {.queueing = queueing::barging});
    };
    SUBCASE("before it looks for candidates") {
        std::atomic<bool> once{false};
        network.before([&](std::string_view what) {
            if (what == "candidate" && !once.exchange(true)) take();
        });
    }
    SUBCASE("after it has found one") {
        std::atomic<bool> once{false};
        network.after([&](std::string_view what) {
            if (what == "candidate" && !once.exchange(true)) take();
        });
    }
    // The waiter may have been served between the two, by its own client; then it is no
    // candidate.
    const auto failed = kind_of([&] { static_cast<void>(term->step_down(to)); });
    if (taken) {
        CHECK(failed == errc::lock_lost);
        CHECK(usurper.locks().inspect("office")->token == taken->token());
        CHECK(taken->held());
        CHECK_NOTHROW(taken->release());
    }
    CHECK(waiting.leads());
}

ROWLOCK_SIMULATED_CASE("after a lost reply a leader has stepped down once, and knows for whom",
                       database) {
    interception network;
    candidate leader{database, "leader", 0, &network};
    candidate early{database, "early"};
    candidate late{database, "late"};
    auto term = leader.office().try_campaign();
    REQUIRE(term);
    early.campaign();
    late.campaign();
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    const std::string_view last = postgresql ? "hand_over_to" : "commit";
    std::atomic<bool> once{false};
    SUBCASE("the reply is lost") {
        network.after([&](std::string_view what) {
            if (what == last && !once.exchange(true)) interception::lose_reply();
        });
    }
    SUBCASE("the request is lost") {
        network.before([&](std::string_view what) {
            if (what == last && !once.exchange(true)) interception::refuse_to_send();
        });
    }
    CHECK(term->step_down(session_of(leader.office(), "late")));
    CHECK(once);
    CHECK(late.leads());
    CHECK_FALSE(early.leads(30ms));
}

TEST_CASE("a leader changes its value, as long as it leads") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        candidate a{database, "old"};
        candidate b{database, "b"};
        auto term = a.office().try_campaign();
        REQUIRE(term);
        term->proclaim("new");
        term->proclaim("new");  // again
        CHECK(b.office().leader()->value == "new");
        CHECK(b.office().leader()->term == term->term());
        term->proclaim("");
        CHECK(b.office().leader()->value.empty());
        CHECK(kind_of([&] { term->proclaim(std::string(1001, 'x')); }) == errc::invalid_options);
        SUBCASE("it has stepped down") {
            term->step_down();
            CHECK(kind_of([&] { term->proclaim("late"); }) == errc::not_owner);
        }
        SUBCASE("it has lost the lease and does not know") {
            REQUIRE(b.locks().force_release("office"));
            const auto next = b.office().try_campaign();
            REQUIRE(next);
            CHECK(kind_of([&] { term->proclaim("late"); }) == errc::lock_lost);
            CHECK_FALSE(term->held());
            CHECK(a.office().leader()->value == "b");
        }
    }
}

TEST_CASE("an observer sees each leader, its value, and that there is none") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        candidate a{database, "a"};
        candidate b{database, "b"};
        client observer{database.source(), database.options()};
        election office{observer, "office"};
        auto changes = office.observe({.poll_interval = 10ms});
        auto seen = changes.next();
        REQUIRE(seen);
        CHECK(seen->term.value() == 0);
        CHECK_FALSE(seen->leader.has_value());
        CHECK_FALSE(changes.next_for(30ms).has_value());  // nothing has changed

        auto term = a.office().try_campaign();
        REQUIRE(term);
        seen = changes.next_for(20s);
        REQUIRE(seen);
        REQUIRE(seen->leader);
        CHECK(seen->term == term->term());
        CHECK(seen->leader->term == term->term());
        CHECK(seen->leader->value == "a");

        term->proclaim("a at another port");
        seen = changes.next_for(20s);
        REQUIRE(seen);
        REQUIRE(seen->leader);
        CHECK(seen->leader->value == "a at another port");

        b.campaign();
        term->step_down();
        seen = changes.next_for(20s);
        REQUIRE(seen);
        REQUIRE(seen->leader);
        CHECK(seen->leader->value == "b");
        CHECK(seen->term > term->term());

        // It dies: vacant from the moment at which its session expires.
        const auto next = b.term();
        REQUIRE(next);
        expire(database, next->lease().session_id());
        seen = changes.next_for(20s);
        REQUIRE(seen);
        CHECK_FALSE(seen->leader.has_value());
        CHECK(seen->term == next->term());
        CHECK_FALSE(office.leader().has_value());
        // The observer took no part: it has no session.
        CHECK(observer.stats().sessions == 0);
    }
}

ROWLOCK_SIMULATED_CASE("a stop, the end of the client and a bad connection end an observer's wait",
                       database) {
    interception network;
    auto observer = std::make_unique<client>(network.wrap(database.source()),
                                             database.options({.retry = {.attempts = 1}}));
    auto changes = observer->watch("office", {.poll_interval = 10ms});
    REQUIRE(changes.next());
    std::stop_source stop;
    auto waiting = std::async(std::launch::async, [&] { return changes.next(stop.get_token()); });
    CHECK(waiting.wait_for(30ms) == std::future_status::timeout);
    stop.request_stop();
    CHECK_FALSE(waiting.get().has_value());

    network.before([](std::string_view what) {
        if (what == "inspect") interception::refuse_to_send();
    });
    CHECK(kind_of([&] { static_cast<void>(changes.next()); }) == errc::database_unreachable);
    network.before({});
    CHECK_FALSE(changes.next_for(30ms).has_value());  // it goes on

    auto abandoned = std::async(
        std::launch::async, [&] { return kind_of([&] { static_cast<void>(changes.next()); }); });
    CHECK(abandoned.wait_for(30ms) == std::future_status::timeout);
    observer.reset();
    CHECK(abandoned.get() == errc::lock_lost);
    CHECK(kind_of([&] { static_cast<void>(changes.next()); }) == errc::lock_lost);
}

TEST_CASE("a watch shows the holders of any lock, and no change twice") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        client observer{database.source(), database.options()};
        auto changes = observer.watch("job", {.poll_interval = 10ms});
        auto seen = changes.next();
        REQUIRE(seen);
        CHECK(seen->name == "job");
        CHECK_FALSE(seen->holder.has_value());
        auto held = locks.acquire("job", {.note = "run 1"});
        seen = changes.next_for(20s);
        REQUIRE(seen);
        REQUIRE(seen->holder);
        CHECK(seen->holder->note == "run 1");
        CHECK(seen->token == held.token());
        held.release();
        seen = changes.next_for(20s);
        REQUIRE(seen);
        CHECK_FALSE(seen->holder.has_value());
        CHECK_FALSE(changes.next_for(30ms).has_value());
        // Between two looks: only the latest.
        for (int i = 2; i < 5; ++i) locks.acquire("job").release();
        held = locks.acquire("job", {.note = "run 5"});
        seen = changes.next_for(20s);
        REQUIRE(seen);
        REQUIRE(seen->holder);
        CHECK(seen->holder->note == "run 5");
    }
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client locks{database.source(), database.options()};
    CHECK(kind_of([&] { static_cast<void>(locks.watch("job", {.poll_interval = 9ms})); }) ==
          errc::invalid_options);
}

TEST_CASE("a watch shows no change when the holder extends its lease; control: another holder") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        client observer{database.source(), database.options()};
        auto changes = observer.watch("job", {.poll_interval = 10ms});
        auto held = locks.acquire("job", {.max_duration = 30s});
        auto seen = changes.next();
        REQUIRE(seen);
        REQUIRE(seen->holder);
        held.extend(1h);
        CHECK_FALSE(changes.next_for(30ms).has_value());
        held.release();
        held = locks.acquire("job", {.max_duration = 30s});
        const auto next = changes.next_for(20s);
        REQUIRE(next);
        REQUIRE(next->holder);
        CHECK(next->holder->grant_id != seen->holder->grant_id);
    }
}

ROWLOCK_SIMULATED_CASE("lead() campaigns again after a loss, and ends with the work or a stop",
                       database) {
    client locks{database.source(), database.watchful()};
    client other{database.source(), database.options()};
    election office{locks, "office", {.value = "a"}};
    std::vector<fencing_token> terms;
    CHECK(office.lead({}, [&](leadership& term) {
        terms.push_back(term.term());
        if (terms.size() > 1) return;
        REQUIRE(other.force_release("office"));
        REQUIRE(eventually([&] { return !term.held(); }));
    }));
    REQUIRE(terms.size() == 2);
    CHECK(terms[1] > terms[0]);
    CHECK_FALSE(office.leader().has_value());

    CHECK_THROWS_AS(office.lead({}, [](leadership&) { throw std::runtime_error{"no paper"}; }),
                    std::runtime_error);
    CHECK(eventually([&] { return !office.leader().has_value(); }));

    std::stop_source stop;
    const auto held = other.acquire("office");
    auto waiting = std::async(std::launch::async,
                              [&] { return office.lead(stop.get_token(), [](leadership&) {}); });
    CHECK(eventually([&] { return entries(database) == 1; }));
    stop.request_stop();
    CHECK_FALSE(waiting.get());
}

ROWLOCK_SIMULATED_CASE("a candidate for several locks at once is not handed one of them",
                       database) {
    candidate leader{database, "leader"};
    client several{database.source(), sleepy(database)};
    auto term = leader.office().try_campaign();
    REQUIRE(term);
    auto waiting = std::async(std::launch::async, [&] {
        return several.try_acquire_all_for({"office", "other"}, 20s, {.note = "both"});
    });
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    CHECK(leader.office().candidates().empty());
    term->step_down();
    const auto both = waiting.get();
    REQUIRE(both);
    CHECK(both->held());
}

TEST_CASE("values and priorities out of range are refused") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client locks{database.source(), database.options()};
    const auto refused = [&](election_options options) {
        return kind_of([&] {
                   election{locks, "office", std::move(options)};
               }) == errc::invalid_options;
    };
    CHECK(refused({.value = std::string(1001, 'x')}));
    CHECK(refused({.value = std::string{"a\0b", 3}}));
    CHECK(refused({.priority = 1001}));
    CHECK(refused({.priority = -1001}));
    CHECK_FALSE(refused({.value = std::string(1000, 'x'), .priority = 1000}));
}

ROWLOCK_SIMULATED_CASE("what fails after an election costs the term, not the candidacy", database) {
    interception network;
    client other{database.source(), database.options()};
    client locks{network.wrap(database.source()),
                 database.watchful({.retry = {.attempts = 1, .max_backoff = 20ms}})};
    election office{locks, "office", {.value = "a"}};
    std::atomic<int> times{0};
    SUBCASE("the candidates cannot be read") {
        network.before([&](std::string_view what) {
            if (what == "candidate" && ++times <= 2) interception::refuse_to_send();
        });
    }
    SUBCASE("the lease is taken by force meanwhile") {
        network.before([&](std::string_view what) {
            if (what != "candidate" || ++times > 1) return;
            REQUIRE(other.force_release("office"));
            REQUIRE(eventually([&] { return locks.stats().lost == 1; }));
        });
    }
    const auto term = office.try_campaign_for(20s);
    CHECK(times >= 2);
    REQUIRE(term);
    CHECK(term->held());
    CHECK(office.leader()->term == term->term());
}

TEST_CASE("a single attempt that cannot read the candidates fails and keeps nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()), database.options({.retry = {.attempts = 1}})};
        election office{locks, "office"};
        network.before([](std::string_view what) {
            if (what == "candidate") interception::refuse_to_send();
        });
        CHECK(kind_of([&] { static_cast<void>(office.try_campaign()); }) ==
              errc::database_unreachable);
        CHECK(eventually([&] { return !office.leader().has_value(); }));
    }
}

ROWLOCK_SIMULATED_CASE("a leader that steps down while the candidates cannot be read leads no more",
                       database) {
    interception network;
    candidate leader{database, "leader", 0, &network};
    candidate waiting{database, "waiting"};
    auto term = leader.office().try_campaign();
    REQUIRE(term);
    waiting.campaign();
    network.before([](std::string_view what) {
        if (what == "candidate") throw error{errc::access_denied, "made by the test"};
    });
    CHECK_NOTHROW(term->step_down());
    CHECK_FALSE(term->held());
    CHECK(waiting.leads());
}

TEST_CASE("an observer sees a new term of the same grant, and no term that falls") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        candidate leader{database, "leader"};
        client observer{database.source(), database.options()};
        auto changes = election{observer, "office"}.observe({.poll_interval = 10ms});
        auto term = leader.office().try_campaign();
        REQUIRE(term);
        auto seen = changes.next();
        REQUIRE(seen);
        const auto first = seen->term;
        // As reclaim() does: another session's token for the grant that it took over.
        client reclaiming{database.source(), database.options()};
        const auto opens_a_session = reclaiming.acquire("job");
        database.run("update rowlock_lock set token = token + 5, session = " +
                     to_string(opens_a_session.session_id()) + " where name = 'office'");
        seen = changes.next_for(20s);
        REQUIRE(seen);
        CHECK(seen->term.value() == first.value() + 5);
        // As the reaper does with a row that was long free.
        database.run("delete from rowlock_lock where name = 'office'");
        seen = changes.next_for(20s);
        REQUIRE(seen);
        CHECK_FALSE(seen->leader.has_value());
        CHECK(seen->term.value() == first.value() + 5);
        CHECK_FALSE(changes.next_for(30ms).has_value());
    }
}

ROWLOCK_SIMULATED_CASE("work that finds leadership lost by an error leads again", database) {
    client locks{database.source(), database.watchful()};
    client other{database.source(), database.options()};
    election office{locks, "office"};
    int terms = 0;
    CHECK(office.lead({}, [&](leadership& term) {
        if (++terms > 1) return;
        REQUIRE(other.force_release("office"));
        REQUIRE(eventually([&] { return !term.held(); }));
        term.proclaim("late");  // throws
    }));
    CHECK(terms == 2);
    CHECK(kind_of([&] {
              office.lead({}, [](leadership&) { throw error{errc::lock_lost, "another"}; });
          }) == errc::lock_lost);
}
