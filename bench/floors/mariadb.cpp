#include "common/mysql.hpp"
#include "floors/floors.hpp"

#include <cppconn/connection.h>
#include <cppconn/prepared_statement.h>
#include <cppconn/resultset.h>
#include <cppconn/statement.h>
#include <fmt/format.h>
#include <unistd.h>

#include <stdexcept>

namespace bench {
namespace {

void run(::sql::Connection& connection, const std::string& text) {
    const std::unique_ptr<::sql::Statement> statement{connection.createStatement()};
    statement->execute(text);
}

/// MySQL knows no RETURNING: there the floor reads the row in a statement of its own.
bool returns_rows(::sql::Connection& connection) {
    const std::unique_ptr<::sql::Statement> statement{connection.createStatement()};
    const std::unique_ptr<::sql::ResultSet> row{statement->executeQuery("select version()")};
    return row->next() && row->getString(1).asStdString().find("MariaDB") != std::string::npos;
}

class lease_worker final : public worker {
public:
    lease_worker(const std::string& url, const std::string& table, const std::string& name)
        : connection_{connect_mysql(url)}, owner_{fmt::format("{}:{}", ::getpid(), name)} {
        run(*connection_, "set session transaction isolation level read committed");
        // Assignments run from left to right, so the owner, which the others read, comes last.
        const std::string free = "(owner is null or expires_at <= sysdate(6))";
        const bool returns = returns_rows(*connection_);
        acquire_.reset(connection_->prepareStatement(
            fmt::format("insert into {0} (name, owner, token, expires_at) "
                        "values (?, ?, 1, sysdate(6) + interval 30 second) "
                        "on duplicate key update token = if({1}, token + 1, token), "
                        "owner = if({1}, values(owner), owner), "
                        "expires_at = if(owner = values(owner), values(expires_at), expires_at)"
                        "{2}",
                        table, free, returns ? " returning owner, token" : "")));
        if (!returns) {
            read_.reset(connection_->prepareStatement(
                fmt::format("select owner, token from {} where name = ?", table)));
            read_->setString(1, name);
        }
        release_.reset(connection_->prepareStatement(
            fmt::format("update {} set owner = null, expires_at = null "
                        "where name = ? and owner = ? and token = ?",
                        table)));
        acquire_->setString(1, name);
        acquire_->setString(2, owner_);
        release_->setString(1, name);
        release_->setString(2, owner_);
    }

    void turn() override {
        if (read_) acquire_->executeUpdate();
        const std::unique_ptr<::sql::ResultSet> granted{(read_ ? read_ : acquire_)->executeQuery()};
        if (!granted->next() || granted->getString(1) != owner_) {
            throw std::runtime_error{"floor: not granted"};
        }
        release_->setInt64(3, granted->getInt64(2));
        if (release_->executeUpdate() != 1) throw std::runtime_error{"floor: not released"};
    }

private:
    std::shared_ptr<::sql::Connection> connection_;
    std::unique_ptr<::sql::PreparedStatement> acquire_;
    std::unique_ptr<::sql::PreparedStatement> read_{};  ///< MySQL's
    std::unique_ptr<::sql::PreparedStatement> release_;
    std::string owner_;
};

class table final : public floor_table {
public:
    explicit table(const std::string& url)
        : url_{url}, connection_{connect_mysql(url)}, name_{fmt::format("floor_{}", ::getpid())} {
        run(*connection_, "drop table if exists " + name_);
        run(*connection_, "create table " + name_ +
                              " (name varbinary(255) primary key, owner varbinary(255), "
                              "token bigint not null, expires_at datetime(6)) engine = innodb");
    }
    ~table() override {
        try {
            run(*connection_, "drop table " + name_);
        } catch (const std::exception& failure) {
            fmt::print(stderr, "cannot drop the table {}: {}\n", name_, failure.what());
        }
    }
    std::unique_ptr<worker> lease(const std::string& name) override {
        return std::make_unique<lease_worker>(url_, name_, name);
    }

private:
    std::string url_;
    std::shared_ptr<::sql::Connection> connection_;
    std::string name_;
};

}  // namespace

std::unique_ptr<floor_table> mariadb_floor(const std::string& url) {
    return std::make_unique<table>(url);
}

}  // namespace bench
