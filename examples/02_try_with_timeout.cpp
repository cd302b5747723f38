// Another client holds the lock: do not wait, or wait for a limited time.
//
//   02_try_with_timeout [URL]

#include "example.hpp"
#include <rowlock/client.hpp>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        rowlock::client here{database};
        rowlock::client elsewhere{database};  // stands for another machine

        auto theirs = elsewhere.acquire("import", {.note = "importing since this morning"});

        // Contention is not an error: the result is an empty optional.
        if (!here.try_acquire("import")) std::cout << "busy, so I do something else\n";

        if (!here.try_acquire_for("import", 300ms)) {
            const auto row = here.inspect("import");
            std::cout << "still busy after 300 ms: " << row->holder->note << ", process "
                      << row->holder->pid << " on " << row->holder->host << '\n';
        }

        theirs.release();  // like the destructor, but throws on failure
        if (const auto mine = here.try_acquire_for("import", 5s)) {
            std::cout << "my turn, with a greater token: " << mine->token().value() << '\n';
        }
    });
}
