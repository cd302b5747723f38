#include "common/postgresql.hpp"

#include <libpq-fe.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>

namespace bench {
namespace {

struct free_memory {
    void operator()(void* memory) const { ::PQfreemem(memory); }
};

}  // namespace

void postgresql_session::close_connection::operator()(pg_conn* connection) const {
    ::PQfinish(connection);
}

void postgresql_session::clear_result::operator()(pg_result* result) const {
    ::PQclear(result);
}

postgresql_session::postgresql_session(const std::string& url)
    : connection_{::PQconnectdb(url.c_str())} {
    if (::PQstatus(connection_.get()) != CONNECTION_OK) fail();
    query("set client_min_messages = warning");
}

void postgresql_session::prepare(const char* name, const char* text) {
    check(::PQprepare(connection_.get(), name, text, 0, nullptr));
}

postgresql_session::answer postgresql_session::run(const char* name,
                                                   std::initializer_list<const char*> parameters) {
    return check(::PQexecPrepared(connection_.get(), name, static_cast<int>(parameters.size()),
                                  parameters.begin(), nullptr, nullptr, 0));
}

postgresql_session::answer postgresql_session::query(const std::string& text) {
    return check(::PQexec(connection_.get(), text.c_str()));
}

std::string postgresql_session::text_of(const std::string& text) {
    return ::PQgetvalue(query(text).get(), 0, 0);
}

std::int64_t postgresql_session::integer_of(const std::string& text) {
    return std::stoll(text_of(text));
}

void postgresql_session::await_notification() {
    using notification = std::unique_ptr<PGnotify, free_memory>;
    const auto last = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    while (notification{::PQnotifies(connection_.get())} == nullptr) {
        pollfd watched{::PQsocket(connection_.get()), POLLIN, 0};
        if (::poll(&watched, 1, 1000) < 0 && errno != EINTR) fail();
        if (::PQconsumeInput(connection_.get()) == 0) fail();
        if (std::chrono::steady_clock::now() > last) {
            throw std::runtime_error{"waited for a minute and heard nothing"};
        }
    }
}

postgresql_session::answer postgresql_session::check(pg_result* result) {
    answer owned{result};
    const auto status = ::PQresultStatus(owned.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail();
    return owned;
}

void postgresql_session::fail() {
    throw std::runtime_error{std::string{"libpq: "} + ::PQerrorMessage(connection_.get())};
}

std::int64_t rows_of(const postgresql_session::answer& result) {
    if (::PQresultStatus(result.get()) == PGRES_TUPLES_OK) return ::PQntuples(result.get());
    const std::string changed = ::PQcmdTuples(result.get());
    return changed.empty() ? 0 : std::stoll(changed);
}

}  // namespace bench
