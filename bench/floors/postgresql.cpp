#include "common/postgresql.hpp"

#include "floors/floors.hpp"

#include <fmt/format.h>
#include <libpq-fe.h>
#include <unistd.h>

#include <stdexcept>

namespace bench {
namespace {

class lease_worker final : public worker {
public:
    lease_worker(const std::string& url, const std::string& table, const std::string& name)
        : session_{url}, name_{name}, owner_{fmt::format("{}:{}", ::getpid(), name)} {
        session_.query("set plan_cache_mode = force_generic_plan");
        session_.prepare("acquire",
                         fmt::format("insert into {} as l (name, owner, token, expires_at) "
                                     "values ($1, $2, 1, clock_timestamp() + '30 s') "
                                     "on conflict (name) do update "
                                     "set owner = excluded.owner, token = l.token + 1, "
                                     "expires_at = excluded.expires_at "
                                     "where l.owner is null "
                                     "or l.expires_at <= clock_timestamp() "
                                     "returning token",
                                     table)
                             .c_str());
        // The setting ends with the statement's transaction: its commit does not wait.
        session_.prepare("release",
                         fmt::format("update {} set owner = null, expires_at = null "
                                     "where name = $1 and owner = $2 and token = $3::bigint "
                                     "and set_config('synchronous_commit', 'off', true) = 'off'",
                                     table)
                             .c_str());
    }

    void turn() override {
        const auto granted = session_.run("acquire", {name_.c_str(), owner_.c_str()});
        if (rows_of(granted) != 1) throw std::runtime_error{"floor: not granted"};
        const char* const token = ::PQgetvalue(granted.get(), 0, 0);
        if (rows_of(session_.run("release", {name_.c_str(), owner_.c_str(), token})) != 1) {
            throw std::runtime_error{"floor: not released"};
        }
    }

private:
    postgresql_session session_;
    std::string name_;
    std::string owner_;
};

class table final : public floor_table {
public:
    explicit table(const std::string& url)
        : url_{url}, session_{url}, name_{fmt::format("floor_{}", ::getpid())} {
        session_.query("drop table if exists " + name_);
        // The settings of rowlock's tables.
        session_.query("create table " + name_ +
                       " (name text collate \"C\" primary key, owner text, token bigint not null, "
                       "expires_at timestamptz) with (fillfactor = 50, vacuum_truncate = off, "
                       "autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02)");
    }
    ~table() override {
        try {
            session_.query("drop table " + name_);
        } catch (const std::exception& failure) {
            fmt::print(stderr, "cannot drop the table {}: {}\n", name_, failure.what());
        }
    }
    std::unique_ptr<worker> lease(const std::string& name) override {
        return std::make_unique<lease_worker>(url_, name_, name);
    }

private:
    std::string url_;
    postgresql_session session_;
    std::string name_;
};

}  // namespace

std::unique_ptr<floor_table> postgresql_floor(const std::string& url) {
    return std::make_unique<table>(url);
}

}  // namespace bench
