#include "driver/libpq_fixture.hpp"

#include "support/server_address.hpp"
#include <rowlock/driver/postgresql.hpp>

#include <libpq-fe.h>

#include <stdexcept>

namespace contract {
namespace {

server_address server() {
    return address_of(support::server::postgresql);
}

class pg_handle final : public borrowed_handle {
public:
    pg_handle() : handle_{PQconnectdb(server().url().c_str())} {
        if (PQstatus(handle_) != CONNECTION_OK) throw std::runtime_error{PQerrorMessage(handle_)};
    }
    pg_handle(const pg_handle&) = delete;
    pg_handle& operator=(const pg_handle&) = delete;
    ~pg_handle() override { PQfinish(handle_); }

    std::unique_ptr<rowlock::sql::connection> ref() override {
        return std::make_unique<rowlock::postgresql::connection_ref>(handle_);
    }

    std::string run(const std::string& text) override {
        PGresult* const answer = PQexec(handle_, text.c_str());
        const ExecStatusType status = PQresultStatus(answer);
        std::string cell;
        if (status == PGRES_TUPLES_OK && PQntuples(answer) > 0) cell = PQgetvalue(answer, 0, 0);
        PQclear(answer);
        if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
            throw std::runtime_error{PQerrorMessage(handle_)};
        }
        return cell;
    }

private:
    PGconn* handle_;
};

}  // namespace

bool libpq_fixture::available() {
    return support::url_of(support::server::postgresql).has_value();
}

rowlock::sql::connection_source libpq_fixture::source() {
    return rowlock::postgresql::open(server().url());
}

rowlock::sql::connection_source libpq_fixture::source_with(const server_change& change) {
    server_address changed = server();
    if (change.password) changed.password = *change.password;
    if (change.database) changed.database = *change.database;
    if (change.port) {
        changed.host = "127.0.0.1";
        changed.port = *change.port;
    }
    return rowlock::postgresql::open(changed.url());
}

std::uint16_t libpq_fixture::server_port() {
    return server().port;
}

std::unique_ptr<borrowed_handle> libpq_fixture::borrow() {
    return std::make_unique<pg_handle>();
}

}  // namespace contract
