// A name locked by the database server for a connection: no table, one round trip, freed with the
// connection. PostgreSQL, MariaDB and MySQL.
//
//   14_advisory_lock URL

#include "example.hpp"
#include <rowlock/rowlock.hpp>

#include <iostream>

int main(int argc, char** argv) {
    const auto url = example::server_url(argc, argv, "ROWLOCK_TEST_POSTGRESQL_URL");
    return example::run(url, [&](const rowlock::sql::connection_source& database) {
        rowlock::advisory_client here{database};
        rowlock::advisory_client there{database};  // as in another program

        auto import = here.lock("example/import");
        std::cout << "there: " << (there.try_lock("example/import") ? "locked" : "busy") << '\n';

        std::stop_callback stop{import.lost(), [] { std::cerr << "the connection broke\n"; }};
        if (import.held()) std::cout << "importing\n";  // held() asks no network
        import.unlock();
        std::cout << "there: " << (there.try_lock("example/import") ? "locked" : "busy") << '\n';

        if (database.speaks() != rowlock::sql::dialect::postgresql) return;
        const auto reader = here.try_lock_shared("example/prices");
        const auto another = there.try_lock_shared("example/prices");
        std::cout << "two readers: " << (reader && another ? "yes" : "no") << '\n';
    });
}
