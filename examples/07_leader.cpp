// Leader election: many candidates, one leader, and an observer that knows who leads. The leader
// leads until it steps down or loses the office, and another follows with a greater term.
//
//   07_leader [URL]

#include "example.hpp"
#include <rowlock/election.hpp>

#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

void say(const std::string& line) {
    std::ostringstream whole;
    whole << line << '\n';
    std::cout << whole.str();
}

/// Stands for election, and serves one term.
void stand(const rowlock::sql::connection_source& database, int candidate, std::stop_token stop) {
    rowlock::client locks{database};  // as in a separate process
    const auto name = "candidate " + std::to_string(candidate);
    // The third is preferred among those that wait.
    rowlock::election office{
        locks, "scheduler", {.value = name, .priority = candidate == 3 ? 1 : 0}};
    office.lead(stop, [&](rowlock::leadership& term) {
        // The work of a leader goes on as long as term.held(); what it writes is guarded by
        // rowlock::fence(db, term.lease()), or compares term.term().
        if (term.held()) say(name + " leads, term " + std::to_string(term.term().value()));
    });  // steps down; a leader that crashes is replaced after its ttl
}

/// Takes no part, and sees each leader or a later one.
void observe(const rowlock::sql::connection_source& database, std::stop_token stop) {
    rowlock::client locks{database};
    auto office = rowlock::election{locks, "scheduler"}.observe({.poll_interval = 10ms});
    while (const auto seen = office.next(stop)) {
        if (!seen->leader) continue;
        say("the observer saw " + seen->leader->value + " in term " +
            std::to_string(seen->term.value()));
    }
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        std::jthread observer{[&](std::stop_token stop) { observe(database, stop); }};
        std::vector<std::jthread> candidates;
        for (int i = 1; i <= 3; ++i) {
            candidates.emplace_back([&, i](std::stop_token stop) { stand(database, i, stop); });
        }
        // Each has its term; without this the end of the scope would ask them to stop.
        for (auto& candidate : candidates) candidate.join();
    });
}
