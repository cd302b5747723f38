// A lease and the data it protects in one transaction, on a libpq connection of your own.
//
//   08_fence_libpq postgresql://user@host/database

#include "example.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/rowlock.hpp>

#include <libpq-fe.h>

#include <iostream>
#include <memory>

namespace {

/// Any code of yours that speaks to libpq.
std::string run(PGconn* connection, const char* text) {
    const std::unique_ptr<PGresult, decltype(&PQclear)> answer{PQexec(connection, text), PQclear};
    const auto status = PQresultStatus(answer.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        throw std::runtime_error{PQerrorMessage(connection)};
    }
    return PQntuples(answer.get()) > 0 ? PQgetvalue(answer.get(), 0, 0) : "";
}

}  // namespace

int main(int argc, char** argv) {
    const auto url = example::server_url(argc, argv, "ROWLOCK_TEST_POSTGRESQL_URL");
    return example::run(url, [&](const rowlock::sql::connection_source& database) {
        const std::unique_ptr<PGconn, decltype(&PQfinish)> mine{PQconnectdb(url.c_str()), PQfinish};
        run(mine.get(), "create temporary table account as select 1 as id, 100 as balance");

        rowlock::client locks{database};
        const auto lease = locks.acquire("example/account/1");
        rowlock::postgresql::connection_ref db{mine.get()};  // borrowed, never closed

        run(mine.get(), "begin");
        rowlock::fence(db, lease);  // throws unless the lock is held, and keeps it until the commit
        run(mine.get(), "update account set balance = balance - 30 where id = 1");
        run(mine.get(), "commit");
        std::cout << "paid; left: " << run(mine.get(), "select balance from account") << '\n';

        locks.force_release("example/account/1");  // an operator takes the lock away
        run(mine.get(), "begin");
        try {
            rowlock::fence(db, lease);
        } catch (const rowlock::error& failure) {
            std::cout << "not paid twice: " << failure.what() << '\n';
        }
        run(mine.get(), "rollback");
    });
}
