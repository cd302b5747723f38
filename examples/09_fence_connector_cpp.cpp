// A lease and the data it protects in one transaction, on a Connector/C++ connection of your own;
// the lock is released by the commit itself.
//
//   09_fence_connector_cpp mysql://user:password@host:port/database

#include "example.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/rowlock.hpp>

#include <cppconn/connection.h>
#include <cppconn/driver.h>
#include <cppconn/resultset.h>
#include <cppconn/statement.h>

#include <iostream>
#include <memory>

int main(int argc, char** argv) {
    const auto url = example::server_url(argc, argv, "ROWLOCK_TEST_MARIADB_URL");
    return example::run(url, [&](const rowlock::sql::connection_source& database) {
        const auto server = example::parts_of(url);
        const std::unique_ptr<sql::Connection> mine{get_driver_instance()->connect(
            "tcp://" + server.host_and_port, server.user, server.password)};
        mine->setSchema(server.database);
        const std::unique_ptr<sql::Statement> statement{mine->createStatement()};
        statement->execute("create temporary table account (id int primary key, balance int)");
        statement->execute("insert into account values (1, 100)");

        rowlock::client locks{database};
        auto lease = locks.acquire("example/account/1");
        {
            rowlock::mysql::connection_ref db{mine.get()};  // borrowed, never closed
            mine->setAutoCommit(false);
            rowlock::fence(db, lease);  // throws unless the lock is held
            statement->execute("update account set balance = balance - 30 where id = 1");
            rowlock::release_on_commit(db, lease);  // free with the commit, not before
            mine->commit();
            mine->setAutoCommit(true);
        }  // restores the settings
        const std::unique_ptr<sql::ResultSet> row{
            statement->executeQuery("select balance from account")};
        row->next();
        std::cout << "paid; left: " << row->getInt(1) << "; the lock is "
                  << (locks.inspect("example/account/1")->holder ? "held\n" : "free\n");
    });
}
