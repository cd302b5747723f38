#include "common/measure.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>

namespace bench {
namespace {

using std::chrono::steady_clock;

double in_us(steady_clock::duration time) {
    return std::chrono::duration<double, std::micro>{time}.count();
}

/// The measurements of one thread in one round.
struct lane {
    std::vector<double> turns_us{};
    std::exception_ptr failure{};
};

void run_lane(worker& who, const std::atomic<bool>& started, const std::atomic<bool>& stopped,
              lane& into) {
    while (!started) std::this_thread::yield();
    try {
        auto before = steady_clock::now();
        while (!stopped.load(std::memory_order_relaxed)) {
            who.turn();
            const auto after = steady_clock::now();
            into.turns_us.push_back(in_us(after - before));
            before = after;
        }
    } catch (...) {
        into.failure = std::current_exception();
    }
}

/// Not a number if none was measured.
template <typename Round, typename Value>
double median_of(const std::vector<Round>& rounds, Value value) {
    std::vector<double> values;
    for (const Round& each : rounds) values.push_back(value(each));
    return std::isnan(values.front()) ? values.front() : median(std::move(values));
}

}  // namespace

contestant line_up(std::string title, int threads,
                   const std::function<std::unique_ptr<worker>(int)>& make) {
    contestant result{std::move(title), {}};
    for (int i = 0; i < threads; ++i) result.workers.push_back(make(i));
    return result;
}

pace run_round(contestant& who, std::chrono::milliseconds duration) {
    std::atomic<bool> started = false;
    std::atomic<bool> stopped = false;
    std::vector<lane> lanes(who.workers.size());
    const cpu_meter cpu;
    steady_clock::time_point begin;
    steady_clock::time_point end;
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < lanes.size(); ++i) {
            threads.emplace_back([&, i] { run_lane(*who.workers[i], started, stopped, lanes[i]); });
        }
        begin = steady_clock::now();
        started = true;
        std::this_thread::sleep_until(begin + duration);
        stopped = true;
    }
    end = steady_clock::now();  // turns that had begun are finished and count
    std::vector<double> turns;
    pace result;
    for (lane& each : lanes) {
        if (each.failure) std::rethrow_exception(each.failure);
        if (each.turns_us.empty()) continue;
        result.worst_p99_us = std::max(result.worst_p99_us, quantile(each.turns_us, 0.99));
        turns.insert(turns.end(), each.turns_us.begin(), each.turns_us.end());
    }
    const double seconds = in_us(end - begin) / 1e6;
    result.per_second = static_cast<double>(turns.size()) / seconds;
    if (turns.empty()) return result;
    result.cpu = cpu.for_each_of(static_cast<double>(turns.size()));
    result.p50_us = quantile(turns, 0.50);
    result.p99_us = quantile(turns, 0.99);
    return result;
}

std::vector<pace> take_turns(std::vector<contestant>& contestants, const round_options& options) {
    std::vector<std::vector<pace>> rounds(contestants.size());
    for (contestant& each : contestants) (void)run_round(each, options.warm_up);
    for (int round = 0; round < options.rounds; ++round) {
        for (std::size_t i = 0; i < contestants.size(); ++i) {
            rounds[i].push_back(run_round(contestants[i], options.each));
        }
    }
    std::vector<pace> medians;
    for (const auto& each : rounds) medians.push_back(median(each));
    return medians;
}

pace median(const std::vector<pace>& rounds) {
    std::vector<cpu_cost> costs;
    for (const pace& each : rounds) costs.push_back(each.cpu);
    return {.per_second = median_of(rounds, [](const pace& it) { return it.per_second; }),
            .p50_us = median_of(rounds, [](const pace& it) { return it.p50_us; }),
            .p99_us = median_of(rounds, [](const pace& it) { return it.p99_us; }),
            .worst_p99_us = median_of(rounds, [](const pace& it) { return it.worst_p99_us; }),
            .cpu = median(costs)};
}

double median(std::vector<double> values) {
    return quantile(values, 0.5);
}

cpu_cost median(const std::vector<cpu_cost>& costs) {
    return {.client_us = median_of(costs, [](const cpu_cost& it) { return it.client_us; }),
            .server_us = median_of(costs, [](const cpu_cost& it) { return it.server_us; })};
}

double quantile(std::vector<double>& values, double fraction) {
    const auto rank =
        static_cast<std::ptrdiff_t>(fraction * static_cast<double>(values.size() - 1));
    std::ranges::nth_element(values, values.begin() + rank);
    return values[static_cast<std::size_t>(rank)];
}

double duration_us(const std::function<void()>& action) {
    const auto before = steady_clock::now();
    action();
    return in_us(steady_clock::now() - before);
}

}  // namespace bench
