// One lock over three databases: it works while any two of them do.
//
//   22_quorum URL URL URL     of servers of their own, migrated, and made one quorum by `rowlock
//   quorum init`

#include <rowlock/error.hpp>
#include <rowlock/open.hpp>
#include <rowlock/quorum.hpp>

#include <exception>
#include <iostream>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    try {
        std::vector<rowlock::sql::connection_source> members;
        for (int i = 1; i < argc; ++i) members.push_back(rowlock::open(argv[i]));
        rowlock::quorum_client locks{members};

        auto held = locks.try_acquire_for("fail-over", 10s, "the nightly switch");
        if (!held) {
            std::cout << "another holds it, or no majority answers\n";
            return 1;
        }
        // What it changes must check this number: a later holder has a greater one.
        std::cout << "held by " << (held->counted() >= 2 ? "a majority" : "nothing") << "\n";
        if (held->token().value() <= 0) return 1;
        // … work, while held->held() is true
        held->release();
    } catch (const std::exception& failure) {
        std::cerr << failure.what() << '\n';
        return 1;
    }
}
