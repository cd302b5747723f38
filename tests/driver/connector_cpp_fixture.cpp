#include "driver/connector_cpp_fixture.hpp"

#include "support/server_address.hpp"
#include <rowlock/driver/mysql.hpp>

#include <cppconn/connection.h>
#include <cppconn/driver.h>
#include <cppconn/exception.h>
#include <cppconn/resultset.h>
#include <cppconn/statement.h>

namespace contract {
namespace {

server_address server_in_use() {
    return address_of(support::server::mariadb);
}

class connector_handle final : public borrowed_handle {
public:
    connector_handle() {
        const server_address at = server_in_use();
        ::sql::ConnectOptionsMap options;
        options["hostName"] = "tcp://" + at.host + ":" + std::to_string(at.port);
        options["userName"] = at.user;
        options["password"] = at.password;
        options["schema"] = at.database;
        handle_.reset(get_driver_instance()->connect(options));
    }

    std::unique_ptr<rowlock::sql::connection> ref() override {
        return std::make_unique<rowlock::mysql::connection_ref>(handle_.get());
    }

    std::string run(const std::string& text) override {
        const std::unique_ptr<::sql::Statement> statement{handle_->createStatement()};
        if (!statement->execute(text)) return {};
        const std::unique_ptr<::sql::ResultSet> rows{statement->getResultSet()};
        return rows->next() ? std::string{rows->getString(1)} : std::string{};
    }

private:
    std::unique_ptr<::sql::Connection> handle_;
};

}  // namespace

bool connector_cpp_fixture::available() {
    return support::url_of(support::server::mariadb).has_value();
}

rowlock::sql::connection_source connector_cpp_fixture::source() {
    return rowlock::mysql::open(server_in_use().url());
}

rowlock::sql::connection_source connector_cpp_fixture::source_with(const server_change& change) {
    server_address changed = server_in_use();
    if (change.password) changed.password = *change.password;
    if (change.database) changed.database = *change.database;
    if (change.port) {
        changed.host = "127.0.0.1";
        changed.port = *change.port;
    }
    return rowlock::mysql::open(changed.url());
}

std::uint16_t connector_cpp_fixture::server_port() {
    return server_in_use().port;
}

std::unique_ptr<borrowed_handle> connector_cpp_fixture::borrow() {
    return std::make_unique<connector_handle>();
}

}  // namespace contract
