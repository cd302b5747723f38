// A function that locks calls another that locks the same name: a recursive_mutex admits its owner
// again, without a round trip.
//
//   04_recursive [URL]

#include "example.hpp"
#include <rowlock/mutex.hpp>

#include <iostream>
#include <mutex>

namespace {

void rebuild_index(rowlock::client& locks) {
    // Objects of one name in one client share their hold.
    rowlock::recursive_mutex catalog{locks, "catalog"};
    const std::lock_guard guard{catalog};
    std::cout << "index: depth " << catalog.depth() << ", token " << catalog.token().value()
              << '\n';
}

void import_products(rowlock::client& locks) {
    rowlock::recursive_mutex catalog{locks, "catalog"};
    const std::lock_guard guard{catalog};
    std::cout << "import: depth " << catalog.depth() << ", token " << catalog.token().value()
              << '\n';
    rebuild_index(locks);
    std::cout << "import again: depth " << catalog.depth() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        rowlock::client locks{database};
        import_products(locks);
        std::cout << (locks.inspect("catalog")->holder ? "still held\n" : "free again\n");
    });
}
