// A report that is to be made once a day, though three schedulers ask for it, whose clocks differ.
// One of them fails at first: then another makes it.
//
//   18_periodic [URL]

#include "example.hpp"
#include <rowlock/periodic_run.hpp>

#include <atomic>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

std::atomic<int> reports{0};

void say(const std::string& line) {
    std::ostringstream whole;
    whole << line << '\n';
    std::cout << whole.str();
}

void make_report(int scheduler, const rowlock::lease& held) {
    if (scheduler == 1) throw std::runtime_error{"no paper"};
    if (held.held()) ++reports;
}

void schedule(const rowlock::sql::connection_source& database, int scheduler) {
    rowlock::client locks{database};  // as in a separate process
    const auto name = "scheduler " + std::to_string(scheduler);
    try {
        const auto outcome = rowlock::run_once(
            locks, "report", {.period = "2026-11-26", .wait = std::chrono::seconds{10}},
            [&](const rowlock::lease& held) { make_report(scheduler, held); });
        say(name + ": " + rowlock::to_string(outcome));
    } catch (const std::runtime_error& failure) {
        say(name + " failed: " + failure.what());
    }
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        {
            std::vector<std::jthread> all;
            for (int i = 1; i <= 3; ++i) all.emplace_back([&, i] { schedule(database, i); });
        }
        std::cout << "reports made: " << reports << '\n';
    });
}
