#include "floors/floors.hpp"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <stdexcept>

namespace bench {
namespace {

struct close_database {
    void operator()(sqlite3* handle) const { ::sqlite3_close(handle); }
};
struct finalize {
    void operator()(sqlite3_stmt* handle) const { ::sqlite3_finalize(handle); }
};
using database = std::unique_ptr<sqlite3, close_database>;
using statement = std::unique_ptr<sqlite3_stmt, finalize>;

[[noreturn]] void fail(sqlite3* handle) {
    throw std::runtime_error{std::string{"SQLite: "} + ::sqlite3_errmsg(handle)};
}

statement prepared(sqlite3* handle, const std::string& text) {
    sqlite3_stmt* made = nullptr;
    if (::sqlite3_prepare_v3(handle, text.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr) !=
        SQLITE_OK) {
        fail(handle);
    }
    return statement{made};
}

database opened(const std::string& path, const std::string& synchronous) {
    sqlite3* made = nullptr;
    const int code = ::sqlite3_open(path.c_str(), &made);
    database result{made};
    if (code != SQLITE_OK) fail(made);
    ::sqlite3_busy_timeout(made, 60'000);
    for (const std::string& text :
         {std::string{"pragma journal_mode = wal"}, "pragma synchronous = " + synchronous}) {
        if (::sqlite3_exec(made, text.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail(made);
    }
    return result;
}

// The clock of rowlock's statements, in microseconds.
constexpr const char* now = "cast((julianday('now') - 2440587.5) * 86400000000 as integer)";

class lease_worker final : public worker {
public:
    lease_worker(const std::string& path, const std::string& synchronous, const std::string& name)
        : database_{opened(path, synchronous)},
          acquire_{
              prepared(database_.get(),
                       fmt::format("insert into lease as l (name, owner, token, expires_at) "
                                   "values (?, ?, 1, {0} + 30000000) on conflict (name) "
                                   "do update set owner = excluded.owner, token = l.token + 1, "
                                   "expires_at = excluded.expires_at "
                                   "where l.owner is null or l.expires_at <= {0} "
                                   "returning token",
                                   now))},
          release_{prepared(database_.get(),
                            "update lease set owner = null, expires_at = null "
                            "where name = ? and owner = ? and token = ?")},
          name_{name},
          owner_{fmt::format("{}:{}", ::getpid(), name)} {
        bind(acquire_.get());
        bind(release_.get());
    }

    void turn() override {
        if (::sqlite3_step(acquire_.get()) != SQLITE_ROW) {
            throw std::runtime_error{"floor: not granted"};
        }
        const auto token = ::sqlite3_column_int64(acquire_.get(), 0);
        if (::sqlite3_step(acquire_.get()) != SQLITE_DONE) fail(database_.get());
        ::sqlite3_reset(acquire_.get());
        ::sqlite3_bind_int64(release_.get(), 3, token);
        if (::sqlite3_step(release_.get()) != SQLITE_DONE) fail(database_.get());
        if (::sqlite3_changes(database_.get()) != 1) {
            throw std::runtime_error{"floor: not released"};
        }
        ::sqlite3_reset(release_.get());
    }

private:
    void bind(sqlite3_stmt* handle) {
        ::sqlite3_bind_text(handle, 1, name_.c_str(), -1, SQLITE_STATIC);
        ::sqlite3_bind_text(handle, 2, owner_.c_str(), -1, SQLITE_STATIC);
    }

    database database_;
    statement acquire_;
    statement release_;
    std::string name_;
    std::string owner_;
};

class table final : public floor_table {
public:
    table(const std::string& path, const std::string& synchronous)
        : path_{path}, synchronous_{synchronous} {
        const auto handle = opened(path, synchronous);
        const auto made =
            prepared(handle.get(),
                     "create table lease (name text primary key not null, owner text, "
                     "token integer not null, expires_at integer) without rowid");
        if (::sqlite3_step(made.get()) != SQLITE_DONE) fail(handle.get());
    }
    std::unique_ptr<worker> lease(const std::string& name) override {
        return std::make_unique<lease_worker>(path_, synchronous_, name);
    }

private:
    std::string path_;
    std::string synchronous_;
};

}  // namespace

std::unique_ptr<floor_table> sqlite_floor(const std::string& path, const std::string& synchronous) {
    return std::make_unique<table>(path, synchronous);
}

}  // namespace bench
