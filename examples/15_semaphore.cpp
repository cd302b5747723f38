// A limit on the connections to a fragile service, over all processes: at most three at a time, and
// a bulk export counts as two.
//
//   15_semaphore [URL]

#include "example.hpp"
#include <rowlock/semaphore.hpp>

#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

void say(const std::string& line) {
    std::ostringstream whole;
    whole << line << '\n';
    std::cout << whole.str();
}

void call_service(const rowlock::sql::connection_source& database, int worker) {
    rowlock::client locks{database};  // as in a separate process
    rowlock::semaphore limit{locks, "billing service"};
    limit.create(3);  // the first process; an operator may change it later: set_capacity()
    const bool exports = worker == 1;
    const auto connections =
        limit.acquire(exports ? 2 : 1, {.note = exports ? "export" : "request"});
    // Work; a program that works for long looks at connections.lost().
    say("worker " + std::to_string(worker) + " has " + std::to_string(connections.count()) +
        " of " + std::to_string(limit.inspect()->capacity));
}  // they are given back, and the next waiter goes on

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        std::vector<std::jthread> workers;
        for (int i = 1; i <= 6; ++i) workers.emplace_back([&, i] { call_service(database, i); });
    });
}
