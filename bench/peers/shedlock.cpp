#include "peers/shedlock.hpp"

#include "common/mysql.hpp"
#include "common/postgresql.hpp"

#include <cppconn/connection.h>
#include <cppconn/prepared_statement.h>
#include <cppconn/statement.h>
#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>

namespace bench {
namespace {

std::string table_name() {
    return fmt::format("shedlock_{}", ::getpid());
}

void report(const std::exception& failure) {
    fmt::print(stderr, "cannot drop the table {}: {}\n", table_name(), failure.what());
}

[[noreturn]] void not_locked() {
    throw std::runtime_error{"ShedLock's statements: not locked"};
}

class postgresql_task final : public worker {
public:
    postgresql_task(const std::string& url, std::string name)
        : session_{url}, name_{std::move(name)} {
        session_.query(
            fmt::format("insert into {} (name, lock_until, locked_at, locked_by) values "
                        "('{}', now(), now(), 'bench')",
                        table_name(), name_));
        session_.prepare("lock", fmt::format("update {} set lock_until = now() + '10 minutes', "
                                             "locked_at = now(), locked_by = $2 "
                                             "where name = $1 and lock_until <= now()",
                                             table_name())
                                     .c_str());
        session_.prepare("unlock", fmt::format("update {} set lock_until = now() "
                                               "where name = $1 and locked_by = $2",
                                               table_name())
                                       .c_str());
    }
    void turn() override {
        if (rows_of(session_.run("lock", {name_.c_str(), "bench"})) != 1) not_locked();
        session_.run("unlock", {name_.c_str(), "bench"});
    }

private:
    postgresql_session session_;
    const std::string name_;
};

class postgresql_table final : public shedlock_table {
public:
    explicit postgresql_table(const std::string& url) : url_{url}, session_{url} {
        session_.query("create table " + table_name() +
                       " (name varchar(64) primary key, lock_until timestamp not null, "
                       "locked_at timestamp not null, locked_by varchar(255) not null)");
    }
    ~postgresql_table() override {
        try {
            session_.query("drop table " + table_name());
        } catch (const std::exception& failure) {
            report(failure);
        }
    }
    std::unique_ptr<worker> task(const std::string& name) override {
        return std::make_unique<postgresql_task>(url_, name);
    }

private:
    std::string url_;
    postgresql_session session_;
};

void run(::sql::Connection& connection, const std::string& text) {
    const std::unique_ptr<::sql::Statement> statement{connection.createStatement()};
    statement->execute(text);
}

class mariadb_task final : public worker {
public:
    mariadb_task(const std::string& url, const std::string& name)
        : connection_{connect_mysql(url)} {
        run(*connection_, fmt::format("insert into {} (name, lock_until, locked_at, locked_by) "
                                      "values ('{}', utc_timestamp(3), utc_timestamp(3), 'bench')",
                                      table_name(), name));
        lock_.reset(connection_->prepareStatement(fmt::format(
            "update {} set lock_until = timestampadd(microsecond, ?, utc_timestamp(3)), "
            "locked_at = utc_timestamp(3), locked_by = ? "
            "where name = ? and lock_until <= utc_timestamp(3)",
            table_name())));
        lock_->setInt64(1, 600'000'000);
        lock_->setString(2, "bench");
        lock_->setString(3, name);
        unlock_.reset(connection_->prepareStatement(fmt::format(
            "update {} set lock_until = utc_timestamp(3) where name = ? and locked_by = ?",
            table_name())));
        unlock_->setString(1, name);
        unlock_->setString(2, "bench");
    }
    void turn() override {
        if (lock_->executeUpdate() != 1) not_locked();
        unlock_->executeUpdate();
    }

private:
    std::shared_ptr<::sql::Connection> connection_;
    std::unique_ptr<::sql::PreparedStatement> lock_, unlock_;
};

class mariadb_table final : public shedlock_table {
public:
    explicit mariadb_table(const std::string& url) : url_{url}, connection_{connect_mysql(url)} {
        run(*connection_,
            "create table " + table_name() +
                " (name varchar(64) not null primary key, lock_until timestamp(3) not "
                "null, locked_at timestamp(3) not null default current_timestamp(3), "
                "locked_by varchar(255) not null)");
    }
    ~mariadb_table() override {
        try {
            run(*connection_, "drop table " + table_name());
        } catch (const std::exception& failure) {
            report(failure);
        }
    }
    std::unique_ptr<worker> task(const std::string& name) override {
        return std::make_unique<mariadb_task>(url_, name);
    }

private:
    std::string url_;
    std::shared_ptr<::sql::Connection> connection_;
};

}  // namespace

std::unique_ptr<shedlock_table> shedlock_on_postgresql(const std::string& url) {
    return std::make_unique<postgresql_table>(url);
}

std::unique_ptr<shedlock_table> shedlock_on_mariadb(const std::string& url) {
    return std::make_unique<mariadb_table>(url);
}

}  // namespace bench
