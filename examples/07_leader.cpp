// Leader election: many candidates, one leader. The holder of the lease is the leader. It leads
// until it resigns or loses the lease, and another follows with a greater token.
//
//   07_leader [URL]

#include "example.hpp"
#include <rowlock/client.hpp>

#include <iostream>
#include <sstream>
#include <thread>
#include <vector>

namespace {

/// A term of office: some work, while the lease is held.
void lead(const rowlock::lease& office, int candidate) {
    for (int step = 1; step <= 2 && !office.lost().stop_requested(); ++step) {
        std::ostringstream line;
        line << "candidate " << candidate << " leads with token " << office.token().value()
             << ", step " << step << '\n';
        std::cout << line.str();
    }
}

/// Stands for election until it has served one term or a stop is requested.
void stand(const rowlock::sql::connection_source& database, int candidate, std::stop_token stop) {
    rowlock::client locks{database};  // as in a separate process
    if (auto office = locks.acquire("leader", stop)) {
        lead(*office, candidate);
        office->release();  // resigns; a leader that crashes is replaced after its ttl
    }
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        std::vector<std::jthread> candidates;
        for (int i = 1; i <= 3; ++i) {
            candidates.emplace_back([&, i](std::stop_token stop) { stand(database, i, stop); });
        }
        // Each has its term; without this the end of the scope would ask them to stop.
        for (auto& candidate : candidates) candidate.join();
    });
}
