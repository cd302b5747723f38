// A lease and the data it protects in one transaction, on a SOCI session of your own. The same
// code serves SOCI's PostgreSQL, MySQL and SQLite backends.
//
//   11_fence_soci [sqlite:FILE]

#include "example.hpp"
#include <rowlock/driver/soci.hpp>
#include <rowlock/rowlock.hpp>

#include <soci/soci.h>

#include <iostream>

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        const std::string file = database.description().substr(std::string{"sqlite:"}.size());
        soci::session mine{"sqlite3", "dbname=" + file + " timeout=5"};
        mine << "create table if not exists account (id integer primary key, balance integer)";
        mine << "insert or replace into account values (1, 100)";

        rowlock::client locks{database};
        const auto lease = locks.acquire("example/account/1");
        rowlock::soci::connection_ref db{mine};  // borrowed, never closed
        {
            soci::transaction payment{mine};
            rowlock::fence(db, lease);  // throws unless the lock is held
            mine << "update account set balance = balance - :sum where id = 1", soci::use(30);
            payment.commit();
        }
        int left = 0;
        mine << "select balance from account", soci::into(left);
        std::cout << "paid; left: " << left << '\n';

        locks.force_release("example/account/1");  // an operator takes the lock away
        try {
            soci::transaction payment{mine};
            rowlock::fence(db, lease);
            payment.commit();
        } catch (const rowlock::error& failure) {  // the transaction was rolled back
            std::cout << "not paid twice: " << failure.what() << '\n';
        }
    });
}
