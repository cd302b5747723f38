// A lease for as long as an object lives.
//
//   01_scoped_lease [URL]

#include "example.hpp"
#include <rowlock/client.hpp>

#include <iostream>

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        rowlock::client locks{database};  // one per process
        {
            const rowlock::lease lease = locks.acquire("nightly-report");
            // Hand the token to whatever the lock protects: it can refuse older ones.
            std::cout << "holding " << lease.name() << " with fencing token "
                      << lease.token().value() << '\n';
        }  // released here
        const auto row = locks.inspect("nightly-report");
        std::cout << (row->holder ? "still held\n" : "free again\n");
    });
}
