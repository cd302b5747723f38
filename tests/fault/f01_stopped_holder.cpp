// F1 and F2: holders that are stopped and continued.

#include "fault/holders.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>

#include <algorithm>
#include <future>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::duration;
using fault::name_of;
using fault::trial;
using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;

constexpr milliseconds ttl = 2400ms;
constexpr milliseconds poll = 500ms;
constexpr milliseconds lost_p95 = 50ms;
constexpr milliseconds lost_bound = 500ms;

struct successor {
    std::optional<rowlock::lease> lease;
    steady::time_point at;
};

/// Waiters that enqueue before the holders are stopped.
class line_of_successors {
public:
    line_of_successors(support::lock_database& database, int count)
        : locks_{database.source(), database.options({.poll_interval = poll})} {
        for (int i = 0; i < count; ++i) {
            all_.push_back(std::async(std::launch::async, [this, i] {
                auto lease = support::acquire_soon(locks_, name_of(i));
                return successor{std::move(lease), steady::now()};
            }));
        }
        fault::await_places(database, count);
    }
    successor next(int i) { return all_.at(static_cast<std::size_t>(i)).get(); }

private:
    rowlock::client locks_;
    std::vector<std::future<successor>> all_;
};

/// Stops `count` holders at once, lets their waiters be granted the locks, and continues them.
void stop_and_wake(trial& in, support::lock_database& database, int count,
                   std::vector<duration>& notices) {
    fault::write_table written{database};
    std::vector<fault::holder_role> parts;
    for (int i = 0; i < count; ++i) {
        parts.push_back(
            {.name = name_of(i), .ttl = ttl, .poll = poll, .table = written.name(), .gap = ttl});
    }
    fault::holders stopped{database, parts};
    line_of_successors line{database, count};
    std::vector<steady::time_point> since;
    for (int i = 0; i < count; ++i) {
        stopped.pause(static_cast<std::size_t>(i));
        since.push_back(steady::now());
    }
    std::vector<successor> next;
    for (int i = 0; i < count; ++i) {
        next.push_back(line.next(i));
        in.took(next.back().at - since[static_cast<std::size_t>(i)], "until the successor came",
                ttl + poll);
        for (const char kind : {'f', 'u'}) {
            written.write(kind, name_of(i), next.back().lease->token().value());
        }
    }
    std::this_thread::sleep_until(since.back() + 2 * ttl);
    for (int i = 0; i < count; ++i) {
        const auto each = static_cast<std::size_t>(i);
        const auto woken = stress::boot_time();
        stopped[each].resume();
        support::eventually([&] { return stopped.diary(each).lost != 0; });
        stopped.end(each);
        const auto diary = stopped.diary(each);
        in.made();
        in.must(diary.woke != 0, "a holder did not notice that it had been stopped");
        in.must(!diary.held_on_waking, "held() was true after the sleep");
        in.must(diary.lost != 0, "lost() did not fire");
        in.must(diary.end == "the_lock_was_lost", "the release said " + diary.end);
        if (diary.lost != 0) {
            notices.push_back(fault::micros_to_duration(diary.lost - woken));
            in.took(notices.back(), "until lost() fired");
        }
        in.must(next[each].lease->held(), "the successor lost the lock");
    }
    if (const int stale = written.stale('f'); stale > 0) {
        in.violation(std::to_string(stale) + " stale fenced writes");
    }
    in.unprotected("stale writes without a fence", written.stale('u'));
}

void stop_holders(trial& in, support::lock_database& database) {
    constexpr int at_once = 10;
    std::vector<duration> notices;
    for (int left = in.rounds(); left > 0; left -= at_once) {
        stop_and_wake(in, database, std::min(left, at_once), notices);
    }
    in.took_mostly(notices, "until lost() fired", lost_p95);
}

const fault::on_databases f1{{.id = "F1",
                              .what = "SIGSTOP of the holder for 2 ttl, which writes on waking",
                              .databases = fault::all_databases,
                              .quick_rounds = 20,
                              .full_rounds = 100,
                              .bound = lost_bound,
                              .run = stop_holders,
                              .control_inside = true,
                              .neighbours = fault::beside::few}};

// --- F2 ----------------------------------------------------------------------------------------

constexpr milliseconds long_ttl = 4800ms;
/// Shorter than ttl - heartbeat - margin, which is half of the ttl, by the time for a heartbeat. It
/// may have to reconnect, since the deadline of a running one passes meanwhile.
constexpr milliseconds short_pause = long_ttl / 2 - 500ms;

void pause_for(trial& in, support::lock_database& database, milliseconds pause) {
    constexpr int at_once = 5;
    for (int left = in.rounds(); left > 0; left -= at_once) {
        const int count = std::min(left, at_once);
        std::vector<fault::holder_role> parts;
        for (int i = 0; i < count; ++i) {
            parts.push_back({.name = name_of(i), .ttl = long_ttl, .poll = poll});
        }
        fault::holders stopped{database, parts};
        line_of_successors line{database, count};
        const auto row_token = [&](int i) {
            return database.number("select token from rowlock_lock where name = '" + name_of(i) +
                                   "'");
        };
        std::vector<std::int64_t> tokens;
        for (int i = 0; i < count; ++i) tokens.push_back(row_token(i));
        // At different moments between two heartbeats.
        std::vector<std::jthread> pausing;
        for (int i = 0; i < count; ++i) {
            pausing.emplace_back([&, i] {
                std::this_thread::sleep_for(long_ttl / 3 * i / count);
                stopped.pause(static_cast<std::size_t>(i));
                std::this_thread::sleep_for(pause);
                stopped[static_cast<std::size_t>(i)].resume();
            });
        }
        pausing.clear();
        std::this_thread::sleep_for(long_ttl / 3);  // a heartbeat later
        for (int i = 0; i < count; ++i) {
            const auto each = static_cast<std::size_t>(i);
            const auto token = row_token(i);
            stopped.end(each);
            const auto diary = stopped.diary(each);
            in.made();
            in.must_alone(diary.lost == 0, "lost() fired");
            in.must_alone(diary.held_at_the_end, "held() was false");
            in.must_alone(diary.end == "ok", "the release said " + diary.end);
            in.must_alone(token == tokens[each] && token >= diary.token, "the token changed");
            in.must(line.next(i).lease->token().value() > diary.token, "the token did not grow");
        }
    }
}

const fault::on_databases f2{
    {.id = "F2",
     .what = "SIGSTOP of the holder for less than ttl - heartbeat - margin",
     .databases = fault::all_databases,
     .quick_rounds = 3,
     .full_rounds = 100,
     .run = [](trial& in,
               support::lock_database& database) { pause_for(in, database, short_pause); },
     .control =
         [](trial& in, support::lock_database& database) {
             pause_for(in, database, long_ttl * 5 / 4);
         }}};

}  // namespace
