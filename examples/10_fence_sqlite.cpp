// A lease and the data it protects in one transaction, on an SQLite handle of your own.
//
//   10_fence_sqlite [sqlite:FILE]

#include "example.hpp"
#include <rowlock/driver/sqlite.hpp>
#include <rowlock/rowlock.hpp>

#include <sqlite3.h>

#include <iostream>
#include <memory>

namespace {

/// Any code of yours that speaks to SQLite.
void run(sqlite3* handle, const char* text) {
    if (sqlite3_exec(handle, text, nullptr, nullptr, nullptr) != SQLITE_OK) {
        throw std::runtime_error{sqlite3_errmsg(handle)};
    }
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        const std::string file = database.description().substr(std::string{"sqlite:"}.size());
        sqlite3* handle = nullptr;
        sqlite3_open(file.c_str(), &handle);
        const std::unique_ptr<sqlite3, decltype(&sqlite3_close)> mine{handle, sqlite3_close};
        run(handle, "pragma busy_timeout = 5000");
        run(handle, "create table if not exists account (id integer primary key, balance integer)");
        run(handle, "insert or replace into account values (1, 100)");

        rowlock::client locks{database};
        const auto lease = locks.acquire("example/account/1");
        rowlock::sqlite::connection_ref db{handle};  // borrowed, never closed

        run(handle, "begin immediate");
        rowlock::fence(db, lease);  // throws unless the lock is held; keep the transaction short
        run(handle, "update account set balance = balance - 30 where id = 1");
        run(handle, "commit");
        std::cout << "paid, under fencing token " << lease.token().value() << '\n';

        locks.force_release("example/account/1");  // an operator takes the lock away
        run(handle, "begin immediate");
        try {
            rowlock::fence(db, lease);
        } catch (const rowlock::error& failure) {
            std::cout << "not paid twice: " << failure.what() << '\n';
        }
        run(handle, "rollback");
    });
}
