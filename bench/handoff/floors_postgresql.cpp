#include "handoff/contests.hpp"

#include <libpq-fe.h>
#include <poll.h>

#include <cerrno>
#include <stdexcept>

namespace handoff {
namespace {

struct close_connection {
    void operator()(PGconn* connection) const { ::PQfinish(connection); }
};
struct clear_result {
    void operator()(PGresult* result) const { ::PQclear(result); }
};
struct free_memory {
    void operator()(void* memory) const { ::PQfreemem(memory); }
};

/// One connection and its prepared statements of one text parameter.
class session {
public:
    session(const std::string& url, std::atomic<std::uint64_t>& statements)
        : connection_{::PQconnectdb(url.c_str())}, statements_{statements} {
        if (::PQstatus(connection_.get()) != CONNECTION_OK) fail();
    }

    void prepare(const char* name, const char* text) {
        check(::PQprepare(connection_.get(), name, text, 0, nullptr));
    }
    void run(const char* name, const std::string& parameter) {
        const char* const values[] = {parameter.c_str()};
        ++statements_;
        check(::PQexecPrepared(connection_.get(), name, 1, values, nullptr, nullptr, 0));
    }
    void query(const std::string& text) { check(::PQexec(connection_.get(), text.c_str())); }

    void await_notification() {
        using notification = std::unique_ptr<PGnotify, free_memory>;
        const auto last = std::chrono::steady_clock::now() + patience;
        while (notification{::PQnotifies(connection_.get())} == nullptr) {
            pollfd watched{::PQsocket(connection_.get()), POLLIN, 0};
            if (::poll(&watched, 1, 1000) < 0 && errno != EINTR) fail();
            if (::PQconsumeInput(connection_.get()) == 0) fail();
            if (std::chrono::steady_clock::now() > last) {
                throw std::runtime_error{"waited for a minute and heard nothing"};
            }
        }
    }

private:
    void check(PGresult* answer) {
        const std::unique_ptr<PGresult, clear_result> result{answer};
        const auto status = ::PQresultStatus(result.get());
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail();
    }
    [[noreturn]] void fail() {
        throw std::runtime_error{std::string{"libpq: "} + ::PQerrorMessage(connection_.get())};
    }

    std::unique_ptr<PGconn, close_connection> connection_;
    std::atomic<std::uint64_t>& statements_;
};

class advisory_contender final : public contender {
public:
    advisory_contender(const std::string& url, const std::string& key, const entrant& who)
        : session_{url, who.statements}, key_{key} {
        session_.query("set statement_timeout = '60s'");
        session_.prepare("lock", "select pg_advisory_lock(hashtextextended($1, 0))");
        session_.prepare("unlock", "select pg_advisory_unlock(hashtextextended($1, 0))");
    }
    void acquire() override { session_.run("lock", key_); }
    void release() override { session_.run("unlock", key_); }

private:
    session session_;
    std::string key_;
};

class ring_contender final : public contender {
public:
    ring_contender(const std::string& url, const std::string& tag, const entrant& who)
        : session_{url, who.statements},
          next_{tag + "_" + std::to_string((who.index + 1) % who.clients)},
          begins_{who.index == 0} {
        session_.query("listen " + tag + "_" + std::to_string(who.index));
        session_.prepare("notify", "select pg_notify($1, '')");
    }
    void acquire() override {
        if (!begins_) session_.await_notification();
        begins_ = false;
    }
    void release() override { session_.run("notify", next_); }

private:
    session session_;
    std::string next_;
    bool begins_;
};

}  // namespace

contest postgresql_advisory_lock(const std::string& url, const std::string& tag) {
    return {"floor: pg_advisory_lock", [=](const entrant& who) {
                return std::make_unique<advisory_contender>(url, tag, who);
            }};
}

contest postgresql_notify_ring(const std::string& url, const std::string& tag) {
    return {"floor: NOTIFY ring",
            [=](const entrant& who) { return std::make_unique<ring_contender>(url, tag, who); }};
}

}  // namespace handoff
