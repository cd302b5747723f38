// A process of the stress tests of shared_mutexes and semaphores, of several leases at once, of
// elections, and of latches and double barriers: a client whose threads hold them in all modes, or
// as leases, and check on the board that no other thread believes what they exclude. crew.cpp
// starts it.
//
//   stress_shared_worker KEY=VALUE…     the URL in the environment, ROWLOCK_STRESS_URL
//
// mode=holds; mode=several: leases, several at once; mode=together: the same, with a client for
// each thread, which waits for as long as it takes; mode=apart: the control of that, which acquires
// one lease after the other and finds no deadlock; mode=modes and mode=modes_apart: the same with
// modes of shared_mutexes; mode=elects: candidates, and an observer in each
// process; mode=meets: parties of latches and double barriers; or mode=believes: the control, which
// believes without asking. board=FILE first=NUMBER of its first thread on the board. Prints
// "ready", starts at the first line of its standard input, and stops when that is closed.
//
//   stress_shared_worker mode=command board=FILE first=NUMBER name=NUMBER permits=NUMBER ms=NUMBER
//
// is a command for `rowlock run`: it believes, for some milliseconds, that its lock is held.

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "stress/board.hpp"
#include "stress/history.hpp"
#include "stress/requests.hpp"
#include <rowlock/client.hpp>
#include <rowlock/double_barrier.hpp>
#include <rowlock/election.hpp>
#include <rowlock/error.hpp>
#include <rowlock/latch.hpp>
#include <rowlock/open.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using rowlock::lock_mode;
using rowlock::protocol::permits_for;
using stress::boot_time;

/// Counts a grant, and notes for how long there was none.
void count_grant(stress::board& board) {
    ++board.grants;
    const auto now = boot_time();
    const auto before = board.latest_grant.exchange(now);
    auto longest = board.longest_pause.load();
    while (before != 0 && now - before > longest &&
           !board.longest_pause.compare_exchange_weak(longest, now - before)) {
    }
}

/// Leases, or modes, that were acquired one after the other.
template <typename Lease>
class held_apart {
public:
    void add(Lease one) { all_.push_back(std::move(one)); }
    [[nodiscard]] std::chrono::milliseconds remaining() const {
        auto least = std::chrono::milliseconds::max();
        for (const auto& each : all_) least = std::min(least, each.remaining());
        return least;
    }
    void release() {
        for (auto& each : all_) each.release();
    }

private:
    std::vector<Lease> all_;
};

/// How a thread acquires several leases, or modes.
enum class collecting : unsigned char { limited, together, apart, modes, modes_apart };

/// What one thread does with leases, or modes, several at once.
class collector {
public:
    collector(rowlock::client& locks, stress::board& board, std::size_t slot, unsigned seed,
              collecting how)
        : locks_{locks}, board_{board}, slot_{slot}, random_{seed}, how_{how} {
        for (std::size_t i = 0; i < stress::leases_on_board; ++i) {
            mine_.emplace_back(
                std::make_unique<stress::held_belief>(board, stress::counted_names + i, slot));
        }
    }

    void turn(const std::stop_token& stop) {
        std::vector<std::size_t> wanted(stress::leases_on_board);
        std::iota(wanted.begin(), wanted.end(), std::size_t{0});
        std::shuffle(wanted.begin(), wanted.end(), random_);
        wanted.resize(1 + random_() % 4);
        std::vector<rowlock::lock_name> names;
        for (const auto each : wanted) names.emplace_back("lease " + std::to_string(each));
        if (how_ == collecting::limited) return take_in_time(names, wanted);
        const auto note = stress::note_of_request(slot_, ++requests_, names.size());
        how_ == collecting::together || how_ == collecting::apart
            ? take_leases(stop, names, wanted, note)
            : take_modes(stop, names, wanted, note);
    }
    void forget() {
        for (const auto& each : mine_) each->set(0);
    }

private:
    using numbers = std::vector<std::size_t>;

    void take_leases(const std::stop_token& stop, const std::vector<rowlock::lock_name>& names,
                     const numbers& wanted, const std::string& note) {
        const rowlock::acquire_options how{.note = note};
        if (how_ == collecting::together) {
            const std::vector<rowlock::lock_request> all{names.begin(), names.end()};
            if (auto held = locks_.acquire_all(all, stop, how)) use(*held, wanted);
            return;
        }
        held_apart<rowlock::lease> held;
        for (const auto& each : names) {
            auto one = locks_.acquire(each, stop, how);
            if (!one) return;
            held.add(*std::move(one));
        }
        use(held, wanted);
    }

    void take_modes(const std::stop_token& stop, const std::vector<rowlock::lock_name>& names,
                    const numbers& wanted, const std::string& note) {
        std::vector<rowlock::lock_request> modes;
        std::vector<std::int64_t> permits;
        for (const auto& each : names) {
            const auto what = random_() % 4;
            const auto mode = what < 2    ? lock_mode::shared
                              : what == 2 ? lock_mode::upgradeable
                                          : lock_mode::exclusive;
            modes.push_back({each, mode});
            permits.push_back(permits_for(mode));
        }
        const rowlock::mode_options how{.note = note};
        if (how_ == collecting::modes) {
            if (auto held = locks_.acquire_all(modes, stop, {.note = note})) {
                use(*held, wanted, permits);
            }
            return;
        }
        held_apart<rowlock::mode_lease> held;
        for (const auto& each : modes) {
            auto one = rowlock::shared_mutex{locks_, each.name}.acquire(each.mode, stop, how);
            if (!one) return;
            held.add(*std::move(one));
        }
        use(held, wanted, permits);
    }

    void take_in_time(const std::vector<rowlock::lock_name>& names,
                      const std::vector<std::size_t>& wanted) {
        const auto patience = std::chrono::milliseconds{random_() % 8 == 0 ? 50 : 4000};
        if (names.size() == 1) {
            if (auto held = locks_.try_acquire_for(names.front(), patience)) use(*held, wanted);
        } else if (auto held = locks_.try_acquire_all_for({names.begin(), names.end()}, patience)) {
            use(*held, wanted);
        }
    }

    template <typename Held>
    void use(Held& held, const numbers& wanted) {
        use(held, wanted, std::vector(wanted.size(), permits_for(lock_mode::exclusive)));
    }

    template <typename Held>
    void use(Held& held, const numbers& wanted, const std::vector<std::int64_t>& permits) {
        count_grant(board_);
        const auto renew = [&] {
            // The clock first: a pause between the two must shorten the belief.
            const auto now = boot_time();
            const auto left = std::chrono::microseconds{held.remaining()}.count();
            for (const auto each : wanted) mine_[each]->last_until(left > 0 ? now + left : 0);
            return left > 0;
        };
        if (!renew()) return;
        for (std::size_t i = 0; i < wanted.size(); ++i) mine_[wanted[i]]->set(permits[i]);
        for (auto turns = random_() % 4; turns > 0 && renew(); --turns) {
            for (const auto each : wanted) mine_[each]->check();
            std::this_thread::sleep_for(std::chrono::microseconds{random_() % 1500});
        }
        forget();
        held.release();
    }

    rowlock::client& locks_;
    stress::board& board_;
    std::vector<std::unique_ptr<stress::held_belief>> mine_;
    const std::size_t slot_;
    std::mt19937 random_;
    const collecting how_;
    std::int64_t requests_ = 0;
};

constexpr const char* office_name = "lease 0";

/// What one thread does as a candidate, and as the leader.
class candidate {
public:
    candidate(rowlock::client& locks, stress::board& board, std::size_t slot, unsigned seed)
        : locks_{locks}, board_{board}, mine_{board, stress::counted_names, slot}, random_{seed} {}

    void turn() {
        rowlock::election office{
            locks_,
            office_name,
            {.value = "candidate", .priority = static_cast<int>(random_() % 3)}};
        auto term = office.try_campaign_for(4s);
        if (!term) return;
        const stress::end_of_belief ends{mine_};  // before the term
        count_grant(board_);
        const auto renew = [&] {
            // The clock first: a pause between the two must shorten the belief.
            const auto now = boot_time();
            const auto left = std::chrono::microseconds{term->lease().remaining()}.count();
            mine_.last_until(left > 0 ? now + left : 0);
            return left > 0;
        };
        if (!renew()) return;
        mine_.set_all();
        require_latest(*term);
        for (auto turns = random_() % 4; turns > 0 && renew(); --turns) {
            mine_.check();
            std::this_thread::sleep_for(std::chrono::microseconds{random_() % 1500});
        }
        if (random_() % 4 == 0) term->proclaim("leader " + std::to_string(random_()));
        forget();
        end(office, *term);
    }
    void forget() { mine_.set(0); }

private:
    /// No later leader has believed before this one did, as long as it may believe.
    void require_latest(const rowlock::leadership& term) {
        auto latest = board_.latest_term.load();
        while (latest < term.term().value() &&
               !board_.latest_term.compare_exchange_weak(latest, term.term().value())) {
        }
        if (latest >= term.term().value() && term.held()) ++board_.failures;
    }

    void end(rowlock::election& office, rowlock::leadership& term) {
        const auto how = random_() % 3;
        if (how == 0) return;  // as the lease is destroyed
        const auto all = how == 1 ? office.candidates() : std::vector<rowlock::candidate_info>{};
        if (all.empty()) return term.step_down();
        static_cast<void>(term.step_down(all[random_() % all.size()].session));
    }

    rowlock::client& locks_;
    stress::board& board_;
    stress::held_belief mine_;
    std::mt19937 random_;
};

/// What one thread does as an observer: the terms that it sees never fall, and while it sees no
/// change there was none that came before it looked.
class observer {
public:
    observer(rowlock::client& locks, stress::board& board)
        : board_{board},
          changes_{rowlock::election{locks, office_name}.observe({.poll_interval = 20ms})} {}

    void turn() {
        const auto latest = board_.latest_term.load();
        const auto seen = changes_.next_for(100ms);
        if (seen) {
            const auto term = seen->term.value();
            const bool consistent = !seen->leader || seen->leader->term == seen->term;
            if (term < seen_ || !consistent) ++board_.failures;
            seen_ = term;
        }
        if (seen_ < latest) ++board_.failures;
    }

private:
    stress::board& board_;
    rowlock::election_observer changes_;
    std::int64_t seen_ = 0;
};

/// What one thread does with a latch and a double barrier. Parties die, are late, give up and
/// change their minds: all of one generation hear the same answer all the same.
class party {
public:
    party(rowlock::client& locks, stress::board& board, unsigned seed)
        : board_{board},
          latch_{locks, "latch"},
          barrier_{locks, "barrier", barrier_parties},
          counting_{locks, "counting", barrier_parties, {.on_loss = rowlock::party_loss::counts}},
          random_{seed} {}

    void turn() {
        const auto what = random_() % 4;
        if (what < 2) return arrive();
        what == 2 ? meet(barrier_, board_.barriers, false) : meet(counting_, board_.counting, true);
    }

private:
    static constexpr std::int64_t latch_parties = 3;
    static constexpr std::int64_t barrier_parties = 4;
    enum heard : std::int64_t { done = 1, broken = 2 };

    std::chrono::milliseconds patience() {
        return std::chrono::milliseconds{random_() % 4 == 0 ? random_() % 60 : 2500};
    }

    void hear(stress::meeting& of, heard answer) {
        std::int64_t before = 0;
        if (!of.answer.compare_exchange_strong(before, answer) && before != answer) {
            fail("two answers for one generation");
        }
    }

    void fail(const char* what) {
        std::fprintf(stderr, "party: %s\n", what);
        ++board_.failures;
    }

    void arrive() {
        static_cast<void>(latch_.begin(latch_parties));
        auto mine = latch_.join();
        auto& of = board_.latches.at(static_cast<std::size_t>(mine.generation()) %
                                     stress::board::generations);
        try {
            if (random_() % 8 == 0) return;  // as it is destroyed: that breaks the latch
            ++of.coming;
            mine.arrive();
            if (!latch_.wait_for(patience(), {}, mine.generation())) return;
            if (of.coming < latch_parties) fail("a latch opened early");
            hear(of, done);
            count_grant(board_);
        } catch (const rowlock::error& failure) {
            if (failure.kind() != rowlock::errc::broken) throw;
            hear(of, broken);
        }
    }

    template <typename Meetings>
    void meet(rowlock::double_barrier& where, Meetings& on_board, bool losses_count) {
        std::optional<rowlock::barrier_party> inside;
        try {
            inside = where.enter_for(patience());
        } catch (const rowlock::error& failure) {
            if (failure.kind() != rowlock::errc::broken) throw;
            return;
        }
        if (!inside) return;
        auto& of = on_board.at(static_cast<std::size_t>(inside->generation()) %
                               stress::board::generations);
        if (++of.inside > barrier_parties) fail("too many in a barrier");
        std::this_thread::sleep_for(std::chrono::microseconds{random_() % 1500});
        ++of.coming;
        if (random_() % 8 == 0) return;  // as it is destroyed
        try {
            if (!inside->leave_for(patience())) return;
            if (of.coming < barrier_parties && !losses_count) fail("a barrier was left early");
            hear(of, done);
            count_grant(board_);
        } catch (const rowlock::error& failure) {
            if (failure.kind() != rowlock::errc::broken) throw;
            hear(of, broken);
        }
    }

    stress::board& board_;
    rowlock::latch latch_;
    rowlock::double_barrier barrier_, counting_;
    std::mt19937 random_;
};

collecting collecting_in(const std::string& mode) {
    if (mode == "together") return collecting::together;
    if (mode == "apart") return collecting::apart;
    if (mode == "modes") return collecting::modes;
    return mode == "modes_apart" ? collecting::modes_apart : collecting::limited;
}

/// The modes in which each thread has a client of its own.
bool has_own_clients(const std::string& mode) {
    return collecting_in(mode) != collecting::limited;
}

/// What one thread does.
class worker {
public:
    worker(rowlock::client& locks, stress::board& board, std::size_t slot, unsigned seed,
           const std::string& mode)
        : locks_{locks},
          board_{board},
          mine_{{{board, 0, slot}, {board, 1, slot}, {board, 2, slot}}},
          several_{locks, board, slot, seed, collecting_in(mode)},
          candidate_{locks, board, slot, seed},
          observer_{locks, board},
          party_{locks, board, seed},
          random_{seed},
          collects_{mode == "several" || has_own_clients(mode)},
          elects_{mode == "elects"},
          observes_{mode == "observes"},
          meets_{mode == "meets"},
          asks_{mode != "believes"} {}

    void run(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            try {
                turn(stop);
            } catch (const rowlock::error& failure) {
                const auto kind = failure.kind();
                if (kind == rowlock::errc::deadlock) ++board_.deadlocks;
                if (kind == rowlock::errc::lock_lost) {
                    ++board_.lost;
                } else if (!failure.retryable() && kind != rowlock::errc::outcome_unknown &&
                           kind != rowlock::errc::broken) {
                    std::fprintf(stderr, "worker: %s\n", failure.what());
                    ++board_.failures;
                }
            }
            for (auto& each : mine_) each.set(0);
            several_.forget();
            candidate_.forget();
        }
    }

private:
    void turn(const std::stop_token& stop) {
        if (collects_) return several_.turn(stop);
        if (elects_) return candidate_.turn();
        if (observes_) return observer_.turn();
        if (meets_) return party_.turn();
        const auto name = number(stress::counted_names);
        if (!asks_) return believe(name, stress::capacity_of(name), [] { return 20ms; });
        if (name == stress::counted_names - 1) return use_permits(name);
        if (number(4) == 0) return read(name);
        if (number(8) == 0) return use_all(name);
        use_modes(name);
    }

    void use_permits(std::size_t name) {
        rowlock::semaphore limit{locks_, stress::names_on_board.at(name)};
        const auto count = 1 + static_cast<std::int64_t>(number(5));
        auto held = limit.try_acquire_for(count, 2s);
        if (!held) return;
        believe(name, count, [&] { return held->remaining(); });
        clear(name);
        held->release();
    }

    /// By the thread's own hold, which it may share with others of this process.
    void read(std::size_t name) {
        rowlock::shared_mutex lock{locks_, stress::names_on_board.at(name)};
        if (!lock.try_lock_shared_for(2s)) return;
        believe(name, permits_for(lock_mode::shared), [&] { return lock.remaining(); });
        clear(name);
        lock.unlock_shared();
    }

    /// All of it, as a lease: the same lock as its modes.
    void use_all(std::size_t name) {
        auto held = locks_.try_acquire_for(stress::names_on_board.at(name), 2s);
        if (!held) return;
        // Before the hold: what is thrown releases it.
        const stress::end_of_belief ends{mine_.at(name)};
        believe(name, stress::capacity_of(name), [&] { return held->remaining(); });
        clear(name);
        held->release();
    }

    void use_modes(std::size_t name) {
        rowlock::shared_mutex lock{locks_, stress::names_on_board.at(name)};
        const auto what = number(10);
        const auto mode = what < 4   ? lock_mode::shared
                          : what < 8 ? lock_mode::upgradeable
                                     : lock_mode::exclusive;
        auto held = lock.try_acquire_for(mode, 2s);
        if (!held) return;
        // Before the hold: what is thrown releases it.
        const stress::end_of_belief ends{mine_.at(name)};
        const auto believe_mode = [&] {
            believe(name, permits_for(held->mode()), [&] { return held->remaining(); });
        };
        believe_mode();
        if (mode == lock_mode::upgradeable && what < 7 && held->try_upgrade_for(1s)) {
            ++board_.upgrades;
            believe_mode();
        }
        while (held->mode() != lock_mode::shared && number(2) == 0) {
            const auto weaker = held->mode() == lock_mode::exclusive && number(2) == 0
                                    ? lock_mode::upgradeable
                                    : lock_mode::shared;
            // What is not believed any more is given up first.
            mine_.at(name).set(permits_for(weaker));
            held->downgrade(weaker);
            believe_mode();
        }
        clear(name);
        held->release();
    }

    /// Believes it for a while; `remaining` says for how long it still may. The belief stands until
    /// it is cleared.
    template <typename Remaining>
    void believe(std::size_t name, std::int64_t permits, Remaining remaining) {
        auto& mine = mine_.at(name);
        const auto renew = [&] {
            // The clock first: a pause between the two must shorten the belief.
            const auto now = boot_time();
            const auto left = std::chrono::microseconds{remaining()}.count();
            mine.last_until(left > 0 ? now + left : 0);
            return left > 0;
        };
        if (!renew()) return;
        mine.set(permits);
        count_grant(board_);
        for (auto turns = number(4); turns > 0 && renew(); --turns) {
            mine.check();
            std::this_thread::sleep_for(std::chrono::microseconds{number(1500)});
        }
    }

    void clear(std::size_t name) { mine_.at(name).set(0); }

    std::size_t number(std::size_t below) { return random_() % below; }

    rowlock::client& locks_;
    stress::board& board_;
    std::array<stress::held_belief, stress::counted_names> mine_;
    collector several_;
    candidate candidate_;
    observer observer_;
    party party_;
    std::mt19937 random_;
    const bool collects_;
    const bool elects_;
    const bool observes_;
    const bool meets_;
    const bool asks_;
};

stress::belief* of_this_command = nullptr;

void end_belief(int /*signal*/) {
    of_this_command->permits = 0;
    _exit(1);
}

/// The belief of a command is short and renewed, and ends with SIGTERM, by which `rowlock run`
/// stops a command: the lock may be another's soon afterwards.
int run_as_command(std::map<std::string, std::string>& words) {
    const auto number = [&](const char* key) { return std::stoul(words.at(key)); };
    const stress::mapped_board board{words.at("board")};
    stress::held_belief mine{*board, number("name"), number("first")};
    of_this_command = &board->beliefs.at(number("name")).at(number("first"));
    std::signal(SIGTERM, end_belief);
    constexpr std::int64_t moment = 20'000;
    mine.last_until(boot_time() + moment);
    mine.set(std::stol(words.at("permits")));
    ++board->grants;
    const auto end = boot_time() + static_cast<std::int64_t>(number("ms")) * 1000;
    do {
        mine.last_until(boot_time() + moment);
        mine.check();
        std::this_thread::sleep_for(1ms);
    } while (boot_time() < end);
    return 0;
}

int run(std::map<std::string, std::string>& words) {
    if (words.at("mode") == "command") return run_as_command(words);
    const auto number = [&](const char* key) { return std::stoi(words.at(key)); };
    const stress::mapped_board board{words.at("board")};
    const auto& mode = words.at("mode");
    rowlock::client_options options;
    options.ttl = std::chrono::milliseconds{number("ttl_ms")};
    options.poll_interval = std::chrono::milliseconds{number("poll_ms")};
    options.retry.attempts = 3;
    if (mode == "apart" || mode == "modes_apart")
        options.deadlock_detection = rowlock::deadlock_detection::off;
    const auto source = rowlock::open(std::getenv("ROWLOCK_STRESS_URL"))
                            .with_tables({.prefix = words.at("prefix")});
    std::vector<std::unique_ptr<rowlock::client>> clients;
    for (int i = 0; i < (has_own_clients(mode) ? number("threads") : 1); ++i) {
        clients.push_back(std::make_unique<rowlock::client>(source, options));
        static_cast<void>(clients.back()->is_locked("none"));
    }
    std::puts("ready");
    std::fflush(stdout);
    char byte = 0;
    if (read(STDIN_FILENO, &byte, 1) != 1) return 0;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < number("threads"); ++i) {
            threads.emplace_back([&, i](const std::stop_token& stop) {
                auto& locks = *clients.at(static_cast<std::size_t>(i) % clients.size());
                worker{locks, *board, static_cast<std::size_t>(number("first") + i),
                       static_cast<unsigned>(number("seed") + i),
                       mode == "elects" && i == 0 ? "observes" : mode}
                    .run(stop);
            });
        }
        while (read(STDIN_FILENO, &byte, 1) > 0) {
        }
    }
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    std::map<std::string, std::string> words;
    for (int i = 1; i < count; ++i) {
        const std::string word = arguments[i];
        const auto at = word.find('=');
        words[word.substr(0, at)] = word.substr(at + 1);
    }
    try {
        return run(words);
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "stress_shared_worker: %s\n", failure.what());
        return 1;
    }
}
