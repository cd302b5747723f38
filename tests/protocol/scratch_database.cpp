#include "protocol/scratch_database.hpp"

#include "support/memory_folder.hpp"
#include "support/servers.hpp"
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::sql::dialect;

rowlock::sql::deadline soon() {
    return std::chrono::steady_clock::now() + 30s;
}

bool built(dialect speaks) {
    try {
        (void)rowlock::open(std::string{to_string(speaks)} + "://localhost/nothing");
    } catch (const rowlock::error& failure) {
        return failure.kind() != rowlock::errc::unsupported;
    }
    return true;
}

/// Unique among the processes that share a server.
std::string unique_name() {
    static std::atomic<int> count{0};
    return "rowlock_scratch_" + std::to_string(::getpid()) + "_" + std::to_string(++count);
}

/// `scheme://user:password@host:port/database?parameters`
struct url_parts {
    explicit url_parts(const std::string& url) {
        const auto user_at = url.find("://") + 3;
        const auto host_at = url.find('@') + 1;
        const auto database_at = url.find('/', host_at) + 1;
        scheme = url.substr(0, user_at);
        user = url.substr(user_at, host_at - 1 - user_at);
        host = url.substr(host_at, database_at - host_at);
        const auto question = url.find('?', database_at);
        if (question != std::string::npos) parameters = url.substr(question);
        database = url.substr(database_at,
                              question == std::string::npos ? question : question - database_at);
    }

    [[nodiscard]] std::string text() const {
        return scheme + user + "@" + host + database + parameters;
    }

    std::string scheme, user, host, database, parameters;
};

class watched_connection final : public rowlock::sql::connection {
public:
    watched_connection(std::shared_ptr<rowlock::sql::connection> inner,
                       std::function<void(std::string_view)> before)
        : inner_{std::move(inner)}, before_{std::move(before)} {}

    [[nodiscard]] dialect speaks() const noexcept override { return inner_->speaks(); }
    rowlock::sql::result execute(const rowlock::sql::statement& what,
                                 std::span<const rowlock::sql::value> parameters,
                                 rowlock::sql::deadline until) override {
        before_(what.text());
        return inner_->execute(what, parameters, until);
    }
    rowlock::sql::result query(std::string_view text, rowlock::sql::deadline until) override {
        before_(text);
        return inner_->query(text, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] bool keeps_session_state() const noexcept override {
        return inner_->keeps_session_state();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

private:
    std::shared_ptr<rowlock::sql::connection> inner_;
    std::function<void(std::string_view)> before_;
};

}  // namespace

std::unique_ptr<scratch_database> scratch_database::make(dialect speaks) {
    if (!built(speaks)) {
        MESSAGE("skipped: this build has no driver for ", std::string{to_string(speaks)});
        return nullptr;
    }
    std::unique_ptr<scratch_database> made{new scratch_database};
    made->speaks_ = speaks;
    made->name_ = unique_name();
    if (speaks == dialect::sqlite) {
        std::string folder = support::memory_folder() + "/rowlock-XXXXXX";
        if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
        made->folder_ = folder;
        made->url_ = "sqlite:" + folder + "/scratch.db";
    } else {
        const auto server = support::url_of(
            speaks == dialect::postgresql ? support::server::postgresql : support::server::mariadb);
        if (!server) return nullptr;
        url_parts parts{*server};
        parts.database = made->name_;
        rowlock::open(*server).connect(soon())->query("create database " + made->name_, soon());
        made->server_url_ = *server;
        made->url_ = parts.text();
    }
    made->source_ = rowlock::open(made->url_);
    return made;
}

scratch_database::~scratch_database() {
    connection_.reset();
    try {
        if (!server_url_.empty()) {
            const auto server = rowlock::open(server_url_).connect(soon());
            server->query(
                "drop database " + name_ + (speaks_ == dialect::postgresql ? " with (force)" : ""),
                soon());
        }
    } catch (const std::exception&) {  // the server stops soon, with all its databases
    }
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

rowlock::sql::connection_source scratch_database::source_as(const std::string& user,
                                                            const std::string& password) const {
    url_parts parts{url_};
    parts.user = user + ":" + password;
    return rowlock::open(parts.text());
}

rowlock::sql::result scratch_database::run(std::string_view sql) {
    if (!connection_) connection_ = source_->connect(soon());
    return connection_->query(sql, soon());
}

std::vector<std::string> scratch_database::tables(std::string_view prefix) {
    const auto rows = [&] {
        switch (speaks_) {
            case dialect::postgresql:
                return run(
                    "select tablename from pg_tables where schemaname not in "
                    "('pg_catalog', 'information_schema') order by 1");
            case dialect::mysql:
                return run(
                    "select table_name from information_schema.tables "
                    "where table_schema = database() order by 1");
            case dialect::sqlite:
                break;
        }
        return run("select name from sqlite_master where type = 'table' order by 1");
    }();
    std::vector<std::string> names;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        if (rows.text(row, 0).starts_with(prefix)) names.emplace_back(rows.text(row, 0));
    }
    return names;
}

rowlock::sql::connection_source watched(const rowlock::sql::connection_source& source,
                                        std::function<void(std::string_view)> before) {
    return rowlock::sql::connection_source{
        source.speaks(),
        [source, before = std::move(before)](rowlock::sql::deadline until) {
            return std::make_unique<watched_connection>(source.connect(until), before);
        },
        source.description()}
        .with_tables(source.tables());
}

rowlock::sql::connection_source lending(std::shared_ptr<rowlock::sql::connection> connection) {
    const auto speaks = connection->speaks();
    return {speaks,
            [connection = std::move(connection)](rowlock::sql::deadline) {
                return std::make_unique<watched_connection>(connection, [](std::string_view) {});
            },
            "a lent connection"};
}

}  // namespace contract
