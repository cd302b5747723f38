// Elections whose leader is killed every two ttl: what the leaders believed and the observers saw
// is compared with the database's records. Part of shared_stress_test.
// shows: promise-16

#include "stress/board.hpp"
#include "stress/crew.hpp"
#include "stress/shared_stress.hpp"
#include "stress/terms.hpp"
#include <rowlock/history.hpp>
#include <rowlock/migrations.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using stress::boot_time;
using stress::chosen;
using stress::wall_time;

namespace {

constexpr milliseconds ttl{400};
/// A killed leader is succeeded within a ttl; the rest is for a busy machine.
constexpr auto longest_vacancy = 10s;

/// The processes of an election.
class election_crew {
public:
    explicit election_crew(support::lock_database& database) : database_{database}, all_{database} {
        rowlock::record_history(database.source(), true);
    }

    stress::member& add(const char* mode) {
        stress::role part;
        part.program = ROWLOCK_ELECTION_WORKER;
        part.mode = mode;
        part.ttl_ms = static_cast<int>(ttl.count());
        part.poll_ms = 100;
        part.words = {"board=" + all_.folder() + "/board", "first=" + std::to_string(next_)};
        auto& made = all_.add(part);
        if (std::string{mode} == "watches" || std::string{mode} == "keeps") {
            observers_.push_back(&made);
        } else {
            candidates_.push_back({&made, next_++});
        }
        return made;
    }
    void add(int count, const char* mode) {
        for (int i = 0; i < count; ++i) add(mode);
    }
    void begin_candidates(int last) {
        for (auto i = candidates_.size() - static_cast<std::size_t>(last); i < candidates_.size();
             ++i) {
            candidates_[i].process->begin();
        }
    }
    void begin_observers() {
        for (auto* each : observers_) each->begin();
    }

    /// The process that believes that it leads, other than `other`; null: none does.
    [[nodiscard]] stress::member* leader(const stress::member* other = nullptr) const {
        const auto now = boot_time();
        for (const auto& [process, slot] : candidates_) {
            const auto& its = board_->beliefs[stress::counted_names][slot];
            if (process != other && !process->killed() && its.permits != 0 && its.until > now) {
                return process;
            }
        }
        return nullptr;
    }
    [[nodiscard]] stress::member& await_leader(const stress::member* other = nullptr) const {
        stress::member* found = nullptr;
        REQUIRE(support::eventually([&] { return (found = leader(other)) != nullptr; },
                                    milliseconds{longest_vacancy}));
        return *found;
    }
    [[nodiscard]] const stress::belief& belief_of(const stress::member& candidate) const {
        const auto its = std::ranges::find(candidates_, &candidate,
                                           [](const numbered& one) { return one.process; });
        REQUIRE(its != candidates_.end());
        return board_->beliefs[stress::counted_names][its->slot];
    }
    void kill_candidates() {
        for (const auto& each : candidates_) {
            if (!each.process->killed()) each.process->kill();
        }
    }
    void stop_candidates() {
        for (const auto& each : candidates_) {
            if (!each.process->killed()) each.process->stop();
        }
        for (const auto& each : candidates_) {
            if (!each.process->killed()) CHECK(each.process->wait() == 0);
        }
        candidates_.clear();
    }
    void stop_observers() {
        for (auto* each : observers_) each->stop();
        for (auto* each : observers_) CHECK(each->wait() == 0);
    }

    /// The latest news of each is that there is no leader.
    [[nodiscard]] bool observers_see_none() const {
        return std::ranges::all_of(observers_, [](const stress::member* each) {
            stress::election_history seen;
            seen.read(each->log(), 0);
            const auto last = std::find_if(seen.looks.rbegin(), seen.looks.rend(),
                                           [](const stress::look& one) { return one.news; });
            return last != seen.looks.rend() && !last->led;
        });
    }
    /// Each has made a whole look since.
    [[nodiscard]] bool observers_looked_after(stress::micros time) const {
        return std::ranges::all_of(observers_, [&](const stress::member* each) {
            stress::election_history seen;
            seen.read(each->log(), 0);
            return !seen.looks.empty() && seen.looks.back().called > time;
        });
    }

    [[nodiscard]] const stress::board& board() const { return *board_; }
    [[nodiscard]] stress::election_history past() const {
        stress::election_history all;
        int number = 0;
        for (const auto& each : all_.members()) all.read(each->log(), number++);
        return all;
    }
    [[nodiscard]] std::vector<stress::office_state> states(
        const stress::election_history& all) const {
        const auto records = rowlock::read_history(database_.source(), {.limit = 1'000'000});
        return stress::states_of("office", records, all);
    }

private:
    struct numbered {
        stress::member* process;
        std::size_t slot;
    };

    support::lock_database& database_;
    stress::crew all_;
    stress::mapped_board board_{all_.folder() + "/board"};
    std::vector<numbered> candidates_;
    std::vector<stress::member*> observers_;
    std::size_t next_ = 0;
};

void check_none(const stress::violations& found) {
    CHECK_MESSAGE(found.empty(), stress::told(found));
}

void tell(const stress::election_history& all, const std::vector<stress::office_state>& states,
          int observers, const stress::board& board) {
    auto gaps = stress::vacancies(all);
    std::ranges::sort(gaps);
    const auto all_seen = stress::seen_by(0, all, states);
    MESSAGE(all.kills.size(), " leaders killed; ", all.terms.size(), " terms believed, ",
            all_seen.passing + all_seen.missed_passing, " handed on before, ", board.lost.load(),
            " lost; without a leader after a kill: median ",
            gaps.empty() ? 0 : gaps[gaps.size() / 2] / 1000, " ms, longest ",
            gaps.empty() ? 0 : gaps.back() / 1000, " ms");
    for (int i = 0; i < observers; ++i) {
        const auto seen = stress::seen_by(i, all, states);
        MESSAGE("observer ", i, " saw ", seen.terms, " believed terms and missed ",
                seen.missed_terms, "; of those handed on ", seen.passing, " and ",
                seen.missed_passing, ", of the vacancies ", seen.vacancies, " and ",
                seen.missed_vacancies);
    }
}

constexpr stress::micros slack = 2'000;  // SQLite's clock has milliseconds

void kill_leaders(support::backend which) {
    support::lock_database database{which};
    if (!database.there()) return;
    constexpr int candidates = 5;
    constexpr int observers = 3;
    election_crew all{database};
    all.add(observers, "watches");
    all.add(candidates, "leads");
    all.begin_observers();
    all.begin_candidates(candidates);
    std::vector<stress::micros> kills;
    for (auto next = steady_clock::now() + 2 * ttl; all.board().grants < chosen().terms;
         next = std::max(next + 2 * ttl, steady_clock::now())) {
        std::this_thread::sleep_until(next);
        auto& leader = all.await_leader();
        kills.push_back(boot_time());
        leader.kill();
        all.add("leads");
        all.begin_candidates(1);
    }
    // All die, and the office is vacant as soon as the leader's session has expired.
    static_cast<void>(all.await_leader());
    all.kill_candidates();
    CHECK(support::eventually([&] { return all.observers_see_none(); }));
    // The next ones end as they should.
    all.add(candidates, "leads");
    all.begin_candidates(candidates);
    static_cast<void>(all.await_leader());
    std::this_thread::sleep_for(2 * ttl);
    all.stop_candidates();
    const auto over = wall_time();
    CHECK(support::eventually([&] { return all.observers_looked_after(over); }));
    all.stop_observers();

    auto past = all.past();
    past.kills = kills;
    const auto states = all.states(past);
    tell(past, states, observers, all.board());
    check_none(stress::falling_terms(past));
    check_none(stress::overlapping_terms(past));
    check_none(stress::unrecorded_terms(past, states));
    check_none(stress::wrong_looks(past, states, slack));
    check_none(stress::unseen_ends(past, states, observers));
    check_none(stress::late_leaders(past, microseconds{longest_vacancy}.count()));
    CHECK(past.terms.size() >= static_cast<std::size_t>(chosen().terms));
    CHECK(all.board().overlaps == 0);
    CHECK(all.board().failures == 0);
    CHECK_FALSE(states.back().led);
    for (int i = 0; i < observers; ++i) CHECK(stress::seen_by(i, past, states).vacancies >= 2);
}

/// The leader stops for longer than its ttl, and goes on. Returns the terms that overlap.
stress::violations wake_a_leader(support::lock_database& database, const char* mode) {
    election_crew all{database};
    all.add(2, mode);
    all.begin_candidates(2);
    auto& leader = all.await_leader();
    // Not during a write: on SQLite that would block the other one.
    database.run("begin immediate");
    leader.pause();
    database.run("commit");
    const auto& its = all.belief_of(leader);
    const auto until = its.until.load();
    static_cast<void>(all.await_leader(&leader));
    leader.resume();
    // Not what it had read before it was paused.
    CHECK(support::eventually([&] {
        return its.permits == 0 || (its.until != until && its.until > stress::boot_time());
    }));
    all.stop_candidates();
    const auto past = all.past();
    REQUIRE(past.terms.size() >= 2);
    return stress::overlapping_terms(past);
}

/// What an observer does wrong while an office is vacant for a while, led again, and vacant.
struct mistakes {
    stress::violations looks;
    stress::violations ends;
};
mistakes watch_vacancies(support::lock_database& database, const char* mode) {
    election_crew all{database};
    all.add(mode);
    all.begin_observers();
    all.add("leads");
    all.begin_candidates(1);
    static_cast<void>(all.await_leader());
    all.kill_candidates();
    const auto vacant = wall_time() + microseconds{2 * ttl}.count();
    REQUIRE(support::eventually([&] { return all.observers_looked_after(vacant); }));
    all.add("leads");
    all.begin_candidates(1);
    static_cast<void>(all.await_leader());
    all.stop_candidates();
    const auto over = wall_time();
    REQUIRE(support::eventually([&] { return all.observers_looked_after(over); }));
    all.stop_observers();
    const auto past = all.past();
    const auto states = all.states(past);
    REQUIRE(std::ranges::count_if(states, &stress::office_state::led) >= 2);
    return {stress::wrong_looks(past, states, slack), stress::unseen_ends(past, states, 1)};
}

}  // namespace

TEST_CASE(
    "terms: of leaders killed every two ttl one believes at a time, and observers see some of the "
    "terms, in their order, and the last state, none included") {
    for (const auto which : chosen().backends()) {
        DOCTEST_SUBCASE(support::to_string(which)) {
            kill_leaders(which);
        }
    }
}

TEST_CASE("terms: a leader that was stopped for longer than its ttl believes no more") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    check_none(wake_a_leader(database, "leads"));
}

TEST_CASE("terms: control: a leader that ignores its loss believes beside the next one") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    CHECK_FALSE(wake_a_leader(database, "ignores").empty());
}

TEST_CASE("terms: an observer sees that an office is vacant, and by whom it is led afterwards") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    const auto found = watch_vacancies(database, "watches");
    check_none(found.looks);
    check_none(found.ends);
}

TEST_CASE("terms: control: an observer that overlooks a vacancy is found") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    const auto found = watch_vacancies(database, "keeps");
    CHECK_FALSE(found.looks.empty());
    CHECK_FALSE(found.ends.empty());
}
