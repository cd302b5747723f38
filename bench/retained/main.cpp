// Leases that a client retains after their release (T17): pairs of acquire and release of one
// client, recalls by another, and two clients in turn; each beside a client that keeps nothing.
#include "common/measure.hpp"
#include "common/ours.hpp"
#include "throughput/contestants.hpp"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

std::shared_ptr<rowlock::client> client_of(const tables& where, bool keeps) {
    rowlock::client_options own;
    if (keeps) own.retain = rowlock::retain_options{};
    return std::make_shared<rowlock::client>(where.source(), own);
}

void pair(rowlock::client& locks, const rowlock::lock_name& name) {
    locks.acquire(name).release();
}

contestant pairs(const tables& where, bool keeps, int threads) {
    const auto locks = client_of(where, keeps);
    return line_up(keeps ? "kept" : "plain", threads,
                   [&](int i) { return our_lease(locks, (keeps ? "kept/" : "") + name_of(i)); });
}

/// Two clients that take one lock in turn, so many pairs each.
class in_turn final : public worker {
public:
    in_turn(const tables& where, bool keeps, int pairs)
        : one_{client_of(where, keeps)},
          another_{client_of(where, keeps)},
          pairs_{pairs},
          name_{keeps ? "kept in turn" : "in turn"} {}
    void turn() override {
        for (const auto& each : {one_, another_}) {
            for (int i = 0; i < pairs_; ++i) pair(*each, name_);
        }
    }

private:
    std::shared_ptr<rowlock::client> one_, another_;
    const int pairs_;
    const rowlock::lock_name name_;
};

/// Returns the second one's pace.
pace compare(findings& found, const std::string& id, std::vector<contestant> all, double target,
             const round_options& rounds) {
    const auto seen = measured(found, id, all, rounds);
    found.add(compared(id, seen[1], seen[0], "turns/s", target));
    return seen[1];
}

std::vector<contestant> both(const std::function<contestant(bool keeps)>& make) {
    std::vector<contestant> all;
    all.push_back(make(false));
    all.push_back(make(true));
    return all;
}

/// A pair on a retained name, without a clock around each; beside a std::mutex.
void measure_pair(findings& found, const std::string& id, const tables& where) {
    constexpr int count = 200'000;
    const auto locks = client_of(where, true);
    const rowlock::lock_name name{"pair"};
    for (int i = 0; i < count; ++i) pair(*locks, name);  // the blocks of tokens grow
    constexpr int rounds = 5;
    std::vector<double> times;
    const cpu_meter cpu;
    for (int round = 0; round < rounds; ++round) {
        times.push_back(duration_us([&] {
                            for (int i = 0; i < count; ++i) pair(*locks, name);
                        }) /
                        count);
    }
    const auto cost = cpu.for_each_of(rounds * count);
    std::mutex mutex;
    const double plain = duration_us([&] {
                             for (int i = 0; i < count; ++i) const std::lock_guard lock{mutex};
                         }) /
                         count;
    found.note(fmt::format("{}: a pair of std::mutex takes {:.3f} us", id, plain));
    found.add({.id = id,
               .ours = median(times),
               .unit = "us",
               .side = wanted::at_most,
               .target = 1.0,
               .our_cpu = cost});
}

enum class measured_by : unsigned char { clock, processor };

/// Operations that other work precedes, each measured by itself.
struct series {
    std::vector<double> us{};
    std::vector<cpu_cost> cpu{};

    /// The time and the processor time are not of the same operations: reading the latter takes
    /// milliseconds, after which all caches are cold.
    /// @param timed does one, and returns its time
    void add(measured_by what, const std::function<double()>& timed) {
        if (what == measured_by::clock) {
            us.push_back(timed());
            return;
        }
        const cpu_meter used;
        static_cast<void>(timed());
        std::this_thread::sleep_for(5ms);  // other threads finish their part of it
        cpu.push_back(used.for_each_of(1));
    }
};

/// How long the other client's acquire takes while the lease is idle.
void recall(series& into, measured_by what, rowlock::client& keeper, rowlock::client& other,
            const rowlock::lock_name& name) {
    // A retention that saved less would make the next one rarer.
    const auto local = keeper.stats().local_grants;
    while (keeper.stats().local_grants < local + 20) pair(keeper, name);
    into.add(what, [&] {
        const auto called = steady::now();
        const auto recalled = other.acquire(name);  // released after the time was taken
        return std::chrono::duration<double, std::micro>(steady::now() - called).count();
    });
}

/// From the holder's release to the waiter's return.
void hand_over(series& into, measured_by what, rowlock::client& holder, rowlock::client& waiter,
               const rowlock::lock_name& name) {
    auto held = holder.acquire(name);
    auto waited = std::async(std::launch::async, [&] {
        const auto next = waiter.acquire(name);
        return steady::now();
    });
    while (holder.inspect(name)->waiting == 0) std::this_thread::yield();
    std::this_thread::sleep_for(3ms);  // the holder sees the waiter before its release
    into.add(what, [&] {
        const auto released = steady::now();
        held.release();
        return std::chrono::duration<double, std::micro>(waited.get() - released).count();
    });
}

void measure_recall(findings& found, const std::string& id, const tables& where, int times) {
    const auto keeper = client_of(where, true);
    const auto plain = client_of(where, false);
    const auto other = client_of(where, false);
    const rowlock::lock_name idle{"idle"}, held{"held"};
    series recalls, hand_overs;
    for (const auto what : {measured_by::clock, measured_by::processor}) {
        for (int i = 0; i < times; ++i) {
            recall(recalls, what, *keeper, *other, idle);
            hand_over(hand_overs, what, *plain, *other, held);
        }
    }
    found.note(fmt::format("{}: p90 of a recall {:.0f} us, of a hand-over {:.0f} us", id,
                           quantile(recalls.us, 0.9), quantile(hand_overs.us, 0.9)));
    found.add({.id = id,
               .ours = quantile(recalls.us, 0.5),
               .theirs = quantile(hand_overs.us, 0.5),
               .unit = "us",
               .side = wanted::at_most,
               .target = 1.5,
               .our_cpu = median(recalls.cpu),
               .their_cpu = median(hand_overs.cpu)});
}

void measure(const program_options& common, const std::vector<std::string>& databases,
             const throughput_options& options, findings& found) {
    const auto rounds = rounds_of(common, options);
    const temporary_folder folder;
    for (const std::string& each : databases) {
        const tables where{url_of(each, folder)};
        measure_pair(found, fmt::format("T17/pair-{}", each), where);
        for (const int threads : {1, 16}) {
            const auto kept =
                compare(found, fmt::format("T17/{}-{}", each, threads),
                        both([&](bool keeps) { return pairs(where, keeps, threads); }),
                        threads == 1 ? 100 : 20, rounds);
            if (threads == 1) continue;
            found.add({.id = fmt::format("T17/threads-{}", each),
                       .ours = kept.per_second,
                       .unit = "turns/s",
                       .target = 5'000'000,
                       .our_cpu = kept.cpu});
        }
        measure_recall(found, fmt::format("T17/recall-{}", each), where, common.quick ? 20 : 100);
        for (const int in_a_row : {1, 16}) {
            compare(found, fmt::format("T17/in-turn-{}-{}", each, in_a_row), both([&](bool keeps) {
                        return line_up(keeps ? "kept" : "plain", 1, [&](int) {
                            return std::make_unique<in_turn>(where, keeps, in_a_row);
                        });
                    }),
                    0.9, rounds);
        }
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_on_databases(
        argc, argv, "Measures leases that a client retains after their release.", bench::measure);
}
