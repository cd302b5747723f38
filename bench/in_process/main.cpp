// Operations without a database (T9): re-entry by the thread that holds the lock, and held().
#include "common/measure.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include <rowlock/mutex.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <mutex>
#include <stdexcept>

namespace bench {
namespace {

constexpr int rounds = 15;

/// The time of one `action` in nanoseconds, the median of several rounds.
template <typename Action>
double nanoseconds_of(int times, const Action& action) {
    std::vector<double> each;
    for (int round = -1; round < rounds; ++round) {
        const double us = duration_us([&] {
            for (int i = 0; i < times; ++i) action();
        });
        if (round >= 0) each.push_back(us * 1000 / times);
    }
    return median(each);
}

void measure(const program_options& options, findings& found) {
    const int times = options.quick ? 100'000 : 1'000'000;
    const temporary_folder folder;
    const tables where{"sqlite:" + (folder.path() / "locks.db").string()};
    rowlock::client locks{where.source()};

    rowlock::recursive_mutex again{locks, "again"};
    std::recursive_mutex standard;
    const std::lock_guard outer{again};
    const std::lock_guard standard_outer{standard};
    const double ours = nanoseconds_of(times, [&] {
        again.lock();
        again.unlock();
    });
    const double theirs = nanoseconds_of(times, [&] {
        standard.lock();
        standard.unlock();
    });
    const auto lease = locks.acquire("held");
    int held = 0;
    const double asking = nanoseconds_of(times, [&] { held += lease.held() ? 1 : 0; });
    if (held != (rounds + 1) * times) throw std::runtime_error{"the lease was lost meanwhile"};

    found.note(fmt::format("lock and unlock again: {:.0f} ns; std::recursive_mutex: {:.0f} ns",
                           ours, theirs));
    found.add({.id = "T9/re-entry",
               .ours = ours,
               .unit = "ns, lock and unlock",
               .side = wanted::at_most,
               .target = 200});
    found.add(
        {.id = "T9/held", .ours = asking, .unit = "ns", .side = wanted::at_most, .target = 50});
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_program(argc, argv, "Measures operations without a database.",
                              bench::measure);
}
