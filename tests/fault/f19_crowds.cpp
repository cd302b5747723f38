// F19: a thousand waiters on one name, and ten thousand names: the work for each grant stays the
// same.

#include "fault/frame.hpp"
#include "support/interception.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using support::eventually;

constexpr double most_statements = 4;
constexpr double most_wake_ups = 1;

/// Counts the statements of its clients in all threads. Heartbeats belong to no grant. On SQLite
/// nothing is sent, and the statements that begin and end a transaction do not count.
class counted {
public:
    explicit counted(const support::lock_database& database) {
        network_.transactions = true;
        const bool sqlite = database.speaks() == rowlock::sql::dialect::sqlite;
        network_.before([this, sqlite](std::string_view what) {
            const bool bracket = sqlite && (what == "begin immediate" || what == "commit");
            if (what == "heartbeat" || bracket) return;
            ++statements;
            const std::lock_guard lock{mutex_};
            ++each_[std::string{what.substr(0, 40)}];
        });
        source = network_.wrap(database.source());
    }
    /// The statements that were sent most often.
    std::string most() {
        const std::lock_guard lock{mutex_};
        std::vector<std::pair<int, std::string>> all;
        for (const auto& [what, times] : each_) all.emplace_back(times, what);
        std::ranges::sort(all, std::greater{});
        std::string text;
        for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 8); ++i) {
            text += " " + std::to_string(all[i].first) + "x " + all[i].second + ";";
        }
        return text;
    }
    void forget() {
        const std::lock_guard lock{mutex_};
        each_.clear();
    }
    std::atomic<long> statements{0};

private:
    std::mutex mutex_;
    std::map<std::string, int> each_;
    support::interception network_;

public:
    std::optional<rowlock::sql::connection_source> source;
};

std::string ratio(double number) {
    std::string text = std::to_string(number);
    return text.substr(0, text.find('.') + 3);
}

struct cost {
    double statements = 0;
    double wake_ups = 0;
};

/// Has that many threads of two clients acquire one lock, one after another.
cost all_at_one(trial& in, support::lock_database& database, int waiters,
                rowlock::queueing queueing) {
    counted network{database};
    // A polling waiter finds the lock held only while its holder works. (So do the first waiters of
    // a queue on SQLite: with work of 5 ms a grant costs them 4.4 to 4.7 statements.)
    const auto work = queueing == rowlock::queueing::fair ? 0ms : 5ms;
    const auto options = database.options({.poll_interval = 1s});
    rowlock::client first{*network.source, options};
    rowlock::client second{*network.source, options};
    rowlock::client other{database.source(), database.options()};
    auto held = other.acquire("line");
    std::atomic<int> granted{0};
    std::atomic<int> failed{0};
    std::vector<std::jthread> line;
    for (int i = 0; i < waiters; ++i) {
        line.emplace_back([&, i] {
            try {
                auto got = (i % 2 == 0 ? first : second)
                               .try_acquire_for("line", 10min, {.queueing = queueing});
                if (!got) return;
                ++granted;
                if (work > 0ms) std::this_thread::sleep_for(work);
                got->release();
            } catch (const rowlock::error& failure) {
                if (++failed == 1) in.note(failure.what());
            }
        });
    }
    if (queueing == rowlock::queueing::fair) {
        eventually(
            [&] { return database.number("select count(*) from rowlock_ticket") == waiters; },
            120s);
    } else {
        std::this_thread::sleep_for(300ms);
    }
    const auto wakes = [&] { return first.stats().wake_ups + second.stats().wake_ups; };
    const long before = network.statements;
    network.forget();
    const auto woken = wakes();
    held.release();
    line.clear();
    in.must(granted == waiters && failed == 0,
            std::to_string(granted) + " of " + std::to_string(waiters) + " were granted");
    const cost each{static_cast<double>(network.statements - before) / waiters,
                    static_cast<double>(wakes() - woken) / waiters};
    in.note(ratio(each.statements) + " statements a grant, " + ratio(each.wake_ups) +
            " wake-ups a release:" + network.most());
    return each;
}

void crowd_one_name(trial& in, support::lock_database& database) {
    const auto each = all_at_one(in, database, in.rounds(), rowlock::queueing::fair);
    in.made(in.rounds());
    in.must_alone(each.statements <= most_statements,
                  ratio(each.statements) + " statements a grant");
    in.must_alone(each.wake_ups <= most_wake_ups, ratio(each.wake_ups) + " wake-ups a release");
}

/// Barging acquires, which poll.
void barge(trial& in, support::lock_database& database) {
    const auto each = all_at_one(in, database, 200, rowlock::queueing::barging);
    if (each.statements > most_statements) in.violation(ratio(each.statements) + " a grant");
}

const fault::on_databases f19{{.id = "F19",
                               .what = "a thousand waiters on one name",
                               .databases = fault::all_databases,
                               .quick_rounds = 200,
                               .full_rounds = 1'000,
                               .run = crowd_one_name,
                               .control = barge,
                               .neighbours = fault::beside::none}};

/// One lease for each name, all held at once, then released. Half of the names have a waiter.
void many_names(trial& in, support::lock_database& database) {
    constexpr int threads = 8;
    counted network{database};
    rowlock::client locks{*network.source, database.options()};
    // The heartbeats of the second client are checked.
    rowlock::client waiter{*network.source, database.options({.ttl = 9s, .heartbeat = 500ms})};
    std::vector<std::optional<rowlock::lease>> leases(static_cast<std::size_t>(in.rounds()));
    std::atomic<int> failed{0};
    const auto side_by_side = [&](auto action) {
        std::vector<std::jthread> all;
        for (int t = 0; t < threads; ++t) {
            all.emplace_back([&, t] {
                for (auto i = static_cast<std::size_t>(t); i < leases.size(); i += threads) {
                    try {
                        action(i);
                    } catch (const rowlock::error& failure) {
                        if (++failed == 1) in.note(failure.what());
                    }
                }
            });
        }
    };
    const auto name = [](std::size_t i) { return "name/" + std::to_string(i); };
    side_by_side([&](std::size_t i) { leases[i] = locks.try_acquire(name(i)); });
    const long taken = network.statements;
    side_by_side([&](std::size_t i) {
        if (leases[i]) leases[i]->release();
    });
    const long released = network.statements - taken;
    side_by_side([&](std::size_t i) { leases[i] = waiter.try_acquire(name(i)); });
    const double each = static_cast<double>(network.statements) / 2 / in.rounds();
    in.note(ratio(each) + " statements a grant and release; " + std::to_string(released) +
            " for all releases");
    for (const auto& lease : leases) in.must(lease && lease->held(), "a lease is not held");
    in.must(failed == 0, std::to_string(failed) + " calls failed");
    in.must(each <= most_statements, ratio(each) + " statements a grant");
    in.must(eventually([&] { return waiter.stats().heartbeats > 0; }, 30s), "no heartbeat");
    const auto beats = waiter.stats().heartbeats;
    const long at = network.statements;
    eventually([&] { return waiter.stats().heartbeats > beats + 1; }, 30s);
    in.note("two heartbeats over " + std::to_string(in.rounds()) + " leases sent " +
            std::to_string(network.statements - at) + " other statements");
    in.made(in.rounds());
}

const fault::on_databases f19_names{{.id = "F19n",
                                     .what = "ten thousand names",
                                     .databases = fault::all_databases,
                                     .quick_rounds = 1'000,
                                     .full_rounds = 10'000,
                                     .run = many_names,
                                     .neighbours = fault::beside::none}};

}  // namespace
